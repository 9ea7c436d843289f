"""Bandwidths of one report held against one another: the GPU, or the pair, that is far below.

Measurements of one file come in, signs go out. Two sockets, or two islands of NVLink, give two
plateaus: a value with companions near it is no fault. A GPU is accused where its row or its column
of a matrix is low as a whole; a pair in both directions is the path between; one low cell alone is
one sample. Below NVLink's rates slots and sockets matter as well, and pairs accuse nobody.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.model import Event, Measurement

Sign = tuple[Event, Rule]
LOW = 0.6  # of the peers' median; a halved PCIe width or generation is 0.5, a far socket 0.8
NEAR = 1.25  # values within this ratio are of one plateau
LEAST_PEERS, LEAST_GPUS = 3, 4
MOST_LOW = 0.75  # of a row or column: the GPU's own
NVLINK = 130.0  # GB/s: above what PCIe 6.0 with 16 lanes carries in one direction
_VECTORS = {"copy.h2d.rate": "pcie", "copy.d2h.rate": "pcie", "copy.local.rate": "hbm",
            "link.all.rate": "nvlink"}  # fmt: skip
TOOLS = ("nvbandwidth.",)  # whose rates in one file are judged here
_SOURCE = "our own bound: below 0.6 of the like GPUs' median in the same report"
Matrix = Mapping[tuple[str, str], float]


def _medians(found: Iterable[tuple[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, value in found:
        samples[key].append(value)
    return {key: statistics.median(values) for key, values in samples.items()}


def _sign(subject: str, metric: str, text: str, meaning: tuple[str, str, str]) -> Sign:
    component, action, kind = meaning
    event = Event(subject, metric, f"{metric} {text}", clock="none")
    rule = Rule(component, action, f"sign-{component}", kind, name=metric, source=_SOURCE)
    return event, rule


def _vector(metric: str, check: str, of: Mapping[str, float]) -> Iterator[Sign]:
    """Yield the GPUs far below the like ones in one test with a value for each GPU."""
    if len(of) < LEAST_PEERS:
        return
    for subject, value in sorted(of.items()):
        median = statistics.median(v for place, v in of.items() if place != subject)
        if value >= LOW * median:
            continue
        alike = sum(v <= NEAR * value for v in of.values())
        if 3 * alike >= len(of) and alike > 1:
            continue
        test = check.partition(".")[2]
        text = f"{value:g} GB/s beside a median of {median:g} GB/s ({test})"
        component = _VECTORS[metric]
        action = "check-cabling" if component == "pcie" else "field-diag"
        sure = (component, action, "hardware") if alike == 1 else (component, "retest", "watch")
        yield _sign(subject, metric, text, sure)


def _gpus(pairs: Matrix, median: float) -> dict[str, int]:
    """Return the GPUs whose row or column is low: 2 where both are, else 1."""
    found = {}
    for gpu in sorted({place for pair in pairs for place in pair}):
        sides = [[value for pair, value in pairs.items() if pair[side] == gpu] for side in (0, 1)]
        low = [
            bool(values) and sum(v < LOW * median for v in values) >= MOST_LOW * len(values)
            for values in sides
        ]
        if any(low):
            found[gpu] = sum(low)
    return found


def _pairs(check: str, pairs: Matrix) -> Iterator[Sign]:
    """Yield the GPUs, and the pairs, far below the others in one matrix."""
    gpus = {place for pair in pairs for place in pair}
    if len(gpus) < LEAST_GPUS:
        return
    median = statistics.median(pairs.values())
    nvlink = median > NVLINK
    test = check.partition(".")[2]
    accused = _gpus(pairs, median)
    inside = [v for pair, v in pairs.items() if set(pair) <= set(accused)]
    if any(v >= LOW * median for v in inside):
        return  # well connected among themselves: a second island, not a fault
    own = {pair: v for pair, v in pairs.items() if not set(pair) & set(accused)}
    for gpu in accused:
        if 3 * len(accused) >= len(gpus) and len(accused) > 1:
            break
        mine = statistics.median(min(v, median) for p, v in pairs.items() if gpu in p)
        text = f"{mine:g} GB/s to and from the others, {median:g} GB/s between them ({test})"
        sure = nvlink and len(accused) == 1
        meaning = ("nvlink", "field-diag", "hardware") if sure else (
            "nvlink" if nvlink else "pcie", "retest", "watch")  # fmt: skip
        yield _sign(gpu, "link.pair.rate", text, meaning)
    yield from _single(test, own, median, len(gpus))


def _single(test: str, pairs: Matrix, median: float, gpus: int) -> Iterator[Sign]:
    """Yield the pairs that are low by themselves; many of them are how the machine is built."""
    low: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (one, other), value in sorted(pairs.items()):
        if value < LOW * median:
            low[min(one, other), max(one, other)].append(value)
    if 2 * len(low) >= gpus:
        return
    nvlink = median > NVLINK
    for (one, other), values in low.items():
        text = (f"{min(values):g} GB/s between {one} and {other}, {median:g} GB/s between the "
                f"others ({test})")  # fmt: skip
        sure = nvlink and len(values) > 1
        meaning = ("nvlink", "check-cabling", "hardware") if sure else (
            "nvlink" if nvlink else "pcie", "retest", "watch")  # fmt: skip
        yield _sign("fabric" if nvlink else "host", "link.pair.one", text, meaning)


def signs(measurements: Sequence[Measurement]) -> list[Sign]:
    """Return the signs among one file's bandwidths by GPU and by pair of GPUs."""
    mine = [
        m for m in measurements
        if m.check.startswith(TOOLS) and isinstance(m.value, int | float)
    ]  # fmt: skip
    name = {m.subject: str(m.value) for m in measurements if m.metric == "gpu.name"}
    vectors: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    matrices: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for metric in ("link.pair.one", *_VECTORS):
        values = _medians(
            ((m.check, m.subject), float(m.value)) for m in mine if m.metric == metric
        )
        for (check, subject), value in values.items():
            if metric == "link.pair.one":
                test, _, partner = check.rpartition(" to ")
                matrices[test][subject, partner] = value
            else:
                vectors[metric, check, name.get(subject, "")][subject] = value
    found = [s for (m, check, _), of in sorted(vectors.items()) for s in _vector(m, check, of)]
    return found + [s for test, of in sorted(matrices.items()) for s in _pairs(test, of)]
