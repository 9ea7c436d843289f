"""thermal.soak: full load on all GPUs until the temperature rises no more.

The slope is that of a straight line through the last window of readings, by least squares; the
soak ends early once it is flat on every GPU. A sensor that states whole degrees needs a long
window: one step of a degree in the middle of two minutes is 0.75 C/min, so the load goes on until
such a step has left the window.
"""

import statistics
from dataclasses import dataclass, field

from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.power.together import Together, given, tried
from rackproof.harness.power.window import PowerWindow

EVERY_S = 3.0  # from one reading to the next
WINDOW_S = 120.0  # of the slope
FLAT = 0.1  # C/min
LONGEST = {"acceptance": 300.0, "soak": 1800.0}  # seconds
SHORTEST = {"acceptance": 180.0, "soak": 1800.0}
OWES = {
    "gpu": (
        "thermal.soak.slope",
        "thermal.soak.temperature",
        "thermal.margin",
        "throttled.thermal.share",
        "throttled.brake.share",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    ),
}


def slope(times: list[float], celsius: list[float]) -> float:
    """Return the slope of the least-squares line, C/min; `times` in seconds, two or more."""
    return statistics.linear_regression(times, celsius).slope * 60.0


@dataclass(slots=True)
class _Soaked:
    """What one GPU showed: times in seconds, temperatures and margins in C."""

    window: PowerWindow
    counters: EccWindow
    times: list[float] = field(default_factory=list)
    celsius: list[float | DeviceError] = field(default_factory=list)
    margin: float | DeviceError = 0.0

    def sample(self, device: Device) -> None:
        """Read temperature and margin."""
        read = device.telemetry.read
        self.times.append(device.clock.now())
        self.celsius.append(tried(lambda: float(read("temperature"))))
        self.margin = tried(lambda: float(read("thermal.margin")))

    def last(self) -> tuple[list[float], list[float]]:
        """Return the times and temperatures of the last window; raises a DeviceError."""
        begin = self.times[-1] - WINDOW_S
        first = next(n for n, time in enumerate(self.times) if time >= begin - 1e-6)
        return self.times[first:], [given(found) for found in self.celsius[first:]]

    def flat(self) -> bool:
        """Say whether the temperature rises no more; where it cannot be read, nothing is due."""
        try:
            return slope(*self.last()) < FLAT
        except DeviceError:
            return True

    def note(self, device: Device, notes: Run) -> None:
        """Write what was found."""
        subject = device.gpu.subject
        notes.read("thermal.soak.slope", lambda: slope(*self.last()), subject)
        steady = tried(self.last)
        notes.read("thermal.soak.temperature", lambda: statistics.fmean(given(steady)[1]), subject)
        notes.read("thermal.margin", lambda: given(self.margin), subject)
        self.window.note(notes)
        self.counters.close()


def soak(crew: Crew, _bench: Bench, notes: Run) -> None:
    """Load all GPUs until they are steady, or the time is over."""
    level = notes.settings.level
    time = Together(crew)
    time.load(1.0)
    try:
        found = crew.each(lambda d: _Soaked(PowerWindow(d), EccWindow(d, notes)))
        while time.now < LONGEST[level]:
            time.step(EVERY_S, lambda device: found[device.gpu.subject].sample(device))
            own = [found[subject] for subject in crew.devices]
            if time.now >= SHORTEST[level] and all(soaked.flat() for soaked in own):
                break
        crew.each(lambda device: found[device.gpu.subject].note(device, notes))
    finally:
        time.rest()


BURNS = (
    Burn(
        "thermal.soak",
        "full load on all GPUs until steady: slope of the temperature, margin, throttle counters",
        OWES,
        LONGEST,
        wide=soak,
    ),
)
