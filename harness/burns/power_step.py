"""power.step: a square wave of load on all GPUs in phase, swept in frequency and duty.

First the full load that a rack has to carry before it may be pulsed; then edges at 1 Hz, looked
at closely; then a sweep from 0.1 to 20 Hz. Edges are counted and timed with the instantaneous
sensor, since the one that averages over a second does not see them, which is looked at as well;
means come from the energy counter; the rack's lines and its fastest change come from the sum over
its GPUs (raw) and, where the rack has a meter, from what the mains see of it (mitigated). At the
end all rests for a minute, in which a store has to come back to half charge.

Its criteria are PS1 to PS11: diagnostics/criteria.py says which metric stands for which.
"""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.burns.power_looks import HIDDEN, SLOWEST, Edge, Stepped
from rackproof.harness.burns.power_rack import (
    BREAKER,
    CHARGE,
    MAINS,
    RAW,
    STORE,
    Meter,
    RackShown,
    packed,
)
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.model import WIDE
from rackproof.harness.power.together import Together, given, tried
from rackproof.harness.power.wave import HIGH, SAMPLE, Wave, sweep
from rackproof.harness.power.window import PowerWindow, energy

RAMP_S = 2.0
STEADY_S = 120.0  # at full load before pulsing (PS1)
ROUNDS = {"acceptance": 1, "soak": 6}  # sweeps
EDGES = Wave(1.0, 0.5)
RECOVER_S, RECOVERS_S = 60.0, 5.0  # for which the stores may rest (PS11), and between two looks
CYCLES = 10  # of EDGES; the rising edge is looked at this far after it, another one in each
LOOK_S = 0.01  # from one to the next
REST_S = 0.9  # share of a half period after which its level is read
MEAN_S = 10.0  # the energy counter's window (PS4)
OWES = {
    "gpu": (
        "power.steady",
        "power.step.capped",
        "power.step.peak",
        "power.step.mean",
        "power.step.edges",
        "power.step.phase",
        "power.step.seen.instant",
        "power.step.seen.average",
        "throttled.thermal.share",
        "throttled.brake.share",
        "thermal.margin",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    ),
    "power": (*RAW, *MAINS, *STORE, *BREAKER),
}


class _Work:
    """One run of power.step."""

    def __init__(self, crew: Crew, bench: Bench, notes: Run) -> None:
        self.crew, self.notes = crew, notes
        self.time = Together(crew)
        self.found: dict[str, Stepped] = {}
        host = bench.around
        self.meters = [Meter(host, each) for each in bench.parts(WIDE, "power")]
        if not self.meters:
            self.meters = [
                Meter(host, f"{rack}/power", there=False) for rack in _whole(crew, bench)
            ]

    def of(self, device: Device) -> Stepped:
        """Return what a GPU showed so far."""
        return self.found[device.gpu.subject]

    def meter(self) -> list[float]:
        """Read every rack's meter now; return what the mains see of each, W."""
        return [meter.look(self.time.now) for meter in self.meters]

    def open(self, device: Device) -> None:
        """Open a GPU's windows."""
        limit = device.telemetry.power_limits().current
        own = Stepped(limit, PowerWindow(device), EccWindow(device, self.notes))
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
        self.meter()
        self.time.load(1.0)
        self.time.wait(RAMP_S)
        self.crew.each(self.open)
        for _ in range(round(STEADY_S / MEAN_S)):
            self.time.step(MEAN_S, self.close_mean)
            for meter, watts in zip(self.meters, self.meter(), strict=True):
                meter.standing.append(watts)

        def close(device: Device) -> None:
            own = self.of(device)
            own.steady = tried(own.window.mean)
            own.held = tried(lambda: own.window.share("throttled.cap.share"))

        self.crew.each(close)
        self.time.load(0.0)
        self.time.wait(EDGES.period)

    def edges(self) -> None:
        """Make rising edges; read each GPU before, a little after, and when its level is there."""
        high = EDGES.duty * EDGES.period
        for number in range(CYCLES):
            after = (number + 0.5) * LOOK_S
            low = self.time.step(0.0, lambda device: self.of(device).look(device))
            seen = [self.meter()]
            self.time.load(1.0)
            risen = self.time.now
            looked = self.time.step(
                after,
                lambda device: (self.time.at(device) - risen, self.of(device).look(device)),  # noqa: B023 - used at once
            )
            seen.append(self.meter())
            top = self.time.step(REST_S * high - after, lambda device: self.of(device).look(device))
            seen.append(self.meter())
            for subject, watts in top.items():
                seconds, saw = looked[subject]
                self.found[subject].edges.append(Edge(low[subject], seconds, saw, watts))
            for meter, *three in zip(self.meters, *seen, strict=True):
                before, then, level = three
                meter.edges.append(Edge(before, after, then, level))
            self.time.wait((1.0 - REST_S) * high)
            self.time.load(0.0)
            self.time.wait(EDGES.period - high)

    def lead(self, wave: Wave) -> None:
        """Make a wave for a while without a look at it."""
        low = (1.0 - wave.duty) * wave.period
        for number in range(wave.lead):
            self.time.step(low if number else 0.0, lambda device: device.plane.load(1.0))
            self.time.step(wave.duty * wave.period, lambda device: device.plane.load(0.0))
        self.time.wait(low if wave.lead else 0.0)

    def wave(self, round_: int, wave: Wave) -> None:
        """Make one wave, and sample it."""
        self.lead(wave)
        begun, passed = self.time.now, 0.0

        def sample(device: Device) -> None:
            self.of(device).sample(device, (round_, wave), self.time.at(device) - begun)

        for at, what in wave.steps():
            if what == SAMPLE:
                self.time.step(at - passed, sample)
                for meter, watts in zip(self.meters, self.meter(), strict=True):
                    meter.traces[round_, wave].append((at, watts))
            else:
                share = 1.0 if what == HIGH else 0.0
                self.time.step(at - passed, lambda device: device.plane.load(share))  # noqa: B023 - used at once
            passed = at
        self.time.step(wave.seconds - passed, self.close_mean)

    def recover(self) -> None:
        """Let the stores come back, where anybody sees that they do."""
        self.time.load(0.0)
        if all(CHARGE in meter.why or not meter.there for meter in self.meters):
            return
        for _ in range(round(RECOVER_S / RECOVERS_S)):
            self.time.wait(RECOVERS_S)
            self.meter()


def _whole(crew: Crew, bench: Bench) -> list[str]:
    """Return the racks all of whose GPUs take part."""
    racks = dict.fromkeys(gpu.subject.partition("/")[0] for gpu in bench.spec.gpus)
    absent = {gpu.subject.partition("/")[0] for gpu in bench.spec.gpus
              if gpu.subject not in crew.devices}  # fmt: skip
    return [rack for rack in racks if rack not in absent]


def run(crew: Crew, bench: Bench, notes: Run) -> None:
    """Load, pulse, sweep, and write what was seen."""
    work = _Work(crew, bench, notes)
    try:
        work.full()
        work.edges()
        for round_ in range(ROUNDS[notes.settings.level]):
            for wave in sweep():
                work.wave(round_, wave)
        work.recover()
    finally:
        work.time.rest()
    here = {subject: own for subject, own in work.found.items() if subject in crew.devices}
    delays = {s: tried(partial(own.seen, own.delay)) for s, own in here.items()}
    crew.each(partial(_note, work, delays))
    for meter in work.meters:
        shown = _rack(work, bench, meter)
        if shown.whole or meter.there:
            shown.note(notes)
    _note_sensors(work, notes)


def _note(work: _Work, delays: Mapping[str, float | DeviceError], device: Device) -> None:
    """Write what one GPU showed."""
    subject, notes, own = device.gpu.subject, work.notes, work.of(device)
    known = [delay for delay in delays.values() if not isinstance(delay, DeviceError)]
    notes.read("power.steady", lambda: given(own.steady), subject)
    for metric, value in (
        ("power.step.peak", lambda: float(np.percentile(own.watts, 99.9)) / own.limit),
        ("power.step.swing", lambda: own.swing(SLOWEST)),
        ("power.step.edges", lambda: len(own.rises) / len(own.edges)),
        ("power.step.seen.instant", own.instant),
        ("power.step.seen.average", own.average),
    ):
        notes.read(metric, partial(own.seen, value), subject)
    notes.read("power.step.capped", own.capped, subject)
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


def _rack(work: _Work, bench: Bench, meter: Meter) -> RackShown:
    """Return one rack with all its GPUs, where all of them took part."""
    rack = meter.subject.partition("/")[0]
    due = [gpu for gpu in bench.devices if gpu.startswith(f"{rack}/")]
    found = work.found
    whole = all(gpu in work.crew.devices and not found[gpu].blind for gpu in due)
    return RackShown(meter, {gpu: found[gpu] for gpu in due if whole}, whole)


def _note_sensors(work: _Work, notes: Run) -> None:
    """Write what both sensors of the first GPU of each rack showed, for the report."""
    told: set[str] = set()
    for subject, own in work.found.items():
        rack = subject.partition("/")[0]
        if subject not in work.crew.devices or own.blind or rack in told:
            continue
        told.add(rack)
        waves = [
            {
                "f": wave.frequency,
                "t": [round(t, 4) for t, _ in own.traces[0, wave]],
                "instant": [round(watts) for _, watts in own.traces[0, wave]],
                "average": [round(watts) for _, watts in own.averages[0, wave]],
            }
            for wave in (SLOWEST, *HIDDEN)
        ]
        notes.note("power.step.sensors", packed({"waves": waves}), subject)


SECONDS = RAMP_S + STEADY_S + (CYCLES + 1) * EDGES.period + RECOVER_S
SWEEP_S = sum(wave.seconds + wave.lead * wave.period for wave in sweep())

BURN = Burn(
    "power.step",
    "a square wave of load on all GPUs in phase, 0.1 to 20 Hz: edges, peaks, means, lines",
    OWES,
    {level: SECONDS + rounds * SWEEP_S for level, rounds in ROUNDS.items()},
    wide=run,
)
