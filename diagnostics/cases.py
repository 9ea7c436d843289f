"""From episodes to cases: which episode is the root, and which only follow from it.

A case is one root with the episodes within thirty seconds that a rule ties to it. What no rule ties
to anything is a case of its own, also on the same GPU. The rules, in the order of their weight:

- on one GPU, sympathetic, application and driver signs follow a hardware fault; everything follows
  a GPU that fell off the bus; contexts and channels follow a firmware that fell silent; Xid 45,
  which only cleans up, follows whatever else the driver or an early sign tells of;
- Xid 145, 137 and 108 of other GPUs follow the one whose link failed (149, 144, 146 to 150, 74),
  on other machines also where the clocks differ by up to a minute or cannot be compared;
- Xid 74 follows a fatal SXid; the same SXid on several switches follows the one GPU that fell, else
  the fabric; AER errors of a port follow the GPU behind it;
- the same fault on several GPUs at once has its root outside of them: host or fabric.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rackproof.diagnostics.episodes import CASE, Episode, before, near, places
from rackproof.diagnostics.nearby import SKEW, Nearby
from rackproof.diagnostics.rules.tables import Rule
from rackproof.diagnostics.rules.xid import KINDS, SEVERITY, rank

MINUTE = 60.0
HARD = frozenset(("terminal", "hardware"))
LINKS = frozenset(("link", "c2c"))
_LATER = frozenset(("engine", "init", "retirement", "gsp", "sign-unknown"))
_PCIE = frozenset(("pcie", "pcie-corrected"))
_CORES = frozenset(("xid.13", "xid.31", "xid.43"))
_SEEN_AT_GPU = frozenset(("xid.74", "xid.137", "xid.108"))
_CLEAN_UP = frozenset(("xid.45",))
_MILD = frozenset(("driver", "watch"))
_UNRECOVERED = "aer.unrecovered"


@dataclass(slots=True)
class Case:
    """One root. `rule` says what it is; `root` holds its episodes, `tied` those that follow.

    `outside` is ``host`` or ``fabric`` where the root lies outside of the places that told of it.
    `slot` says that it stayed where it was when another GPU came there.
    """

    machine: str
    subject: str
    rule: Rule
    root: list[Episode] = field(default_factory=list)
    tied: list[Episode] = field(default_factory=list)
    outside: str = ""
    slot: bool = False

    def victims(self) -> set[tuple[str, str]]:
        """Return the (machine, subject) pairs that suffered from it."""
        return places(self.tied) - {(self.machine, self.subject)}


def _code(episode: Episode) -> int:
    digits = episode.lead.event.code.rpartition(".")[2]
    return int(digits) if digits.isdecimal() else 0


def weight(episode: Episode) -> tuple[object, ...]:
    """Sort key: the smallest is the most of a root, and of equals the earliest."""
    lead = episode.lead
    if lead.event.code.startswith("xid."):
        ranked = rank(_code(episode))
        family, link = ranked[1], ranked[2]
    else:
        bus = lead.event.code == "nvrm.fallen"
        family, link = (0 if bus else 9), 1
    kind = KINDS.index(episode.kind)
    return (max(kind, 1), family, link, kind, *episode.order())


def _same_gpu(root: Episode, other: Episode) -> bool:
    """On one GPU: what follows a hardware fault, whoever wrote it first."""
    if (root.machine, root.subject) != (other.machine, other.subject) or root.kind not in HARD:
        return False
    if other.kind not in HARD:
        return True
    if root.family == "bus":
        return other.family in LINKS | _PCIE or before(root, other)
    return other.family in _LATER and before(root, other)


def _silent(root: Episode, other: Episode) -> bool:
    """On one GPU: once its firmware has fallen silent, contexts and channels fail."""
    return other.kind not in HARD and other.family != "gsp" and before(root, other)


def _cleaned(root: Episode, other: Episode) -> bool:
    """On one GPU: Xid 45 alone is the clean-up after something else, and drives no verdict."""
    return other.codes <= _CLEAN_UP and not root.codes <= _CLEAN_UP


def _peer_link(root: Episode, other: Episode) -> bool:
    """On other GPUs of the NVLink domain: what follows a link's failure."""
    return (
        root.family == "link" and root.kind in HARD
        and other.family == "link" and other.kind == "sympathetic"
        and (root.machine, root.subject) != (other.machine, other.subject)
    )  # fmt: skip


def _switch(root: Episode, other: Episode) -> bool:
    """A fatal SXid, and the GPU that sees it as Xid 74; also its milder companions."""
    if root.machine != other.machine or root.family != "switch" or root.kind not in HARD:
        return False
    if other.family == "switch":
        return other.kind not in HARD
    return other.family == "link" and other.codes <= _SEEN_AT_GPU


def _port(root: Episode, other: Episode) -> bool:
    """AER names the port above; the GPU behind it is the one that is gone or not recovered."""
    return root.machine == other.machine and other.family in _PCIE


def _worse(root: Episode, other: Episode) -> bool:
    """On one port: what is milder follows what is fatal; also on one GPU, see _same_gpu."""
    milder = root.family == "pcie" and other.family in _PCIE and other.kind not in HARD
    return milder or _same_gpu(root, other)


def _elsewhere(root: Episode, other: Episode) -> bool:
    return root.machine != other.machine and _peer_link(root, other)


class _Roots:
    """The episodes that can be roots, ready to be asked for the root of any other."""

    def __init__(self, found: Sequence[Episode]) -> None:
        hard = [episode for episode in found if episode.kind in HARD]
        silent = [episode for episode in found if episode.family == "gsp"]
        mild = [episode for episode in found if episode.kind in _MILD]
        self._near = Nearby(weight)
        soft = {id(e): e for e in (*silent, *mild) if e.kind not in HARD}
        self._near.rank([*hard, *soft.values()])
        groups: dict[tuple[object, ...], list[Episode]] = defaultdict(list)
        for e in hard:
            groups["gpu", e.clock, e.machine, e.subject].append(e)
            if e.family in ("bus", "switch"):
                groups[e.family, e.clock, e.machine].append(e)
            if _UNRECOVERED in e.codes:
                groups[_UNRECOVERED, e.clock, e.machine].append(e)
            if e.family == "link":
                groups["link", e.clock].append(e)
        for e in silent:
            groups["gsp", e.clock, e.machine, e.subject].append(e)
        for e in mild:
            groups["mild", e.clock, e.machine, e.subject].append(e)
        for key, members in groups.items():
            self._near.add(key, members)
        links = [e for e in hard if e.family == "link"]
        self._only = min(links, key=weight) if len(places(links)) == 1 else None

    def parent(self, e: Episode) -> Episode | None:
        """Return the weightiest episode nearby that a rule makes the root of this one."""
        find, here = self._near.first, (e.clock, e.machine)
        options = [find(("gpu", *here, e.subject), e, _worse),
                   find(("gsp", *here, e.subject), e, _silent)]  # fmt: skip
        if e.codes <= _CLEAN_UP:
            options.append(find(("mild", *here, e.subject), e, _cleaned))
        if e.family in _PCIE:
            options.append(find(("bus", *here), e, _port))
            if _UNRECOVERED not in e.codes:
                options.append(find((_UNRECOVERED, *here), e, _port))
        if e.family in ("switch", "link") and (e.kind not in HARD or e.codes <= _SEEN_AT_GPU):
            options.append(find(("switch", *here), e, _switch))
        if e.family == "link" and e.kind == "sympathetic":
            options.append(self._linked(e))
        return self._near.lightest(options)

    def _linked(self, e: Episode) -> Episode | None:
        """Return the failed link that this one follows, on whatever machine of the domain.

        Clocks of two machines may differ by SKEW. Where no clock is common to both, the one failed
        link of the whole call is it: that the fabric failed on its own would be a bolder claim.
        """
        key = ("link", e.clock)
        found = self._near.first(key, e, _peer_link)
        found = found or self._near.first(key, e, _elsewhere, CASE + SKEW)
        only = self._only
        if found is None and only is not None and only.clock != e.clock and _elsewhere(only, e):
            return only
        return found


def _tops(found: Sequence[Episode]) -> dict[int, Episode]:
    """Return for each episode, by its position, the root that it leads to; itself where none."""
    roots = _Roots(found)
    parents = {i: roots.parent(e) for i, e in enumerate(found)}
    where = {id(episode): i for i, episode in enumerate(found)}
    tops = {}
    for start in range(len(found)):
        at, seen = start, {start}
        while (up := parents[at]) is not None and where[id(up)] not in seen:
            at = where[id(up)]
            seen.add(at)
        tops[start] = found[at]
    return tops


def _gravest(top: Episode) -> Rule:
    """Return the lead's rule with the gravest action of its kind: 95 after 94 asks for a reset."""
    actions = [s.rule.action for s in top.said if s.rule.kind == top.kind]
    return replace(top.lead.rule, action=max(actions, key=SEVERITY.index))


def _gather(found: Sequence[Episode]) -> list[Case]:
    cases: dict[int, Case] = {}
    for i, top in _tops(found).items():
        if id(top) not in cases:
            cases[id(top)] = Case(top.machine, top.subject, _gravest(top), [top])
        if found[i] is not top:
            cases[id(top)].tied.append(found[i])
    return list(cases.values())


def _outside(case: Case) -> tuple[str, str]:
    """Return (sort of common cause, component) that `case` would have if others share it."""
    episode = case.root[0]
    if episode.family == "switch" and episode.kind in HARD:
        return "fabric", "fabric"
    if episode.family == "link" and episode.kind == "sympathetic":
        return "fabric", "fabric"
    if episode.family == "bus" or _UNRECOVERED in episode.codes:
        return "host", "pcie"
    if episode.family == "gsp":
        return "host", "driver"
    if episode.codes <= _CORES:
        return "host", "app"
    return "", ""


def _alike(cases: Iterable[Case]) -> list[list[Case]]:
    """Group cases of one sort that began within the same window, on different places."""
    groups: dict[tuple[str, str, str, str], list[Case]] = defaultdict(list)
    for case in cases:
        where, component = _outside(case)
        machine = "" if where == "fabric" and case.root[0].family == "link" else case.machine
        clock = str(case.root[0].clock)
        alike = f"{component} {case.root[0].family in ('switch', 'pcie')}"
        groups[machine, where, alike, clock].append(case)
    found = []
    for (_, where, _, _), members in sorted(groups.items()):
        if not where:
            continue
        members.sort(key=lambda case: case.root[0].order())
        run: list[Case] = []
        for case in members:
            seconds = MINUTE if case.rule.component == "app" else CASE
            if run and not near(run[-1].root[0], case.root[0], seconds):
                found.append(run)
                run = []
            run.append(case)
        found.append(run)
    return [run for run in found if len(places([c.root[0] for c in run])) > 1]


def _fallen_nearby(run: Sequence[Case], fallen: Sequence[Case]) -> Case | None:
    """Return the one GPU whose failure several switches tell of, where there is exactly one."""
    fits = [
        case for case in fallen
        if case.root[0].first is not None
        and any(near(case.root[0], other.root[0]) for other in run)
    ]  # fmt: skip
    return fits[0] if len(places([c.root[0] for c in fits])) == 1 else None


def _action(where: str, run: Sequence[Case]) -> str:
    if where == "host" and run[0].root[0].family == "bus":
        return "check-power"
    return run[0].rule.action


def _merge(cases: list[Case]) -> list[Case]:
    """Put the root outside where several places tell of the same thing at once."""
    fallen: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if case.root[0].family in {"bus", "link"} and case.rule.kind in HARD:
            fallen[case.machine].append(case)
    gone: set[int] = set()
    merged: list[Case] = []
    for run in _alike(cases):
        episodes = [e for case in run for e in (*case.root, *case.tied)]
        only = None
        if run[0].root[0].family == "switch":
            standing = [c for c in fallen[run[0].machine] if id(c) not in gone]
            only = _fallen_nearby(run, standing)
        gone |= {id(case) for case in run}
        if only is not None:
            only.tied += episodes
            continue
        where, component = _outside(run[0])
        rule = replace(run[0].rule, component=component, action=_action(where, run))
        machine = "" if where == "fabric" else run[0].machine
        subject = "fabric" if where == "fabric" else "host"
        merged.append(Case(machine, subject, rule, [], episodes, where))
    return [case for case in cases if id(case) not in gone] + merged


def cases(found: Sequence[Episode]) -> list[Case]:
    """Return the cases of all episodes, in order of time."""
    return sorted(_merge(_gather(found)), key=lambda c: (c.root or c.tied)[0].order())
