"""What stands in for a GPU that is not there: every call says so.

In: a slot and the reason. Out: NotPresent (or another DeviceError) from everything, so that what
was planned there is missed by name. Here too: what stands in for hands on a machine of silicon.
"""
# ruff: noqa: ARG002 - the seam's signatures; nothing of them is used

from typing import Any, NoReturn

from rackproof.harness.clock import Clock, VirtualClock
from rackproof.harness.devices.protocol import (
    DataPlane,
    LinkCounters,
    Moved,
    Pattern,
    PowerLimits,
    Product,
    Smoothing,
    Telemetry,
    Verified,
    Watch,
)
from rackproof.harness.errors import NotPresent, Unsupported
from rackproof.harness.model import Event, Gpu, Value


class AbsentDevice:
    """The device in a slot that no GPU answers for: every call raises NotPresent."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def __init__(self, gpu: Gpu, driver_version: str) -> None:
        self.gpu = gpu
        self.clock = VirtualClock()
        reason = f"{gpu.subject}: the driver ({driver_version}) lists no such GPU"
        self.telemetry = NoTelemetry(reason)
        self.plane = NoPlane(reason)
        self._reason = reason

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def wait(self, seconds: float) -> None:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def end(self) -> None:
        """Do nothing."""


class NoTelemetry:
    """Telemetry of a GPU that is not there."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def read(self, metric: str) -> Value:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def read_link(self, metric: str, link: int) -> Value:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def link_counters(self, links: int) -> list[LinkCounters]:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def events(self) -> list[Event]:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def throttled(self, reason: str) -> float:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def power_limits(self) -> PowerLimits:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def set_power_limit(self, watts: float) -> float:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def smoothing(self) -> Smoothing:
        """Raise NotPresent."""
        raise NotPresent(self._reason)

    def set_smoothing(self, *, enabled: bool, profile: int) -> Smoothing:
        """Raise NotPresent."""
        raise NotPresent(self._reason)


class NoPlane:
    """A data plane of a GPU that is not there."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _refuse(self) -> NoReturn:
        raise NotPresent(self._reason)

    def claim(self) -> int:
        """Refuse."""
        self._refuse()

    def release(self) -> None:
        """Do nothing: nothing was claimed."""

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Refuse."""
        self._refuse()

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Refuse."""
        self._refuse()

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Refuse."""
        self._refuse()

    @property
    def xp(self) -> Any:
        """Refuse."""
        self._refuse()

    def order(self, precision: str) -> int:
        """Refuse."""
        self._refuse()

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Refuse."""
        self._refuse()

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Refuse."""
        self._refuse()

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Refuse."""
        self._refuse()

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Refuse."""
        self._refuse()

    def load(self, share: float) -> None:
        """Refuse."""
        self._refuse()


class NoService:
    """The service of a machine that rackproof does not touch: every call raises Unsupported."""

    def reset(self, gpu: str) -> float:
        """Refuse."""
        self._refuse(f"the reset of {gpu}")

    def reboot(self, host: str) -> float:
        """Refuse."""
        self._refuse(f"the reboot of {host}")

    def swap(self, gpu: str, other: str) -> float:
        """Refuse."""
        self._refuse(f"the exchange of {gpu} and {other}")

    def _refuse(self, what: str) -> NoReturn:
        msg = f"{what} is proposed and never done by rackproof on a real machine"
        raise Unsupported(msg)
