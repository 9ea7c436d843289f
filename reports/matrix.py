"""The detection matrix of `qualify`: a table in a terminal, and a page in Markdown.

In: the JSON of qualify (rackproof.qualify/1), or before that what will be planted. Out: lines on a
given file, the verdict last; or the text of a page that says with which commands each line can be
had again. Nothing is decided here.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rackproof.harness.spec import RackSpec
from rackproof.reports.terminal import Page
from rackproof.reports.words import counted

COLUMNS = ("detected", "attributed", "component_right", "persistence_right")
TITLES = ("seen", "subject", "component", "lasting")
"""What the four columns are called where there is little room."""
SIGN = {1: "yes", 0: "NO"}
BURNS = 3  # named in one row of the terminal's table; the JSON names all


def head(spec: RackSpec, seed: int, counts: Mapping[str, int], file: TextIO) -> None:
    """Say what will be planted into which rack."""
    page = Page(file)
    page.line(f"EMULATED rack {spec.name}: faults are planted on purpose", style="bold")
    text = f"qualify, seed {seed}: {counted(counts['planted'], 'kind')} of fault, once each"
    if counts["skipped"]:
        text += f"; {counts['skipped']} that the platform cannot have"
    if counts["lacking"]:
        text += f"; {counts['lacking']} that this version cannot plant"
    page.line(f"{text}; {counted(counts['runs'], 'run')}")
    file.flush()


def conclusion(body: Mapping[str, Any], kept: Path | None, file: TextIO) -> None:
    """Show the matrix, what was wrong, and the verdict."""
    page = Page(file)
    page.title("Detection matrix")
    for line in notes(body):
        page.line(line)
    page.console.print()
    for line in _table(body["matrix"]):
        page.whole(line)
    wrong = [row for row in body["matrix"] if row.get("wrong")]
    if wrong:
        page.title("What was not right")
    for row in wrong:
        at = f"@{row['subject']}" if "subject" in row else ""
        page.line(f"{row['fault']}{at}: {'; '.join(row['wrong'])}", indent="  ", hang="    ")
        if "burn" in row:
            page.whole(f"    rackproof burn {shlex.join(row['burn'])}")
    page.console.print()
    if kept is not None:
        page.line(f"the runs: {kept}")
    page.verdict(str(body["verdict"]), sentence(body))
    file.flush()


def notes(body: Mapping[str, Any]) -> list[str]:
    """Return what has to be known to read the matrix: level, seed, and which burns were run."""
    found = [f"Level {body['level']}, seed {body['seed']}, {counted(body['runs'], 'run')}."]
    if not body["sees"]:
        return [*found, "Every run had all burns of the level."]
    by_burns: dict[tuple[str, ...], list[str]] = {}
    for sort, burns in body["sees"].items():
        by_burns.setdefault(tuple(burns), []).append(sort)
    for burns, sorts in by_burns.items():
        found.append(f"Burns for a fault on a {' or '.join(sorts)}: {' '.join(_families(burns))}.")
    whole = [row["fault"] for row in body["matrix"] if "full" in row]
    return [*found, f"With all burns as well, drawn by the seed: {', '.join(whole) or 'none'}."]


def _families(burns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(burn.partition(".")[0] for burn in burns))


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table's lines, columns aligned."""
    cells = [["fault", *TITLES, "s", "seen by"], *(_cells(row) for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(cells[0]))]
    return ["  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)).rstrip()
            for line in cells]  # fmt: skip


def _cells(row: Mapping[str, Any]) -> list[str]:
    if not row["planted"]:
        reason = row.get("skip") or "; ".join(row["wrong"])
        return [row["fault"], *("–" for _ in TITLES), "", reason]
    by = list(row["by"])
    more = f" +{len(by) - BURNS}" if len(by) > BURNS else ""
    marks = [SIGN[row[name]] for name in COLUMNS]
    return [row["fault"], *marks, f"{row['seconds']:.1f}", " ".join(by[:BURNS]) + more]


def sentence(body: Mapping[str, Any]) -> str:
    """Return the sentence beside the verdict."""
    rows = [row for row in body["matrix"] if row["planted"]]
    right = sum(row["verdict"] == "PASS" for row in rows)
    text = f"{right} of {counted(len(rows), 'planted kind')} right"
    skipped = sum("skip" in row for row in body["matrix"])
    if skipped:
        text += f", {skipped} that the platform cannot have"
    lacking = len(body["matrix"]) - len(rows) - skipped
    if lacking:
        text += f", {lacking} that cannot be planted yet"
    alarms = counted(body["false_alarms"], "false alarm")
    return f"{text}, {alarms} among {body['gpus']} GPUs; {body['seconds']:g} s"


# --- the page ----------------------------------------------------------------------------------
def page(body: Mapping[str, Any], facts: Sequence[str]) -> str:
    """Return the matrix as a page in Markdown; `facts` are lines that stand below its title."""
    lines = [f"# Detection matrix of {body['rack']}", "", *facts, ""]
    lines += [f"**{body['verdict']}**: {sentence(body)}.", ""]
    lines += [f"- {note}" for note in notes(body)]
    titles = ("fault", "planted on", *TITLES, "seen by", "s")
    lines += ["", _row(titles), _row("---" for _ in titles)]
    lines += [_row(_page_cells(row)) for row in body["matrix"]]
    wrong = [row for row in body["matrix"] if row.get("wrong")]
    lines += ["", "## What was not right"]
    lines += [f"- {row['fault']}: {'; '.join(row['wrong'])}" for row in wrong] or ["Nothing."]
    lines += ["", "## The runs"]
    lines += ["Each row can be had again:", "```"]
    lines += [
        f"rackproof burn {shlex.join(row['burn'])}" for row in body["matrix"] if row["planted"]
    ]
    return "\n".join([*lines, "```", ""])


def _row(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"


def _page_cells(row: Mapping[str, Any]) -> list[str]:
    if not row["planted"]:
        reason = row.get("skip") or "; ".join(row["wrong"])
        return [row["fault"], reason, *("–" for _ in TITLES), "", ""]
    marks = [SIGN[row[name]] for name in COLUMNS]
    by = ", ".join(row["by"])
    return [row["fault"], row["subject"], *marks, by, f"{row['seconds']:.1f}"]
