"""The power-step burn drawn: edges, waves, lines, the store's charge, the breaker's trip integral.

In: a record and its judgement. Out: for each rack, or GPU, a few charts with coordinates in units
of the drawing, for the template. What the mains see is drawn solid and what the GPUs draw dashed,
so that the two can be told apart without colour.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.evidence import Record
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Limit
from rackproof.reports.html.power_traces import (
    SENSORS,
    SMOOTHED,
    GpuTrace,
    RackTrace,
    Series,
    Wave,
    gpus,
    racks,
)

WIDTH, HEIGHT = 340, 200
LEFT, RIGHT, TOP, BASE = 44.0, 332.0, 12.0, 170.0
SHEET = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "base": BASE}
OVER, UNDER = 4.0, 13.0  # of a line across: where the foot of its text stands
KILO = 1e3
SHOWN_HZ = (0.1, 0.5, 2.0, 5.0)  # of a rack's waves; the spectrum has them all
MOST_RACKS = 16
STRETCHES = 72  # of an area, from left to right
CHARGE = "power.store.charge"
LINE = ("power.step.line", "power.step.mains.line")
NAMES = {
    "raw": "GPUs",
    "mains": "mains",
    "instant": "instantaneous sensor",
    "average": "averaging sensor",
    "off": "without smoothing",
    "on": "with smoothing",
    "charge": "charge",
    "strain": "trip integral",
}
FIRM = frozenset({"mains", "average", "on", "charge", "strain"})
"""What is drawn solid."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: its path, its points where they are few, and what it is; `area` is filled."""

    name: str
    firm: bool
    path: str
    dots: tuple[tuple[float, float], ...]
    area: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `xs` and `ys` are its ticks.

    `rules` are lines across: where, where their text stands, the text; `band` goes from y to y.
    """

    title: str
    said: str
    across: str
    up: str
    xs: tuple[tuple[float, str], ...]
    ys: tuple[tuple[float, str], ...]
    curves: tuple[Curve, ...]
    rules: tuple[tuple[float, float, str], ...] = ()
    band: tuple[float, float, str] | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn of one subject."""

    subject: str
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """Values from `low` to `high` on a drawing from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies; what is outside lies at the edge."""
        low, high, here = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, here = (math.log10(each) for each in (low, high, here))
        return round(self.begin + (here - low) / (high - low) * (self.end - self.begin), 1)


def pictures(record: Record, judgement: Judgement) -> list[Picture]:
    """Return what is drawn of a run; nothing for one without a power-step burn."""
    seen = record.seen
    found = [
        Picture(subject, tuple(_rack(trace, _limits(judgement, subject))))
        for subject, trace in sorted(racks(seen).items())[:MOST_RACKS]
    ]
    for metric, word in ((SENSORS, "sensors"), (SMOOTHED, "smoothing")):
        for subject, trace in sorted(gpus(seen, metric).items())[:MOST_RACKS]:
            found.append(Picture(subject, tuple(_gpu(trace, word))))
    return [picture for picture in found if picture.charts]


def _limits(judgement: Judgement, subject: str) -> dict[str, Limit]:
    return {
        check.metric: check.limit
        for check in judgement.checks
        if check.subject == subject and check.limit is not None
    }


def _rack(trace: RackTrace, limits: dict[str, Limit]) -> Iterable[Chart]:
    yield from _edge(trace.edge)
    for wave in trace.waves:
        if wave.frequency in SHOWN_HZ:
            yield from _wave(wave, KILO, "kW")
    yield from _spectrum(trace, limits)
    yield from _charge(trace.looks, limits.get(CHARGE))
    yield from _strain(trace.looks)


def _gpu(trace: GpuTrace, word: str) -> Iterable[Chart]:
    for wave in trace.waves:
        yield from _wave(wave, 1.0, "W", trace.floor, word)


def _edge(series: Series) -> Iterable[Chart]:
    if not series.values:
        return
    x = _Axis(0.0, max(*series.t, 1e-3), LEFT, RIGHT)
    y = _power(series.values.values(), KILO)
    yield Chart(
        "A rising edge",
        "Power of the rack around a rising edge of 1 Hz",
        "ms after the edge",
        "kW",
        tuple((x.at(t), f"{t * 1e3:g}") for t in _round(x, 5)),
        _ticks(y, KILO),
        _curves(series, x, y),
    )


def _wave(
    wave: Wave, unit: float, name: str, floor: float | None = None, word: str = ""
) -> Iterable[Chart]:
    """Draw one period, its points in order of phase."""
    if not wave.series.values:
        return
    period = 1.0 / wave.frequency
    order = sorted(range(len(wave.series.t)), key=lambda n: math.fmod(wave.series.t[n], period))
    folded = Series(
        tuple(math.fmod(wave.series.t[n], period) for n in order),
        {key: tuple(own[n] for n in order) for key, own in wave.series.values.items()},
    )
    x, y = _Axis(0.0, period, LEFT, RIGHT), _power(folded.values.values(), unit)
    rules = () if floor is None else ((y.at(floor), y.at(floor) + UNDER, f"floor {floor:,.0f} W"),)
    title = f"{wave.frequency:g} Hz" + (f", {word}" if word else "")
    yield Chart(
        title,
        f"Power over one period of a wave of {wave.frequency:g} Hz",
        "s of the period",
        name,
        tuple((x.at(t), f"{t:g}") for t in _round(x, 5)),
        _ticks(y, unit),
        _curves(folded, x, y),
        rules,
    )


def _spectrum(trace: RackTrace, limits: dict[str, Limit]) -> Iterable[Chart]:
    every = [line for lines in trace.lines.values() for line in lines]
    if not every:
        return
    high = [float(limits[m].high or 0.0) for m in LINE if m in limits and limits[m].high]
    top = max([watts for _, watts in every] + high + [1.0]) * 1.05
    x, y = _Axis(0.1, 20.0, LEFT, RIGHT, log=True), _Axis(0.0, top, BASE, TOP)
    curves = []
    for (name, lines), aside in zip(trace.lines.items(), (-1.5, 1.5), strict=True):
        if lines:
            stems = [(round(x.at(hertz) + aside, 1), y.at(watts)) for hertz, watts in lines]
            path = "".join(f"M{at} {BASE}V{up}" for at, up in stems)
            curves.append(Curve(NAMES[name], name in FIRM, path, tuple(stems)))
    rules = tuple(
        (y.at(watts), y.at(watts) - OVER, f"limit {watts / KILO:.4g} kW")
        for watts in dict.fromkeys(high)
    )
    yield Chart(
        "Lines of the spectrum",
        "Largest line at each frequency from 0.1 to 20 Hz, of the GPUs and of what the mains see",
        "Hz",
        "kW",
        tuple((x.at(hertz), f"{hertz:g}") for hertz in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)),
        _ticks(y, KILO),
        tuple(curves),
        rules,
    )


def _charge(series: Series, limit: Limit | None) -> Iterable[Chart]:
    if "charge" not in series.values:
        return
    x, y = _Axis(0.0, max(*series.t, 1.0), LEFT, RIGHT), _Axis(0.0, 1.0, BASE, TOP)
    band = None
    if limit is not None and limit.low is not None and limit.high is not None:
        said = f"{limit.low:.0%} to {limit.high:.0%} at the end"
        band = (y.at(limit.high), y.at(limit.low), said)
    yield Chart(
        "State of charge",
        "Between what bounds the charge of the rack's store was over the burn",
        "s of the burn",
        "%",
        tuple((x.at(t), f"{t:g}") for t in _round(x, 5)),
        tuple((y.at(share), f"{share * 100:g}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        (_between(NAMES["charge"], series.t, series.values["charge"], (x, y)),),
        band=band,
    )


def _strain(series: Series) -> Iterable[Chart]:
    if "strain" not in series.values:
        return
    most = max(each for each in series.values["strain"] if each is not None)
    x = _Axis(0.0, max(*series.t, 1.0), LEFT, RIGHT)
    y = _Axis(0.0, max(most * 1.2, 1e-3), BASE, TOP)
    said = "Trip integral of the rack's breaker over the burn; it trips at 1, and the most is"
    yield Chart(
        "Trip integral of the breaker",
        f"{said} {most:g}",
        "s of the burn",
        "of 1, where it trips",
        tuple((x.at(t), f"{t:g}") for t in _round(x, 5)),
        tuple((y.at(share), f"{share:g}") for share in _round(y, 5)),
        _curves(Series(series.t, {"strain": series.values["strain"]}), x, y),
    )


def _power(series: Iterable[Sequence[float | None]], unit: float) -> _Axis:
    """Return an axis of power from 0 on."""
    most = max([watts for own in series for watts in own if watts is not None] + [unit])
    return _Axis(0.0, most * 1.08, BASE, TOP)


def _round(axis: _Axis, most: int) -> list[float]:
    """Return round values of an axis, at most so many and one."""
    step = (axis.high - axis.low) / most
    power = 10.0 ** math.floor(math.log10(step))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= step * (1 - 1e-9))
    return [round(n * step, 12) for n in range(int(axis.high / step + 1e-9) + 1)]


def _ticks(axis: _Axis, unit: float) -> tuple[tuple[float, str], ...]:
    return tuple((axis.at(watts), f"{watts / unit:g}") for watts in _round(axis, 5))


def _curves(series: Series, x: _Axis, y: _Axis) -> tuple[Curve, ...]:
    found = []
    for name, own in series.values.items():
        points = [
            (x.at(t), y.at(value))
            for t, value in zip(series.t, own, strict=True)
            if value is not None
        ]
        path = "M" + "L".join(f"{across} {up}" for across, up in points)
        few = points if len(points) <= 20 else []  # noqa: PLR2004 - dots that can be told apart
        found.append(Curve(NAMES[name], name in FIRM, path, tuple(few)))
    return tuple(found)


def _between(
    name: str, t: Sequence[float], own: Sequence[float | None], axes: tuple[_Axis, _Axis]
) -> Curve:
    """Return the area between the lowest and the highest value in each stretch of time.

    Waves are faster than the looks at them, so that a line from look to look would draw another.
    """
    x, y = axes
    stretches: dict[int, list[tuple[float, float]]] = {}
    wide = (x.end - x.begin) / STRETCHES
    for at, value in zip(t, own, strict=True):
        if value is not None:
            point = (x.at(at), y.at(value))
            stretches.setdefault(int((point[0] - x.begin) / wide), []).append(point)
    high = [min(each, key=lambda point: point[1]) for _, each in sorted(stretches.items())]
    low = [max(each, key=lambda point: point[1]) for _, each in sorted(stretches.items())]
    path = "M" + "L".join(f"{across} {up}" for across, up in high + low[::-1]) + "Z"
    return Curve(name, firm=True, path=path, dots=(), area=True)
