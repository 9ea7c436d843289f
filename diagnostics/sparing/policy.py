"""Who is taken out, what takes its place, and what stays exposed: least expected lost GPU-hours.

In: the roots of judged runs, each rack's stock, the hall's spare racks. Out: a decision for each
root. What the diagnosis wants done without a spare (watch, test, reset, restart, new software) is
done; the rest is chosen among what the stock allows, the surest fault first. Each choice costs

- keep: p (τ/s) rJ. A fault that lasts with probability p strikes every s hours until the repair
  after τ, and each strike costs the job's J GPUs r hours of rollback and restart
- swap-tray: rJ and the reserve that is used up; the spare tray is of the same NVLink domain
- swap-gpu: rJ and a t-th of that reserve; the tray of t GPUs stays in use without the one
- drop-tray: rJ + tτ, the job goes on narrower
- move-rack: the restart on another rack, and the reserve of the hall
- repair: rJ, and the tray's t GPUs for an hour of hands, or the whole domain for a switch tray
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.sparing.closed import poisson_at_most
from rackproof.diagnostics.sparing.tables import figure

MILD = {
    "none": "keep",
    "watch": "watch",
    "retest": "retest",
    "restart-app": "keep",
    "update-software": "update-software",
    "reset-gpu": "reset",
    "reboot-node": "reboot",
}
"""Actions that need no spare, and the decision that each is."""
_SWITCH = frozenset(("nvswitch", "fabric"))
_OWN = frozenset(("hbm", "sram", "sm", "unknown", "pcie"))  # the GPU's own: it can go alone
_SITE = frozenset(("power", "thermal"))


@dataclass(slots=True)
class Rack:
    """One NVLink domain: its trays, the GPUs of each, and how many trays are spare.

    `rate` is failures per GPU-hour, for what the reserve is worth; `job` how many GPUs stop when
    one does, the domain's own unless a job spans more; `whole` allows no tray in use without one of
    its GPUs. `taken` counts spare GPUs that are used up.
    """

    name: str
    trays: int
    per_tray: int
    spare: int
    rate: float
    job: int = 0
    whole: bool = False
    taken: int = 0
    out: set[str] = field(default_factory=set)

    @property
    def width(self) -> int:
        """GPUs in use."""
        return (self.trays - self.spare) * self.per_tray

    @property
    def left(self) -> int:
        """Spare GPUs that are left."""
        return self.spare * self.per_tray - self.taken


@dataclass(frozen=True, slots=True)
class Decided:
    """What is done about one root, what it costs, and what the alternatives would cost.

    `lasting` is the probability that the fault lasts; `exposed` says that it stays in use for want
    of a spare. Costs are expected GPU-hours.
    """

    rack: str
    diagnosis: Diagnosis
    decision: str
    lasting: float
    cost: float | None
    instead: Mapping[str, float]
    exposed: bool
    why: str


def lasting(diagnosis: Diagnosis) -> float:
    """Return the probability that a fault outlasts a rerun, by its persistence and confidence."""
    match diagnosis.persistence:
        case "persistent" | "intermittent":
            return diagnosis.confidence
        case "transient":
            return 1.0 - diagnosis.confidence
        case _:
            return figure("doubt", "undetermined")


def decide(roots: Iterable[tuple[Rack, Diagnosis]], spare_racks: int) -> list[Decided]:
    """Return a decision for each root, those that are surest to last first.

    The stock of the racks is used up on the way; `spare_racks` is what the hall has.
    """
    ordered = sorted(
        roots, key=lambda pair: (-lasting(pair[1]), pair[0].name, pair[1].subject, pair[1].case)
    )
    hall = [spare_racks]
    gone: set[str] = set()
    return [_one(rack, root, hall, gone) for rack, root in ordered]


def _tray(subject: str) -> str:
    return "/".join(subject.split("/")[:2])


def _one(rack: Rack, root: Diagnosis, hall: list[int], gone: set[str]) -> Decided:
    p = lasting(root)
    if rack.name in gone:
        return Decided(rack.name, root, "rack-out", p, 0.0, {}, exposed=False,
                       why="the job has left this rack")  # fmt: skip
    if _tray(root.subject) in rack.out:
        return Decided(rack.name, root, "tray-out", p, 0.0, {}, exposed=False,
                       why="its tray is out of use already")  # fmt: skip
    if root.action in MILD or root.component in ("app", "data"):
        decision = MILD.get(root.action, "keep")
        return Decided(rack.name, root, decision, p, None, {}, exposed=False,
                       why="the diagnosis asks for no spare")  # fmt: skip
    costs = _costs(rack, root, p, hall[0])
    decision = min(costs, key=lambda name: (costs[name], name))
    cost = costs.pop(decision)
    bare = decision in ("keep", "drop-tray")
    exposed = bare and p >= figure("doubt", "exposed")
    _use(rack, root, decision, hall)
    if decision == "move-rack":
        gone.add(rack.name)
    why = _why(decision, rack, hall[0], bare=exposed)
    if root.action == "rma":
        why += "; then RMA: the evidence is final"
    return Decided(rack.name, root, decision, p, cost, costs, exposed=exposed, why=why)


def _reserve(units: float, rate: float, spares: float, loss: float) -> float:
    """Return what the last of `spares` is worth: the chance that it is needed before a repair.

    `units` fail with `rate` each while the repair lasts, Poisson; without a spare `loss` is lost.
    """
    mean = units * rate * figure("time", "repair")
    now, then = (1.0 - poisson_at_most(int(s), mean) for s in (spares, spares - 1))
    return max(0.0, then - now) * loss


def _costs(rack: Rack, root: Diagnosis, p: float, hall: int) -> dict[str, float]:
    """Return the expected lost GPU-hours of everything that the stock allows."""
    width, per_tray = rack.width, rack.per_tray
    repair, restart = figure("time", "repair"), figure("time", "restart")
    often = "strike-intermittent" if root.persistence == "intermittent" else "strike"
    stop = restart * max(rack.job, width)
    found = {"keep": p * repair / figure("time", often) * stop}
    bare = stop + per_tray * repair
    in_tray = root.subject.startswith("rack") and "/tray" in root.subject
    if in_tray and root.component not in _SWITCH:
        found["drop-tray"] = bare
        worth = _reserve(rack.trays, rack.rate * per_tray, rack.left // per_tray, bare)
        if rack.left >= per_tray:
            found["swap-tray"] = stop + worth
        if not rack.whole and rack.left >= 1 < per_tray and root.component in _OWN:
            found["swap-gpu"] = stop + worth / per_tray
    if root.component == "nvlink":
        found["repair-link"] = stop + per_tray * figure("time", "hands")
    if root.component in _SWITCH:
        found["repair-switch"] = stop + width * figure("time", "switch")
    if root.component in _SITE:
        hit = per_tray if in_tray else width
        found["repair-site"] = stop + hit * figure("time", "hands")
    if hall:
        found["move-rack"] = figure("time", "move") * max(rack.job, width) + _reserve(
            rack.trays, rack.rate * per_tray, hall, bare
        )
    return found


def _use(rack: Rack, root: Diagnosis, decision: str, hall: list[int]) -> None:
    if decision == "swap-tray":
        rack.taken += rack.per_tray
        rack.out.add(_tray(root.subject))
    elif decision == "swap-gpu":
        rack.taken += 1
    elif decision == "drop-tray":
        rack.out.add(_tray(root.subject))
    elif decision == "move-rack":
        hall[0] -= 1


def _why(decision: str, rack: Rack, hall: int, *, bare: bool) -> str:
    if bare:
        what = "stays in use" if decision == "keep" else "leaves the job narrower"
        return f"no spare is left that is worth it: it {what}"
    match decision:
        case "swap-tray" | "swap-gpu":
            return f"a spare in the same NVLink domain; {rack.left} spare GPUs are left in it"
        case "move-rack":
            return f"{hall} spare racks are left in the hall"
        case "keep":
            return "less is lost by going on than by any change"
        case _:
            return "hands help more than a spare"


def exposed(decided: Sequence[Decided]) -> list[Decided]:
    """Return what stays exposed, the dearest first."""
    return sorted((d for d in decided if d.exposed), key=lambda d: -(d.cost or 0.0))
