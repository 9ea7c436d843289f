"""The house's side of the emulated driver's rows: limits are read from them, readings written.

In: the driver's rows, in the order of the rack's GPUs. Out: the limit that each GPU has to keep,
as the driver states it; and, after time has passed, what any NVML program reads of power, energy,
heat, clocks and why they are low.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated.driver_state import GRAPHICS, SM, VIDEO
from rackproof.harness.devices.emulated.gpu import (
    HBM_HOTTER_C,
    IDLE,
    POWER_CAP,
    SLOWDOWN,
    THERMAL,
)
from rackproof.harness.devices.emulated.house.bank import Bank
from rackproof.harness.power.zone import Array

CUT = 3.0
"""Noise is cut at so many standard deviations."""
_COUNTERS = ("energy_mj", "throttled_power_ns", "throttled_hw_thermal_ns", "throttled_thermal_ns")


class Sheet:
    """The rows. Counters go on from what they held."""

    def __init__(self, rows: npt.NDArray[Any], seed: int, sigma: float) -> None:
        """Take them; `sigma` is the relative noise of a power reading, drawn from the seed."""
        self._rows = rows
        self._seed, self._sigma = seed % 2**32, sigma
        self._begin = {name: rows[name].astype(np.float64) for name in _COUNTERS}

    @property
    def hottest(self) -> Array:
        """The greatest temperature at which each GPU may work, C: its margin is counted from it."""
        celsius: Array = self._rows["gpu_max_c"].astype(np.float64)
        return celsius

    def limits(self) -> Array:
        """Return the limit in force for each GPU, W: of its board, in band and out of band."""
        rows = self._rows
        limit = np.minimum(rows["limit_requested_mw"], rows["limit_max_mw"])
        outside = rows["limit_out_of_band_mw"]
        kept: Array = np.where(outside > 0, np.minimum(limit, outside), limit) / 1000.0
        return kept

    def write(self, bank: Bank, moment: int) -> None:
        """Write what the GPUs show at this moment, a whole number that names the noise."""
        rows = self._rows
        noise = np.random.default_rng((self._seed, moment)).standard_normal((2, len(rows)))
        factors = 1.0 + self._sigma * np.clip(noise, -CUT, CUT)
        rows["power_instant_mw"] = np.rint(bank.power * factors[0] * 1000.0)
        rows["power_average_mw"] = np.rint(bank.average * factors[1] * 1000.0)
        celsius = np.rint(bank.temperature)
        rows["temperature_c"] = celsius
        rows["memory_temperature_c"] = celsius + HBM_HOTTER_C
        rows["margin_c"] = rows["gpu_max_c"] - celsius
        clocks, clock = rows["clock_mhz"], np.rint(bank.clock)
        for which in (GRAPHICS, SM, VIDEO):
            clocks[:, which] = clock
        rows["util_gpu"] = rows["util_memory"] = np.rint(100.0 * bank.load)
        rows["event_reasons"] = (
            np.where(bank.load > 0.0, 0, IDLE)
            | np.where(bank.capped, POWER_CAP, 0)
            | np.where(bank.throttled, SLOWDOWN | THERMAL, 0)
        )
        self._count("energy_mj", bank.energy * 1e3)
        self._count("throttled_power_ns", bank.capped_seconds * 1e9)
        for name in ("throttled_hw_thermal_ns", "throttled_thermal_ns"):
            self._count(name, bank.throttled_seconds * 1e9)

    def _count(self, name: str, since: Array) -> None:
        self._rows[name] = np.rint(self._begin[name] + since)
