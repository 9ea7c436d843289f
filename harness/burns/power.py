"""power.steady and power.cap: do all GPUs draw what they ought to, and no more than they may.

Both load all GPUs at once, as a rack is loaded in the field. power.steady holds the full load and
compares two ways to measure it: the energy counter, and the instantaneous power, sampled at a
distance that is no multiple of the sensor's period. power.cap steps the power limit down and up
under full load and looks whether it is said, enforced and kept; the limit that was there comes
back at the end, on any exception, and on a signal that ends the run.
"""

import contextlib
import statistics
from dataclasses import dataclass, field
from functools import partial

from rackproof.harness.burns import power_smoothing, power_step
from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device, PowerLimits
from rackproof.harness.errors import DeviceError, OverTime
from rackproof.harness.power.together import Together, given, tried
from rackproof.harness.power.wave import SENSOR_S
from rackproof.harness.power.window import PowerWindow

RAMP_S = 2.0  # from idle to a steady load, with room for what a GPU does at first
SAMPLE_S = 7.3 * SENSOR_S  # no multiple of the sensor's period is near
STEADY = {"acceptance": 120.0, "soak": 600.0}  # seconds at full load
WATCH_EVERY = 40  # samples between two looks at the margin
HELD = ("throttled.thermal.share", "throttled.brake.share")
ECC = ("ecc.corrected.delta", "ecc.uncorrected.delta", "xid.count")
OWES_STEADY = {"gpu": ("power.steady", "power.agreement", *HELD, "thermal.margin", *ECC)}
OWES_CAP = {"gpu": ("power.cap.held", "power.cap.readback", "power.cap.restored", "xid.count")}

STEPS = (0.85, 0.7, 0.55, 0.7, 0.85, 1.0)  # of the default limit: down, then up
AFTER_S = 2.0  # after a step it has to be kept
SAMPLES = 10  # of the power then
SAMPLED_S = 1.7 * SENSOR_S  # from one to the next
NEAR_W = 1.0  # a limit that is read back this near is the one that was asked for


# --- power.steady --------------------------------------------------------------------------------
@dataclass(slots=True)
class _Steady:
    """What one GPU showed in the window."""

    window: PowerWindow
    ecc: EccWindow
    watts: list[float | DeviceError] = field(default_factory=list)
    margins: list[float | DeviceError] = field(default_factory=list)

    def sample(self, device: Device) -> None:
        """Read the power right now, and sometimes the margin."""
        read = device.telemetry.read
        if len(self.watts) % WATCH_EVERY == 0:
            self.margins.append(tried(lambda: float(read("thermal.margin"))))
        self.watts.append(tried(lambda: float(read("power.instant"))))

    def note(self, device: Device, notes: Run) -> None:
        """Write what was found."""
        subject = device.gpu.subject
        mean = tried(self.window.mean)
        notes.read("power.steady", lambda: given(mean), subject)
        notes.read("power.agreement", lambda: self._agreement(given(mean)), subject)
        notes.read("thermal.margin", lambda: min(given(m) for m in self.margins), subject)
        self.window.note(notes)
        self.ecc.close()

    def _agreement(self, mean: float) -> float:
        sampled = statistics.fmean(given(watts) for watts in self.watts)
        if sampled <= 0.0 or mean <= 0.0:
            msg = f"the GPU draws {sampled:g} W by its sensor and {mean:g} W by its counter"
            raise DeviceError(msg)
        return abs(mean / sampled - 1.0)


def steady(crew: Crew, _bench: Bench, notes: Run) -> None:
    """Load all GPUs fully and compare counter and sensor."""
    time = Together(crew)
    time.load(1.0)
    try:
        time.wait(RAMP_S)
        looks = crew.each(
            lambda d: _Steady(PowerWindow(d), EccWindow(d, notes)),
        )
        for _ in range(round(STEADY[notes.settings.level] / SAMPLE_S)):
            time.step(SAMPLE_S, lambda device: looks[device.gpu.subject].sample(device))
        crew.each(lambda device: looks[device.gpu.subject].note(device, notes))
    finally:
        time.rest()


# --- power.cap -----------------------------------------------------------------------------------
def ask(device: Device, watts: float) -> float:
    """Ask for a power limit; return the one in force then. Every change goes through here."""
    return device.telemetry.set_power_limit(watts)


class Kept:
    """The limits that were there, and the way back to them."""

    def __init__(self, crew: Crew) -> None:
        """Read the limits of all; nothing is changed yet."""
        self.before: dict[str, PowerLimits] = crew.each(lambda d: d.telemetry.power_limits())
        self._devices = dict(crew.devices)
        self._changed: dict[str, None] = {}

    def change(self, device: Device, watts: float) -> float:
        """Ask for a limit, and remember that it has to be put back."""
        self._changed[device.gpu.subject] = None
        return ask(device, watts)

    def restore(self) -> None:
        """Put every limit back that was changed; more calls do nothing.

        A GPU that cannot be reached keeps its limit, and its reading after the burn says so. One
        call that is refused because the burn's time is over is made again.
        """
        while self._changed:
            subject, _ = self._changed.popitem()
            device, watts = self._devices[subject], self.before[subject].requested
            with contextlib.suppress(DeviceError):
                try:
                    ask(device, watts)
                except OverTime:
                    ask(device, watts)


@dataclass(slots=True)
class _Capped:
    """What one GPU did with the limits that it was given."""

    worst: float = 0.0
    told: bool = True
    blind: DeviceError | None = None

    def held(self) -> float:
        """Return the worst power over its limit; raises why it could not be seen."""
        if self.blind is not None:
            raise self.blind
        return self.worst


def cap(crew: Crew, _bench: Bench, notes: Run) -> None:
    """Step the limit of all GPUs down and up, and put back what was there."""
    kept = Kept(crew)
    found = {subject: _Capped() for subject in crew.devices}
    time = Together(crew)
    try:
        time.load(1.0)
        time.wait(RAMP_S)
        for share in STEPS:
            _one_step(time, kept, found, share)
    finally:
        kept.restore()
        time.rest()
    for subject, capped in found.items():
        if subject in crew.devices:
            notes.read("power.cap.held", capped.held, subject)
            notes.note("power.cap.readback", int(capped.told), subject)
    crew.each(partial(_note_restored, kept, notes))


def _one_step(time: Together, kept: Kept, found: dict[str, _Capped], share: float) -> None:
    """Set one limit on all, let it act, and look whether it is kept."""

    def set_(device: Device) -> float:
        before = kept.before[device.gpu.subject]
        watts = float(round(min(before.high, max(before.low, share * before.default))))
        kept.change(device, watts)
        read = device.telemetry.power_limits()
        told = abs(read.requested - watts) <= NEAR_W and abs(read.current - watts) <= NEAR_W
        found[device.gpu.subject].told &= told
        return min(watts, read.current)

    limits = time.crew.each(set_)
    sums = dict.fromkeys(limits, 0.0)

    def look(device: Device) -> None:
        watts = tried(lambda: float(device.telemetry.read("power.instant")))
        if isinstance(watts, DeviceError):
            found[device.gpu.subject].blind = watts
        else:
            sums[device.gpu.subject] += watts

    time.wait(AFTER_S)
    for _ in range(SAMPLES):
        time.step(SAMPLED_S, look)
    for subject, total in sums.items():
        own = found[subject]
        own.worst = max(own.worst, total / SAMPLES / limits[subject])


def _note_restored(kept: Kept, notes: Run, device: Device) -> None:
    subject = device.gpu.subject
    wanted = kept.before[subject].requested

    def same() -> int:
        return int(abs(device.telemetry.power_limits().requested - wanted) <= NEAR_W)

    notes.read("power.cap.restored", same, subject)


CAP_S = RAMP_S + len(STEPS) * (AFTER_S + SAMPLES * SAMPLED_S)

BURNS = (
    Burn(
        "power.steady",
        "full load on all GPUs: power by counter and by sensor, throttle counters, margin",
        OWES_STEADY,
        {level: RAMP_S + seconds for level, seconds in STEADY.items()},
        wide=steady,
    ),
    power_step.BURN,
    Burn(
        "power.cap",
        "the power limit in steps down and up under full load: read back, kept, put back",
        OWES_CAP,
        dict.fromkeys(STEADY, CAP_S),
        wide=cap,
        changes=True,
    ),
    power_smoothing.BURN,
)
