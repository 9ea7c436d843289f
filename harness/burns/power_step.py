"""power.step: a square wave of load on all GPUs in phase, swept in frequency and duty.

First the full load that a rack has to carry before it may be pulsed; then edges at 1 Hz, looked
at closely; then a sweep from 0.1 to 20 Hz. Edges are counted and timed with the instantaneous
sensor, since the one that averages over a second does not see them; means come from the energy
counter; the rack's lines and its fastest change come from the sum over its GPUs.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.model import WIDE
from rackproof.harness.power.spectrum import Line, by_rack, fastest, largest, lines
from rackproof.harness.power.together import Together, given, tried
from rackproof.harness.power.wave import HIGH, SAMPLE, Wave, sweep
from rackproof.harness.power.window import PowerWindow, energy

RAMP_S = 2.0
STEADY_S = 120.0  # at full load before pulsing (PS1)
ROUNDS = {"acceptance": 1, "soak": 6}  # sweeps
EDGES, SLOWEST = Wave(1.0, 0.5), Wave(0.1, 0.5)
CYCLES = 10  # of EDGES; the rising edge is looked at this far after it, another one in each
LOOK_S = 0.01  # from one to the next
REST_S = 0.9  # share of a half period after which its level is read
MEAN_S = 10.0  # the energy counter's window (PS4)
RISE = 0.1  # of the limit: a smaller swing is none
OWES = {
    "gpu": (
        "power.steady",
        "power.step.peak",
        "power.step.mean",
        "power.step.edges",
        "power.step.phase",
        "throttled.thermal.share",
        "throttled.brake.share",
        "thermal.margin",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    ),
    "power": ("power.step.line", "power.step.ramp"),
}


@dataclass(slots=True)
class _Edge:
    """One period of EDGES as a GPU's sensor saw it: low before, `looked` after the edge, high."""

    low: float
    after: float
    looked: float
    high: float


@dataclass(slots=True)
class _Stepped:
    """What one GPU showed; `limit` in W. Times of `edges` and `traces` are after their start."""

    limit: float
    window: PowerWindow
    ecc: EccWindow
    steady: float | DeviceError = 0.0
    watts: list[float] = field(default_factory=list)
    margins: list[float | DeviceError] = field(default_factory=list)
    edges: list[_Edge] = field(default_factory=list)
    traces: dict[tuple[int, Wave], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    means: list[float] = field(default_factory=list)
    mark: tuple[float, float | DeviceError] = (0.0, 0.0)
    blind: DeviceError | None = None

    def look(self, device: Device) -> float:
        """Read the power right now; where it cannot be read, keep why, and return NaN."""
        found = tried(lambda: float(device.telemetry.read("power.instant")))
        if isinstance(found, DeviceError):
            self.blind = self.blind or found
            return math.nan
        self.watts.append(found)
        return found

    def seen(self, value: Callable[[], float]) -> float:
        """Return a value that rests on the sensor; raises why it gave none."""
        if self.blind is not None:
            raise self.blind
        return value()

    @property
    def rises(self) -> list[_Edge]:
        """The edges that the sensor saw: the power after is well above that before."""
        return [edge for edge in self.edges if edge.high - edge.low >= RISE * self.limit]

    def delay(self) -> float:
        """Return how long after the edge half of the rise is seen, s; raises a DeviceError."""
        for edge in sorted(self.rises, key=lambda edge: edge.after):
            if edge.looked >= (edge.low + edge.high) / 2.0:
                return edge.after
        msg = f"no rising edge was seen within {CYCLES * LOOK_S:g} s after it was made"
        raise DeviceError(msg)

    def swing(self, wave: Wave) -> float:
        """Return the difference of high and low power under a wave, W."""
        trace = [watts for (_, own), t in self.traces.items() if own == wave for _, watts in t]
        return max(trace) - min(trace)


class _Work:
    """One run of power.step."""

    def __init__(self, crew: Crew, notes: Run) -> None:
        self.crew, self.notes = crew, notes
        self.time = Together(crew)
        self.found: dict[str, _Stepped] = {}

    def of(self, device: Device) -> _Stepped:
        """Return what a GPU showed so far."""
        return self.found[device.gpu.subject]

    def open(self, device: Device) -> None:
        """Open a GPU's windows."""
        limit = device.telemetry.power_limits().current
        own = _Stepped(limit, PowerWindow(device), EccWindow(device, self.notes))
        own.mark = (device.clock.now(), energy(device))
        self.found[device.gpu.subject] = own

    def close_mean(self, device: Device) -> None:
        """Keep the mean power since the last mark where that is long enough; set the next mark."""
        own, now = self.of(device), device.clock.now()
        begun, before = own.mark
        own.margins.append(tried(lambda: float(device.telemetry.read("thermal.margin"))))
        if now - begun < MEAN_S:
            return
        after = energy(device)
        if not isinstance(before, DeviceError) and not isinstance(after, DeviceError):
            own.means.append((after - before) / (now - begun))
        own.mark = (now, after)

    def full(self) -> None:
        """Hold the full load."""
        self.time.load(1.0)
        self.time.wait(RAMP_S)
        self.crew.each(self.open)
        for _ in range(round(STEADY_S / MEAN_S)):
            self.time.step(MEAN_S, self.close_mean)

        def mean(device: Device) -> None:
            self.of(device).steady = tried(self.of(device).window.mean)

        self.crew.each(mean)
        self.time.load(0.0)
        self.time.wait(EDGES.period)

    def edges(self) -> None:
        """Make rising edges; read each GPU before, a little after, and when its level is there."""
        high = EDGES.duty * EDGES.period
        for number in range(CYCLES):
            after = (number + 0.5) * LOOK_S
            low = self.time.step(0.0, lambda device: self.of(device).look(device))
            self.time.load(1.0)
            risen = self.time.now
            looked = self.time.step(
                after,
                lambda device: (self.time.at(device) - risen, self.of(device).look(device)),  # noqa: B023 - used at once
            )
            top = self.time.step(REST_S * high - after, lambda device: self.of(device).look(device))
            for subject, watts in top.items():
                seconds, seen = looked[subject]
                self.found[subject].edges.append(_Edge(low[subject], seconds, seen, watts))
            self.time.wait((1.0 - REST_S) * high)
            self.time.load(0.0)
            self.time.wait(EDGES.period - high)

    def wave(self, round_: int, wave: Wave) -> None:
        """Make one wave, and sample it."""
        begun, passed = self.time.now, 0.0

        def sample(device: Device) -> None:
            own = self.of(device)
            own.traces[round_, wave].append((self.time.at(device) - begun, own.look(device)))

        for at, what in wave.steps():
            if what == SAMPLE:
                self.time.step(at - passed, sample)
            else:
                share = 1.0 if what == HIGH else 0.0
                self.time.step(at - passed, lambda device: device.plane.load(share))  # noqa: B023 - used at once
            passed = at
        self.time.step(wave.seconds - passed, self.close_mean)


def run(crew: Crew, bench: Bench, notes: Run) -> None:
    """Load, pulse, sweep, and write what was seen."""
    work = _Work(crew, notes)
    try:
        work.full()
        work.edges()
        for round_ in range(ROUNDS[notes.settings.level]):
            for wave in sweep():
                work.wave(round_, wave)
    finally:
        work.time.rest()
    here = {subject: own for subject, own in work.found.items() if subject in crew.devices}
    delays = {s: tried(partial(own.seen, own.delay)) for s, own in here.items()}
    crew.each(partial(_note, work, delays))
    for subject in bench.parts(WIDE, "power"):
        _note_rack(work, bench, notes, subject)


def _note(work: _Work, delays: Mapping[str, float | DeviceError], device: Device) -> None:
    """Write what one GPU showed."""
    subject, notes, own = device.gpu.subject, work.notes, work.of(device)
    known = [delay for delay in delays.values() if not isinstance(delay, DeviceError)]
    notes.read("power.steady", lambda: given(own.steady), subject)
    for metric, value in (
        ("power.step.peak", lambda: float(np.percentile(own.watts, 99.9)) / own.limit),
        ("power.step.swing", lambda: own.swing(SLOWEST)),
        ("power.step.edges", lambda: len(own.rises) / len(own.edges)),
    ):
        notes.read(metric, partial(own.seen, value), subject)
    notes.read("power.step.mean", lambda: _worst(own.means) / own.limit, subject)
    notes.read(
        "power.step.phase",
        lambda: abs(given(delays[subject]) - statistics.median(known)),
        subject,
    )
    notes.read("thermal.margin", lambda: min(given(m) for m in own.margins), subject)
    own.window.note(notes)
    own.ecc.close()


def _worst(means: Sequence[float]) -> float:
    if not means:
        msg = "the energy counter gave no mean"
        raise DeviceError(msg)
    return max(means)


def _note_rack(work: _Work, bench: Bench, notes: Run, subject: str) -> None:
    """Write the largest line and the fastest change of one rack, where all its GPUs took part."""
    rack = subject.partition("/")[0]
    due = [gpu for gpu in bench.devices if gpu.startswith(f"{rack}/")]
    if any(gpu not in work.crew.devices or work.found[gpu].blind for gpu in due):
        error = DeviceError("not all GPUs of the rack were loaded, and seen, to the end")
        for metric in OWES["power"]:
            notes.miss(metric, error, subject)
        return
    traces: dict[tuple[int, Wave], dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for gpu in due:
        for key, trace in work.found[gpu].traces.items():
            traces[key][gpu] = trace
    found: list[Line] = []
    for (_, wave), own in traces.items():
        found += lines(by_rack(own, rack), wave.frequency)
    line = largest(found)
    if line is not None:
        notes.note("power.step.line", line.amplitude, subject)
        notes.note("power.step.frequency", line.frequency, subject)
    rising = [[(0.0, e[0].low), *((x.after, x.looked) for x in e)] for e in _sorted(work, due)]
    notes.note("power.step.ramp", fastest(rising) / 1000.0, subject)


def _sorted(work: _Work, due: Sequence[str]) -> list[list[_Edge]]:
    return [sorted(work.found[gpu].edges, key=lambda edge: edge.after) for gpu in due]


SECONDS = RAMP_S + STEADY_S + (CYCLES + 1) * EDGES.period
SWEEP_S = sum(wave.seconds for wave in sweep())

BURN = Burn(
    "power.step",
    "a square wave of load on all GPUs in phase, 0.1 to 20 Hz: edges, peaks, means, lines",
    OWES,
    {level: SECONDS + rounds * SWEEP_S for level, rounds in ROUNDS.items()},
    wide=run,
)
