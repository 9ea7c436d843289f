"""An emulated rack: as many GPUs as its file says, behind one emulated driver.

In: a RackSpec, a seed, and a path for the driver's state. Out: the state file, from which any NVML
program reads the rack, and the GPUs' working halves by subject. Serial numbers, UUIDs, PCI
addresses and the spread between dies come from the rack's identity; the seed draws noise alone.
"""

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rackproof.harness.clock import Clock
from rackproof.harness.devices.emulated import rows
from rackproof.harness.devices.emulated.driver import EmulatedDriver
from rackproof.harness.devices.emulated.driver_state import LINKS, Flag
from rackproof.harness.devices.emulated.fabric import EmulatedFabric
from rackproof.harness.devices.emulated.facility import EmulatedHost, Facility
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.identity import birth
from rackproof.harness.devices.emulated.kinds import KINDS, SITES
from rackproof.harness.devices.emulated.plane import EmulatedPlane
from rackproof.harness.devices.emulated.rack_power import rack_powers
from rackproof.harness.devices.emulated.service import EmulatedService
from rackproof.harness.devices.emulated.strikes import AnyStrike, Plan
from rackproof.harness.devices.protocol import (
    DataPlane,
    Fabric,
    Host,
    PowerLimits,
    Service,
    Telemetry,
)
from rackproof.harness.errors import SpecError
from rackproof.harness.faults import Fault
from rackproof.harness.model import Event, Gpu, Value, sort_of
from rackproof.harness.spec import RackSpec
from rackproof.harness.topology import links_of


class EmulatedRack:
    """The GPUs of a rack by subject, and the driver that they stand behind."""

    def __init__(self, spec: RackSpec, seed: int, driver: EmulatedDriver) -> None:
        """Take over a driver of as many rows as the rack has GPUs; see `build`."""
        self.spec = spec
        self.seed = seed
        self.driver = driver
        self.gpus: dict[str, EmulatedGpu] = {}
        for position, gpu in enumerate(spec.gpus):
            born, row = birth(spec, gpu), driver.rows[position]
            rows.fill(row, spec, gpu, born, position)
            emulated = EmulatedGpu(spec, gpu, born, row, seed)
            emulated.post = functools.partial(driver.post_xid, position)
            self.gpus[gpu.subject] = emulated
        self.facility = Facility(spec, seed, self._drawn)
        self.facility.parts |= {each.subject: each for each in rack_powers(spec, seed, self.gpus)}
        self._host = EmulatedHost(self.facility)
        self._fabric = EmulatedFabric(spec, self.gpus, driver)

    @classmethod
    def build(cls, spec: RackSpec, seed: int, state_path: Path) -> "EmulatedRack":
        """Write the state of a healthy, idle rack to `state_path`.

        Raises SpecError where the rack's file leaves open what the emulator must know.
        """
        if spec.links > LINKS:
            msg = f"{spec.file}: [fabric] links_per_gpu: the emulated driver has at most {LINKS}"
            raise SpecError(msg)
        driver = EmulatedDriver.create(
            state_path,
            len(spec.gpus),
            driver_version=rows.driver_version(spec),
            cuda_version=rows.CUDA_VERSION,
        )
        return cls(spec, seed, driver)

    def device(self, subject: str, telemetry: Telemetry) -> "EmulatedDevice":
        """Return the device in a slot, whose readings come through `telemetry`."""
        return EmulatedDevice(self.gpus[subject], telemetry)

    def fabric(self) -> Fabric:
        """Return what joins the GPUs."""
        return self._fabric

    def host(self) -> Host:
        """Return what stands around them."""
        return self._host

    def service(self) -> Service:
        """Return what can be done to them between burns."""
        return EmulatedService(self.spec, self.gpus, self.facility, self._fabric)

    def _drawn(self, subject: str) -> float:
        """Return the W that a GPU draws: under the load that is set, else what it idles at.

        What a burn on that GPU alone left behind is none of the rack's: each GPU has its own time.
        """
        gpu = self.gpus[subject]
        if gpu.row["flags"] & Flag.ABSENT:
            return 0.0
        return gpu.die.power if gpu.load > 0.0 else gpu.die.part.power_idle

    def plant(
        self, faults: Iterable[Fault], horizon_s: float, fired: Mapping[int, int] | None = None
    ) -> "PlantedFaults":
        """Plant faults, in order; `fired` says by place in the list how often each fired before."""
        return PlantedFaults(self, list(faults), horizon_s, fired or {})

    def close(self) -> None:
        """Let go of the driver's state file."""
        for gpu in self.gpus.values():
            gpu.row = gpu.row.copy()
        self.driver.close()


class EmulatedDevice:
    """One emulated GPU as protocol.Device: readings through the driver, work through the plane."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def __init__(self, emulated: EmulatedGpu, telemetry: Telemetry) -> None:
        self._emulated = emulated
        self.gpu = emulated.gpu
        self.clock = emulated.clock
        self.telemetry = Overheard(telemetry, emulated)
        self.plane = EmulatedPlane(emulated)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Begin a run: faults decide whether they strike, and the die settles (at most 60 s)."""
        self._emulated.begin(check, attempt, at)

    def wait(self, seconds: float) -> None:
        """Let time pass under the load that is set."""
        self._emulated.advance(seconds, self._emulated.load)

    def end(self) -> None:
        """End it: no load, no claimed memory."""
        self.plane.release()
        self._emulated.end()


class Overheard:
    """A GPU's telemetry, unchanged; its planted faults hear what is asked, and count by it."""

    def __init__(self, telemetry: Telemetry, emulated: EmulatedGpu) -> None:
        self._telemetry = telemetry
        self._emulated = emulated

    def read(self, metric: str) -> Value:
        """Return one reading."""
        self._tell(metric, None)
        return self._telemetry.read(metric)

    def read_link(self, metric: str, link: int) -> Value:
        """Return one reading of a link."""
        self._tell(metric, link)
        return self._telemetry.read_link(metric, link)

    def events(self) -> list[Event]:
        """Return what the driver reported since the last call."""
        return self._telemetry.events()

    def throttled(self, reason: str) -> float:
        """Return a counter of the time with the clocks held down."""
        self._tell(f"throttled.{reason}", None)
        return self._telemetry.throttled(reason)

    def power_limits(self) -> PowerLimits:
        """Return the power limits."""
        self._tell("power.limit", None)
        return self._telemetry.power_limits()

    def __getattr__(self, name: str) -> Any:
        """Give whatever else this telemetry can do."""
        return getattr(self._telemetry, name)

    def _tell(self, metric: str, link: int | None) -> None:
        for effect in self._emulated.effects:
            effect.read(metric, link)


class PlantedFaults:
    """All faults that were planted into a rack, and how often each fired."""

    def __init__(
        self, rack: EmulatedRack, faults: list[Fault], horizon_s: float, fired: Mapping[int, int]
    ) -> None:
        self.faults = faults
        self._already = [fired.get(position, 0) for position in range(len(faults))]
        self._strikes: list[list[AnyStrike]] = []
        for position, fault in enumerate(faults):
            plan = Plan(rack.spec, rack.seed, position, horizon_s, self._already[position])
            self._strikes.append(_strikes(rack, fault, plan))
        every = [strike for strikes in self._strikes for strike in strikes]
        for strike in sorted(every, key=lambda strike: not strike.early):
            strike.place()

    @property
    def fired(self) -> list[int]:
        """How often each fault fired, over all its GPUs and with what was counted before."""
        return [
            already + sum(strike.fired - already for strike in strikes)
            for already, strikes in zip(self._already, self._strikes, strict=True)
        ]

    def summary(self) -> list[dict[str, Any]]:
        """Return the contract's list: kind, subject, parameters and fired of each fault."""
        return [
            {
                "kind": fault.kind,
                "subject": fault.subject,
                "parameters": dict(fault.parameters),
                "fired": fired,
            }
            for fault, fired in zip(self.faults, self.fired, strict=True)
        ]


def _strikes(rack: EmulatedRack, fault: Fault, plan: Plan) -> list[AnyStrike]:
    """Return a fault on all GPUs that it acts on, and on the part around them that it is on."""
    found: list[AnyStrike] = []
    if fault.kind in KINDS:
        found += [KINDS[fault.kind](gpu, fault, plan) for gpu in _struck(rack, fault)]
    if fault.kind in SITES:
        found.append(SITES[fault.kind](rack.facility.parts[fault.subject], fault, plan))
    return found


def _struck(rack: EmulatedRack, fault: Fault) -> list[EmulatedGpu]:
    """Return the GPUs that a fault acts on.

    Its own, its link's, all of its host, all with a link to its switch, or all in its rack.
    """
    place = fault.subject.rpartition("/")[0]
    match sort_of(fault.subject):
        case "host" | "cooling":
            return [gpu for subject, gpu in rack.gpus.items() if subject.startswith(f"{place}/")]
        case "switch":
            links = {link.rpartition("/")[0] for link in links_of(rack.spec, fault.subject)}
            return [gpu for subject, gpu in rack.gpus.items() if subject in links]
        case "link":
            return [rack.gpus[place]]
        case _:
            return [rack.gpus[fault.subject]]
