"""From cases to what is told: directives heeded, flags of a whole machine, one entry for one root.

What every GPU of a machine shows alike is the host's or the fabric's. The driver's own directive
(Xid 154, recovery action) decides the immediate action. What comes again at one place, or was
foretold there by a counter, is one case, told more often.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rackproof.diagnostics.cases import HARD, Case
from rackproof.diagnostics.common import common
from rackproof.diagnostics.episodes import Episode, near, places
from rackproof.diagnostics.rules import signs, xid

Place = tuple[str, str]
HEEDED = 60.0  # seconds within which a directive belongs to what went before it
LATE = 1800.0  # a victim's may be said when somebody asks for the GPU again


def shared(found: list[Episode], listed: set[Place]) -> tuple[list[Episode], list[Case]]:
    """Take out what every GPU of a machine shows alike: that is the host's, or the fabric's.

    `listed` are the GPUs that some query listed. Returns (the episodes that are left, the cases).
    """
    everyone: dict[str, set[Place]] = defaultdict(set)
    for place in listed:
        everyone[place[0]].add(place)
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in found:
        where = signs.shared_by(episode.lead.event.code)
        if where:
            groups.setdefault((episode.machine, where, episode.family), []).append(episode)
    taken: list[Case] = []
    gone: set[int] = set()
    for (machine, where, _), members in groups.items():
        if len(everyone[machine]) > 1 and places(members) == everyone[machine]:
            subject = "fabric" if where == "fabric" else "host"
            home = "" if where == "fabric" else machine
            lead = min(members, key=Episode.order).lead
            taken.append(Case(home, subject, lead.rule, [], members, where))
            gone |= {id(member) for member in members}
    rest, wide = common([e for e in found if id(e) not in gone])
    return rest, taken + wide


def directives(found: Sequence[Episode]) -> tuple[list[Episode], list[Episode]]:
    """Return (the other episodes, those in which the driver says what it wants)."""
    told = [e for e in found if e.family == "directive"]
    return [e for e in found if e.family != "directive"], told


def _heed(case: Case, told: Episode) -> None:
    """Let the driver's own directive decide the immediate action, except against the final one."""
    if case.rule.kind == "terminal":
        return
    gravest = max(told.said, key=lambda s: xid.SEVERITY.index(s.rule.action))
    component = case.rule.component
    if case.rule.kind not in HARD and component in ("app", "unknown"):
        component = gravest.rule.component
    case.rule = replace(case.rule, action=gravest.rule.action, component=component, kind="hardware")
    case.tied.append(told)


def _belongs(told: Iterable[Episode], directive: Episode, seconds: float) -> bool:
    return any(near(e, directive, seconds) or e.clock != directive.clock for e in told)


def _suffered(case: Case, directive: Episode) -> bool:
    """Whether a directive is about what its GPU suffered in a case."""
    place = (directive.machine, directive.subject)
    mine = (e for e in case.tied if (e.machine, e.subject) == place)
    return _belongs(mine, directive, LATE)


def with_directives(found: list[Case], told: Sequence[Episode]) -> list[Case]:
    """Give each directive to the cases of its GPU nearby; one without any is a case of its own."""
    owned: dict[Place, list[Case]] = defaultdict(list)
    suffered: dict[Place, list[Case]] = defaultdict(list)
    for case in found if told else ():
        if not case.outside:
            owned[case.machine, case.subject].append(case)
        for place in case.victims():
            suffered[place].append(case)
    alone = []
    for directive in told:
        place = (directive.machine, directive.subject)
        owners = [case for case in owned[place] if _belongs(case.root, directive, HEEDED)]
        for case in owners:
            _heed(case, directive)
        if owners:
            continue
        causes = [case for case in suffered[place] if _suffered(case, directive)]
        if not causes:
            rule = replace(directive.lead.rule, kind="hardware")
            alone.append(Case(*place, rule, [directive]))
        for case in causes:
            case.tied.append(directive)
    return found + alone


def link_of(case: Case) -> int | None:
    """Return the link that all of a link's case is about, or None."""
    if case.rule.component not in ("nvlink", "nvswitch"):
        return None
    links = {s.event.detail.get("link") for e in case.root for s in e.said}
    link = links.pop() if len(links) == 1 else None
    return link if isinstance(link, int) else None


def _join(first: Case, case: Case) -> None:
    first.root += case.root
    known = {id(episode) for episode in first.tied}  # a directive belongs to each case nearby
    first.tied += [episode for episode in case.tied if id(episode) not in known]
    graver = xid.SEVERITY.index(case.rule.action) > xid.SEVERITY.index(first.rule.action)
    first.rule = case.rule if graver else first.rule


def one_each(found: Iterable[Case]) -> list[Case]:
    """Join the cases of one root: what comes again is one diagnosis, told more often.

    Two links of one GPU are two roots. A case of the GPU's links that names none of them, or
    several, joins the one that does, where there is but one.
    """
    named: dict[tuple[str, str, str], dict[int | None, Case]] = {}
    order: list[Case] = []
    for case in found:
        links = named.setdefault((case.machine, case.subject, case.rule.component), {})
        link = link_of(case)
        if link in links:
            _join(links[link], case)
        else:
            links[link] = case
            order.append(case)
    gone: set[int] = set()
    for links in named.values():
        if len(links) == 2 and None in links:  # noqa: PLR2004 - the one that names no link, and it
            (only,) = (case for link, case in links.items() if link is not None)
            _join(only, links[None])
            gone.add(id(links[None]))
    return [case for case in order if id(case) not in gone]
