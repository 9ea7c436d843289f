"""render(...) -> str: the page of one drill: verdict, proof, timeline, ledger, claims, where from.

In: the contract's JSON of `drill` and the record that it was judged from. Out: one file that
fetches nothing and runs no script. All text passes `visible` and is then escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rackproof.diagnostics.power import record as power
from rackproof.diagnostics.recovery.record import PROOFS, DrillRecord, Fact
from rackproof.reports import drill_words as words
from rackproof.reports.html.dimming_drawing import name_of, pictures
from rackproof.reports.html.drawing import MARKS
from rackproof.reports.html.drill_drawing import (
    NARROW,
    WIDE,
    Recovery,
    drawing,
    members,
    recoveries,
)
from rackproof.reports.html.render import asset, environment, sha256
from rackproof.reports.words import counted

MOST_ROWS = 200
MOST_PROBLEMS = 50
CHECK_COMMAND = "sha256sum drill.jsonl"


@dataclass(frozen=True, slots=True)
class Share:
    """One part of the ledger: its share, and where it lies on a bar of 1000 units."""

    name: str
    about: str
    share: float
    begin: float
    length: float

    @property
    def percent(self) -> str:
        """The share as it is read."""
        return f"{self.share:.1%}" if self.share >= 0.001 or not self.share else "< 0.1%"  # noqa: PLR2004


def shares(body: Mapping[str, Any]) -> list[Share]:
    """Return the ledger in its order, on a bar of 1000 units."""
    found, begin = [], 0.0
    for name, about in words.LEDGER.items():
        share = body["ledger"].get(name)
        if not isinstance(share, int | float) or isinstance(share, bool):
            continue
        length = round(1000 * max(min(float(share), 1.0), 0.0), 2)
        found.append(Share(name, about, float(share), round(begin, 2), length))
        begin += length
    return found


def rungs(body: Mapping[str, Any], record: DrillRecord) -> list[dict[str, Any]]:
    """Return the ladder of proof, the highest level first."""
    expected, shown = record.head.expected, body.get("proof")
    reached = PROOFS.index(shown) if shown in PROOFS else -1
    return [
        {
            "level": level,
            "meaning": words.PROOFS[level],
            "shown": number <= reached,
            "required": level == expected.proof,
            "above": number > PROOFS.index(expected.best),
        }
        for number, level in reversed(list(enumerate(PROOFS)))
    ]


def _ran(record: DrillRecord) -> list[dict[str, str]]:
    head = record.head
    course = record.faulted
    rows = [
        ("Drill", head.drill),
        ("Rack", head.rack),
        ("Source", head.source),
        ("Training run", words.run_of(head)),
        ("Seed", str(head.seed)),
        ("Began", head.date or "not given"),
        (
            "Wall time, start and end of the processes included",
            f"{course.ended - course.began:.2f} s" if course else "not run",
        ),
        ("Command", " ".join(map(str, head.plan.get("command", ()))) or "none: our own"),
        *((f"Version of {name}", text) for name, text in head.versions.items()),
    ]
    return [{"label": label, "value": value} for label, value in rows]


def _figures(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what stands beside the ledger; what is not known is said to be so."""

    def seconds(value: Any) -> str:
        return f"{value:.3g} s" if isinstance(value, int | float) else "not known"

    if words.of_power(body):
        wall = body.get("wall") or {}
        return [
            {"label": "Virtual time of training", "value": seconds(wall.get("seconds"))},
            {"label": "A step at full power", "value": seconds(wall.get("step"))},
        ]
    young = body.get("young_daly")
    young = young if isinstance(young, Mapping) else {}
    ettr = body.get("ettr")
    share = f"{ettr:.1%}{_of_training(body)}" if isinstance(ettr, float) else "–"
    rows = [
        ("ETTR, productive over time of training", share),
        ("MTTD, fault to detected", seconds(body.get("mttd"))),
        ("MTTR, fault to resumed", seconds(body.get("mttr"))),
        ("RPO, steps undone by one fault", str(body.get("rpo_steps", "not known"))),
        ("Checkpoint interval used", seconds(young.get("interval_used"))),
        ("Best interval by Young and Daly", seconds(young.get("interval_optimal"))),
    ]
    return [{"label": label, "value": value} for label, value in rows]


def _of_training(body: Mapping[str, Any]) -> str:
    """Return over how much time the shares are reckoned, and what is left out; or nothing."""
    wall = body.get("wall")
    found = [wall.get(key) for key in ("seconds", "start", "end")] if wall else []
    if not found or not all(isinstance(each, int | float) for each in found):
        return ""
    seconds, start, end = found
    return (
        f" of {seconds:.2f} s, from the first work on a step to the last commit; {start:.2f} s"
        f" before it and {end:.2f} s after it, the start and end of the processes, are not counted"
    )


def _members(record: DrillRecord) -> list[dict[str, str]]:
    course = record.faulted
    if course is None:
        return []
    found = []
    for name in members(record, course):
        about = [what for what in course.happenings if what.text("member") == name]
        told = [
            f"{what.kind} at {what.at - course.began:.2f} s"
            for what in about
            if what.kind in ("injected", "lost", "isolated", "spare-active", "resynchronised")
        ]
        steps = sum(1 for what in course.happenings if what.who == name and what.kind == "step")
        row = {"name": name, "subject": record.head.placement.get(name, "–")}
        found.append({**row, "steps": str(steps), "told": ", ".join(told) or "–"})
    return found[:MOST_ROWS]


def _checkpoints(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    rows = [fact for fact in facts if fact.what == "checkpoint" and fact.course == "faulted"]
    return [
        {
            "step": str(fact.fields.get("step", "–")),
            "tier": str(fact.fields.get("tier", "–")),
            "good": fact.fields.get("verifies") is True,
            "problem": str(fact.fields.get("problem") or ""),
            "uri": str(fact.fields.get("uri") or "–"),
        }
        for fact in rows[:MOST_ROWS]
    ]


def _hits(record: DrillRecord) -> list[dict[str, str]]:
    course = record.faulted
    if course is None:
        return []
    return [
        {"at": f"{what.at - course.began:.2f} s", "text": words.told(what)}
        for what in course.happenings
        if what.kind == "injected"
    ][:MOST_ROWS]


def render(body: Mapping[str, Any], record: DrillRecord, *, fingerprint: str, name: str) -> str:
    """Return the whole page. `fingerprint` is the record's sha256, `name` that of the run."""
    style = "\n".join(asset(name) for name in ("style.css", "drill.css", "dimming.css"))
    source = record.head.source
    problems = [*record.problems]
    return (
        environment()
        .get_template("drill.html.j2")
        .render(
            body=body,
            head=record.head,
            name=name,
            plane=source if source in ("emulated", "real") else "unsaid",
            verdict=str(body["verdict"]),
            headline=words.headline(body),
            marks=MARKS,
            ladder=rungs(body, record),
            expectations=words.expectations(record.head),
            **_drawn(body, record),
            shares=shares(body),
            figures=_figures(body),
            steps=body["steps"],
            restarts=counted(body["restarts"], "restart"),
            claims=body["claims"],
            hits=_hits(record),
            planted=body.get("planted") or [],
            members=_members(record),
            checkpoints=_checkpoints(record.facts),
            courses=_courses(record),
            ran=_ran(record),
            problems=problems[:MOST_PROBLEMS],
            more_problems=max(len(problems) - MOST_PROBLEMS, 0),
            style=Markup(style),  # noqa: S704 - our own files
            style_hash=sha256(style),
            fingerprint=fingerprint,
            check_command=CHECK_COMMAND,
        )
    )


def _drawn(body: Mapping[str, Any], record: DrillRecord) -> dict[str, Any]:
    """Return all drawings of the page, each for a wide and a narrow one."""
    zone = power.read(record.facts) if words.of_power(body) else None
    widths = (WIDE, NARROW)
    return {
        "drawings": [drawn for width in widths if (drawn := drawing(record, width))],
        "recoveries": [_recoveries(body, zone, width) for width in widths],
        "power": [] if zone is None else [pictures(zone, width) for width in widths],
        "virtual": zone is not None,
    }


def _recoveries(
    body: Mapping[str, Any], zone: power.PowerRecord | None, width: int
) -> list[Recovery]:
    """Return the recoveries; those of a power drill have the names of its sub-drills."""
    if zone is None:
        return recoveries(body, width)
    return recoveries(body, width, lambda at: name_of(zone, at))


def _courses(record: DrillRecord) -> list[dict[str, str]]:
    return [
        {
            "name": course.name,
            "about": words.COURSES.get(course.name, ""),
            "seconds": f"{course.ended - course.began:.2f} s",
            "end": "came to its end" if course.finished else "did not come to its end",
            "problems": "; ".join(course.problems[:5]),
        }
        for course in record.courses.values()
    ]
