"""What fails on one subject because of another: a link's GPU, a lost GPU's partners, the fabric.

Who is at fault shows a sign of its own (a link that is down, a GPU that is gone, coolant that
stands still); who only could not exchange data with it, or repeats what it heard, follows it. In:
the groups of failed checks and what they share. Out: the cases that are led by another group.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from rackproof.diagnostics.effects import FOLLOWS, LINKS, RATES, SHORT, matches
from rackproof.diagnostics.evidence import Head, gpu_of
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.rules.xid import rule_of
from rackproof.diagnostics.shared import Shared, rack_of, tray_of
from rackproof.harness.model import WIDE, Event, sort_of

# What a GPU cannot do because of another GPU: all but a slow copy to most of its partners.
WITH_OTHERS = (
    "link.pair.coverage", "link.*.wrong", "link.all.rate", "link.collective.*", *FOLLOWS,
)  # fmt: skip
# Who is at fault where several could be, in this order. `slow` is a GPU that computes slowly.
BY_LINK = ("fabric", "link", "gone", "links", "reach")
BY_SPEED = ("thermal", "brake", "cap", "power", "slow")
HALF = 0.5
Events = Mapping[str, Sequence[Event]]


def _all(group: Group, patterns: tuple[str, ...]) -> bool:
    return all(matches(name, patterns) for name in group.metrics)


def _heard(group: Group, events: Events) -> bool:
    """Whether a group is nothing but Xids that follow somebody else's fault."""
    codes = [e.code for e in events.get(group.subject, ()) if e.code.startswith("xid.")]
    numbers = [int(code[4:]) for code in codes if code[4:].isdecimal()]
    return group.cause == "said" and bool(numbers) and all(
        rule_of(number).kind == "sympathetic" for number in numbers
    )  # fmt: skip


def _alone(group: Group) -> bool:
    """Whether a GPU reached less than half of its partners: they reach each other, and it is it."""
    return any(
        check.metric == "link.pair.coverage" and isinstance(value, int | float) and value < HALF
        for check in group.checks
        for value in check.runs
    )


def _sort(group: Group, head: Head, events: Events) -> str:
    """Name the sort of fault that a group is to others; an empty text where it is none."""
    if sort_of(group.subject) == "link":
        return "link"
    sort = ""
    if group.subject not in head.gpus:
        pass
    elif group.cause in ("gone", "fabric", "thermal", "brake", "cap", "power"):
        sort = group.cause
    elif _alone(group):
        sort = "reach"
    elif group.cause == "sm" and any(matches(name, ("gemm.*.rate",)) for name in group.metrics):
        sort = "slow"
    elif group.component == "nvlink":
        speaks = group.cause == "said" and not _heard(group, events)
        sort = "links" if speaks or not _all(group, WITH_OTHERS) else ""
    return sort


class _Search:
    """Finds, for a group, the fault that it follows from."""

    def __init__(self, head: Head, groups: Sequence[Group], events: Events) -> None:
        self.head, self.events = head, events
        self.by_sort: dict[str, list[Group]] = defaultdict(list)
        self.by_gpu: dict[str, list[Group]] = defaultdict(list)
        self.zones: dict[str, Group] = {}
        for group in groups:
            self.by_sort[_sort(group, head, events)].append(group)
            self.by_gpu[gpu_of(group.subject)].append(group)
            if sort_of(group.subject) == "cooling":
                self.zones[rack_of(group.subject)] = group

    def first(self, group: Group, sorts: Sequence[str]) -> Group | None:
        """Return the first fault of `sorts`, in their order, elsewhere in the group's domain."""
        found = (g for sort in sorts for g in self.by_sort[sort] if g.subject != group.subject)
        return next((g for g in found if self._joined(group.subject, g.subject)), None)

    def _joined(self, one: str, other: str) -> bool:
        """Whether NVLink joins two subjects: domains smaller than the rack are a node's own."""
        split = self.head.domain is not None and self.head.domain < len(self.head.gpus)
        if WIDE in (one, other) or not split:
            return True
        return tray_of(gpu_of(one)) == tray_of(gpu_of(other))

    def own(self, group: Group, wanted: Callable[[Group], bool]) -> Group | None:
        """Return the first other group on the same GPU and its links that is `wanted`."""
        found = (g for g in self.by_gpu[group.subject] if g is not group and wanted(g))
        return next(found, None)

    def of(self, group: Group) -> Group | None:
        """Return the group that `group` follows from, or None."""
        if group.subject == WIDE:
            return self.first(group, (*BY_LINK, *BY_SPEED))
        if sort_of(group.subject) == "host":
            return self._under(group) if group.cause == "pcie" else None
        if group.subject not in self.head.gpus:
            return None
        zone = self.zones.get(rack_of(group.subject))
        slow = group.cause != "said" and _all(group, (*RATES, *SHORT, *FOLLOWS))
        if zone and (group.cause == "thermal" or slow):
            return zone
        return self._exchange(group)

    def _exchange(self, group: Group) -> Group | None:
        """Return the fault that keeps a GPU from exchanging data, or that it has heard of."""
        said = group.cause == "said"
        if said and group.component != "nvlink" and not _heard(group, self.events):
            return None
        if not said and not _all(group, (*LINKS, *FOLLOWS)):
            return None
        mine = self.own(group, _is_link)
        speaks = said and not _heard(group, self.events)
        if mine or speaks or _alone(group) or not _all(group, WITH_OTHERS):
            return mine
        return self.first(group, BY_LINK if said else (*BY_LINK, *BY_SPEED))

    def _under(self, host: Group) -> Group | None:
        """Return the GPU of a host that its PCIe errors come from: one with a fault of its bus."""
        tray = tray_of(host.subject)
        faults = (g for g in self.by_sort["gone"] + self.by_sort[""] if g.cause in ("gone", "pcie"))
        return next((g for g in faults if tray_of(g.subject) == tray and g is not host), None)


def _is_link(group: Group) -> bool:
    return sort_of(group.subject) == "link"


def distant(
    head: Head, groups: Sequence[Group], cases: Sequence[Shared], events: Events
) -> list[Shared]:
    """Return the further cases: those in which one group follows from another, one for each root.

    Repeats of what others heard, and partners that many cannot reach, are the fabric's where there
    is nobody to follow from.
    """
    taken = {id(member) for case in cases for member in case.members}
    search = _Search(head, groups, events)
    led: dict[int, tuple[Group, list[Group]]] = {}
    crowd = []
    for group in groups:
        if id(group) in taken:
            continue
        root = search.of(group)
        if root is not None:
            led.setdefault(id(root), (root, []))[1].append(group)
        elif _heard(group, events) or (group.cause == "reach" and not _alone(group)):
            crowd.append(group)
    found = [
        Shared(root.subject, root.cause, root.component, tuple(members), root)
        for root, members in led.values()
    ]
    if len(crowd) > 1:
        lead = next((g for g in groups if g.subject == WIDE and id(g) not in taken), None)
        found.append(Shared(WIDE, "fabric", "fabric", tuple(crowd), lead))
    return found
