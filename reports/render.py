"""`report RUN --as FORM`: the one place that knows which form is written how, and where to.

In: a run directory. Out: a file (by default inside the run directory), or stdout for ``-``.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rackproof.diagnostics.judge import judge
from rackproof.harness.errors import RecordError, SpecError, nearest
from rackproof.reports import drill_read
from rackproof.reports.handover import NAMING, ONLY_NAMING
from rackproof.reports.read import fingerprint, is_run, read_run, span

FORMS = {
    "html": "report.html",
    "junit": "junit.xml",
    "csv": "checks.csv",
    "parquet": "checks.parquet",
    "ocp": "report.ocp.jsonl",
    "slurm": "slurm.txt",
    "kubernetes": "kubernetes.json",
}

OF_DRILLS = ("html", "junit", "csv")
"""The forms that a drill has; the others are of burns."""


def _drill_text(run: Path, form: str) -> str:
    """Return a drill in a form, judged again from its record."""
    from rackproof.diagnostics.recovery.judge import judge as judge_drill  # noqa: PLC0415
    from rackproof.reports import drill_forms  # noqa: PLC0415

    if form not in OF_DRILLS:
        msg = f"--as {form}: {run} is a drill, which can be had as {', '.join(OF_DRILLS)}"
        raise SpecError(msg)
    record = drill_read.read_drill(run)
    body = drill_forms.as_json(record, judge_drill(record), run)
    if form == "csv":
        return drill_forms.csv(body)
    fingerprint = drill_read.fingerprint(run)
    if form == "junit":
        return drill_forms.junit(body, record, fingerprint)
    from rackproof.reports.html.drill_page import render as render_drill  # noqa: PLC0415

    return render_drill(body, record, fingerprint=fingerprint, name=run.resolve().name)


def _text(run: Path, form: str, nodes: Sequence[str]) -> str:
    record = read_run(run)
    judgement, plan = judge(record), record.planned()
    name = run.resolve().name
    if form in NAMING:
        from rackproof.reports import handover  # noqa: PLC0415

        times = span(run)
        told = handover.of_run(plan, judgement, handover.renames(nodes), times and times[1])
        return handover.text(form, told)
    if form == "ocp":
        from rackproof.reports.ocp import ocp  # noqa: PLC0415

        return "".join(f"{line}\n" for line in ocp(plan, judgement, span(run)))
    if form == "html":
        from rackproof.reports.html.render import render  # noqa: PLC0415 - jinja2 for html

        return render(record, judgement, fingerprint=fingerprint(run), name=name, span=span(run))
    if form == "junit":
        from rackproof.reports.junit import junit  # noqa: PLC0415

        return junit(record, judgement, name, fingerprint(run))
    from rackproof.reports.table import csv  # noqa: PLC0415 - pandas only for tables

    return csv(plan, judgement)


def resolved(path: Path) -> Path:
    """Return where a file would lie in truth; a RecordError where none can, or another thing is."""
    try:
        found = path.resolve()
        strange = found.exists() and not found.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop, before Python 3.13
        why = getattr(error, "strerror", None) or "a loop of links, or no name"
        msg = f"{str(path)[:300]}: cannot be written ({why})"
        raise RecordError(msg) from error
    if strange:
        msg = f"{found}: is no regular file; - writes to stdout"
        raise RecordError(msg)
    return found


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that nobody ever sees half of it; a RecordError when it cannot be.

    What is there and is no regular file (a device, a fifo, a folder) is never replaced.
    """
    path = resolved(path)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            temporary = Path(file.name)
            file.write(content)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror})"
        raise RecordError(msg) from error


def report(run: Path, form: str, out: str | None, nodes: Sequence[str] = ()) -> Path | None:
    """Render `run`; return the file that was written, or None for stdout.

    `nodes` name trays (``rack0/tray03=NAME``) in forms that are for schedulers. Raises SpecError
    for an unknown form or name, RecordError for what is no run or cannot be written.
    """
    if form not in FORMS:
        msg = f"--as: unknown form {form!r}{nearest(form, FORMS)}: one of {', '.join(FORMS)}"
        raise SpecError(msg)
    if nodes and form not in NAMING:
        raise SpecError(ONLY_NAMING)
    if not run.exists():
        msg = f"{run}: there is no such run directory"
        raise RecordError(msg)
    drill = drill_read.is_drill(run)
    if not drill and not is_run(run):
        msg = f"{run}: holds no record of a run"
        raise RecordError(msg)
    folder = run if run.is_dir() else run.parent
    if drill:
        return _put(folder, form, out, _drill_text(folder, form))
    if form == "parquet":
        from rackproof.reports.table import parquet  # noqa: PLC0415

        path = Path(out) if out else folder / FORMS[form]
        record = read_run(folder)
        resolved(path)
        parquet(record.planned(), judge(record), path)
        return path
    return _put(folder, form, out, _text(folder, form, nodes))


def _put(folder: Path, form: str, out: str | None, text: str) -> Path | None:
    """Write a text to where it was asked for; return the file, None for stdout."""
    if out == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return None
    path = Path(out) if out else folder / FORMS[form]
    write_whole(path, text.encode("utf-8", "replace"))
    return path


__all__ = ["FORMS", "report", "resolved", "write_whole"]
