"""Rates of other tools against what is published for the same GPU: the one that is far below.

Measurements of one file come in; signs go out, and sentences for the rates that nothing published
bounds, so that a rate without a limit is not taken for one within it. An all-reduce inside one host
is held against its curve (limits/collective.csv), copies against limits/achieved.toml.
"""

import functools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rackproof.diagnostics.limits import SHARE_OF_ACHIEVED, shipped
from rackproof.diagnostics.limits.collective import METRIC, SHARE, collective
from rackproof.diagnostics.limits.layers import Limit
from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement
from rackproof.harness.skus import skus

Sign = tuple[Event, Rule]
FAR = 0.5  # of what is published: our own bound, since other versions and settings cost as well
MIB = 1 << 20
COPIES = ("copy.h2d.rate", "copy.d2h.rate", "link.pair.rate")
_COLLECTIVES, _COPIES = "nccl-tests.", "nvbandwidth."
Key = tuple[str, int]


@functools.cache
def _skus() -> Mapping[str, str]:
    """Return the SKU by the name that the driver gives it."""
    return {name: key for key, sku in skus().items() if (name := sku.text("name"))}


@functools.cache
def _achieved() -> Mapping[tuple[str, str], Limit]:
    return {
        (limit.sku, limit.metric): limit
        for limit in shipped() if limit.layer == "achieved" and limit.sku
    }  # fmt: skip


def _names(measurements: Sequence[Measurement]) -> dict[str, str]:
    return {m.subject: str(m.value) for m in measurements if m.metric == "gpu.name"}


def _number(measurements: Sequence[Measurement], metric: str) -> dict[Key, float]:
    return {
        (m.check, m.attempt): float(m.value)
        for m in measurements if m.metric == metric and isinstance(m.value, int | float)
    }  # fmt: skip


def _sign(subject: str, metric: str, text: str, source: str) -> Sign:
    component = metrics()[metric].component
    rule = Rule(component, "watch", f"sign-{component}", "watch", name=metric, source=source)
    return Event(subject, metric, f"{metric} {text}", clock="none"), rule


def _reduced(measurements: Sequence[Measurement]) -> Iterator[Sign | str]:
    """Yield a sign for each collective far below its curve, a sentence for each without a curve."""
    rates = [m for m in measurements if m.metric == METRIC and m.check.startswith(_COLLECTIVES)]
    sizes = _number(measurements, "link.collective.size")
    ranks = max(_number(measurements, "link.collective.ranks").values(), default=0.0)
    models = sorted(set(_names(measurements).values()))
    sku = _skus().get(models[0]) if len(models) == 1 else None
    for m in rates:
        size = sizes.get((m.check, m.attempt))
        name = m.check.removeprefix(_COLLECTIVES)
        known = collective(sku or "", int(ranks), int(size * MIB)) if size else ()
        if m.subject != "host" or not known or not isinstance(m.value, int | float):
            whose = " and ".join(models[:2]) or "GPUs that are not named"
            across = "" if m.subject == "host" else " of several hosts"
            what = "a collective" if name == "unnamed" else name
            yield (f"{what}: the rate is not judged: no limit for {int(ranks) or 'unknown'} ranks"
                   f"{across} on {whose}")  # fmt: skip
            continue
        usual = (known[0].low or 0.0) / SHARE
        if m.value < FAR * usual:
            text = (f"{m.value:g} GB/s of bus bandwidth at {size:g} MiB over {ranks:g} GPUs, where "
                    f"{usual:.0f} is published ({known[0].source.partition(': ')[2]})")  # fmt: skip
            yield _sign("host", METRIC, text, known[0].source)


def _copied(measurements: Sequence[Measurement]) -> Iterator[Sign | str]:
    """Yield a sign for each GPU with copies far below, a sentence for what has no limit."""
    names = _names(measurements)
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for m in measurements:
        if m.metric in COPIES and m.check.startswith(_COPIES) and isinstance(m.value, int | float):
            values[m.metric][m.subject].append(float(m.value))
    unbound: dict[str, list[str]] = defaultdict(list)
    for metric, of in values.items():
        low: dict[str, str] = {}
        for subject, found in sorted(of.items()):
            name = names.get(subject, "")
            limit = _achieved().get((_skus().get(name, ""), metric))
            if limit is None:
                unbound[name or "a GPU that is not named"].append(metric)
                continue
            value, usual = statistics.median(found), (limit.low or 0.0) / SHARE_OF_ACHIEVED
            if value < FAR * usual:
                low[subject] = f"{value:g} GB/s, where {usual:g} is published ({limit.source})"
        yield from _gathered(metric, low, len(of))
    for name, without in sorted(unbound.items()):
        yield f"the rate is not judged: no limit for {', '.join(dict.fromkeys(without))} of {name}"


def _gathered(metric: str, low: Mapping[str, str], total: int) -> Iterator[Sign]:
    """Yield a sign for each GPU, or one for the host where most of several are low."""
    source = _achieved_source(metric)
    if len(low) > 1 and 2 * len(low) > total:
        first = next(iter(low))
        yield _sign("host", metric, f"on {len(low)} of {total} GPUs; {first}: {low[first]}", source)
        return
    for subject, text in low.items():
        yield _sign(subject, metric, text, source)


def _achieved_source(metric: str) -> str:
    found = [limit.source for (_, name), limit in _achieved().items() if name == metric]
    return f"our own bound: half of {found[0]}" if found else ""


def _all(measurements: Sequence[Measurement]) -> Iterator[Sign | str]:
    yield from _reduced(measurements)
    yield from _copied(measurements)


def signs(measurements: Sequence[Measurement]) -> list[Sign]:
    """Return the signs among one file's rates."""
    return [found for found in _all(measurements) if not isinstance(found, str)]


def unjudged(measurements: Sequence[Measurement]) -> list[str]:
    """Return a sentence for each rate of one file that nothing published bounds."""
    return list(dict.fromkeys(found for found in _all(measurements) if isinstance(found, str)))
