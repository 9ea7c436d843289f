"""power.smoothing: does power smoothing do to a square wave what its profile says (PS7).

The same waves twice, without smoothing and with it: it is switched on with the preset profile of
the highest floor, the GPU is loaded until its ramp is over, and the power may then swing by no
more than 1 - floor of the TDP and a tenth. Only waves are made whose low half is shorter than the
profile holds its floor. At the end, on any exception, and on a signal that ends the run, smoothing
is as it was.

Each switching on wears a circuit of the GPU, which nothing undoes: what is left of its life is read
before and after, and a GPU with less than LEAST_LIFE is refused. On real GPUs the user must allow
the burn.
"""

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial

from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.power_looks import Points
from rackproof.harness.burns.power_rack import packed
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device, Smoothing, SmoothingProfile
from rackproof.harness.errors import DeviceError, OverTime
from rackproof.harness.model import WIDE
from rackproof.harness.power.spectrum import largest, lines
from rackproof.harness.power.together import Together, given, tried
from rackproof.harness.power.wave import HIGH, SAMPLE, Wave
from rackproof.harness.spec import RackSpec

LEAST_LIFE = 0.2
"""A GPU with less of its circuit's life left is not switched on: rackproof's proposal."""
WAVES = (Wave(0.2, 0.5), Wave(1.0, 0.5), Wave(2.0, 0.5))
HELD = 0.9  # of the hysteresis: a low half that is longer is not held at the floor for sure
RAMP_S = 4.0  # at full load before the waves; the ramp of a GPU that takes longer is not over then
SMOOTHED = ("Blackwell", "Rubin")
PARTS = ("Ampere", "Ada", "Hopper", *SMOOTHED)
OWES = {"gpu": ("power.smoothing.excess", "power.smoothing.restored", "xid.count")}
OFF, ON = "off", "on"


def lacks(spec: RackSpec) -> str:
    """Return why a rack's GPUs have no power smoothing, or an empty text."""
    part = spec.sku.text("architecture")
    if part not in PARTS or part in SMOOTHED:  # one that nobody knows is asked
        return ""
    return f"power smoothing came with Blackwell, and {spec.sku.key} is {part}"


def chosen(state: Smoothing) -> int:
    """Return the number of the profile with the highest floor; raises DeviceError for none."""
    floors = [profile.floor for profile in state.profiles]
    most = max(floors, default=0.0)
    if most <= 0.0:
        msg = "no profile of power smoothing has a floor: an administrator has to set one"
        raise DeviceError(msg)
    if state.lifetime < LEAST_LIFE:
        msg = f"{state.lifetime:.0%} are left of the life of its smoothing circuit, and switching"
        msg += f" it on takes more of it: refused below {LEAST_LIFE:.0%}"
        raise DeviceError(msg)
    return floors.index(most)


@dataclass(slots=True)
class _Smoothed:
    """One GPU: how it was, what was chosen, and its waves by (OFF or ON, wave)."""

    before: Smoothing
    number: int
    tdp: float
    traces: dict[tuple[str, Wave], Points] = field(default_factory=lambda: defaultdict(list))
    blind: DeviceError | None = None
    switched: DeviceError | None = None

    @property
    def profile(self) -> SmoothingProfile:
        """The profile that was chosen."""
        return self.before.profiles[self.number]

    @property
    def waves(self) -> list[Wave]:
        """The waves through whose low half it is held at its floor."""
        held = HELD * self.profile.hysteresis
        return [wave for wave in WAVES if (1.0 - wave.duty) * wave.period <= held]

    def swing(self, state: str) -> float:
        """Return its largest swing, W; raises why there is none."""
        for error in (self.blind, self.switched if state == ON else None):
            if error is not None:
                raise error
        found = []
        for wave in self.waves:
            watts = [watts for _, watts in self.traces[state, wave]]
            found.append(max(watts) - min(watts))
        if not found:
            msg = f"its profile holds the floor for {self.profile.hysteresis:g} s, too short for a "
            raise DeviceError(msg + "wave that can be sampled")
        return max(found)

    def excess(self) -> float:
        """Return how far the swing exceeds 1 - floor, over the TDP."""
        return self.swing(ON) / self.tdp - (1.0 - self.profile.floor)


class _Work:
    """One run of power.smoothing."""

    def __init__(self, crew: Crew, notes: Run) -> None:
        self.time, self.notes = Together(crew), notes
        self.found: dict[str, _Smoothed] = {}
        self._devices = dict(crew.devices)
        self._changed: dict[str, None] = {}

    def choose(self, device: Device) -> None:
        """Look at one GPU, and write why it cannot be smoothed where it cannot."""
        subject = device.gpu.subject

        def look() -> _Smoothed:
            state = device.telemetry.smoothing()
            return _Smoothed(state, chosen(state), device.telemetry.power_limits().default)

        found = tried(look)
        if isinstance(found, DeviceError):
            for metric in OWES["gpu"][:-1]:
                self.notes.miss(metric, found, subject)
        else:
            self.found[subject] = found

    def switch(self, device: Device) -> None:
        """Switch it on where it was looked at."""
        own = self.found.get(device.gpu.subject)
        if own is None:
            return
        self._changed[device.gpu.subject] = None

        def on() -> None:
            now = device.telemetry.set_smoothing(enabled=True, profile=own.number)
            if not now.enabled or now.active != own.number:
                msg = f"smoothing reads {now.enabled} by profile {now.active} after it was asked on"
                raise DeviceError(msg)

        outcome = tried(on)
        own.switched = outcome if isinstance(outcome, DeviceError) else None

    def restore(self) -> None:
        """Put back what was changed; as power.Kept, one call that is refused is made again."""
        while self._changed:
            subject, _ = self._changed.popitem()
            device, was = self._devices[subject], self.found[subject].before
            back = partial(device.telemetry.set_smoothing, enabled=was.enabled, profile=was.active)
            with contextlib.suppress(DeviceError):
                try:
                    back()
                except OverTime:
                    back()

    def waves(self, state: str) -> None:
        """Load all until a ramp is over, and make the waves that somebody can be held through."""
        self.time.load(1.0)
        self.time.wait(RAMP_S)
        made = {wave for own in self.found.values() for wave in own.waves}
        for wave in WAVES:
            if wave in made:
                self._wave(state, wave)
        self.time.load(0.0)

    def _wave(self, state: str, wave: Wave) -> None:
        begun, passed = self.time.now, 0.0

        def sample(device: Device) -> None:
            own = self.found.get(device.gpu.subject)
            if own is None:
                return
            watts = tried(lambda: float(device.telemetry.read("power.instant")))
            if isinstance(watts, DeviceError):
                own.blind = own.blind or watts
            else:
                own.traces[state, wave].append((self.time.at(device) - begun, watts))

        for at, what in wave.steps():
            share = 1.0 if what == HIGH else 0.0
            work = sample if what == SAMPLE else partial(_load, share)
            self.time.step(at - passed, work)
            passed = at
        self.time.wait(wave.seconds - passed)


def _load(share: float, device: Device) -> None:
    device.plane.load(share)


def run(crew: Crew, bench: Bench, notes: Run) -> None:
    """Make the waves without and with smoothing, and put back what was there."""
    work = _Work(crew, notes)
    crew.each(work.choose)
    if not work.found:
        return
    try:
        work.waves(OFF)
        work.time.wait(RAMP_S)
        crew.each(work.switch)
        work.waves(ON)
    finally:
        work.restore()
        work.time.rest()
    crew.each(partial(_note, work))
    for subject in bench.parts(WIDE, "power"):
        _note_rack(work, bench, subject)


def _note(work: _Work, device: Device) -> None:
    """Write what one GPU showed."""
    subject, notes = device.gpu.subject, work.notes
    own = work.found.get(subject)
    if own is None:
        return
    notes.read("power.smoothing.excess", own.excess, subject)
    notes.read("power.smoothing.swing", partial(own.swing, ON), subject)
    if not own.before.enabled:
        notes.read("power.smoothing.bare", partial(own.swing, OFF), subject)
    notes.note("power.smoothing.floor", own.profile.floor, subject)
    after = tried(device.telemetry.smoothing)
    notes.read("power.smoothing.lifetime", lambda: 100.0 * given(after).lifetime, subject)
    was = (own.before.enabled, own.before.active)
    notes.read(
        "power.smoothing.restored",
        lambda: int((given(after).enabled, given(after).active) == was),
        subject,
    )
    if subject == next(iter(work.found)) and own.blind is None:
        notes.note("power.smoothing.trace", _picture(own), subject)


def _note_rack(work: _Work, bench: Bench, subject: str) -> None:
    """Write the largest line of a rack with smoothing, where all its GPUs were smoothed."""
    rack = subject.partition("/")[0]
    due = [work.found.get(gpu) for gpu in bench.devices if gpu.startswith(f"{rack}/")]
    own = [each for each in due if each is not None and each.blind is None]
    if len(own) < len(due) or any(each.switched is not None for each in own):
        return
    found = []
    for wave in own[0].waves:
        found += lines([each.traces[ON, wave] for each in own], wave.frequency)
    line = largest(found)
    if line is not None:
        work.notes.note("power.smoothing.line", line.amplitude, subject)


def _picture(own: _Smoothed) -> str:
    """Return the waves of one GPU for the report; `off` is empty where it was on before."""
    waves = []
    for wave in own.waves:
        on = own.traces[ON, wave]
        off = [] if own.before.enabled else own.traces[OFF, wave]
        waves.append(
            {
                "f": wave.frequency,
                "t": [round(t, 4) for t, _ in on],
                "off": [round(watts) for _, watts in off],
                "on": [round(watts) for _, watts in on],
            }
        )
    return packed({"floor": round(own.profile.floor * own.tdp), "waves": waves})


SECONDS = 2 * (RAMP_S + sum(wave.seconds for wave in WAVES)) + RAMP_S

BURN = Burn(
    "power.smoothing",
    "a square wave without and with power smoothing: the swing that is left, put back afterwards",
    OWES,
    {"acceptance": SECONDS, "soak": SECONDS},
    wide=run,
    changes=True,
    wears=True,
    lacks=lacks,
)
