"""How a job died: the cause among the words of its log, and messengers where nothing explains them.

The signs of one log come in, with the table's meaning; fewer go out. What stands at the same step
as a cause follows from it: a watchdog, a peer that is gone, an exit. Two ends report one broken
path, so several reporters accuse the fabric and none of themselves, unless one says that its own
port failed. A node that failed, and a scheduler that ended the job, explain the rest. Numbers that
are not numbers on one rank alone, beside others' finite ones, point at that rank; on all ranks at
the data.
"""

from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.model import Event

Sign = tuple[Event, Rule]
PREFIXES = ("cuda.", "nccl.", "net.", "job.", "rdma.")
FOLLOWS = "job-follows"
_HARD = frozenset(("terminal", "hardware"))
PATH = "job-path"  # of the network between two ends
OWN_PORT = "nccl.port"
_NODE = "job-node"
_ENDINGS = frozenset((_NODE, "job-ended"))
_NUMBERS = "job-numbers"
STEPS_APART = 1  # lines of several ranks are written out of order by about a step


def _number(event: Event, key: str) -> int:
    value = event.detail.get(key, 0)
    return value if isinstance(value, int) else 0


def _near(one: Sign, other: Sign) -> bool:
    return abs(_number(one[0], "step") - _number(other[0], "step")) <= STEPS_APART


def _explained(sign: Sign, causes: Sequence[Sign]) -> bool:
    """Whether a graver sign at the same step makes this one a consequence."""
    _, rule = sign
    for cause in causes:
        other = cause[1]
        if cause is sign or not _near(sign, cause):
            continue
        if rule.family == FOLLOWS or (rule.family == PATH and other.family in _ENDINGS):
            return True
        if other.kind in _HARD and other.family != PATH and (
            rule.family == PATH or rule.kind == "app"
        ):  # fmt: skip
            return True
    return False


def _placed(mine: Sequence[Sign]) -> list[Sign]:
    """Drop what was said of nobody in particular, where the same was said of a rank or a GPU."""
    known = {event.code for event, _ in mine if not _host(event.subject)}
    return [
        (event, rule) for event, rule in mine
        if not (event.code in known and _host(event.subject)) or rule.family in (FOLLOWS, PATH)
    ]  # fmt: skip


def _nodes(mine: Sequence[Sign]) -> list[Sign]:
    """Return the nodes that failed by name, where any is named: a step names its first node."""
    return [s for s in mine if "node" in s[0].detail] or _one(mine)


def _host(subject: str) -> bool:
    return subject == "host" or (subject.startswith("host:") and "/" not in subject)


def _one(signs: Sequence[Sign], subject: str = "host") -> list[Sign]:
    """Return the first of `signs`, for all of them: its own subject if they share one."""
    if not signs:
        return []
    event, rule = min(signs, key=lambda s: (_number(s[0], "line"), s[0].subject))
    subjects = {e.subject for e, _ in signs}
    if len(subjects) > 1:
        count = sum(max(1, _number(e, "count")) for e, _ in signs)
        event = replace(event, subject=subject, detail={**event.detail, "count": count})
    return [(event, rule)]


def _paths(mine: Sequence[Sign]) -> list[Sign]:
    """Join the reports of one broken path: from one host they name it, from several the fabric."""
    own = [sign for sign in mine if sign[0].code == OWN_PORT]
    found = _one(own or mine, "fabric")
    if found and found[0][0].subject == "fabric":
        event, rule = found[0]
        return [(event, replace(rule, component="fabric"))]
    return found


def _numbers(mine: Sequence[Sign]) -> list[Sign]:
    """Return one sign for losses that are no numbers: of the rank, where it is the only one."""
    ranks = {e.detail["rank"] for e, _ in mine if "rank" in e.detail}
    alone = len(ranks) == 1 and all(_number(e, "finite_ranks") for e, _ in mine)
    found = _one(mine)
    if not alone or not found:
        return found
    event, rule = found[0]
    return [(event, replace(rule, component="unknown", action="retest"))]


def _unexplained(mine: Sequence[Sign]) -> list[Sign]:
    """Return the clearest of the signs that nothing explains, once."""
    if not mine:
        return []
    watch = [sign for sign in mine if sign[1].kind != "sympathetic"]
    first = min(watch or mine, key=lambda s: (s[0].code != "nccl.late", _number(s[0], "line")))
    chosen = _one([sign for sign in mine if sign[0].code == first[0].code])
    return [(event, replace(rule, kind="watch", action="retest")) for event, rule in chosen]


def _went_on(event: Event, rule: Rule) -> bool:
    """Whether it was a messenger's word only, and the job made further steps after it."""
    return rule.kind == "sympathetic" and _number(event, "later_steps") > STEPS_APART


def settle(signs: Sequence[Sign]) -> list[Sign]:
    """Return the signs of one file, with those of a job's death brought down to their causes."""
    mine = [s for s in signs if s[0].code.startswith(PREFIXES) and not _went_on(*s)]
    causes = [sign for sign in mine if sign[1].family != FOLLOWS]
    others = [sign for sign in signs if not sign[0].code.startswith(PREFIXES)]
    causes += [sign for sign in others if sign[1].kind in _HARD and "step" in sign[0].detail]
    left = _placed([sign for sign in mine if not _explained(sign, causes)])
    groups: dict[str, list[Sign]] = {FOLLOWS: [], PATH: [], _NUMBERS: [], _NODE: [], "": []}
    for sign in left:
        groups[sign[1].family if sign[1].family in groups else ""].append(sign)
    return [
        *others, *groups[""], *_paths(groups[PATH]), *_numbers(groups[_NUMBERS]),
        *_nodes(groups[_NODE]), *_unexplained(groups[FOLLOWS]),
    ]  # fmt: skip
