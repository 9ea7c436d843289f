"""What a rack's own meter showed under a square wave, and what of it belongs into the record.

In: the traces of the rack's GPUs, added up (raw), and what the mains see of them, its store's
charge and its breaker's strain, read at the same moments through what stands around the GPUs
(mitigated). Out: measurements of the rack's power, and its traces for the report, as one text.
A rack that has no such meter says so, and the raw half stands alone.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rackproof.harness.burns import power_noise
from rackproof.harness.burns.base import Run
from rackproof.harness.burns.power_looks import Edge, Key, Points, Stepped
from rackproof.harness.devices.protocol import Host
from rackproof.harness.errors import DeviceError, Unsupported
from rackproof.harness.power.spectrum import Line, Trace, fastest, largest, lines
from rackproof.harness.power.together import tried
from rackproof.harness.power.wave import HALF, Wave

INPUT, CHARGE, STRAIN = "power.rack.input", "power.store.charge", "power.breaker.strain"
FAST_HZ = 5.0  # from here on a store for iteration times has to flatten a wave (PS8)
RAW = ("power.step.line", "power.step.ramp")
MAINS = ("power.step.mains.line", "power.step.mains.ramp")
LEFT = "power.step.mains.left"
STORE = (LEFT, CHARGE)
BREAKER = (STRAIN,)
TRACE = "power.step.trace"
Look = tuple[float, float, float, float]
"""Seconds after the start, W that the mains see, charge, strain; NaN where one was not read."""


@dataclass(slots=True)
class Meter:
    """One rack's meter, and what it said; not `there` where the rack's file has no shelves."""

    host: Host
    subject: str
    there: bool = True
    traces: dict[Key, Points] = field(default_factory=lambda: defaultdict(list))
    edges: list[Edge] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    why: dict[str, DeviceError] = field(default_factory=dict)
    standing: list[float] = field(default_factory=list)

    def look(self, now: float) -> float:
        """Read it; return what the mains see now in W, or NaN."""
        if not self.there:
            return math.nan
        watts, charge, strain = (self._read(metric) for metric in (INPUT, CHARGE, STRAIN))
        self.looks.append((now, watts, charge, strain))
        return watts

    @property
    def noise(self) -> float:
        """The standard deviation of a reading while the load stood, W."""
        return power_noise.sigma(self.standing)

    def _read(self, metric: str) -> float:
        if isinstance(self.why.get(metric), Unsupported):  # it will not be there the next time
            return math.nan
        found = tried(lambda: float(self.host.read(metric, self.subject)))
        if isinstance(found, DeviceError):
            self.why[metric] = found
            return math.nan
        return found

    def need(self, *metrics: str) -> None:
        """Raise why one of the readings failed."""
        for metric in metrics:
            if metric in self.why:
                raise self.why[metric]


@dataclass(frozen=True, slots=True)
class RackShown:
    """One rack: its meter, and what its GPUs showed; `whole` where all did, to the end."""

    meter: Meter
    gpus: Mapping[str, Stepped]
    whole: bool

    def note(self, notes: Run) -> None:
        """Write what it showed."""
        subject, meter = self.meter.subject, self.meter
        if not meter.there:
            self._note_raw(notes)
            return
        notes.read(CHARGE, self._charge, subject)
        notes.read(STRAIN, self._strain, subject)
        if not self.whole:
            error = DeviceError("not all GPUs of the rack were loaded, and seen, to the end")
            for metric in (*RAW, *MAINS, LEFT):
                notes.miss(metric, error, subject)
            return
        raw, mains = self._note_raw(notes), tried(self._mains_lines)
        if isinstance(mains, DeviceError):
            for metric in MAINS:
                notes.miss(metric, mains, subject)
        else:
            self._note_mains(notes, raw, mains)
        notes.read(LEFT, self._left, subject)
        notes.note(TRACE, self._picture(raw, mains), subject)

    def _note_raw(self, notes: Run) -> list[Line]:
        """Write what its GPUs drew together; return their lines."""
        raw, subject = self._raw_lines(), self.meter.subject
        _note_line(notes, "power.step", raw, subject)
        rising = [_rise(own.edges) for own in self._own]
        notes.note("power.step.ramp", fastest(rising) / 1e3, subject)
        return raw

    def _note_mains(self, notes: Run, raw: Sequence[Line], mains: Sequence[Line]) -> None:
        """Write what the mains see, where it stands clear of the meter's noise."""
        subject, rise = self.meter.subject, _rise(self.meter.edges)
        line, made = largest(mains), largest(raw)
        if line is not None and made is not None:
            noise = (self._line_noise(), power_noise.LINE)
            figures = (line.amplitude, made.amplitude, noise)
            notes.read(MAINS[0], lambda: power_noise.clear("the line", *figures), subject)
            notes.note("power.step.mains.frequency", line.frequency, subject)
        own = fastest([_rise(own.edges) for own in self._own])
        step = float(np.median(np.diff([t for t, _ in rise])))
        most = power_noise.of_ramp(self.meter.noise, step)
        notes.read(
            MAINS[1],
            lambda: power_noise.clear("ramp", fastest([rise]), own, (most, power_noise.RAMP)) / 1e3,
            subject,
        )

    def _line_noise(self, key: Key | None = None) -> float:
        traces = self.meter.traces
        counts = [len(own) for k, own in traces.items() if key in (None, k)]
        return power_noise.of_line(self.meter.noise, min(counts))

    @property
    def _own(self) -> Sequence[Stepped]:
        return tuple(self.gpus.values())

    def _raw(self, key: Key) -> list[Points]:
        return [own.traces[key] for own in self._own]

    def _raw_lines(self) -> list[Line]:
        return [f for key in self._own[0].traces for f in lines(self._raw(key), key[1].frequency)]

    def _mains_lines(self) -> list[Line]:
        self.meter.need(INPUT)
        traces = self.meter.traces.items()
        return [line for key, own in traces for line in lines([own], key[1].frequency)]

    def _left(self) -> float:
        """Return which share of a fast wave the mains still see: the largest."""
        self.meter.need(INPUT, CHARGE)
        half = [key for key in self.meter.traces if key[1].duty == HALF]
        fast = [key for key in half if key[1].frequency >= FAST_HZ]
        raw = [_first(self._raw(key), key[1]) for key in fast]
        if min(raw, default=0.0) <= 0.0:
            msg = "the GPUs made no wave"
            raise DeviceError(msg)
        mains = [_first([self.meter.traces[key]], key[1]) for key in fast]
        found = max(seen / made for seen, made in zip(mains, raw, strict=True))
        most = max(self._line_noise(key) / made for key, made in zip(fast, raw, strict=True))
        if most > power_noise.LEFT:
            msg = f"what is left is lost in the meter's noise, which alone makes {most:.2g}"
            raise DeviceError(msg)
        return found

    def _charge(self) -> float:
        """Return how full the store was when it had rested."""
        self.meter.need(CHARGE)
        return self.meter.looks[-1][2]

    def _strain(self) -> float:
        self.meter.need(STRAIN)
        return max(strain for _, _, _, strain in self.meter.looks)

    def _picture(self, raw: Sequence[Line], mains: Sequence[Line] | DeviceError) -> str:
        """Return the traces as JSON: watts are whole numbers, seconds have four decimals."""
        seen = [] if isinstance(mains, DeviceError) else mains
        looks = self.meter.looks
        body = {
            "edge": _edge([own.edges for own in self._own], self.meter.edges),
            "waves": [
                _wave(key[1], self._raw(key), self.meter.traces.get(key, []))
                for key in self._own[0].traces
                if key[0] == 0 and key[1].duty == HALF
            ],
            "lines": {"raw": _lines(raw), "mains": _lines(seen)},
            "looks": {
                "t": [round(look[0], 3) for look in looks],
                "charge": _numbers([look[2] for look in looks], 4),
                "strain": _numbers([look[3] for look in looks], 5),
            },
        }
        return packed(body)


def packed(body: Mapping[str, object]) -> str:
    """Return a picture's data as one text of a record."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False)


def _note_line(notes: Run, name: str, found: Sequence[Line], subject: str) -> None:
    line = largest(found)
    if line is not None:
        notes.note(f"{name}.line", line.amplitude, subject)
        notes.note(f"{name}.frequency", line.frequency, subject)


def _rise(edges: Sequence[Edge]) -> Trace:
    """Return one rising edge out of looks at many: from low, in order of time."""
    order = sorted(edges, key=lambda edge: edge.after)
    return [(0.0, order[0].low), *((edge.after, edge.looked) for edge in order)]


def _first(traces: Sequence[Trace], wave: Wave) -> float:
    """Return the amplitude of the sum of traces at the wave's own frequency, W."""
    return lines(traces, wave.frequency)[0].amplitude


def _numbers(values: Sequence[float], digits: int) -> list[float | None]:
    """Return plain numbers; None for what was not read."""
    return [round(value, digits) if math.isfinite(value) else None for value in values]


def _sum(traces: Sequence[Trace]) -> list[float | None]:
    return _numbers([sum(w for _, w in column) for column in zip(*traces, strict=True)], 0)


def _edge(gpus: Sequence[Sequence[Edge]], mains: Sequence[Edge]) -> dict[str, object]:
    risen = [_rise(edges) for edges in gpus]
    seen = _numbers([watts for _, watts in _rise(mains)], 0) if mains else []
    return {"t": [round(t, 4) for t, _ in risen[0]], "raw": _sum(risen), "mains": seen}


def _wave(wave: Wave, raw: Sequence[Points], mains: Points) -> dict[str, object]:
    """Return one wave as it was sampled: not in order of its phase."""
    return {
        "f": wave.frequency,
        "t": [round(t, 4) for t, _ in raw[0]],
        "raw": _sum(raw),
        "mains": _numbers([watts for _, watts in mains], 0),
    }


def _lines(found: Sequence[Line]) -> list[tuple[float, int]]:
    """Return the largest line of each frequency, the lowest first."""
    largest_of: dict[float, float] = defaultdict(float)
    for line in found:
        key = round(line.frequency, 3)
        largest_of[key] = max(largest_of[key], line.amplitude)
    return [(f, round(watts)) for f, watts in sorted(largest_of.items())]
