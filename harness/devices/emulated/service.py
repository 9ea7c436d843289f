"""Reset, reboot and exchange of emulated GPUs, with what they mean on a machine.

In: a GPU, a host, or two GPUs. Out: the device seconds that it took, and a rack in which what only
lasts until a reset is over, volatile counters have begun anew, and two GPUs have changed places.
Nothing that is broken is mended: planted faults say themselves whether a reset ends them
(`reset`) and whether they go with their GPU (`with_gpu`: memory, arithmetic, and what the GPU says
of itself). Links, slots, hosts, power and cooling are a place's own.

Not modelled: a row that is remapped takes no planted word out of use, so that an HBM that is
broken stays so; energy and throttle counters go on, as NVML's do until the driver is loaded again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rackproof.harness.devices.emulated.driver_state import VOLATILE, Flag
from rackproof.harness.devices.emulated.fabric import EmulatedFabric
from rackproof.harness.devices.emulated.facility import Facility
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.rows import NO_BER
from rackproof.harness.devices.emulated.strikes import Strike
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.model import item_of
from rackproof.harness.spec import RackSpec

# Proposed, never the basis of a limit; the sequential test reckons with the same. A reset itself
# takes seconds, the rest is for draining the tray and starting its services again. An exchange is
# half an hour of two hands with both trays down, and is undone after the burns: an hour in all.
RESET_S = 60.0
REBOOT_S = 900.0
EXCHANGE_S = 1800.0

GONE = int(Flag.LOST | Flag.ABSENT | Flag.HUNG)
# What the driver's row says of the GPU itself, wherever it sits.
OWN = (
    "uuid serial part_number vbios inforom ecc sram_sources sram_threshold remap_corrected "
    "remap_uncorrected remap_pending remap_failure remap_histogram smoothing_lifetime"
).split()
COUNTERS = (
    "replay recovery crc tx_kib rx_kib effective_errors symbol_errors recovered unrecovered "
    "fec_history"
).split()


class EmulatedService:
    """The service of one emulated rack; see protocol.Service."""

    def __init__(
        self,
        spec: RackSpec,
        gpus: Mapping[str, EmulatedGpu],
        facility: Facility,
        fabric: EmulatedFabric,
    ) -> None:
        self._spec = spec
        self._gpus = gpus
        self._facility = facility
        self._fabric = fabric

    def reset(self, gpu: str) -> float:
        """Reset one GPU. One that has fallen off the bus cannot be, and stays as it is."""
        _reset(self._known(gpu))
        _pass(self._known(gpu), RESET_S)
        return RESET_S

    def reboot(self, host: str) -> float:
        """Reset all GPUs of a host, and begin the counters of the host and its NICs anew."""
        own = self._of_host(host)
        for gpu in own:
            _reset(gpu)
            _pass(gpu, REBOOT_S)
        for part in self._facility.of_item(host):
            part.restart()
            part.advance(REBOOT_S)
        return REBOOT_S

    def swap(self, gpu: str, other: str) -> float:
        """Exchange two GPUs of one kind; their hosts are down meanwhile.

        One that does not answer can be exchanged too: what takes a GPU off the bus is the place's.
        """
        one, two = self._known(gpu), self._known(other)
        if one is two or one.gpu.sku != two.gpu.sku:
            msg = f"{gpu} and {other} cannot change places"
            raise DeviceError(msg)
        for host in dict.fromkeys((one.gpu.host, two.gpu.host)):
            for each in self._of_host(host):
                _reset(each)
                _pass(each, EXCHANGE_S)
        moved = [(strike, two, strike.leave()) for strike in _movable(one)]
        moved += [(strike, one, strike.leave()) for strike in _movable(two)]
        _exchange(one, two)
        self._fabric.survey()
        for strike, place, acting in moved:
            strike.join(place, acting=acting)
        return EXCHANGE_S

    def _known(self, subject: str) -> EmulatedGpu:
        if subject not in self._gpus:
            msg = f"{subject} is not in this rack"
            raise NotPresent(msg)
        return self._gpus[subject]

    def _of_host(self, host: str) -> list[EmulatedGpu]:
        found = [gpu for gpu in self._gpus.values() if gpu.gpu.host == item_of(host)]
        if not found:
            msg = f"{host} is not in this rack"
            raise NotPresent(msg)
        return found


def _movable(gpu: EmulatedGpu) -> list[Strike]:
    return [each for each in gpu.effects if isinstance(each, Strike) and each.with_gpu]


def _reset(gpu: EmulatedGpu) -> None:
    """Do what a reset does to one GPU, but for its time."""
    if gpu.row["flags"] & GONE:
        return
    row: Any = gpu.row
    row["ecc"][:, VOLATILE, :] = 0
    row["remap_pending"] = 0
    row["recovery_action"] = 0
    row["pcie_replays"] = 0
    row["limit_requested_mw"] = row["limit_default_mw"]
    row["clock_locked_min_mhz"] = row["clock_locked_max_mhz"] = 0
    row["smoothing_enabled"] = row["smoothing_profile"] = 0
    links = row["links"][: int(row["nvlink_count"])]
    for name in COUNTERS:
        links[name] = 0
    if len(links) and int(links["ber_exponent"][0]):
        links["ber_mantissa"], links["ber_exponent"] = NO_BER
    gpu.load = 0.0
    for effect in gpu.effects:
        if isinstance(effect, Strike):
            effect.reset()
    gpu.sync()


def _pass(gpu: EmulatedGpu, seconds: float) -> None:
    """Let time pass on a GPU's clock, also where it is lost."""
    start = gpu.clock.now()
    try:
        gpu.advance(seconds)
    except Lost:
        gpu.clock.advance(max(0.0, start + seconds - gpu.clock.now()))


def _exchange(one: EmulatedGpu, two: EmulatedGpu) -> None:
    """Let two GPUs change places: what they are goes, what a place is stays."""
    for name in OWN:
        first, second = one.row[name].copy(), two.row[name].copy()
        one.row[name], two.row[name] = second, first
    born = one.birth, two.birth
    one.birth = replace(born[1], pci=born[0].pci)
    two.birth = replace(born[0], pci=born[1].pci)
    one.rates, two.rates = two.rates, one.rates
    memories = one.memory(), two.memory()
    one.take_memory(memories[1])
    two.take_memory(memories[0])
