"""One emulated GPU: its row in the driver, its die, its memory, its own time, its faults.

In: work (`advance` with a load, reads and writes of `hbm`) and the beginnings and ends of runs.
Out: what the driver's row says from then on. All GPUs of a rack work at the same time in the
field and one after the other here, so each has a clock of its own.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.emulated import physics
from rackproof.harness.devices.emulated.bus import bus
from rackproof.harness.devices.emulated.compute import OutputFault
from rackproof.harness.devices.emulated.draw import Noise
from rackproof.harness.devices.emulated.driver_state import (
    AGGREGATE,
    CORRECTED,
    DRAM,
    GRAPHICS,
    SM,
    UNCORRECTED,
    VIDEO,
    VOLATILE,
    Flag,
)
from rackproof.harness.devices.emulated.hbm import Hbm
from rackproof.harness.devices.emulated.identity import Birth
from rackproof.harness.devices.emulated.rows import CLOCK_IDLE_MHZ, Constants
from rackproof.harness.devices.emulated.smoothing import Profile
from rackproof.harness.devices.emulated.wires import Wires
from rackproof.harness.errors import Lost, SpecError
from rackproof.harness.model import Gpu
from rackproof.harness.spec import RackSpec

GRAIN = 2 << 20
"""Memory is claimed in pages of 2 MiB."""
FULL_LOAD_C = 65.0
"""Die temperature at full load where a rack file gives no thermal resistance: assumed."""
COOLANT_C = 25.0
"""Coolant or inlet air where a rack file gives none: assumed."""
COLDEST_C, HOTTEST_C, MOST_W = -273.0, 10_000.0, 1e6
"""What no GPU is beyond, whatever a rack file assumes."""
HBM_HOTTER_C = 4
"""How much hotter than the die the memory reads: assumed."""
_FP32_OF_PEAK, _HBM_OF_PEAK = 0.75, 0.82

SWITCHES = 100
"""Times that power smoothing is switched on for 1 % of its circuit's life: assumed. The driver
counts whole percents, and one that has begun is gone."""

_LOST = int(Flag.LOST)

# NVML's clocks event reasons.
IDLE, POWER_CAP, SLOWDOWN, THERMAL, BRAKE = 0x1, 0x4, 0x8, 0x40, 0x80


Post = Callable[[int, str, float], object]
"""Reports an XID: its code, a text, and when, on the GPU's clock."""


class Erring(Protocol):
    """A planted fault of the products, as the plane sees it."""

    fault_of_output: OutputFault

    def count(self, times: int = 1) -> None:
        """Count errors that were put in."""


class Effect(Protocol):
    """A planted fault as its GPU sees it."""

    def begin(self, check: str, attempt: int) -> None:
        """A run of a burn begins on the GPU."""

    def end(self) -> None:
        """The run is over."""

    def due(self, now: float, utilisation: float) -> float:
        """Return the seconds under this load until the fault changes by itself; inf for never."""
        ...

    def passed(self, now: float, seconds: float, utilisation: float) -> None:
        """`seconds` have passed under `utilisation`; it is `now` on the GPU's clock."""

    def read(self, metric: str, link: int | None) -> None:
        """The driver was asked for `metric`, of the GPU or of one of its links."""


Memory = tuple[Hbm, list[int], set[int]]
"""A memory, what was counted of it, and the addresses that were remapped."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What this die reaches at full clocks: B/s of memory, FLOP/s by precision."""

    memory: float
    arithmetic: dict[str, float]


class EmulatedGpu:
    """The state of one GPU; `row` is a view of its record in the driver's state."""

    def __init__(self, spec: RackSpec, gpu: Gpu, birth: Birth, row: Any, seed: int) -> None:
        self.gpu = gpu
        self.birth = birth
        self.row = row
        self.clock = VirtualClock()
        self.noise = Noise(seed, gpu.subject)
        self.die = physics.Die(part_of(spec, row))
        self.rates = _rates(spec, birth.spread)
        self.bus = bus(spec, int(row["pcie_gen_max"]), int(row["pcie_width_max"]))
        self.slow = 1.0
        self.load = 0.0
        self.keeps_limit = self.keeps_floor = True
        self._smooths = False
        self._switched = 0
        self.errs: Erring | None = None
        self.effects: list[Effect] = []
        self.post: Post | None = None
        self.hbm = Hbm(self.free())
        self.wires = Wires(spec, gpu)
        self._counted = [0, 0, 0]
        self._remapped: set[int] = set()
        self.sync()

    # --- memory ------------------------------------------------------------------------------

    def free(self) -> int:
        """Return the bytes of memory that are free, in whole pages."""
        row = self.row
        free = int(row["memory_total"]) - int(row["memory_used"]) - int(row["memory_reserved"])
        return max(0, free) // GRAIN * GRAIN

    def replace_memory(self) -> None:
        """Begin with fresh memory of the size that the row now gives."""
        self.hbm = Hbm(self.free())
        self._counted = [0, 0, 0]

    def memory(self) -> "Memory":
        """Return the memory with what is known of it, for another place."""
        return self.hbm, self._counted, self._remapped

    def take_memory(self, memory: "Memory") -> None:
        """Have another memory from now on."""
        self.hbm, self._counted, self._remapped = memory

    def count(self, kind: int, errors: int) -> None:
        """Add ECC errors of DRAM, CORRECTED or UNCORRECTED, to the driver's counters."""
        if errors:
            ecc = self.row["ecc"]
            ecc[kind, VOLATILE, DRAM] += errors
            ecc[kind, AGGREGATE, DRAM] += errors

    def collect(self) -> None:
        """Bring what the memory counted since the last call into the row, and raise its XIDs."""
        hbm, seen = self.hbm, self._counted
        now = [hbm.corrected, hbm.uncorrected, len(hbm.incidents)]
        if now == seen:
            return
        self.count(CORRECTED, now[0] - seen[0])
        self.count(UNCORRECTED, now[1] - seen[1])
        fresh = {incident.address for incident in hbm.incidents[seen[2] :]}
        self._counted = now
        for address in sorted(fresh):
            self._uncorrected(address)

    def _uncorrected(self, address: int) -> None:
        """Do what the driver does about an uncorrected error: report, remap, contain."""
        place = f"at byte {address:#x}"
        self.xid(48, f"DBE: an uncorrected error in DRAM {place}")
        if address not in self._remapped:
            self._remapped.add(address)
            self.row["remap_uncorrected"] += 1
            self.row["remap_pending"] = 1
            self.xid(63, f"row remapper: a row is to be remapped {place}")
        self.xid(94, f"contained: the error {place} stays with the program that met it")

    def xid(self, code: int, text: str) -> None:
        """Report an XID of this GPU through the driver."""
        if self.post is not None:
            self.post(code, text, self.clock.now())

    # --- time --------------------------------------------------------------------------------

    def advance(self, seconds: float, utilisation: float = 0.0) -> float:
        """Let `seconds` pass under a load (0..1); return the mean speed of products.

        1 is full clocks and no fault. Raises Lost when the GPU is lost, or gets lost on the way;
        its clock then stands at that time.
        """
        left, done = seconds, 0.0
        self.check()
        while left > 0.0:
            now = self.clock.now()
            step = min([left, *(effect.due(now, utilisation) for effect in self.effects)])
            if step > 0.0:
                self._enforce_limit()
                if self.row["smoothing_enabled"] or self._smooths:
                    self._smooth()
                done += self.die.advance(step, utilisation) * self.slow * step
                self.clock.advance(step)
                self.hbm.rest(step)
                left -= step
            for effect in self.effects:
                effect.passed(self.clock.now(), step, utilisation)
            self.check()
        self.sync()
        return done / seconds if seconds > 0.0 else self.die.speed * self.slow

    def check(self) -> None:
        """Raise Lost when the GPU has fallen off the bus."""
        if self.row["flags"] & _LOST:
            msg = f"{self.gpu.subject} is lost"
            raise Lost(msg)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Begin a run: name its noise, let the faults decide, and wait until the die is cool.

        Where it is earlier than `at` on the GPU's clock, it idles until then.
        """
        self.load = 0.0
        with contextlib.suppress(Lost):  # the first thing that the run asks for says so
            self.advance(max(0.0, at - self.clock.now()))
        self.noise.begin(check, attempt)
        for effect in self.effects:
            effect.begin(check, attempt)
        self._settle()

    def end(self) -> None:
        """End the run: the load is gone."""
        self.load, self.die.trail = 0.0, None
        for effect in self.effects:
            effect.end()
        if not self.row["flags"] & _LOST:
            self.die.advance(0.0, 0.0)
            self.sync()

    def _settle(self) -> None:
        try:
            self.advance(self.die.settle_seconds())
        except Lost:
            return  # the first thing that the run asks for says so
        self.die.rest()
        self.sync()

    @property
    def limit(self) -> float:
        """The power limit that the driver says is in force, W."""
        row = self.row
        limit = min(int(row["limit_requested_mw"]), int(row["limit_max_mw"]))
        outside = int(row["limit_out_of_band_mw"])
        return (min(limit, outside) if outside else limit) / 1000.0

    def _enforce_limit(self) -> None:
        if self.keeps_limit:
            self.die.limit = self.limit

    def _smooth(self) -> None:
        """Let the die follow the driver's smoothing; switching it on wears the circuit."""
        row, enabled = self.row, bool(self.row["smoothing_enabled"])
        if enabled and not self._smooths:
            worn = int(self._switched % SWITCHES == 0)
            self._switched += 1
            row["smoothing_lifetime"] = max(0, int(row["smoothing_lifetime"]) - worn)
        self._smooths = enabled
        if not enabled:
            self.die.smooth(None)
            return
        floor, up, down, hysteresis = map(int, row["smoothing_profiles"][row["smoothing_profile"]])
        watts = self.die.part.power_max * floor / 100.0 if self.keeps_floor else 0.0
        row["smoothing_floor_mw"] = round(watts * 1000.0)
        self.die.smooth(Profile(watts, up / 1000.0, down / 1000.0, hysteresis / 1000.0))

    # --- readings ----------------------------------------------------------------------------

    def sync(self) -> None:
        """Write power, heat, clocks and their causes into the row."""
        row, die = self.row, self.die
        row["power_instant_mw"] = round(die.power * 1000.0 * self.noise.factor("power"))
        row["power_average_mw"] = round(die.average * 1000.0 * self.noise.factor("power"))
        row["energy_mj"] = round(die.energy * 1000.0)
        celsius = round(die.temperature)
        row["temperature_c"] = celsius
        row["memory_temperature_c"] = celsius + HBM_HOTTER_C
        row["margin_c"] = int(row["gpu_max_c"]) - celsius
        clocks = row["clock_mhz"]
        clocks[GRAPHICS] = clocks[SM] = clocks[VIDEO] = round(die.clock)
        busy = die.utilisation > 0.0
        row["util_gpu"] = row["util_memory"] = round(100.0 * die.utilisation)
        row["pstate"] = 0
        row["pcie_gen"] = self.bus.generation(busy=busy)
        row["event_reasons"] = (
            (0 if busy else IDLE)
            | (POWER_CAP if die.capped else 0)
            | (SLOWDOWN | THERMAL if die.throttled else 0)
            | (SLOWDOWN | BRAKE if die.brake else 0)
        )
        row["throttled_power_ns"] = round(die.capped_seconds * 1e9)
        row["throttled_hw_thermal_ns"] = round(die.throttled_seconds * 1e9)
        row["throttled_thermal_ns"] = row["throttled_hw_thermal_ns"]
        row["throttled_brake_ns"] = round(die.braked_seconds * 1e9)


def part_of(spec: RackSpec, row: Any) -> physics.Part:
    """Return what the equations need of the GPU that `row` describes.

    A SpecError for figures that are those of no GPU at all.
    """
    constants = Constants(spec, spec.sku)
    power = int(row["limit_default_mw"]) / 1000.0
    coolant = spec.assumed("coolant_temperature")
    coolant = COOLANT_C if coolant is None else float(coolant)
    resistance = spec.assumed("thermal_resistance")
    idle = constants.number("power_idle")
    full = FULL_LOAD_C if resistance is None else coolant + float(resistance) * power
    for said, value, low, high in (
        ("draws {} W at most", power, 1.0, MOST_W),
        ("draws {} W idle", idle, 0.0, MOST_W),
        ("is cooled at {} C", coolant, COLDEST_C, HOTTEST_C),
        ("comes to {} C under load", full, COLDEST_C, HOTTEST_C),
    ):
        if not low <= value <= high:
            msg = f"{spec.file}: a GPU that {said.format(f'{value:g}')} is none: see [emulation]"
            raise SpecError(msg)
    return physics.Part(
        power_idle=idle,
        power_max=power,
        coolant=coolant,
        full_load=full,
        slowdown=float(row["slowdown_c"]),
        clock_idle=CLOCK_IDLE_MHZ,
        clock_max=constants.number("sm_clock_max"),
    )


def _rates(spec: RackSpec, spread: float) -> Rates:
    """Return what the die reaches, from the rack's [emulation] table or a share of the peaks."""
    arithmetic = {}
    for precision in ("fp32", "tf32", "bf16", "fp16", "fp8"):
        rate = _rate(spec, f"{precision}_rate", precision, _FP32_OF_PEAK)
        if rate is not None:
            arithmetic[precision] = rate * 1e12 * spread
    memory = _rate(spec, "hbm_copy_rate", "hbm_rate", _HBM_OF_PEAK)
    if memory is None or "fp32" not in arithmetic:
        name = "hbm_copy_rate" if memory is None else "fp32_rate"
        msg = f"{spec.file}: nothing to emulate {name} with: add it to [emulation]"
        raise SpecError(msg)
    return Rates(memory * 1e12 * spread, arithmetic)


def _rate(spec: RackSpec, achieved: str, peak: str, share: float) -> float | None:
    value = spec.assumed(achieved)
    if value is not None:
        return float(value)
    top = spec.assumed(peak) if peak != "fp16" else spec.assumed("bf16")
    return None if top is None or not math.isfinite(float(top)) else float(top) * share
