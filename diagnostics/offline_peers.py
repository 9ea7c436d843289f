"""Counters and rates of all files of a call, each held against its like: one link of 5,760.

Readings come in; Saids go out for the subjects that stand out, and the metrics that were decided
here, so that what one file alone made of them is dropped. A total that the siblings do not have is
watched; two snapshots in time add what has grown; a growth over a threshold is a fault.
"""

import bisect
import functools
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.baseline import FEWEST
from rackproof.diagnostics.episodes import Said
from rackproof.diagnostics.machines import Machines, Place
from rackproof.diagnostics.rules import bandwidth, links
from rackproof.diagnostics.rules.tables import Rule, toml
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event
from rackproof.harness.readers import Reading

CROWD = 3  # links of one GPU: then it is the GPU that is told of
# DCGM 4.6 source: PCIe replays a minute and lane, Gen 1 to 6.
REPLAYS = (0.15, 0.30, 0.48, 0.96, 1.92, 3.84)
RATES = frozenset(("GB/s", "TFLOP/s", "GFLOP/s"))
FIXED = frozenset(("nvlink.speed", "memory.rate"))  # a setting or a capability, no outcome
# Our own: healthy rates of one node were seen to spread by 4.7 %; three times that is told of. A
# halved width or generation of PCIe, or links that are lost, leave 0.6 at most.
SLOW, BROKEN = 0.85, 0.6
PLATEAU = 0.05  # values as near as this are of one plateau: GPUs of the far socket are slower
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class _Counter:
    """One [[counter]] of counters.toml."""

    metric: str
    component: str
    source: str
    least: float = math.inf
    times: float = 1.0
    alone: float = math.inf
    rising: bool = False
    a_second: float = math.inf
    lanes: bool = False
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class _Point:
    """One reading of one subject. `at` is when, in epoch seconds, where its file says it."""

    value: float
    file: str
    at: float | None


Series = Mapping[Place, Sequence[_Point]]


@functools.cache
def _counters() -> tuple[_Counter, ...]:
    return tuple(_Counter(**row) for row in toml("counters.toml")["counter"])


@functools.cache
def _rates() -> frozenset[str]:
    return frozenset(
        name for name, m in metrics().items()
        if m.better == "high" and m.unit in RATES and name not in FIXED
    )  # fmt: skip


def _series(
    readings: Sequence[Reading], known: Machines, wanted: frozenset[str]
) -> dict[tuple[str, str], dict[Place, list[_Point]]]:
    """Return the readings by (wanted metric, test for a rate) and place, in order of time."""
    found: dict[tuple[str, str], dict[Place, list[_Point]]] = defaultdict(lambda: defaultdict(list))
    rates = _rates()
    for index, reading in enumerate(readings):
        for one in reading.measurements:
            if one.metric in wanted and isinstance(one.value, int | float):
                place = known.place(index, one.subject)
                point = _Point(float(one.value), str(reading.path), reading.taken)
                test = one.check if one.metric in rates else ""
                found[one.metric, test][place].append(point)
    for series in found.values():
        for points in series.values():
            points.sort(key=lambda p: (p.at if p.at is not None else -math.inf, p.file, p.value))
    return found


def _total(points: Sequence[_Point]) -> float:
    """Return the newest total, or the largest where nothing tells which is the newest."""
    timed = all(p.at is not None for p in points)
    return points[-1].value if timed else max(p.value for p in points)


def _growth(points: Sequence[_Point]) -> tuple[float, float] | None:
    """Return (growth, seconds) from the first to the last timed snapshot, None without two."""
    timed = [p for p in points if p.at is not None]
    if len(timed) < 2 or timed[0].at is None or timed[-1].at is None:  # noqa: PLR2004
        return None
    seconds = timed[-1].at - timed[0].at
    grown = sum(
        b.value - a.value if b.value >= a.value else b.value  # it was set back to zero between
        for a, b in itertools.pairwise(timed)
    )
    return (grown, seconds) if seconds > 0 else None


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.6g}"


class _Comparison:
    """One metric of all files: `words` collects what is told of each place that stands out."""

    def __init__(self, counter: _Counter, series: Series) -> None:
        self._counter = counter
        self._series = series
        self.words: dict[Place, list[str]] = defaultdict(list)
        self.faults: set[Place] = set()

    def totals(self) -> None:
        """Find the totals far beyond the others'."""
        totals = {place: _total(points) for place, points in self._series.items()}
        usual = statistics.median(totals.values())
        bound = max(self._counter.least, self._counter.times * max(1.0, usual))
        highest = max((v for v in totals.values() if v < bound), default=0.0)
        for place, value in totals.items():
            if value >= min(bound if len(totals) > 1 else math.inf, self._counter.alone):
                self.words[place].append(
                    f"{_number(value)} in all; of {len(totals)} like it the median has "
                    f"{_number(usual)}, the next {_number(highest)}"
                )

    def growths(self, limits: Mapping[Place, float], models: Mapping[Place, str]) -> None:
        """Find what grows while the others' stand still, or faster than it may a minute."""
        grown = {p: g for p, points in self._series.items() if (g := _growth(points)) is not None}
        usual = statistics.median(g for g, _ in grown.values()) if grown else 0.0
        still = len(grown) >= FEWEST and usual == 0
        for place, (growth, seconds) in grown.items():
            said = f"{_number(growth)} more in {_number(round(seconds / MINUTE, 1))} min"
            if growth / seconds >= self._counter.a_second:
                self.faults.add(place)
                self.words[place].append(f"{said}, over {_number(self._counter.a_second)} a second")
            elif growth * MINUTE / seconds > limits.get(place, math.inf):
                self.words[place].append(f"{said}, over {_number(limits[place])} a minute")
            elif growth > 0 and (
                (self._counter.rising and still)
                or place in self.words or self._earlier(models.get(_gpu(place), ""))
            ):  # fmt: skip
                like = f", where {len(grown)} like it grew by {_number(usual)} on median"
                self.words[place].append(said + (like if len(grown) > 1 else ""))

    def _earlier(self, model: str) -> bool:
        """Whether on a GPU called `model` any growth is a fault."""
        rule = self._rule(f"{self._counter.metric}.delta", fault=False)
        return self._counter.earlier and links.by_generation(rule, model) != rule

    def signs(self) -> list[Said]:
        """Return what is told, many links of one GPU as the GPU's."""
        of: dict[Place, list[Place]] = defaultdict(list)
        for machine, subject in sorted(self.words):
            of[machine, subject.partition("/link")[0]].append((machine, subject))
        found: list[Said] = []
        for gpu, places in of.items():
            crowd = len(places) >= CROWD
            for place in places[:1] if crowd else places:
                words = self.words[place]
                more = f", and so on {len(places)} links" if crowd else ""
                found += self._said(gpu if crowd else place, place, words, more)
        return found

    def _said(self, place: Place, at: Place, words: Sequence[str], more: str) -> Iterable[Said]:
        """Yield a sign for the total and one for the growth: two witnesses are more than one."""
        file = self._series[at][-1].file
        for text in words:
            code = self._counter.metric + (".delta" if " more in " in text else "")
            event = Event(place[1], code, f"{code} {text}{more}", clock="none")
            yield Said(event, self._rule(code, fault=at in self.faults), *place, file)

    def _rule(self, code: str, *, fault: bool) -> Rule:
        counter = self._counter
        action, kind = ("check-cabling", "hardware") if fault else ("watch", "watch")
        family = f"sign-{counter.component}"
        return Rule(counter.component, action, family, kind, name=code, source=counter.source)


def _files(series: Series) -> int:
    return len({point.file for points in series.values() for point in points})


def _replay_limits(readings: Sequence[Reading], known: Machines) -> dict[Place, float]:
    """Return the replays a minute that each GPU's link may have, by its lanes and generation."""
    wanted = frozenset(("pcie.width", "pcie.width.max", "pcie.gen.max"))
    of = _series(readings, known, wanted)
    widths = {**of.get(("pcie.width.max", ""), {}), **of.get(("pcie.width", ""), {})}
    limits: dict[Place, float] = {}
    for place, points in of.get(("pcie.gen.max", ""), {}).items():
        generation, lanes = int(points[-1].value), widths.get(place)
        if lanes and 1 <= generation <= len(REPLAYS):
            limits[place] = math.ceil(lanes[-1].value * REPLAYS[generation - 1])
    return limits


def _gpu(place: Place) -> Place:
    return place[0], place[1].partition("/")[0]


def models_of(readings: Sequence[Reading], known: Machines) -> dict[Place, str]:
    """Return what each GPU is called, where any file tells it."""
    return {
        known.place(index, one.subject): str(one.value)
        for index, reading in enumerate(readings)
        for one in reading.measurements if one.metric == "gpu.name"
    }  # fmt: skip


def _slow(metric: str, series: Series, models: Mapping[Place, str]) -> list[Said]:
    """Return what is far under the median of at least eight like subjects, and with few others."""
    alike: dict[str, dict[Place, float]] = defaultdict(dict)
    for place, points in series.items():
        alike[models.get(_gpu(place), "")][place] = points[-1].value
    found = []
    for values in alike.values():
        if len(values) < FEWEST:
            continue
        usual, ordered = statistics.median(values.values()), sorted(values.values())
        for place, value in sorted(values.items()):
            low, high = value * (1 - PLATEAU), value * (1 + PLATEAU)
            near_by = bisect.bisect_right(ordered, high) - bisect.bisect_left(ordered, low)
            if value < SLOW * usual and near_by * FEWEST <= max(FEWEST, len(values)):
                text = (f"{value:g} {metrics()[metric].unit}, {1 - value / usual:.0%} under the "
                        f"median of {len(values)} like it, {usual:g}")  # fmt: skip
                found.append(_slower(metric, place, text, series[place][-1].file,
                                     broken=value < BROKEN * usual))  # fmt: skip
    return found


def _slower(metric: str, place: Place, text: str, file: str, *, broken: bool) -> Said:
    entry = metrics()[metric]
    broken = broken and entry.action not in ("none", "watch", "retest")
    action, kind = (entry.action, "hardware") if broken else ("watch", "watch")
    rule = Rule(entry.component, action, f"sign-{entry.component}", kind, name=metric,
                source="our own bounds: 15 % under the median of like ones is told of, 40 % is a "
                "fault")  # fmt: skip
    machine, subject = place
    event = Event("host" if subject == "fabric" else subject, metric,
                  f"{metric} {text}", clock="none")  # fmt: skip
    return Said(event, rule, machine, event.subject, file)


def few(reading: Reading) -> list[str]:
    """Return what is far slower than like ones of its file, which are too few to judge by."""
    of: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    models = {m.subject: str(m.value) for m in reading.measurements if m.metric == "gpu.name"}
    for m in reading.measurements:
        held = m.metric in _rates() and not m.check.startswith(bandwidth.TOOLS)
        if held and isinstance(m.value, int | float):
            model = models.get(m.subject.partition("/link")[0], "")
            of[m.metric, m.check, model][m.subject] = float(m.value)
    return [
        said for (metric, _, _), values in sorted(of.items()) if 1 < len(values) < FEWEST
        for said in _behind(metric, values)
    ]  # fmt: skip


def _behind(metric: str, values: Mapping[str, float]) -> Iterable[str]:
    """Yield a sentence for each of a few subjects that is far below the others' median."""
    for subject, value in sorted(values.items()):
        usual = statistics.median(v for other, v in values.items() if other != subject)
        if value < SLOW * usual:
            yield (f"{subject}: {metric} {value:g} {metrics()[metric].unit}, where the other "
                   f"{len(values) - 1} have {usual:g} on median: fewer than {FEWEST} like ones "
                   "judge nothing")  # fmt: skip


def compared(readings: Sequence[Reading], known: Machines) -> tuple[list[Said], frozenset[str]]:
    """Return the signs among all files' counters and rates, and the metrics decided here.

    A counter that only one file has is left to the rules for one file, and so are the bandwidths
    that rules/bandwidth.py knows.
    """
    counters = {counter.metric: counter for counter in _counters()}
    series = _series(readings, known, frozenset(counters) | _rates())
    found: list[Said] = []
    decided: set[str] = set()
    models = models_of(readings, known)
    for (metric, test), of in sorted(series.items()):
        own = metric in counters or test.startswith(bandwidth.TOOLS)
        if own and _files(of) < 2:  # noqa: PLR2004
            continue
        if metric not in counters:
            found += _slow(metric, of, models)
            continue
        decided.add(metric)
        comparison = _Comparison(counters[metric], of)
        comparison.totals()
        limits = _replay_limits(readings, known) if counters[metric].lanes else {}
        comparison.growths(limits, models)
        found += comparison.signs()
    return found, frozenset(decided)
