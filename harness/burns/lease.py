"""The time that a burn has, and what becomes of one that outstays it.

In: a piece of work and the seconds that it may take. The work is done in a thread of its own, since
a thread that blocks cannot be stopped: it is left behind, and its lease on the devices is revoked.
The first call that it makes then raises OverTime, so that it can put back what it changed; a little
later every call does. Out: whether it was done in time.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device, Fabric, Host
from rackproof.harness.errors import OverTime


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a run may take: `factor` times what is planned and at least `floor` device seconds.

    On silicon the machine's time is the device's, and `settle` comes on top; where it is virtual,
    `machine` seconds are the machine's. `grace` is how long one that is over may put things back.
    """

    factor: float = 5.0
    floor: float = 120.0
    settle: float = 60.0
    machine: float = 300.0
    grace: float = 10.0

    def device(self, planned: float) -> float:
        """Return the seconds of device time for a run that is planned to take `planned`."""
        return max(self.floor, self.factor * planned)


class Lease:
    """The right to call a device. It is called in once, then revoked; safe between threads."""

    def __init__(self) -> None:
        """Begin with a right that lasts."""
        self._called = ""
        self._revoked = ""

    def call_in(self, reason: str) -> None:
        """Let the next call alone raise OverTime."""
        self._called = reason

    def revoke(self, reason: str) -> None:
        """Let every call from now on raise OverTime."""
        self._revoked = reason

    def check(self) -> None:
        """Raise OverTime where the right is gone."""
        if self._revoked:
            raise OverTime(self._revoked)
        if self._called:
            reason, self._called = self._called, ""
            raise OverTime(reason)


class Leased:
    """Whatever `what` can do, while the lease lasts."""

    def __init__(self, what: Any, lease: Lease) -> None:
        self._what = what
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        """Return what `what` has by that name; a function checks the lease again when called."""
        self._lease.check()
        found = getattr(self._what, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            self._lease.check()
            return found(*args, **named)

        return call


SLICE_S = 0.5
"""How long a wait of the machine's time goes on before it looks whether the lease still lasts."""


class LeasedDevice(Leased):
    """A device, with its telemetry and its plane."""

    def __init__(self, device: Device, lease: Lease) -> None:
        super().__init__(device, lease)
        self.gpu = device.gpu
        self.clock = device.clock
        self.telemetry = Leased(device.telemetry, lease)
        self.plane = Leased(device.plane, lease)

    def wait(self, seconds: float) -> None:
        """Let time pass; on silicon in slices, so that a burn that is called in ends soon."""
        self._lease.check()
        while not isinstance(self.clock, VirtualClock) and seconds > SLICE_S:
            self._what.wait(SLICE_S)
            self._lease.check()
            seconds -= SLICE_S
        self._what.wait(seconds)


class LeasedHost(Leased):
    """What stands around the GPUs. Its time has no clock of ours: the waits are added up."""

    def __init__(self, host: Host, lease: Lease, limit: float) -> None:
        super().__init__(host, lease)
        self._left = limit

    def wait(self, seconds: float) -> None:
        """Let time pass; OverTime once it is more than the run may take."""
        self._lease.check()
        self._left -= seconds
        if self._left < 0:
            msg = "it waited for longer than it may"
            raise OverTime(msg)
        self._what.wait(seconds)


class _Devices(Mapping[str, Device]):
    """The devices of a bench, each leased when it is asked for."""

    def __init__(self, devices: Mapping[str, Device], lease: Lease) -> None:
        self._devices = devices
        self._lease = lease

    def __getitem__(self, subject: str) -> Device:
        return leased(self._devices[subject], self._lease)

    def __iter__(self) -> Iterator[str]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)


class _LeasedBench(Leased):
    """A bench: its devices, its fabric and its hosts."""

    def __init__(self, bench: Bench, lease: Lease, limit: float) -> None:
        super().__init__(bench, lease)
        self._limit = limit
        self.devices = _Devices(bench.devices, lease)

    @property
    def fabric(self) -> Fabric:
        return cast("Fabric", Leased(self._what.fabric, self._lease))

    @property
    def around(self) -> Host:
        return cast("Host", LeasedHost(self._what.around, self._lease, self._limit))


def leased(device: Device, lease: Lease) -> Device:
    """Return the device, for as long as the lease lasts."""
    return cast("Device", LeasedDevice(device, lease))


def leased_bench(bench: Bench, lease: Lease, limit: float) -> Bench:
    """Return the bench, for as long as the lease lasts; `limit` bounds waits around the GPUs."""
    return cast("Bench", _LeasedBench(bench, lease, limit))


@contextmanager
def deadline(devices: Iterable[Device], seconds: float) -> Iterator[None]:
    """Let the virtual clocks of devices raise OverTime once `seconds` more have passed."""
    clocks = [d.clock for d in devices if isinstance(d.clock, VirtualClock)]
    ends = [clock.now() + seconds for clock in clocks]
    for clock, end in zip(clocks, ends, strict=True):
        clock.deadline = end
    try:
        yield
    finally:
        for clock, end in zip(clocks, ends, strict=True):
            clock.lift(end)


class _Hand:
    """A thread that does one piece of work after another, until one outstays its time."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]
        self._work = queue.SimpleQueue()
        self.broke: BaseException | None = None
        threading.Thread(target=self._live, name="burn", daemon=True).start()

    def start(self, work: Callable[[], None]) -> threading.Event:
        """Begin with `work`; return what is set when it is done."""
        done = threading.Event()
        self._work.put((work, done))
        return done

    def _live(self) -> None:
        while True:
            work, done = self._work.get()
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it is raised again by who waits
                self.broke = error
            done.set()


_IDLE: list[_Hand] = []


def within(seconds: float, work: Callable[[], None], lease: Lease, grace: float = 0.0) -> bool:
    """Do `work` in `seconds` of the machine's time; return whether it was done in time.

    One that is late is called in and has `grace` seconds to end. One that does not end is left
    behind with its lease revoked, and nothing that it does later counts. Raises what it raised.
    An interrupt of the waiting thread ends the work in the same way, and is raised again.
    """
    hand = _IDLE.pop() if _IDLE else _Hand()
    done = hand.start(work)
    late = f"its time limit of {seconds:g} s has passed"
    try:
        in_time = _waited(done, seconds)
    except BaseException:
        late = "the run was interrupted"
        _recall(done, lease, late, grace)
        raise
    if not in_time:
        _recall(done, lease, late, grace)
        return False
    _IDLE.append(hand)
    broke, hand.broke = hand.broke, None
    if broke is not None:
        raise broke
    return True


def _waited(done: threading.Event, seconds: float) -> bool:
    """Wait in slices: a signal that the kernel gave to another thread is heard between two."""
    end = time.monotonic() + seconds
    while not done.wait(min(SLICE_S, max(0.0, end - time.monotonic()))):
        if time.monotonic() >= end:
            return False
    return True


def _recall(done: threading.Event, lease: Lease, reason: str, grace: float) -> None:
    """Call the lease in, give it time to end, and revoke it."""
    lease.call_in(reason)
    done.wait(grace)
    lease.revoke(reason)
