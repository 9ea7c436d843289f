"""The faults that can be planted into an emulated GPU: a class for each kind, a few lines each.

In: a Fault (faults.py) and the GPU that it is on. Out: a changed row, memory, die or product, and
a count of how often that was felt. Adding a kind is a class here or in a file of its family
(planted_memory.py, ...), an entry in that file's KINDS, and ``available = true`` in faults.toml.
When a fault acts is the business of strikes.py.
"""

import math
from collections.abc import Mapping
from typing import Any

from rackproof.harness.devices.emulated import draw
from rackproof.harness.devices.emulated.compute import LANES, OutputFault
from rackproof.harness.devices.emulated.driver_state import CORRECTED, Flag, Sensor, sensor_of
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.rows import Constants, fill_links, part_fields
from rackproof.harness.devices.emulated.strikes import TICK_S, Kind, Plan, Strike
from rackproof.harness.errors import SpecError
from rackproof.harness.faults import Fault
from rackproof.harness.skus import sku

THROTTLED_SHARE = 0.1
"""Share of its dynamic power that a GPU with thermal-throttle can get rid of."""


PRODUCT = 1.0
"""The utilisation of products; memory traffic has less, and does not feel the clocks."""


class RowFault(Strike):
    """Faults that are fields of the driver's row; they fire in each run that reads one of them."""

    shown_by: tuple[str, ...] = ()
    """The metrics that read these fields."""

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self._before: dict[str, Any] = {}

    def fields(self) -> Mapping[str, Any]:
        """Return the fields that the fault changes, with the values that it gives them."""
        raise NotImplementedError

    def on(self) -> None:
        """Write them."""
        row = self.gpu.row
        for name, value in self.fields().items():
            old = row[name]
            self._before[name] = old.copy() if hasattr(old, "copy") else old
            row[name] = value

    def off(self) -> None:
        """Write back what was there."""
        for name, value in self._before.items():
            self.gpu.row[name] = value
        self._before.clear()

    def asked(self, metric: str, link: int | None) -> None:
        """Count the run."""
        del link
        if metric in self.shown_by:
            self.count_run()


class RowRemapPending(RowFault):
    """row-remap-pending."""

    shown_by = ("remap.pending",)
    with_gpu = True

    def reset(self) -> None:
        """Be over: the rows are remapped now. They stay counted as remapped.

        docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt: a pending remap happens at the next reset.
        """
        if self.active:
            self.gpu.row["remap_pending"] = 0
            self._before.clear()
            self.active, self.spent = False, True

    def fields(self) -> Mapping[str, Any]:
        """Return rows that were remapped and wait for a reset."""
        rows = int(self.gpu.row["remap_uncorrected"]) + int(self.fault.parameters["rows"])
        return {"remap_pending": 1, "remap_uncorrected": rows}


class RowRemapFailure(RowFault):
    """row-remap-failure: XID 64 once, in the first run under load; the flag stays."""

    shown_by = ("remap.failure", "remap.banks.none")
    with_gpu = True

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self._said = plan.already > 0

    def fields(self) -> Mapping[str, Any]:
        """Return a failed remap: the bank has no spare row left."""
        histogram = [int(banks) for banks in self.gpu.row["remap_histogram"]]
        histogram[0] = max(0, histogram[0] - 1)
        histogram[-1] += 1
        return {"remap_failure": 1, "remap_histogram": histogram}

    def worked(self, seconds: float, utilisation: float) -> None:
        """Say it once, when the GPU first works."""
        if seconds > 0.0 and utilisation > 0.0 and not self._said:
            self._said = True
            self.gpu.xid(64, "row remapper: a row could not be remapped")


class EccStorm(Strike):
    """ecc-storm: corrected errors by the second of the GPU's time, loaded or not."""

    with_gpu = True
    _rest = 0.0

    def worked(self, seconds: float, utilisation: float) -> None:
        """Let the errors of these seconds happen; those of a load count as felt."""
        self._rest += float(self.fault.parameters["per_second"]) * seconds
        errors = math.floor(self._rest)
        self._rest -= errors
        self.gpu.count(CORRECTED, errors)
        if utilisation > 0.0:
            self.count(errors)


class SmSdc(Strike):
    """sm-sdc: every product of a struck run has one wrong element, in the GPU's one bad lane.

    With a rate of 1 the lane errs each time, so that repeats agree with one another; below it, it
    errs now and then, and the first and the last of the repeats differ.
    """

    with_gpu = True

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self.fault_of_output = OutputFault(
            relative=float(fault.parameters["relative"]),
            lane=draw.below(LANES, *plan.name("lane")),
            steady=float(fault.parameters["rate"]) >= 1.0,
        )

    def on(self) -> None:
        """Let the products be wrong."""
        self.gpu.errs = self

    def off(self) -> None:
        """Let them be right."""
        self.gpu.errs = None


class SlowGpu(Strike):
    """slow-gpu: the clock says one thing and the products another."""

    with_gpu = True

    def on(self) -> None:
        """Slow the products down."""
        self.gpu.slow = float(self.fault.parameters["factor"])

    def off(self) -> None:
        """Let them go."""
        self.gpu.slow = 1.0

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count the first product of a run."""
        if seconds > 0.0 and utilisation >= PRODUCT:
            self.count_run()


class GpuLost(Strike):
    """gpu-lost: at its time, in the middle of a load, the GPU answers no more: XID 79.

    Where the time comes while the GPU idles, it is lost in the next load.
    """

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self._at = float(fault.parameters["at"]) * plan.horizon_s
        self._lost = False

    def on(self) -> None:
        """Lose it at once where it was lost before the run was taken up again."""
        if self.plan.already:
            self._lose()

    def off(self) -> None:
        """Let it come back, as after a reboot."""
        self._lost = False
        self.gpu.row["flags"] &= ~Flag.LOST & 0xFFFFFFFF

    def due(self, now: float, utilisation: float) -> float:
        """Return the seconds until it is lost, or comes back; an idle GPU is not lost."""
        stops = super().due(now, utilisation)
        if not self.active or self._lost or utilisation == 0.0:
            return stops
        return min(stops, max(0.0, self._at - now))

    def worked(self, seconds: float, utilisation: float) -> None:
        """Lose it when its time has come."""
        del seconds
        late = self.gpu.clock.now() >= self._at - TICK_S
        if late and utilisation > 0.0 and not self._lost:
            self.gpu.xid(79, "GPU has fallen off the bus")
            self._lose()
            self.count()

    def _lose(self) -> None:
        self._lost = True
        self.gpu.row["flags"] |= Flag.LOST


class GpuMissing(Strike):
    """gpu-missing: the driver does not list it.

    No run begins on what is not there, so the fault counts when it is planted. Where it is drawn
    for single runs the driver has listed the GPU already, and its calls answer GPU_IS_LOST.
    """

    early = True
    _flag = Flag.ABSENT

    def place(self) -> None:
        """Plant it."""
        super().place()
        if self.active:
            self.count()
        else:
            self._flag = Flag.LOST

    def on(self) -> None:
        """Take it off the driver's list."""
        self.gpu.row["flags"] |= self._flag

    def off(self) -> None:
        """Put it back."""
        self.gpu.row["flags"] &= ~self._flag & 0xFFFFFFFF

    def began(self) -> None:
        """Count the run."""
        self.count_run()


class WrongSku(RowFault):
    """wrong-sku: the driver describes a part of another kind; its memory is that part's."""

    early = True
    shown_by = ("gpu.name", "gpu.pci_id", "memory.total")
    with_gpu = True

    def fields(self) -> Mapping[str, Any]:
        """Return what the driver says of the other part, NVLinks included."""
        other = sku(str(self.fault.parameters["sku"]))
        constants = Constants(self.plan.spec, other)
        row = self.gpu.row.copy()
        links = other.number("nvlink_links") or self.plan.spec.links
        if links:
            fill_links(row, int(links), constants)
        names = ("nvlink_count", "nvlink_version", "links")
        return part_fields(constants) | {name: row[name] for name in names}

    def on(self) -> None:
        """Change the part."""
        super().on()
        self.gpu.replace_memory()

    def off(self) -> None:
        """Change it back."""
        super().off()
        self.gpu.replace_memory()


class ThermalThrottle(Strike):
    """thermal-throttle: heat does not get from the die to the coolant."""

    def on(self) -> None:
        """Raise the die's heat resistance until a tenth of its load is what it can hold."""
        part = self.gpu.die.part
        watts = part.power_idle + THROTTLED_SHARE * (part.power_max - part.power_idle)
        self.gpu.die.cooling = (part.slowdown - part.coolant) / (part.resistance * watts)
        self.gpu.sync()

    def off(self) -> None:
        """Mend it."""
        self.gpu.die.cooling = 1.0

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count a product that it slows down."""
        del seconds
        if self.gpu.die.throttled and utilisation >= PRODUCT:
            self.count_run()

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads of the slowdown."""
        del link
        if self.gpu.die.throttled and metric in {"throttle.thermal", "thermal.margin"}:
            self.count_run()


class PowerBrake(Strike):
    """power-brake: the external signal is asserted, with load and without."""

    def on(self) -> None:
        """Assert it."""
        self.gpu.die.brake = True
        self.gpu.sync()

    def off(self) -> None:
        """Release it."""
        self.gpu.die.brake = False
        self.gpu.sync()

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count a product that it slows down."""
        if seconds > 0.0 and utilisation >= PRODUCT:
            self.count_run()

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads of it."""
        del link
        if metric == "throttle.power_brake":
            self.count_run()


class SensorMissing(RowFault):
    """sensor-missing: the driver answers UNKNOWN for that reading and all that share its sensor."""

    with_gpu = True

    @property
    def _sensor(self) -> Sensor:
        metric = str(self.fault.parameters["metric"])
        sensor = sensor_of(metric)
        if sensor is None:
            msg = f"sensor-missing: {metric} is read from no sensor that can be missing"
            raise SpecError(msg)
        return sensor

    def fields(self) -> Mapping[str, Any]:
        """Return the row's mask with that sensor in it."""
        return {"missing": int(self.gpu.row["missing"]) | self._sensor}

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that asks the sensor, or for what is worked out from it."""
        del link
        hidden = self._sensor
        if hidden is Sensor.TEMPERATURE:
            hidden |= Sensor.MARGIN
        if (sensor_of(metric) or Sensor(0)) & hidden:
            self.count_run()


KINDS: Mapping[str, Kind] = {
    "row-remap-pending": RowRemapPending,
    "row-remap-failure": RowRemapFailure,
    "ecc-storm": EccStorm,
    "sm-sdc": SmSdc,
    "slow-gpu": SlowGpu,
    "gpu-lost": GpuLost,
    "gpu-missing": GpuMissing,
    "wrong-sku": WrongSku,
    "thermal-throttle": ThermalThrottle,
    "power-brake": PowerBrake,
    "sensor-missing": SensorMissing,
}
