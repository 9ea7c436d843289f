"""A power drill drawn: what each feed carried over time, its limit, caps, trip integral, stores.

In: a PowerRecord. Out: a picture for each feed that was hit and for those above it, with
coordinates in units of the drawing, for the template; each for a wide and a narrow page. All of a
picture lies over one line of virtual time. A load swings with the steps of its jobs: it is drawn as
a band from its least to its most in each piece of time, and as a mean over whole steps.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.power.record import DIMMED, Array, Event, PowerRecord, Series
from rackproof.diagnostics.power.windows import LOWERS, Window, forward, span, windows
from rackproof.reports.html.drill_drawing import NARROW, Scale

POINTS, FEW = 1500, 600
"""The most points of a line, on a wide page and on a narrow one."""
MOST_FEEDS, MOST_EVENTS = 8, 60
NEAR = 20.0
"""Numbers of events that are nearer than this are drawn as one."""
TOP, GAP, FOOT = 38.0, 34.0, 26.0
HEIGHTS = {"power": 190.0, "caps": 90.0, "strain": 70.0, "charge": 70.0}
STRAIN = 0.25
SWING, SWING_S = 0.2, 10.0
"""A store whose charge moves by more than this in so many seconds is drawn as a band."""
KILO = 1e3
STYLES = ("one", "two", "three", "four")
WORDS = {
    "limit": "limit lowered", "lift": "limit given back", "ac-lost": "mains lost",
    "ac-back": "mains back", "sag": "sag", "ramp": "limit lowered along a ramp",
    "sensors-lost": "sensors lost", "sensors-back": "sensors back",
    "coolant-lost": "coolant lost", "coolant-back": "coolant back",
    "controller-killed": "controller killed", "controller-back": "controller back",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel: `style` is how it is drawn, `path` where."""

    name: str
    style: str
    path: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one scale from `base` to `top`; `marks` are its ticks, `rule` a line across."""

    title: str
    top: float
    base: float
    marks: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]
    rule: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Sign:
    """An event at `x`, and its number in the list above, 0 where it has none; with its span."""

    x: float
    number: int
    text: str
    until: float


@dataclass(frozen=True, slots=True)
class Picture:
    """One feed over the whole run, `width` × `height` units."""

    feed: str
    width: int
    height: int
    left: float
    right: float
    times: tuple[tuple[float, str], ...]
    panels: tuple[Panel, ...]
    signs: tuple[Sign, ...]

    @property
    def numbers(self) -> list[tuple[float, str]]:
        """The numbers of the events where they stand; near ones as one, such as 4-6."""
        found: list[tuple[float, int, int]] = []
        for sign in (sign for sign in self.signs if sign.number):
            if found and sign.x - found[-1][0] < NEAR:
                found[-1] = (found[-1][0], found[-1][1], sign.number)
            else:
                found.append((sign.x, sign.number, sign.number))
        return [(x, f"{a}" if a == b else f"{a}–{b}") for x, a, b in found]


@dataclass(frozen=True, slots=True)
class _Sheet:
    """The time of a drawing, and how much fits on it."""

    time: Scale
    wide: bool

    def line(self, name: str, style: str, at: Array, values: Array, y: Scale) -> Line:
        """Return a line of values at moments; it is broken where there is none."""
        return Line(name, style, _path(self.points(at, values), self.time, y))

    def mean(self, record: PowerRecord, series: Series, values: Array, y: Scale) -> tuple[str, str]:
        """Return a band from the least to the most of a swinging load, and a mean over steps."""
        at, means = forward(series, values, span(record))
        middle = at + span(record) / 2.0
        band = _band(series.at, values, (POINTS if self.wide else FEW) // 2, self.time, y)
        return band, _path(self.points(middle, means), self.time, y)

    def points(self, at: Array, values: Array) -> Iterable[tuple[float, float]]:
        """Return as many points as fit, the least and the most of each piece in their order."""
        return zip(*thinned(at, values, POINTS if self.wide else FEW), strict=True)


def thinned(at: Array, values: Array, most: int) -> tuple[list[float], list[float]]:
    """Return at most `most` points of a line: the least and the most of each piece of it."""
    if len(values) <= most:
        return at.tolist(), values.tolist()
    places: list[int] = []
    for piece in np.array_split(np.arange(len(values)), most // 2):
        own = values[piece]
        if np.isnan(own).all():
            places.append(int(piece[0]))
            continue
        ends = {int(np.nanargmin(own)), int(np.nanargmax(own))}
        places += [int(piece[0]) + end for end in sorted(ends)]
    return at[places].tolist(), values[places].tolist()


def _path(points: Iterable[tuple[float, float]], x: Scale, y: Scale) -> str:
    """Return a path through points; after one that is no number it begins anew."""
    found, pen = [], "M"
    for at, value in points:
        if math.isfinite(value):
            found.append(f"{pen}{x.x(at):g} {y.x(value):g}")
        pen = "L" if math.isfinite(value) else "M"
    return "".join(found)


def _band(at: Array, values: Array, most: int, x: Scale, y: Scale) -> str:
    """Return an area from the least to the most of each piece; open where nothing is known."""
    pieces = np.array_split(np.arange(len(values)), min(most, max(len(values) // 2, 1)))
    areas: list[list[tuple[float, float, float]]] = [[]]
    for own in pieces:
        known = values[own][~np.isnan(values[own])]
        if len(known):
            areas[-1].append((x.x(float(at[own[0]])), y.x(float(known.min())), y.x(known.max())))
        elif areas[-1]:
            areas.append([])
    return "".join(
        "M" + "L".join(f"{here:g} {high:g}" for here, _, high in area)
        + "L" + "L".join(f"{here:g} {low:g}" for here, low, _ in reversed(area)) + "Z"
        for area in areas if area
    )  # fmt: skip


def _stairs(steps: Sequence[tuple[float, float]], end: float, x: Scale, y: Scale) -> str:
    """Return a staircase: each value stays until the moment of the next, the last until `end`."""
    path = "".join(
        f"H{x.x(at):g}V{y.x(value):g}" if place else f"M{x.x(at):g} {y.x(value):g}"
        for place, (at, value) in enumerate(steps)
    )
    return f"{path}H{x.x(end):g}" if path else ""


def limits(record: PowerRecord, feed: str) -> list[tuple[float, float]]:
    """Return from when on a feed had which limit, W; along a ramp at its corners."""
    rated = record.feeds[feed].rated
    found = [(0.0, rated)] if math.isfinite(rated) else []
    over = {word for words in LOWERS.values() for word in words}
    for event in record.events:
        if event.run != DIMMED or event.feed != feed:
            continue
        if event.what in LOWERS and math.isfinite(event.watts):
            found += _fallen(event)
        elif event.what in over and math.isfinite(rated):
            found.append((event.at, rated))
    return found


def _fallen(event: Event) -> list[tuple[float, float]]:
    """Return the limit of one event: at once, or in stairs down a ramp."""
    if event.what != "ramp" or not 0.0 < event.seconds < math.inf:
        return [(event.at, event.watts)]
    parts = 30
    return [
        (
            event.at + event.seconds * part / parts,
            event.steady + (event.watts - event.steady) * part / parts,
        )
        for part in range(1, parts + 1)
    ]


def drawn_feeds(record: PowerRecord) -> list[str]:
    """Return the feeds to draw: those that were hit, and all above them; the lowest first."""
    found: list[str] = []
    for event in record.events:
        feed = event.feed
        while event.run == DIMMED and feed in record.feeds and feed not in found:
            found.append(feed)
            feed = record.feeds[feed].parent
    order = list(record.feeds)
    return sorted(found, key=order.index, reverse=True)[:MOST_FEEDS]


def pictures(record: PowerRecord, width: int) -> list[Picture]:
    """Return the pictures of a run at a width; none where the record holds no traces."""
    found = []
    for feed in drawn_feeds(record):
        series = record.feed(feed)
        if series is not None and len(series.at):
            found.append(_picture(record, feed, series, width))
    return found


def _picture(record: PowerRecord, feed: str, series: Series, width: int) -> Picture:
    wide = width > NARROW
    left = 58.0 if wide else 46.0
    sheet = _Sheet(Scale(max(record.end, 1e-3), left, width - 14.0), wide)
    panels, top = [], TOP
    hit = any(event.feed == feed for event in record.events)
    for make in (_power, *((_caps,) if hit else ()), _strain, _charge):
        panel = make(record, feed, series, sheet, top)
        if panel is not None:
            panels.append(panel)
            top = panel.base + GAP
    return Picture(
        feed,
        width,
        round(top - GAP + FOOT),
        left,
        sheet.time.right,
        tuple(sheet.time.ticks(8 if wide else 4)),
        tuple(panels),
        tuple(_signs(record, sheet.time)),
    )


def _up(values: Iterable[float], top: float, name: str) -> Scale:
    """Return a scale from 0 at the base of a panel to the greatest value near its top."""
    most = max((value for value in values if math.isfinite(value)), default=0.0)
    return Scale(max(most * 1.06, 1e-6), top + HEIGHTS[name], top)


def _power(record: PowerRecord, feed: str, series: Series, sheet: _Sheet, top: float) -> Panel:
    """What it carried, what the side above saw of it, and its limit."""
    known = [(at, watts) for at, watts in limits(record, feed) if watts <= 1e9]  # noqa: PLR2004
    peaks = [float(np.nanmax(v)) for v in (series.mean, series.seen) if not np.isnan(v).all()]
    y = _up([*peaks, *(watts for _, watts in known)], top, "power")
    band, load = sheet.mean(record, series, series.mean, y)
    _, seen = sheet.mean(record, series, series.seen, y)
    lines = [
        Line("load: least to most", "band", band),
        Line("its mean over steps", "one", load),
        Line("what the side above sees, mean over steps", "two", seen),
    ]
    if known:
        lines.append(Line("limit", "limit", _stairs(known, record.end, sheet.time, y)))
    marks = tuple((at, f"{watts / KILO:g}") for at, watts in y.values(5))
    return Panel("kW", top, top + HEIGHTS["power"], marks, tuple(lines))


def _caps(
    record: PowerRecord, _feed: str, _series: Series, sheet: _Sheet, top: float
) -> Panel | None:
    """The cap of a GPU of each job."""
    jobs = {
        name: [(cap.at, cap.watts) for cap in caps] for name, caps in record.caps.items() if caps
    }
    y = _up((watts for steps in jobs.values() for _, watts in steps), top, "caps")
    lines = [
        Line(f"{name}, {record.jobs[name].gpus} GPUs" if name in record.jobs else name, style,
             _stairs(steps, record.end, sheet.time, y))
        for (name, steps), style in zip(jobs.items(), STYLES, strict=False)
    ]  # fmt: skip
    marks = tuple((at, f"{watts:g}") for at, watts in y.values(3))
    base = top + HEIGHTS["caps"]
    return Panel("W, cap of a GPU", top, base, marks, tuple(lines)) if lines else None


def _strain(
    _record: PowerRecord, _feed: str, series: Series, sheet: _Sheet, top: float
) -> Panel | None:
    """The trip integral of its breaker, which trips at 1."""
    if np.isnan(series.strain).all():
        return None
    y = _up([float(np.nanmax(series.strain)), STRAIN * 1.2], top, "strain")
    line = sheet.line("trip integral", "one", series.at, series.strain, y)
    marks = tuple((at, f"{value:g}") for at, value in y.values(3))
    rule = (y.x(STRAIN), f"{STRAIN} allowed")
    return Panel("trip integral", top, top + HEIGHTS["strain"], marks, (line,), rule)


def _charge(
    _record: PowerRecord, _feed: str, series: Series, sheet: _Sheet, top: float
) -> Panel | None:
    """How full its stores were."""
    if not series.charge:
        return None
    y = Scale(1.0, top + HEIGHTS["charge"], top)
    lines = []
    for (name, values), style in zip(series.charge.items(), STYLES, strict=False):
        if _swings(values, round(SWING_S / series.every)):
            few = (POINTS if sheet.wide else FEW) // 2
            band = _band(series.at, values, few, sheet.time, y)
            lines.append(Line(f"{name.upper()}: least to most", "band", band))
        else:
            lines.append(sheet.line(name.upper(), style, series.at, values, y))
    lines.sort(key=lambda line: line.style != "band")  # an area lies below the lines
    marks = tuple((y.x(share), f"{100 * share:g}") for share in (0.0, 0.5, 1.0))
    return Panel("%, charge", top, top + HEIGHTS["charge"], marks, tuple(lines))


def _swings(values: Array, count: int) -> bool:
    """Say whether a store fills and empties with every step, most of the time."""
    pieces = np.array_split(values, max(len(values) // max(count, 1), 1))
    spans = [float(np.nanmax(p) - np.nanmin(p)) for p in pieces if not np.isnan(p).all()]
    return bool(spans) and float(np.median(spans)) > SWING


def _signs(record: PowerRecord, time: Scale) -> Iterable[Sign]:
    """Number the events; what lowers a limit has a span until it is over."""
    until = {id(window.event): window.until for window in windows(record)}
    number = 0
    for event in record.of(*WORDS)[:MOST_EVENTS]:
        begins = event.what in LOWERS or event.what == "sag"
        number += begins
        end = until.get(id(event), event.at)
        name = f"{event.id}: " if event.id else ""
        text = f"{name}{WORDS[event.what]}{_about(event)}, at {event.at:.1f} s"
        yield Sign(time.x(event.at), number if begins else 0, text, time.x(end))


def _about(event: Event) -> str:
    """Return in words how much an event was."""
    if event.what in LOWERS and event.steady > 0.0:
        cut = 1.0 - event.watts / event.steady
        return f", {event.watts / KILO:.1f} kW at most, {cut:.0%} below the load"
    if event.what == "sag":
        return f" to {event.left:.0%} for {event.seconds * KILO:.0f} ms"
    return ""


def name_of(record: PowerRecord, at: float) -> str:
    """Return the name of the sub-drill that was under way at a moment of the timeline."""
    found: list[Window] = [w for w in windows(record) if w.event.at <= at + 1e-3 <= w.until + 2e-3]
    return f"{found[-1].name}, {found[-1].event.feed}" if found else ""
