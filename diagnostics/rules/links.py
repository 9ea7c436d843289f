"""Links against their siblings in one file: down, slower, or with counts that the others lack.

Lifetime totals say that something was, not that it is: they are watched. A link that is down or
slow beside equal ones that are not is a fault now. Bounds are our own; the case behind them is
github.com/marin-community/marin issue 9086: 505 recoveries on one link, none on 5,759 others, and
that link fell five days later.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.model import Event, Measurement

Sign = tuple[Event, Rule]
# metric -> the least total that is told of: a recovery retrains the link, a replay sends again.
LEAST = {
    "nvlink.recoveries": 10,
    "nvlink.recoveries.failed": 1,
    "nvlink.replays": 100,
    "nvlink.crc": 100,
    "nvlink.faults": 100,
    "violation.thermal": 60,
}
# What is told of only beside siblings that lack it: one alone says nothing by its total.
BESIDE = {"pcie.replays": 1000}
_COMPONENTS = {"violation.thermal": "thermal", "pcie.replays": "pcie"}
# Growths that are a fault up to NVLink 4; NVLink 5 recovers in normal work, and its are watched.
BY_GENERATION = frozenset(("nvlink.recoveries.delta", "nvlink.replays.delta"))
_UP_TO_4 = re.compile(r"\b(?:P100|V100S?|GV100|A100|A800|A30|A40|A6000|H100|H800|H200|H20|GH200)\b")
_EARLIER = "DCGM 4.6 source: up to NVLink 4 one recovery or replay within the window fails"
# Models whose links lead to switches, so that several of them in one host without any are no
# matter of a missing bridge (NVIDIA's data sheets of the HGX and NVL72 boards).
_SWITCHED = re.compile(r"SXM|HBM3|H200|\bG?B[23]00")
TIMES_SIBLINGS = 100
LEAST_BESIDE = 4  # GPUs: of fewer no median says what is usual
SLOW = 0.9
CROWD = 3
SOURCE = "github.com/marin-community/marin issue 9086: the total of a link far beyond its siblings'"


def _watch(subject: str, metric: str, text: str) -> Sign:
    component = _COMPONENTS.get(metric, "nvlink")
    rule = Rule(component, "watch", f"sign-{component}", "watch", name=metric, source=SOURCE)
    return Event(subject, metric, f"{metric} {text}", clock="none"), rule


def _fault(subject: str, metric: str, text: str) -> Sign:
    source = "NVIDIA health validation: an inactive or slow NVLink beside equal ones that are not"
    rule = Rule("nvlink", "check-cabling", "sign-nvlink", "hardware", name=metric, source=source)
    return Event(subject, metric, f"{metric} {text}", clock="none"), rule


def by_generation(rule: Rule, model: str) -> Rule:
    """Return what a growth of BY_GENERATION means on a GPU called `model`; as it is, if unknown."""
    if rule.name not in BY_GENERATION or not _UP_TO_4.search(model):
        return rule
    return replace(rule, action="check-cabling", kind="hardware", source=_EARLIER)


def _by_metric(measurements: Sequence[Measurement]) -> Mapping[tuple[str, bool], dict[str, float]]:
    """Return the numbers by (metric, whether of a link) and subject."""
    found: dict[tuple[str, bool], dict[str, float]] = defaultdict(dict)
    for one in measurements:
        if isinstance(one.value, int | float):
            found[one.metric, "/link" in one.subject][one.subject] = one.value
    return found


def _gathered(struck: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield (subject, text), many links of one GPU as the GPU."""
    of: dict[str, list[str]] = defaultdict(list)
    for subject in struck:
        of[subject.rpartition("/link")[0] if "/link" in subject else subject].append(subject)
    for gpu, places in sorted(of.items()):
        if len(places) >= CROWD:
            yield gpu, f"{struck[places[0]]}, and so on {len(places)} links"
        else:
            yield from ((place, struck[place]) for place in places)


def _totals(metric: str, counts: Mapping[str, float]) -> Iterable[Sign]:
    """Yield links whose total is far beyond the others'; one alone in its file by the total."""
    least = LEAST.get(metric) or BESIDE[metric]
    if metric in BESIDE and len(counts) < LEAST_BESIDE:
        return
    unit = "s" if metric.startswith("violation") else "in all"
    usual = statistics.median(counts.values()) if len(counts) > 1 else 0.0
    if usual >= least and metric == "nvlink.recoveries":
        yield _watch("fabric", metric, f"{usual:g} {unit} on the median of {len(counts)}")
    bound = max(least, TIMES_SIBLINGS * usual)
    beside = f"where the median of {len(counts)} is {usual:g}"
    struck = {
        subject: f"{value:g} {unit}" + (f", {beside}" if len(counts) > 1 else "")
        for subject, value in counts.items() if value >= bound
    }  # fmt: skip
    yield from (_watch(subject, metric, text) for subject, text in _gathered(struck))


def _models(measurements: Sequence[Measurement]) -> dict[str, str]:
    return {m.subject: str(m.value) for m in measurements if m.metric == "gpu.name"}


def _gpu(subject: str) -> str:
    return subject.partition("/link")[0]


def _down(active: Mapping[str, float], models: Mapping[str, str]) -> Iterable[Sign]:
    """Yield links that are down while most GPUs of the same model have them up; alone, watched."""
    seen: dict[tuple[str, str], list[float]] = defaultdict(list)
    for subject, value in active.items():
        seen[models.get(_gpu(subject), ""), subject.rpartition("/link")[2]].append(value)
    up = {_gpu(subject) for subject, value in active.items() if value}
    faults, lonely = {}, {}
    for subject, value in active.items():
        if value:
            continue
        siblings = seen[models.get(_gpu(subject), ""), subject.rpartition("/link")[2]]
        if 2 * sum(siblings) > len(siblings):
            faults[subject] = f"0, up on {sum(siblings):.0f} of {len(siblings)} GPUs"
        elif len(siblings) == 1 and _gpu(subject) in up:
            lonely[subject] = "0, while other links of the GPU are up"
    yield from (_fault(s, "nvlink.active", text) for s, text in _gathered(faults))
    yield from (_watch(s, "nvlink.active", text) for s, text in _gathered(lonely))


def _slow(speeds: Mapping[str, float], models: Mapping[str, str]) -> Iterable[Sign]:
    """Yield links that are slower than the usual one of the same model."""
    of: dict[str, dict[str, float]] = defaultdict(dict)
    for subject, value in speeds.items():
        of[models.get(_gpu(subject), "")][subject] = value
    for values in of.values():
        usual = statistics.median(values.values())
        struck = {s: f"{v:g} GB/s, usual here {usual:g}"
                  for s, v in values.items() if v < SLOW * usual}  # fmt: skip
        yield from (_fault(s, "nvlink.speed", text) for s, text in _gathered(struck))


def _dark(
    up: Mapping[str, float], active: Mapping[str, float], models: Mapping[str, str]
) -> Iterable[Sign]:
    """Yield GPUs without any link beside equal ones that have some."""
    lit = {models.get(_gpu(subject), "") for subject, value in active.items() if value}
    for subject, value in up.items():
        if not value and models.get(subject, "") in lit:
            yield _fault(subject, "nvlink.up", "0, up on other GPUs of its model")
    dark = [s for s, value in up.items() if not value and _SWITCHED.search(models.get(s, ""))]
    if len(dark) > 1 and not lit:
        yield _watch(
            "fabric", "nvlink.up", f"0 on all {len(dark)} GPUs, which a switch ought to join"
        )


def _joined(counts: Mapping[str, float], best: Mapping[str, float]) -> Iterable[Sign]:
    """Yield GPUs that fewer NVLinks join with a peer than all others have.

    One GPU that has fewer to every peer has links that are down, as an inactive link says; one that
    has fewer to some peers only is watched, for it may be the other end.
    """
    usual = statistics.median(counts.values()) if counts else 0.0
    struck = {subject: value for subject, value in counts.items() if value < usual}
    for subject, value in struck.items():
        sure = len(struck) == 1 and best.get(subject, usual) < usual
        text = f"{value:g}, usual here {usual:g}"
        yield (_fault if sure else _watch)(subject, "nvlink.joined", text)


def signs(measurements: Sequence[Measurement]) -> list[Sign]:
    """Return the signs that one file's links and GPUs give by comparison."""
    of, models = _by_metric(measurements), _models(measurements)
    found: list[Sign] = []
    for metric in (*LEAST, *BESIDE):
        for link in (True, False):
            found += _totals(metric, of.get((metric, link), {}))
    active = of.get(("nvlink.active", True), {})
    found += _down(active, models)
    found += _dark(of.get(("nvlink.up", False), {}), active, models)
    found += _slow(of.get(("nvlink.speed", True), {}), models)
    best = of.get(("nvlink.joined.best", False), {})
    found += _joined(of.get(("nvlink.joined", False), {}), best)
    return found
