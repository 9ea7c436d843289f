"""One seam to hardware. `connect` is its door: a RackSpec in, a Bench of devices out.

Only this module, and fixtures/plant.py, know that a rack can be emulated; everything else sees
devices.
"""

import os
from collections.abc import Callable
from pathlib import Path

from rackproof.harness import spec as specs
from rackproof.harness.clock import Clock
from rackproof.harness.devices import real
from rackproof.harness.devices.attached import Source
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.nvml import Driver, Identity, NvmlTelemetry
from rackproof.harness.devices.protocol import Device, Fabric, Host, Service
from rackproof.harness.errors import NotPresent
from rackproof.harness.model import Gpu
from rackproof.harness.spec import RackSpec

__all__ = [
    "STATE",
    "Bench",
    "Emulated",
    "connect",
    "connect_local",
    "emulated_driver",
    "local_spec",
    "renew",
    "source_of",
]

STATE = "driver.state"
DRIVER_MARK = "-rackproof-emulated"
"""What the version of an emulated driver ends with, so that every tool prints it."""


def connect(
    spec: RackSpec,
    *,
    seed: int = 0,
    state_dir: Path | None = None,
    shared: bool = False,
    tell: Callable[[str], None] = real.unheard,
) -> Bench:
    """Return the bench of a rack: emulated, or this machine's GPUs in the slots of `spec`.

    `state_dir` takes the emulated driver's state file, which is in memory where there is none.
    `shared` allows other processes on real GPUs. What a run that was killed left changed on them is
    put back first, and said to `tell`. Raises NotPresent without a driver (or, emulated, without a
    compiler), and SpecError for a rack that cannot be emulated.
    """
    if not spec.emulated:
        return _real(spec, Driver.open(None, None), shared=shared, tell=tell)
    backing = Emulated(spec, seed, state_dir)
    try:
        return Bench(spec, Driver.open(backing.library, backing.state), backing)
    except BaseException:
        backing.close()
        raise


def source_of(bench: Bench) -> Source:
    """Return by which driver another process finds the GPUs of a bench; see attached.attach.

    A rack in memory can be found as long as this process runs, by processes of the same user.
    """
    backing = bench.backing
    if not isinstance(backing, Emulated):
        return Source()
    state = backing.state
    if state.parent == Path("/proc/self/fd"):
        state = Path("/proc") / str(os.getpid()) / "fd" / state.name
    return Source(backing.library, state)


def renew(bench: Bench, *, seed: int) -> bool:
    """Put an emulated rack afresh behind a bench; return False, and do nothing, on real GPUs.

    Raises as `connect`; the bench is closed then.
    """
    if not bench.spec.emulated:
        return False
    bench.close()
    backing = Emulated(bench.spec, seed, None)
    try:
        bench.take(Driver.open(backing.library, backing.state), backing)
    except BaseException:
        backing.close()
        raise
    return True


def connect_local(
    expect: RackSpec | None = None,
    *,
    shared: bool = False,
    tell: Callable[[str], None] = real.unheard,
) -> Bench:
    """Return the bench of this machine's real GPUs; `shared` and `tell` as in `connect`.

    Raises NotPresent where there is no driver, or no GPU and none expected.
    """
    driver = Driver.open(None, None)
    try:
        spec = real.local_spec(driver, expect)
    except BaseException:
        driver.close()
        raise
    return _real(spec, driver, shared=shared, tell=tell)


def _real(spec: RackSpec, driver: Driver, *, shared: bool, tell: Callable[[str], None]) -> Bench:
    """Return the bench of real GPUs behind an open driver, as no killed run left them."""
    try:
        real.recover(tell)
        return Bench(spec, driver, real.RealBacking(shared=shared, spec=spec))
    except BaseException:
        driver.close()
        raise


def local_spec(expect: str | None = None) -> RackSpec:
    """Return the spec of `local`, with what the rack named `expect` has in one tray.

    Raises SpecError for an unknown rack, NotPresent as connect_local.
    """
    expected = None if expect is None else specs.load(expect)
    driver = Driver.open(None, None)
    try:
        return real.local_spec(driver, expected)
    finally:
        driver.close()


def emulated_driver() -> bool:
    """Say whether this machine's driver is an emulated one; raises NotPresent without a driver."""
    driver = Driver.open(None, None)
    try:
        return driver.version.endswith(DRIVER_MARK)
    finally:
        driver.close()


class Emulated:
    """What stands behind an emulated rack's GPUs: the rack itself, and its driver's state file."""

    def __init__(self, spec: RackSpec, seed: int, state_dir: Path | None) -> None:
        """Build the library where need be, and the rack in `state_dir`, or in memory.

        A file in memory has no name that a killed process could leave behind.
        """
        # Imported here, so that work on real GPUs never loads the emulator.
        from rackproof.harness.devices.emulated.driver import (  # noqa: PLC0415
            OPEN_FILES,
            matching_library,
        )
        from rackproof.harness.devices.emulated.rack import EmulatedRack  # noqa: PLC0415

        # The path of a file in memory holds in this process alone, as long as it is open.

        self.library = matching_library()
        self._memory: int | None = None
        try:
            if state_dir is None:
                self._memory = os.memfd_create("rackproof-rack")
                self.state = OPEN_FILES / str(self._memory)
            else:
                self.state = state_dir / STATE
            self.rack = EmulatedRack.build(spec, seed, self.state)
        except OSError as error:
            self._delete()
            place = state_dir or "memory"
            msg = f"{place}: the emulated driver's state cannot be written ({error.strerror})"
            raise NotPresent(msg) from error
        except BaseException:
            self._delete()
            raise

    def clock(self, subject: str) -> Clock:
        """Return the GPU's virtual clock."""
        return self.rack.gpus[subject].clock

    def device(self, gpu: Gpu, identity: Identity, telemetry: NvmlTelemetry) -> Device:
        """Return the device in a slot."""
        del identity
        return self.rack.device(gpu.subject, telemetry)

    def fabric(self) -> Fabric:
        """Return what joins the GPUs."""
        return self.rack.fabric()

    def host(self) -> Host:
        """Return what stands around them."""
        return self.rack.host()

    def service(self) -> Service:
        """Return what can be done to them between burns."""
        return self.rack.service()

    def live(self, seed: int) -> Callable[[], None]:
        """Let the GPUs' time pass with the machine's, under a slight load; return what stops it."""
        from rackproof.harness.devices.emulated.life import Life  # noqa: PLC0415 - as above

        life = Life(list(self.rack.gpus.values()), seed)
        life.start()
        return life.stop

    def close(self) -> None:
        """Let go of the state file; in memory it is gone then."""
        self.rack.close()
        self._delete()

    def _delete(self) -> None:
        if self._memory is not None:
            memory, self._memory = self._memory, None
            os.close(memory)
