"""The GPUs of a crew in step: each waits, on its own clock, for the same planned moment.

In: a crew whose clocks are aligned. Out: calls of `wait`, `load` and `each`. On silicon all GPUs
share the machine's clock, so the first one waits and the others find the moment come; on an
emulated rack each lets its own time pass.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rackproof.harness.burns.base import Crew
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError, Lost, NotPresent, OverTime

T = TypeVar("T")


def tried(source: Callable[[], T]) -> T | DeviceError:
    """Return what `source` gives, or why it gave nothing; what is over (GPU, burn) is raised."""
    try:
        return source()
    except (Lost, NotPresent, OverTime):
        raise
    except DeviceError as error:
        return error


def given(found: T | DeviceError) -> T:
    """Return what was found, or raise why nothing was: the other half of `tried`."""
    if isinstance(found, DeviceError):
        raise found
    return found


class Together:
    """A crew in step; `now` is seconds after the start, the same for all."""

    def __init__(self, crew: Crew) -> None:
        """Begin now."""
        self.crew = crew
        self.now = 0.0
        self._begun = crew.each(lambda device: device.clock.now())

    def at(self, device: Device) -> float:
        """Return the seconds after the start on a device's own clock."""
        return device.clock.now() - self._begun[device.gpu.subject]

    def wait(self, seconds: float) -> None:
        """Let all come to the moment that is `seconds` after the last one."""
        self.now += seconds
        self.crew.each(self._until)

    def step(self, seconds: float, work: Callable[[Device], T]) -> dict[str, T]:
        """Let all come to the next moment, and do `work` there; return what it gave."""
        self.now += seconds

        def come(device: Device) -> T:
            self._until(device)
            return work(device)

        return self.crew.each(come)

    def load(self, share: float) -> None:
        """Load all with `share` from now on."""
        self.crew.each(partial(_load, share))

    def rest(self) -> None:
        """Take the load from all that are still there; a GPU that fails here has said so before."""
        for device in list(self.crew.devices.values()):
            with contextlib.suppress(DeviceError):
                device.plane.load(0.0)

    def _until(self, device: Device) -> None:
        left = self._begun[device.gpu.subject] + self.now - device.clock.now()
        if left > 0.0:
            device.wait(left)


def _load(share: float, device: Device) -> None:
    device.plane.load(share)
