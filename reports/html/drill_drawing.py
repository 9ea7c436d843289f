"""A drill drawn: steps over time, a lane for each member, and the recovery word by word.

In: the record, and the contract's JSON of `drill`. Out: shapes with coordinates in units of the
drawing, for the template. Every drawing is made twice, for a wide and for a narrow page, since the
text of a picture that is scaled down cannot be read.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackproof.diagnostics.recovery.record import Course, DrillRecord
from rackproof.harness.happening import Happening

WIDE, NARROW = 960, 340
MOST_LANES = 24
MOST_TICKS = 1500  # of one lane; more would only be one bar
LEAD = "coordinator"
HEIGHT = 190  # of the steps
LANE = 22
LETTER = 6.7  # the width of a letter of a strong text, on the average
FIRST = ("fault", "overload-detected")
"""With what the words of a timeline begin."""
MARKS: Mapping[str, str] = {
    "lost": "lost",
    "isolated": "isolated",
    "spare-active": "active",
    "restore": "restored",
    "refused": "refused",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Seconds of a course on `left` … `right` of a drawing."""

    seconds: float
    left: float
    right: float

    def x(self, at: float) -> float:
        """Return where a moment lies; what is outside lies at the edge."""
        share = min(max(at / self.seconds, 0.0), 1.0)
        return round(self.left + share * (self.right - self.left), 1)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return a few round moments with their labels."""
        return [(x, f"{at:g} s") for x, at in self.values(most)]

    def values(self, most: int) -> list[tuple[float, float]]:
        """Return a few round values with where they lie."""
        step = _round_step(self.seconds / most)
        count = int(self.seconds / step + 1e-9)
        return [(self.x(n * step), n * step) for n in range(count + 1)]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(least, 1e-6)))
    for factor in (1, 2, 5):
        if least <= factor * power:
            return factor * power
    return 10 * power


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at a moment: `kind` is its shape, `text` what it says."""

    x: float
    y: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A member: its `lives` (each from a hello to its death), its steps as one path, its fate."""

    name: str
    about: str
    y: float
    lives: tuple[tuple[float, float], ...]
    ticks: str
    marks: tuple[Mark, ...]
    still: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One drawing of a whole course, `width` × `height` units."""

    width: int
    height: int
    left: float
    right: float
    base: float
    line: str
    top: tuple[float, str]
    times: tuple[tuple[float, str], ...]
    faults: tuple[float, ...]
    restarts: tuple[float, ...]
    saved: tuple[Mark, ...]
    lanes: tuple[Lane, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Moment:
    """One word of the recovery: `after` seconds from the fault, a bar from the word before it."""

    word: str
    after: float
    about: str
    y: float
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """The recovery after one fault; `name` is what the drill calls it."""

    width: int
    height: int
    left: float
    right: float
    times: tuple[tuple[float, str], ...]
    moments: tuple[Moment, ...]
    name: str = ""


def _number(what: Happening) -> int:
    return what.number("step") or 0


def committed(course: Course) -> list[tuple[float, int]]:
    """Return when each step was first told, in the order of time; who leads a run tells first.

    A run that goes back stands on the lower step from the moment of the restore on.
    """
    told = [what for what in course.happenings if what.kind == "step"]
    lead = [what for what in told if what.who == LEAD]
    back = [what for what in course.happenings if what.kind in ("restarted", "restore")]
    found: list[tuple[float, int]] = []
    for what in lead or told:
        step, at = _number(what), what.at - course.began
        if found and step <= found[-1][1]:
            found += _fallen(back, course, found[-1], (at, step))
        if not found or step != found[-1][1]:
            found.append((at, step))
    return found


def _fallen(
    back: Iterable[Happening], course: Course, last: tuple[float, int], then: tuple[float, int]
) -> list[tuple[float, int]]:
    """Return when the run went back to below the step that it told next, where that was seen."""
    between = [
        (what.at - course.began, number)
        for what in back
        if last[0] < what.at - course.began <= then[0]
        and (number := what.number("step")) is not None
        and number < last[1]
        and number < then[1]
    ]
    return between[:1]


def _path(points: Iterable[tuple[float, float]]) -> str:
    """Return a staircase: what was committed stays so until the moment of the next."""
    return " ".join(f"H{x:g}V{y:g}" if n else f"M{x:g} {y:g}" for n, (x, y) in enumerate(points))


def drawing(record: DrillRecord, width: int) -> Drawing | None:
    """Return the drawing of the run that was hit; None where there is none."""
    course = record.faulted
    if course is None:
        return None
    seconds = max(course.ended - course.began, 1e-3)
    left = 96.0 if width > NARROW else 64.0
    scale = Scale(seconds, left, width - 14.0)
    steps = committed(course)
    most = max([record.head.steps, *(step for _, step in steps)])
    height = HEIGHT if width > NARROW else HEIGHT * 0.8

    def y(step: int) -> float:
        return round(16 + (height - 16) * (1 - min(max(step, 0), most) / most), 1)

    lanes, more = _lanes(record, course, scale, height + 34)
    return Drawing(
        width=width,
        height=round(height + 34 + LANE * len(lanes) + 26),
        left=left,
        right=scale.right,
        base=height,
        line=_path((scale.x(at), y(step)) for at, step in steps),
        top=(y(record.head.steps), str(record.head.steps)),
        times=tuple(scale.ticks(8 if width > NARROW else 4)),
        faults=tuple(_times(course, scale, "injected")),
        restarts=tuple(_times(course, scale, "restarted")),
        saved=tuple(
            Mark(scale.x(w.at - course.began), y(_number(w)), "saved",
                 f"checkpoint of step {_number(w)}, at {w.at - course.began:.2f} s")
            for w in course.happenings
            if w.kind == "ckpt" and w.text("phase") == "committed"
        ),
        lanes=tuple(lanes),
        more=more,
    )  # fmt: skip


def _times(course: Course, scale: Scale, kind: str) -> list[float]:
    found = [scale.x(w.at - course.began) for w in course.happenings if w.kind == kind]
    return list(dict.fromkeys(found))


def members(record: DrillRecord, course: Course) -> list[str]:
    """Return the members of a run by kind and number, whoever leads it last."""
    spoke = [what.who for what in course.happenings if what.who != "drill"]
    named = [what.text("member") for what in course.happenings if what.kind == "injected"]
    known = {name for name in (*record.head.placement, *spoke, *named) if name}
    return sorted(known, key=_order)


def _order(name: str) -> tuple[bool, str, int, str]:
    stem = name.rstrip("0123456789")
    return name == LEAD, stem, int(name[len(stem) :][:9] or 0), name


def _lanes(record: DrillRecord, course: Course, scale: Scale, top: float) -> tuple[list[Lane], int]:
    names = members(record, course)
    concerned = {w.text("member") for w in course.happenings if w.kind in ("injected", "lost")}
    concerned |= {w.text("member") for w in course.happenings if w.kind == "spare-active"}
    if len(names) > MOST_LANES:
        first = [name for name in names if name in concerned][:MOST_LANES]
        rest = [name for name in names if name not in concerned]
        chosen = {*first, *rest[: MOST_LANES - len(first)]}
    else:
        chosen = set(names)
    shown = [name for name in names if name in chosen]
    lanes = [_lane(record, course, scale, name, top + LANE * n) for n, name in enumerate(shown)]
    return lanes, len(names) - len(shown)


def _lane(record: DrillRecord, course: Course, scale: Scale, name: str, y: float) -> Lane:
    own = [what for what in course.happenings if what.who == name]
    about = [what for what in course.happenings if what.text("member") == name]
    steps = [scale.x(w.at - course.began) for w in own if w.kind == "step"][:MOST_TICKS]
    marks = [
        Mark(scale.x(w.at - course.began), y, MARKS[w.kind], _said(w, course))
        for w in [*about, *(w for w in own if w.kind == "restore")]
        if w.kind in MARKS
    ]
    hit = [
        Mark(scale.x(w.at - course.began), y, "hit", _said(w, course))
        for w in about
        if w.kind == "injected"
    ]
    return Lane(
        name,
        record.head.placement.get(name, ""),
        y,
        tuple(
            (scale.x(came - course.began), scale.x(went - course.began))
            for came, went in lives(record, course, name)
        ),
        " ".join(f"M{x:g} {y - 6:g}v12" for x in dict.fromkeys(steps)),
        tuple(sorted((*marks, *hit), key=lambda each: each.x)),
        tuple(_still(record, name, course, scale)),
    )


def lives(record: DrillRecord, course: Course, name: str) -> list[tuple[float, float]]:
    """Return when each process of a member was there: from its hello until it died.

    One of which no death was seen is there until the next says hello. Who says none is there from
    its first word on.
    """
    own = [what for what in course.happenings if what.who == name]
    died = [
        fact
        for fact in record.facts
        if fact.what == "died" and fact.course == course.name and fact.fields.get("member") == name
    ]
    began: list[tuple[float, object]] = []
    for what in own:
        pid = what.fields.get("pid")
        if what.kind == "hello" and not (began and began[-1][1] == pid):
            began.append((what.at, pid))
    if not began:
        last = max((fact.at for fact in died), default=course.ended)
        return [(min((what.at for what in own), default=course.began), last)]
    nexts = [*(at for at, _ in began[1:]), course.ended]
    return [
        (at, min([f.at for f in died if f.fields.get("pid") == pid and f.at >= at], default=until))
        for (at, pid), until in zip(began, nexts, strict=True)
    ]


def _still(
    record: DrillRecord, name: str, course: Course, scale: Scale
) -> list[tuple[float, float]]:
    """Return the spans in which a member's process was stopped."""
    found, since = [], None
    for fact in record.facts:
        if fact.course != "faulted" or fact.fields.get("member") != name:
            continue
        if fact.what == "stopped" and since is None:
            since = fact.at
        elif fact.what in ("thawed", "died") and since is not None:
            found.append((since, fact.at))
            since = None
    if since is not None:
        found.append((since, course.ended))
    return [(scale.x(a - course.began), scale.x(b - course.began)) for a, b in found]


def _said(what: Happening, course: Course) -> str:
    about = what.text("fault") or what.text("why") or what.text("uri")
    text = f"{what.text('member') or what.who}: {what.kind}"
    return f"{text}{f' ({about})' if about else ''} at {what.at - course.began:.2f} s"


def recoveries(
    body: Mapping[str, Any], width: int, named: Callable[[float], str] = lambda _: ""
) -> list[Recovery]:
    """Return a drawing for each fault of the timeline, the words after it in their order.

    `named` gives the name of what began at a moment.
    """
    groups: list[list[Mapping[str, Any]]] = []
    for entry in body["timeline"]:
        if entry["what"] in FIRST or not groups:
            groups.append([])
        groups[-1].append(entry)
    drawn = [group for group in groups if len(group) > 1]
    return [replace(_recovery(group, width), name=named(group[0]["at"])) for group in drawn]


def _recovery(group: Sequence[Mapping[str, Any]], width: int) -> Recovery:
    first = group[0]["at"]
    seconds = max(group[-1]["at"] - first, 1e-3)
    longest = max(len(str(entry["what"])) for entry in group)
    left = max(150.0 if width > NARROW else 112.0, LETTER * min(longest, 26) + 8.0)
    scale = Scale(seconds * 1.02, left, width - (96.0 if width > NARROW else 70.0))
    moments, before = [], 0.0
    for number, entry in enumerate(group):
        after = entry["at"] - first
        about = f"step {entry['step']}" if "step" in entry else str(entry.get("member", ""))
        begin, end = scale.x(before), scale.x(after)
        y = 16.0 + LANE * number
        moments.append(Moment(str(entry["what"]), after, about, y, begin, end))
        before = after
    height = round(16 + LANE * len(group) + 22)
    times = tuple(scale.ticks(6 if width > NARROW else 3))
    return Recovery(width, height, left, scale.right, times, tuple(moments))
