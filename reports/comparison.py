"""What a person reads of `compare`: a table of what got worse, one line a part, the verdict last.

In: the JSON of `compare` (rackproof.compare/1). Out: lines on a given file. Text from records is
untrusted, as in terminal.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rackproof.reports.terminal import SHOWN, Page
from rackproof.reports.words import counted, shown

Row = Mapping[str, Any]
HEAD = ("part", "serial", "burn", "metric", "old", "new", "change", "noise")
NAMED = 3  # parts that the last line names


def _amount(value: object, unit: str, *, sign: bool) -> str:
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    if unit == "ratio":
        return f"{value:+.1%}" if sign else f"{value:.1%}"
    text = f"{value:+.4g}" if sign else f"{value:.4g}"
    return text if unit in ("text", "flag") else f"{text} {unit}"


def _cells(row: Row) -> tuple[str, ...]:
    unit = row["change_unit"]
    return (
        row["subject"],
        row["serial"] or "",
        row["check"],
        row["metric"],
        shown(row["old"], row["unit"]),
        shown(row["new"], row["unit"]),
        _amount(row["change"], unit, sign=True),
        _amount(row["limit"], unit, sign=False),
    )


def _table(page: Page, title: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    page.title(title)
    cells = [HEAD, *(tuple(map(page.clean, _cells(row))) for row in rows[:SHOWN])]
    widths = [max(len(line[n]) for line in cells) for n in range(len(HEAD))]
    for line in cells:
        padded = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        page.whole("  ".join(padded).rstrip())
    _more(page, rows)


def _more(page: Page, rows: Sequence[object]) -> None:
    if len(rows) > SHOWN:
        page.line(f"and {len(rows) - SHOWN} more, see --json", indent="  ")


def _alone(page: Page, title: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    page.title(title)
    for row in rows[:SHOWN]:
        name = f"{row['subject']}, serial {row['serial']}" if row["serial"] else row["subject"]
        what = f": {row['check']}: {', '.join(row['metrics'])}" if "metrics" in row else ""
        page.line(f"{name}{what}", indent="  ", hang="    ")
    _more(page, rows)


def _swapped(body: Row) -> str:
    """Say how many parts are in one run alone; an empty text where none is."""
    gone, come = (
        sum("metrics" not in row for row in body[key]) for key in ("only_old", "only_new")
    )
    be = ["is" if count == 1 else "are" for count in (gone, come)]
    if gone:
        new = f", {come} {be[1]} new" if come else ""
        return f"; {counted(gone, 'part')} of the old run {be[0]} gone{new}"
    return f"; {counted(come, 'part')} {be[1]} new" if come else ""


def _sentence(body: Row) -> str:
    worse = list(dict.fromkeys(row["subject"] for row in body["worse"]))
    if worse:
        more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
        return f"worse than before: {', '.join(worse[:NAMED])}{more}"
    if body["reasons"]:
        return "; ".join(body["reasons"])
    return f"nothing got worse in {counted(body['compared'], 'reading')} that both runs have"


def comparison(body: Row, file: TextIO) -> None:
    """Say what the JSON of `compare` says; the verdict comes last."""
    page = Page(file)
    page.line(f"{body['runs']['old']} against {body['runs']['new']}", style="bold")
    _table(page, "Worse", body["worse"])
    _table(page, "Better", body["better"])
    if body["changed"]:
        page.title("Changed, and neither better nor worse")
        for row in body["changed"][:SHOWN]:
            old, new = shown(row["old"]), shown(row["new"])
            text = f"{row['metric']}: {old} is now {new}, on {counted(row['parts'], 'part')}"
            page.line(text, indent="  ", hang="    ")
        _more(page, body["changed"])
    _alone(page, "In the old run alone", body["only_old"])
    _alone(page, "In the new run alone", body["only_new"])
    if body["reasons"] and body["worse"]:
        page.title("Not compared")
        for reason in body["reasons"]:
            page.line(reason, indent="  ", hang="    ")
    page.verdict(str(body["verdict"]), _sentence(body) + _swapped(body))
    file.flush()
