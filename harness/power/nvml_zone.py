"""A power zone in band: GPUs by NVML, and whoever meters their feeds.

In: the GPUs' telemetry, the layout of the feeds, a meter, and a journal. Out: a zone.Zone. What a
GPU drew is the difference of its energy counter between two looks. Each limit that is changed was
written down before, on an emulated rack as on a real one, and `restore` puts it back. An error of
one GPU makes NaN of that GPU's numbers, is kept in `problems`, and never stops the others.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from rackproof.harness.devices.attached import Attached
from rackproof.harness.devices.protocol import PowerLimits, Telemetry
from rackproof.harness.devices.real import POWER_LIMIT
from rackproof.harness.errors import DeviceError
from rackproof.harness.journal import Change, Journal
from rackproof.harness.power.zone import Array, Bounds, Layout, Meter, Sample

T = TypeVar("T")
ENERGY, POWER = "power.energy", "power.average"
SOONEST = 0.1
"""s; energy counters move every 20 to 100 ms: a shorter look would read nothing, or too much."""
STILL = 0.5
"""s without any energy after which a counter is stuck: every GPU that answers draws power."""
MOST = 3.0
"""Times the highest limit: more than any excursion, so a counter that jumped."""
SAME = 0.001
"""W; NVML counts limits in mW."""


class NvmlZone:
    """See zone.Zone. `problems` says by subject why a GPU could not be read, or not be set."""

    def __init__(self, gpus: Attached, layout: Layout, meter: Meter, journal: Journal) -> None:
        """Look at the energy counters for a first time. `gpus` must have all of the layout's."""
        self.layout = layout
        self.clock = gpus.clock
        self.problems: dict[str, str] = {}
        self._uuids = gpus.uuids
        self._telemetry = [gpus.telemetry[subject] for subject in layout.gpus]
        self._meter, self._journal = meter, journal
        self._last = self.clock.now()
        self._base = self._last  # when the counters were read that the next look goes by
        self._energy = self._numbers(ENERGY)
        self._power = np.full(len(layout.gpus), np.nan)
        self._most = MOST * self.bounds().high

    # --- looking --------------------------------------------------------------------------------
    def bounds(self) -> Bounds:
        """Return the limits that the GPUs can be given; NaN for a GPU that does not answer.

        `requested` is what will be put back at the end, where a limit is changed already.
        """
        limits = [self._limits(gpu) for gpu in range(len(self._telemetry))]
        before = {change.uuid: change.was for change in self._journal.changes}
        requested = _column(limits, "requested")
        for gpu, subject in enumerate(self.layout.gpus):
            requested[gpu] = before.get(self._uuids.get(subject, ""), requested[gpu])
        return Bounds(
            low=_column(limits, "low"),
            high=_column(limits, "high"),
            default=_column(limits, "default"),
            requested=requested,
            current=_column(limits, "current"),
        )

    def sample(self) -> Sample:
        """Look at all of it now."""
        self.problems.clear()
        at = self.clock.now()
        seconds, self._last = at - self._last, at
        limits = [self._limits(gpu) for gpu in range(len(self._telemetry))]
        self._look(at)
        meters = self._meter.read(max(0.0, seconds))
        return Sample(
            at=at,
            seconds=seconds,
            gpu=self._power.copy(),
            feed=meters.feed,
            strain=meters.strain,
            trip_in=meters.trip_in,
            ac=meters.ac,
            current=_column(limits, "current"),
            requested=_column(limits, "requested"),
            limit=meters.limit,
        )

    def _look(self, at: float) -> None:
        """Renew the GPUs' mean powers, W; those of the last look stand where it was just now."""
        seconds = at - self._base
        first = bool(np.isnan(self._power).all())
        if 0.0 <= seconds < SOONEST and not first:
            return
        energy = self._numbers(ENERGY)
        if seconds < SOONEST:  # the first look, or a clock that was set back
            self._power = self._numbers(POWER)
        else:
            used = energy - self._energy
            self._power = used / seconds
            wrong = (used < 0.0) | (self._power > self._most)
            wrong |= (used == 0.0) & (seconds >= STILL)
            self._power[wrong] = np.nan
            for gpu in np.flatnonzero(wrong):
                self.problems[self.layout.gpus[gpu]] = "its energy counter stands still, or jumps"
        self._base, self._energy = at, energy

    def _numbers(self, metric: str) -> Array:
        read = [
            self._try(gpu, lambda each: each.read(metric)) for gpu in range(len(self._telemetry))
        ]
        return np.array([float(v) if isinstance(v, int | float) else math.nan for v in read])

    def _limits(self, gpu: int) -> PowerLimits | None:
        return self._try(gpu, lambda telemetry: telemetry.power_limits())

    def _try(self, gpu: int, ask: Callable[[Telemetry], T]) -> T | None:
        try:
            return ask(self._telemetry[gpu])
        except DeviceError as error:
            self.problems[self.layout.gpus[gpu]] = str(error)
            return None

    # --- acting ---------------------------------------------------------------------------------
    def ask(self, caps: Array) -> Array:
        """Ask for a power limit of each GPU, W, brought within what it can be given.

        NaN leaves one alone. Returns what is in force then, read back: NaN where it was refused or
        cannot be read, and for those that were left alone. Nothing is changed where what it was
        cannot be written down first.
        """
        self.problems.clear()
        asked = [int(gpu) for gpu in np.flatnonzero(~np.isnan(caps))]
        limits = {gpu: self._limits(gpu) for gpu in asked}
        known = {gpu: limit for gpu, limit in limits.items() if limit is not None}
        got = np.full(len(caps), np.nan)
        if not self._written(known):
            return got
        for gpu, limit in known.items():
            watts = float(caps[gpu])
            if math.isfinite(watts):
                watts = min(max(watts, limit.low), limit.high)
            self._set(gpu, watts, limit, got)
        return got

    def _written(self, known: Mapping[int, PowerLimits]) -> bool:
        """Write down what was requested before; return whether the limits may be changed."""
        own = [(gpu, self._uuids[self.layout.gpus[gpu]], known[gpu].requested) for gpu in known]
        try:
            self._journal.keep(*(Change(uuid, POWER_LIMIT, was) for _, uuid, was in own))
        except DeviceError as error:
            for gpu, _, _ in own:
                self.problems[self.layout.gpus[gpu]] = str(error)
            return False
        return True

    def _set(self, gpu: int, watts: float, limit: PowerLimits, got: Array) -> None:
        if not math.isfinite(watts) or not limit.low <= watts <= limit.high:
            self.problems[self.layout.gpus[gpu]] = f"cannot be given a limit of {watts:g} W"
            return
        if abs(limit.requested - watts) <= SAME:
            got[gpu] = limit.current
            return
        now = self._try(gpu, lambda telemetry: telemetry.set_power_limit(watts))
        if now is not None:
            got[gpu] = now

    # --- the end --------------------------------------------------------------------------------
    @property
    def changed(self) -> int:
        """How many GPUs have another limit than they had, by our doing."""
        return len(self._journal.changes)

    def restore(self) -> str:
        """Put back every limit that was changed; return what went wrong, which stays written down.

        A limit from out of band is not touched: what is put back is what was requested in band.
        """
        try:
            self._journal.restore()
        except DeviceError as error:
            return f"{self.changed} limits could not be put back: {error}"
        return ""


def _column(limits: list[PowerLimits | None], name: str) -> Array:
    return np.array([math.nan if each is None else getattr(each, name) for each in limits])
