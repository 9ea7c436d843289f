"""The faults of power and cooling that GPUs feel: caps that nobody asked for, or nobody keeps.

In: a Fault and the GPU that it is on. Out: a changed limit, a limit that is only said, or a die
whose coolant stands still. What the cooling itself says of that is planted_site.py's.
"""

from collections.abc import Mapping

from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.planted import PRODUCT
from rackproof.harness.devices.emulated.strikes import Kind, Plan, Strike
from rackproof.harness.faults import Fault

CAP_SHARE = 0.7
"""What a cap out of band leaves of the default limit where no watts are given."""
OVER = 1.02
"""Power that is this much over a limit does not keep it."""
LIMITS = frozenset({"power.limit", "power.limit.gap"})
HOT = frozenset({"throttle.thermal", "throttled.hw_thermal", "throttled.sw_thermal"})


class CapOutOfBand(Strike):
    """power-cap-out-of-band: the board's own controller holds a lower limit than the driver's."""

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        default = float(gpu.row["limit_default_mw"]) / 1000.0
        self._watts = float(fault.parameters.get("watts", CAP_SHARE * default))

    def on(self) -> None:
        """Set the cap."""
        self.gpu.row["limit_out_of_band_mw"] = max(1, round(self._watts * 1000.0))

    def off(self) -> None:
        """Take it away."""
        self.gpu.row["limit_out_of_band_mw"] = 0

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count a load that it slows down."""
        if seconds > 0.0 and utilisation >= PRODUCT and self.gpu.die.capped:
            self.count_run()

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads the limits, where the cap is the lower one."""
        del link
        if metric in LIMITS and self.gpu.limit * 1000.0 < self.gpu.row["limit_requested_mw"]:
            self.count_run()


class CapIgnored(Strike):
    """power-cap-ignored: the limit is taken, read back as enforced, and not kept."""

    def on(self) -> None:
        """Keep no limit but the board's own."""
        self.gpu.keeps_limit = False
        self.gpu.die.limit = self.gpu.die.part.power_max

    def off(self) -> None:
        """Keep the limit."""
        self.gpu.keeps_limit = True

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count a load that draws more than the limit."""
        if seconds > 0.0 and utilisation > 0.0 and self.gpu.die.power > OVER * self.gpu.limit:
            self.count_run()


class CoolantStops(Strike):
    """coolant-loss, as a GPU of that rack feels it: its heat stays in the coolant of its plate."""

    def on(self) -> None:
        """Stop the flow."""
        self.gpu.die.flowing = False
        self.gpu.sync()

    def off(self) -> None:
        """Let it flow."""
        self.gpu.die.flowing = True

    def worked(self, seconds: float, utilisation: float) -> None:
        """Count a load that it slows down."""
        if seconds > 0.0 and utilisation > 0.0 and self.gpu.die.throttled:
            self.count_run()

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads of the slowdown."""
        del link
        if self.gpu.die.throttled and metric in HOT:
            self.count_run()


KINDS: Mapping[str, Kind] = {
    "power-cap-out-of-band": CapOutOfBand,
    "power-cap-ignored": CapIgnored,
    "coolant-loss": CoolantStops,
}
