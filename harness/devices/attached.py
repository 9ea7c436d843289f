"""A second process at the same GPUs: what the driver says of each, and nothing that works on them.

In: a driver (the machine's own, or an emulated one's library and state file) and the UUID of each
GPU by its subject. Out: the telemetry of each. No rack is built, so a controller of power can run
beside the process that has the rack, emulated or real.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pynvml

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.absent import NoTelemetry
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.nvml import Driver, NvmlTelemetry, translated
from rackproof.harness.devices.protocol import Telemetry


@dataclass(frozen=True, slots=True)
class Source:
    """By which driver a rack answers: an emulated one's, or, without a library, the machine's."""

    library: Path | None = None
    state: Path | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """GPUs by subject, in the order that was asked for. Close it at the end.

    `uuids` has no entry for a GPU that never said who it is.
    """

    telemetry: Mapping[str, Telemetry]
    uuids: Mapping[str, str]
    clock: Clock
    close: Callable[[], None]


def attach(source: Source, uuids: Mapping[str, str | None], clock: Clock | None = None) -> Attached:
    """Open the driver and find each GPU by its UUID; `clock` is the machine's unless handed in.

    A GPU that is not there, or lost, has a telemetry that says so to every call. Raises NotPresent
    without a driver, DeviceError for a state that cannot be used.
    """
    driver = Driver.open(source.library, source.state)
    own = clock or MachineClock()
    try:
        found = {subject: _telemetry(driver, subject, uuid) for subject, uuid in uuids.items()}
    except BaseException:
        driver.close()
        raise
    return Attached(found, {s: u for s, u in uuids.items() if u}, own, driver.close)


def of_bench(bench: Bench, clock: Clock) -> Attached:
    """Return the GPUs of a bench in this very process; the bench stays whose it was."""
    telemetry = {subject: device.telemetry for subject, device in bench.devices.items()}
    return Attached(telemetry, {s: u for s, u in uuids_of(bench).items() if u}, clock, lambda: None)


def uuids_of(bench: Bench) -> dict[str, str | None]:
    """Return the UUID in each slot of a bench, None for a slot that no GPU answers for."""
    known = {subject: bench.identity(subject) for subject in bench.devices}
    return {subject: None if who is None else who.uuid for subject, who in known.items()}


def _telemetry(driver: Driver, subject: str, uuid: str | None) -> Telemetry:
    if uuid is None:
        return NoTelemetry(f"{subject}: no GPU answered for it")
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        return NoTelemetry(str(translated(error, subject)))
    return NvmlTelemetry(driver, handle, subject)
