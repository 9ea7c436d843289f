"""render(record, judgement) -> str: the one-file report that an engineer reads, signs and keeps.

Nothing is fetched: style, script and evidence lie in the page, and its Content-Security-Policy lets
only these two run, by their hash. All text passes `visible` and is then escaped.
"""

import base64
import functools
import hashlib
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rackproof.diagnostics.evidence import Record
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.verdict import Verdict
from rackproof.reports.html import facts
from rackproof.reports.html.drawing import MARKS, drawings
from rackproof.reports.html.evidence import Evidence, embedded
from rackproof.reports.html.power_drawing import SHEET, pictures
from rackproof.reports.rows import findings, gaps
from rackproof.reports.words import failing, headline, unknown, visible, waived

# What reports.read.fingerprint computes, for a shell; the controller's file first, then by name.
CHECK_COMMAND = (
    "for f in record.jsonl $(ls record.*.jsonl 2>/dev/null | LC_ALL=C sort); do "
    '[ -f "$f" ] && printf \'%s\\0\' "$f" && cat "$f"; done | sha256sum'
)
MOST_PROBLEMS = 50


def _finalize(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def environment() -> Environment:
    """Return what renders our templates: everything is escaped, and nothing may be missing."""
    return Environment(
        loader=PackageLoader("rackproof.reports.html", ""),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(name: str) -> str:
    """Return a file of ours that becomes part of a page."""
    return resources.files("rackproof.reports.html").joinpath(name).read_text("utf-8").strip()


def sha256(text: str) -> Markup:
    """Return what a Content-Security-Policy calls a text of a page."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup("sha256-{}").format(digest)


def render(
    record: Record,
    judgement: Judgement,
    *,
    fingerprint: str,
    name: str,
    span: tuple[str, str] | None = None,
) -> str:
    """Return the whole page. `fingerprint` is the record's sha256, `name` that of the run.

    `span` holds when the run began and ended, as `span(run)` gives it. Raises SpecError when the
    record's limits make no sense.
    """
    plan = record.planned()
    evidence = Evidence(plan, judgement)
    style, script = asset("style.css"), asset("page.js")
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            **_context(plan, judgement),
            ran=facts.ran(plan, judgement, span),
            retests=facts.retests(record, judgement),
            known=evidence.parts,
            evidence=Markup(embedded(evidence.tables())),  # noqa: S704 - holds no < > or &
            style=Markup(style),  # noqa: S704 - our own file
            script=Markup(script),  # noqa: S704 - our own file
            style_hash=sha256(style),
            script_hash=sha256(script),
            fingerprint=fingerprint,
            name=name,
            check_command=CHECK_COMMAND,
        )
    )


def _context(record: Record, judgement: Judgement) -> dict[str, Any]:
    failed, held, unread = failing(judgement), waived(judgement), unknown(judgement)
    skipped = [c for c in judgement.checks if c.verdict is Verdict.SKIP]
    stated, golden = facts.limits(record, judgement)
    source = record.head.source
    return {
        "head": record.head,
        "plane": source if source in ("emulated", "real") else "unsaid",
        "verdict": str(judgement.verdict),
        "headline": headline(judgement),
        "left_out": list(record.head.left_out),
        "not_run": facts.not_run(record),
        "marks": MARKS,
        "problems": judgement.problems[:MOST_PROBLEMS],
        "more_problems": max(len(judgement.problems) - MOST_PROBLEMS, 0),
        "cases": facts.cases(judgement.diagnoses),
        "racks": drawings(record.head, judgement),
        "power": pictures(record, judgement),
        "drawn": SHEET,
        "failed": findings(failed),
        "held": findings(held),
        "unknown": gaps(unread),
        "skipped": gaps(skipped),
        "counts": {
            "failed": len(failed),
            "held": len(held),
            "unknown": len(unread),
            "skipped": len(skipped),
        },
        "planned": judgement.planned,
        "judged": judgement.judged,
        "coverage": facts.coverage(record, judgement),
        "limits": stated,
        "golden": golden,
        "waivers": facts.waivers(record, judgement),
        "gpus": facts.gpus(record, judgement),
    }
