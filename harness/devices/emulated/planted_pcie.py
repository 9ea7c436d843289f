"""Faults of the PCIe link between a GPU and its host.

In: a Fault and the GPU that it is on. Out: a link (bus.py) that trains below what it can.
"""

from collections.abc import Mapping

from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.strikes import Kind, Plan, Strike
from rackproof.harness.errors import SpecError
from rackproof.harness.faults import Fault


class PcieDowntrain(Strike):
    """pcie-downtrain: seen while data moves only; at rest every link is at its lowest."""

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self._gen = int(fault.parameters["gen"])
        if self._gen >= gpu.bus.best:
            msg = f"{fault}: the link of this GPU is of Gen {gpu.bus.best}; name a lower one"
            raise SpecError(msg)

    def on(self) -> None:
        """Train to the older generation."""
        self.gpu.bus.trained = self._gen

    def off(self) -> None:
        """Train to the best one."""
        self.gpu.bus.trained = self.gpu.bus.best

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads the generation while data moves."""
        del link
        if metric == "pcie.gen" and self.gpu.bus.moving:
            self.count_run()


KINDS: Mapping[str, Kind] = {"pcie-downtrain": PcieDowntrain}
