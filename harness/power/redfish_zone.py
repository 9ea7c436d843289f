"""A power zone out of band: GPUs by their boards' Redfish controllers, whatever their driver does.

In: the controllers, which GPUs are planned, the feeds' layout and a meter. Out: a zone.Zone. Caps
that are set here lie over those in band: NVML shows them as a limit in force below the one that was
requested. Each change was written down before. What somebody else sets meanwhile is his: it is not
put back. All controllers are asked at the same time, one GPU after the other at each, and each look
ends in time: what has not answered by then is NaN.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices import redfish_power
from rackproof.harness.devices.redfish import Access, Service
from rackproof.harness.devices.redfish_power import Knob, Set
from rackproof.harness.errors import DeviceError, NotPresent
from rackproof.harness.journal import Change, Journal, state_folder
from rackproof.harness.power.lock import RackLock
from rackproof.harness.power.zone import Array, Bounds, Layout, Meter, Sample

SETTING = "power.limit.out-of-band"
AT_ONCE = 16
"""Controllers that are asked at the same time."""
LOOKS = 3
"""Times that a limit is read back, as firmware may answer before it has done it."""
PAUSE_S = 0.2
CLOSE_W = 0.5
"""A limit is set in whole W."""


@dataclass(frozen=True, slots=True)
class Board:
    """The controllers of a rack's GPUs. One look at all of them takes at most `within` seconds.

    `uuids` says by subject who each GPU is, where that is known; else they are taken in the order
    of the controllers, and within one by name. `folder` is where changes are written down.
    """

    accesses: Sequence[Access]
    uuids: Mapping[str, str | None] = field(default_factory=dict)
    folder: Path | None = None
    within: float = 5.0
    clock: Clock = field(default_factory=MachineClock)
    pause: Callable[[float], None] = time.sleep


class RedfishZone:
    """See zone.Zone. `problems` says by subject why a GPU could not be read, or not be set."""

    def __init__(self, board: Board, layout: Layout, meter: Meter) -> None:
        """Find all GPUs, and put back what a killed controller left, which `said` tells.

        Raises DeviceError where it is not clear which GPU is which, and DrillError where another
        controller sets their limits.
        """
        self.layout = layout
        self.clock = board.clock
        self.problems: dict[str, str] = {}
        self._board, self._meter = board, meter
        self._knobs: list[tuple[int, Knob]] = self._found()
        pairs = zip(self._knobs, layout.gpus, strict=True)
        self._names = [knob.uuid or subject for (_, knob), subject in pairs]
        self._ours: dict[str, float] = {}  # what is in force by our doing, by name
        folder = board.folder or state_folder() / "out-of-band"
        self._lock = RackLock([folder / "locks" / _plain(name) for name in sorted(self._names)])
        self._journal = Journal(folder, self._put, listens=False)
        self.said = self._journal.recover()
        self._last = self.clock.now()

    def _found(self) -> list[tuple[int, Knob]]:
        """Return for each planned GPU its controller's place and its knob."""
        every: list[tuple[int, Knob]] = []
        for place in range(len(self._board.accesses)):
            with self._service(place) as service:
                every += [(place, knob) for knob in redfish_power.knobs(service)]
        gpus = self.layout.gpus
        known = [self._board.uuids.get(subject) for subject in gpus]
        told = {knob.uuid.lower(): (place, knob) for place, knob in every if knob.uuid}
        mine = [told.get((uuid or "").lower().removeprefix("gpu-")) for uuid in known]
        if all(mine):
            return [each for each in mine if each is not None]
        if len(every) != len(gpus):
            msg = f"Redfish: {len(every)} GPUs are found and {len(gpus)} planned"
            raise NotPresent(msg)
        return every

    @contextmanager
    def _service(self, place: int) -> Iterator[Service]:
        within = self._board.within
        access = self._board.accesses[place]
        with contextlib.closing(Service(access, request_s=within, run_s=within)) as service:
            yield service

    # --- looking --------------------------------------------------------------------------------
    def bounds(self) -> Bounds:
        """Return the limits that the GPUs can be given; NaN for one that does not answer.

        `requested` is what will be put back at the end, where a limit is changed already.
        """
        found = self._read(range(len(self._knobs)))
        before = {change.uuid: change.was for change in self._journal.changes}
        current = self._column(found, "current")
        requested = [before.get(name, now) for name, now in zip(self._names, current, strict=True)]
        return Bounds(
            low=self._column(found, "low"),
            high=self._column(found, "high"),
            default=self._column(found, "default"),
            requested=np.array(requested),
            current=current,
        )

    def sample(self) -> Sample:
        """Look at all of it now. A GPU's power is what its sensor says, not a mean of ours."""
        self.problems.clear()
        at = self.clock.now()
        seconds, self._last = at - self._last, at
        found = self._read(range(len(self._knobs)))
        meters = self._meter.read(max(0.0, seconds))
        current = self._column(found, "current")
        return Sample(
            at=at,
            seconds=seconds,
            gpu=self._column(found, "power"),
            feed=meters.feed,
            strain=meters.strain,
            trip_in=meters.trip_in,
            ac=meters.ac,
            current=current,
            requested=current.copy(),
            limit=meters.limit,
        )

    def _column(self, found: Mapping[int, Set], name: str) -> Array:
        every = range(len(self._knobs))
        return np.array([getattr(found[n], name) if n in found else math.nan for n in every])

    def _read(self, gpus: Sequence[int]) -> dict[int, Set]:
        return self._each(gpus, lambda service, gpu: redfish_power.read(service, self._knob(gpu)))

    def _knob(self, gpu: int) -> Knob:
        return self._knobs[gpu][1]

    def _each(self, gpus: Sequence[int], act: Callable[[Service, int], Set]) -> dict[int, Set]:
        """Do something with each GPU, at all controllers at once; an error stops nobody else."""
        own: dict[int, list[int]] = {}
        for gpu in gpus:
            own.setdefault(self._knobs[gpu][0], []).append(gpu)

        def at(place: int) -> list[tuple[int, Set | DeviceError]]:
            found: list[tuple[int, Set | DeviceError]] = []
            with self._service(place) as service:
                for gpu in own[place]:
                    try:
                        found.append((gpu, act(service, gpu)))
                    except DeviceError as error:
                        found.append((gpu, error))
            return found

        done: dict[int, Set] = {}
        with ThreadPoolExecutor(min(AT_ONCE, max(1, len(own)))) as pool:
            for gpu, what in (each for listed in pool.map(at, own) for each in listed):
                if isinstance(what, Set):
                    done[gpu] = what
                else:
                    self.problems[self.layout.gpus[gpu]] = str(what)
        return done

    # --- acting ---------------------------------------------------------------------------------
    def ask(self, caps: Array) -> Array:
        """Ask for a power limit of each GPU, W, brought within its bounds, whole W; as zone.Zone.

        Nothing is changed where what it was cannot be written down first.
        """
        self.problems.clear()
        got = np.full(len(caps), np.nan)
        asked = [int(gpu) for gpu in np.flatnonzero(~np.isnan(caps))]
        for gpu in [gpu for gpu in asked if not math.isfinite(caps[gpu])]:
            asked.remove(gpu)
            self.problems[self.layout.gpus[gpu]] = f"cannot be given a limit of {caps[gpu]:g} W"
        known = self._read(asked)
        goals = {gpu: _within(float(caps[gpu]), own) for gpu, own in known.items()}
        changes = {
            gpu: goal for gpu, goal in goals.items() if abs(goal - known[gpu].current) > CLOSE_W
        }
        try:
            self._journal.keep(
                *(Change(self._names[n], SETTING, known[n].current) for n in changes)
            )
        except DeviceError as error:
            self.problems |= {self.layout.gpus[gpu]: str(error) for gpu in changes}
            changes = {}
            goals = {}
        done = self._each(list(changes), lambda service, gpu: self._set(service, gpu, changes[gpu]))
        for gpu in goals:
            if gpu in done or gpu not in changes:
                got[gpu] = done[gpu].current if gpu in done else known[gpu].current
        self._ours |= {self._names[gpu]: own.current for gpu, own in done.items()}
        return got

    def _set(self, service: Service, gpu: int, watts: float) -> Set:
        """Set one limit and read it back."""
        knob = self._knob(gpu)
        redfish_power.write(service, knob, watts)
        now = redfish_power.read(service, knob)
        for _ in range(LOOKS - 1):
            if abs(now.current - watts) <= CLOSE_W:
                break
            self._board.pause(PAUSE_S)
            now = redfish_power.read(service, knob)
        return now

    # --- the end --------------------------------------------------------------------------------
    @property
    def changed(self) -> int:
        """How many GPUs have another limit than they had, by our doing."""
        return len(self._journal.changes)

    def restore(self) -> str:
        """Put back every limit that was changed; return what went wrong: it stays written down."""
        try:
            self._journal.restore()
        except DeviceError as error:
            return f"{self.changed} limits could not be put back: {error}"
        return ""

    def close(self) -> str:
        """Put everything back and let the GPUs go to another controller; returns as `restore`."""
        try:
            return self.restore()
        finally:
            self._lock.close()

    def _put(self, change: Change) -> None:
        """Put one limit back, unless somebody else has set another one since."""
        if change.uuid not in self._names:
            msg = f"{change.uuid}: no controller that is named has this GPU"
            raise NotPresent(msg)
        gpu = self._names.index(change.uuid)
        with self._service(self._knobs[gpu][0]) as service:
            now = redfish_power.read(service, self._knob(gpu))
            ours = self._ours.get(change.uuid, now.current)
            if abs(now.current - ours) > CLOSE_W:
                self.problems[self.layout.gpus[gpu]] = (
                    f"somebody else has set {now.current:g} W: it is left"
                )
                return
            if abs(now.current - change.was) <= CLOSE_W:
                return
            held = self._set(service, gpu, change.was)
        if abs(held.current - change.was) > CLOSE_W:
            msg = f"{change.uuid}: reads {held.current:g} W after {change.was:g} W were asked for"
            raise DeviceError(msg)


def _plain(name: str) -> str:
    """Return a file's name for whatever a controller calls a GPU."""
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock"


def _within(watts: float, own: Set) -> float:
    """Return whole W within the bounds, downwards: a cap is never more than was asked for."""
    return float(min(max(math.floor(watts), math.ceil(own.low)), math.floor(own.high)))
