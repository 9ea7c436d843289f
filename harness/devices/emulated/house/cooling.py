"""What takes a rack's heat away: two kinds of liquid cooling with one interface, and plain air.

In: the heat of a rack, W. Out: the temperature and the flow at which coolant comes to the GPUs, and
the load that it can carry for ever.

    outlet     T_out = T_in + Q / (rho c_p V)       PG25 at 1.5 L/min for each kW: 10.1 K
    supply     at its set point while Q is within the capacity; what is over it stays in the loop

AALC (air-assisted) gives the heat to the room's air through whole side pods, FLC (facility loop) to
the facility's water through a plate of the size of the rack. Pumps that are lost take flow and, of
an AALC, the pods that they served; an FLC's capacity falls with its flow.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from rackproof.harness.devices.emulated.house.parameters import Parameters
from rackproof.harness.devices.emulated.physics import COOLANT_HEAT, outlet
from rackproof.harness.errors import SpecError

_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Design:
    """What a rack's cooling is built for: its greatest heat (W) and its set point (C)."""

    feed: str
    heat: float
    supply: float


class Cooling(Protocol):
    """What every kind can say. `flow` is the share of the flow that is due, 0..1."""

    supply: float
    flow: float

    @property
    def capacity(self) -> float:
        """The heat that it takes away for ever, W."""
        ...

    def outlet(self, heat: float) -> float:
        """Return the temperature of what comes back under `heat` W, C; NaN where nothing flows."""
        ...

    def pumps(self, share: float) -> None:
        """Leave this share of the flow, 0..1. SpecError where there is no pump, or no share."""
        ...

    def advance(self, heat: float, seconds: float) -> None:
        """Take a rack's mean heat, W, for so long."""
        ...


class _Liquid:
    """What AALC and FLC share: flow, outlet, and a loop that warms up when there is too much."""

    def __init__(self, design: Design, parameters: Parameters) -> None:
        self.design = design
        self.flow = 1.0
        self.supply = design.supply
        self.litres = parameters.number("cooling.flow") * design.heat / 1000.0
        """Flow that is due, L/min."""
        self._reserve = parameters.number("cooling.reserve")
        litres = parameters.number("cooling.loop") * design.heat / 1000.0
        self._joules = COOLANT_HEAT * litres / 1000.0
        self._backlog = 0.0

    @property
    def capacity(self) -> float:
        """The heat that it takes away for ever, W."""
        raise NotImplementedError

    def outlet(self, heat: float) -> float:
        """Return the temperature of what comes back under `heat` W, C; NaN where nothing flows."""
        flow = self.litres * self.flow
        return outlet(self.supply, heat, flow) if flow > 0.0 else math.nan

    def pumps(self, share: float) -> None:
        """Leave this share of the flow."""
        if not 0.0 <= share <= 1.0:
            msg = f"{self.design.feed}: a share of the flow is 0 to 1, not {share!r}"
            raise SpecError(msg)
        self.flow = share

    def advance(self, heat: float, seconds: float) -> None:
        """Take heat: what is over the capacity warms the loop, and is worked off when it can be.

        Where nothing flows no heat comes to the loop: it stays in the GPUs' plates (bank.py).
        """
        over = heat - self.capacity
        if self.flow <= 0.0 or (over <= 0.0 and not self._backlog):
            return
        self._backlog = max(0.0, self._backlog + over * seconds)
        self.supply = self.design.supply + self._backlog / self._joules


class AirAssisted(_Liquid):
    """AALC: side pods of 20 kW each, as many as the rack needs; a pod is there or it is not."""

    def __init__(self, design: Design, parameters: Parameters) -> None:
        super().__init__(design, parameters)
        self._pod = 1000.0 * parameters.number("cooling.pod")
        self.pods = math.ceil(design.heat * self._reserve / self._pod)

    @property
    def capacity(self) -> float:
        """The heat that the pods that are left take away, W: one at least while coolant flows."""
        left = math.floor(self.pods * self.flow + _NEAR)
        return self._pod * (max(1, left) if self.flow > 0.0 else 0)


class FacilityLoop(_Liquid):
    """FLC: a plate to the facility's water, whose capacity goes with the flow."""

    @property
    def capacity(self) -> float:
        """The heat that goes to the facility, W."""
        return self.design.heat * self._reserve * self.flow


class Air:
    """Each server's own fans: nothing of the house, and no limit to the load that it carries."""

    flow = 1.0
    capacity = math.inf

    def __init__(self, design: Design) -> None:
        self.design = design
        self.supply = design.supply

    def outlet(self, heat: float) -> float:
        """Return NaN: nobody measures the air."""
        del heat
        return math.nan

    def pumps(self, share: float) -> None:
        """Refuse: there are none."""
        msg = f"{self.design.feed}: air-cooled, it has no pumps to leave {share:g} of the flow of"
        raise SpecError(msg)

    def advance(self, heat: float, seconds: float) -> None:
        """Take any heat."""


def cooling(kind: str, design: Design, parameters: Parameters) -> Cooling:
    """Return a rack's cooling; any kind but aalc and flc is air."""
    match kind:
        case "aalc":
            return AirAssisted(design, parameters)
        case "flc":
            return FacilityLoop(design, parameters)
        case _:
            return Air(design)
