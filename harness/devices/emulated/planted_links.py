"""The faults of NVLinks, switches and the fabric: a class for each kind.

In: a Fault and one GPU that it acts on; a switch's fault acts on every GPU with a link to it. Out:
links that are down at both ends, slow, or dropping, what the driver and the data say of it, and a
count of how often that was felt: by data that crossed, or by a reading.

Our assumptions: a degraded link has lost lanes, so no error counter moves and its stated speed
stays; a link that flaps carries nothing of the copy that it drops in, and is up again after it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.planted import RowFault
from rackproof.harness.devices.emulated.strikes import Kind, Plan, Strike
from rackproof.harness.faults import Fault
from rackproof.harness.model import sort_of

NVLINK_5 = 7
"""NVML's version number of NVLink 5.0."""
# What one drop leaves behind; the numbers are ours, and so is that the error rate of NVLink 5 over
# the link's life stays below the 1e-12 at which it would be judged by itself.
DROP_4: Mapping[str, int] = {"replay": 12, "recovery": 1, "crc": 31}
DROP_5: Mapping[str, int] = {"symbol_errors": 9000, "effective_errors": 3, "recovered": 1}
DROP_BER = (3, 14)
FEC_BIN = 12
"""The bin of the FEC history that a drop's blocks fall into: near what FEC can still correct."""
NO_HEALTH = 0
_UNHEALTHY_SUMMARY = 2
_ROUTE_UNHEALTHY = 0x19A  # NVML's packed mask: an unhealthy route, and nothing else wrong
_UNKNOWN_ERROR = 999  # NVML_ERROR_UNKNOWN


class LinkFault(Strike):
    """Faults of some of a GPU's links."""

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        wires = gpu.wires
        if sort_of(fault.subject) == "link":
            self.numbers = [int(fault.subject.rpartition("/link")[2])]
        else:
            self.numbers = [n for n, end in enumerate(wires.switches) if end == fault.subject]
        wires.faults.append(self)

    def hold(self) -> None:
        """Take the links down, at both ends."""
        for number in self.numbers:
            self.gpu.wires.hold(number)
            self.gpu.row["links"][number]["state"] = 0

    def release(self) -> None:
        """Bring them up where nothing else holds them down."""
        for number in self.numbers:
            self.gpu.wires.release(number)
            self.gpu.row["links"][number]["state"] = int(self.gpu.wires.alive[number])

    def crossing(self, peers: Sequence[EmulatedGpu]) -> None:
        """Count the first data of a run that would cross."""
        del peers
        if self.active:
            self.count_run()

    def crossed(self) -> None:
        """Do nothing."""

    def refused(self) -> None:
        """Do nothing."""


class NvlinkDown(LinkFault):
    """nvlink-down, and nvswitch-down with all links of a GPU to that switch: inactive, no data."""

    def on(self) -> None:
        """Take them down."""
        self.hold()

    def off(self) -> None:
        """Bring them up."""
        self.release()

    def asked(self, metric: str, link: int | None) -> None:
        """Count the run that reads the state of one of them."""
        if metric == "nvlink.active" and link in self.numbers:
            self.count_run()


class NvlinkDegraded(LinkFault):
    """nvlink-degraded: up, at its stated speed by the driver, and slow."""

    def on(self) -> None:
        """Slow it down."""
        for number in self.numbers:
            self.gpu.wires.quality[number] = float(self.fault.parameters["factor"])

    def off(self) -> None:
        """Let it go."""
        for number in self.numbers:
            self.gpu.wires.quality[number] = 1.0


class NvlinkFlap(LinkFault):
    """nvlink-flap: drops under the first data of a run, and comes back."""

    _dropped = False

    def crossing(self, peers: Sequence[EmulatedGpu]) -> None:
        """Drop, count it in the driver, and report it: XID 149 here and 145 at peers, or XID 74."""
        if not self.active or self._felt:
            return
        self.count_run()
        self._dropped = True
        self.hold()
        new = int(self.gpu.row["nvlink_version"]) >= NVLINK_5
        for number in self.numbers:
            link = self.gpu.row["links"][number]
            for name, count in (DROP_5 if new else DROP_4).items():
                link[name] += count
            if new:
                link["fec_history"][FEC_BIN] += DROP_5["symbol_errors"]
                link["ber_mantissa"], link["ber_exponent"] = DROP_BER
            self.gpu.xid(149 if new else 74, f"NVLink {number}: the link went down")
        for peer in peers if new else ():
            peer.xid(145, f"NVLink: no answer from {self.gpu.gpu.subject}")

    def crossed(self) -> None:
        """Come back."""
        if self._dropped:
            self._dropped = False
            self.release()


class FabricUnhealthy(RowFault):
    """fabric-unhealthy: the GPU cannot reach its peers, and its driver says so.

    A driver of Hopper states no health: there the registration ends with an error.
    """

    shown_by = ("fabric.status", "fabric.health")

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        gpu.wires.faults.append(self)

    def fields(self) -> Mapping[str, Any]:
        """Return the registration as the driver then has it."""
        if int(self.gpu.row["fabric_health_summary"]) == NO_HEALTH:
            return {"fabric_status": _UNKNOWN_ERROR}
        summary, mask = _UNHEALTHY_SUMMARY, _ROUTE_UNHEALTHY
        return {"fabric_health_summary": summary, "fabric_health_mask": mask}

    def crossing(self, peers: Sequence[EmulatedGpu]) -> None:
        """Do nothing."""

    def crossed(self) -> None:
        """Do nothing."""

    def refused(self) -> None:
        """Count the run: it was asked to exchange data."""
        if self.active:
            self.count_run()


KINDS: Mapping[str, Kind] = {
    "nvlink-down": NvlinkDown,
    "nvlink-degraded": NvlinkDegraded,
    "nvlink-flap": NvlinkFlap,
    "nvswitch-down": NvlinkDown,
    "fabric-unhealthy": FabricUnhealthy,
}
