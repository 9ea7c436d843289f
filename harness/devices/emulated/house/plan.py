"""What stands in the house of a rack: ratings, shelves and stores, by its file and the parameters.

In: a RackSpec and Parameters. Out: Plan and one RackPlan for each rack. A rack whose file leaves
open what the house must know is a SpecError that names every value that is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.harness.devices.emulated.house.breaker import Curve
from rackproof.harness.devices.emulated.house.parameters import Parameters
from rackproof.harness.devices.emulated.house.stores import StoreRating
from rackproof.harness.devices.emulated.physics import Part
from rackproof.harness.errors import SpecError
from rackproof.harness.spec import RackSpec

Said = bool | float
"""What a file says of a store: whether there is one, or its energy in kJ."""


@dataclass(frozen=True, slots=True)
class RackPlan:
    """One rack, W: `greatest` is what all its parts draw at most, `fixed` what no cap lowers.

    `shelves` of `shelf` W each; none where the file counts none, and the supplies then give the
    rack's rating. `bbu` and `cbu` are None where it has none.
    """

    number: int
    gpus: int
    fixed: float
    greatest: float
    rated: float
    shelves: int
    shelf: float
    bbu: StoreRating | None
    cbu: StoreRating | None
    cooling: str

    @property
    def feed(self) -> str:
        """Its subject."""
        return f"rack{self.number}/power"


@dataclass(frozen=True, slots=True)
class Plan:
    """The racks, what feeds them (W), the curves of their breakers, and the site's store."""

    racks: tuple[RackPlan, ...]
    row: float
    main: float
    site: float
    branch: Curve
    board: Curve
    bess: StoreRating | None


def plan(spec: RackSpec, parameters: Parameters) -> Plan:
    """Return what the house of this rack is built of."""
    _refuse_what_is_open(spec)
    number = parameters.number
    racks = tuple(_rack(spec, rack, parameters) for rack in range(spec.racks))
    row = number("rating.row") * sum(rack.rated for rack in racks)
    main = number("rating.main") * row
    site = number("rating.site") * main
    decay = number("breaker.decay")
    return Plan(
        racks,
        row,
        main,
        site,
        Curve(number("breaker.k"), number("breaker.a"), decay),
        Curve(number("breaker.main_k"), number("breaker.main_a"), decay),
        _bess(spec, site, parameters),
    )


def _refuse_what_is_open(spec: RackSpec) -> None:
    missing = []
    if spec.power.uncappable_kw is None:
        missing.append("[power] uncappable_kw, what a rack draws beside its GPUs")
    if spec.power.shelves and spec.power.shelf_kw is None:
        missing.append("[power] shelf_kw, what a shelf gives")
    stated = spec.sku.known("power_default")
    if stated is not None and stated.tag == "announced":
        missing.append(f"power_default of a {spec.sku.key}, which is announced and not known")
    if missing:
        msg = f"{spec.file}: nothing to build its power with: {'; '.join(missing)}"
        raise SpecError(msg)


def refuse_hot_or_dead(spec: RackSpec, parts: Sequence[Part]) -> None:
    """Raise SpecError where the file's GPUs can not be: their equations would have no answer."""
    for part in parts:
        idle = part.coolant + part.resistance * part.power_idle
        if not 0.0 < part.power_idle < part.power_max:
            msg = (
                f"a GPU that draws {part.power_idle:g} W idle and {part.power_max:g} W at most:"
                " power_idle must be above 0 and under power_default"
            )
        elif part.full_load <= part.coolant:
            msg = (
                f"coolant_temperature is {part.coolant:g} C and a GPU has {part.full_load:g} C at"
                " full load: no heat goes that way; lower coolant_temperature, or state a"
                " thermal_resistance above 0"
            )
        elif idle >= part.slowdown:
            msg = (
                f"an idle GPU has {idle:.0f} C with coolant of {part.coolant:g} C, and is slowed"
                f" down from {part.slowdown:g} C on: no load can run"
            )
        else:
            continue
        msg = f"{spec.file}: [emulation]: {msg}"
        raise SpecError(msg)


def _rack(spec: RackSpec, rack: int, parameters: Parameters) -> RackPlan:
    gpus = [gpu for gpu in spec.gpus if gpu.rack == rack]
    each = spec.assumed("power_default") or spec.assumed("power_max")
    if each is None:
        msg = f"{spec.file}: nothing to emulate power_max with: add it to [emulation]"
        raise SpecError(msg)
    fixed = 1000.0 * (spec.power.uncappable_kw or 0.0)
    greatest = fixed + len(gpus) * float(each)
    stated = f"rating.{spec.name}"
    if stated in parameters.known:
        rated = 1000.0 * parameters.number(stated)
    else:
        rated = parameters.number("rating.headroom") * greatest
    return RackPlan(
        number=rack,
        gpus=len(gpus),
        fixed=fixed,
        greatest=greatest,
        rated=rated,
        shelves=spec.power.shelves,
        shelf=1000.0 * (spec.power.shelf_kw or 0.0),
        bbu=_bbu(spec.power.bbu, rated, parameters),
        cbu=_cbu(spec.power.cbu, len(gpus), parameters),
        cooling=spec.cooling,
    )


def _energy(said: Said, otherwise: float) -> float:
    """Return the J of a store: the file's kJ, or what stands for ``true``."""
    return otherwise if said is True else 1000.0 * said


def _bbu(said: Said, rated: float, parameters: Parameters) -> StoreRating | None:
    """Return the battery: the ride at the rack's rating is what comes out of it."""
    if not said:
        return None
    number = parameters.number
    efficiency = number("bbu.efficiency")
    return StoreRating(
        energy=_energy(said, number("bbu.ride") * rated / efficiency),
        power=number("bbu.overload") * rated,
        efficiency=efficiency,
        reaction=number("bbu.reaction"),
        smooth=1.0,
        recentre=0.0,
    )


def _cbu(said: Said, gpus: int, parameters: Parameters) -> StoreRating | None:
    if not said:
        return None
    number = parameters.number
    return StoreRating(
        energy=_energy(said, number("cbu.energy") * gpus),
        power=number("cbu.power") * gpus,
        efficiency=number("cbu.efficiency"),
        reaction=number("cbu.reaction"),
        smooth=number("cbu.smooth"),
        recentre=number("cbu.recentre"),
    )


def _bess(spec: RackSpec, site: float, parameters: Parameters) -> StoreRating | None:
    if not spec.power.bess:
        return None
    number = parameters.number
    return StoreRating(
        energy=_energy(spec.power.bess, number("bess.ride") * site),
        power=number("bess.power") * site,
        efficiency=number("bess.efficiency"),
        reaction=number("bess.reaction"),
        smooth=number("bess.smooth"),
        recentre=number("bess.recentre"),
    )
