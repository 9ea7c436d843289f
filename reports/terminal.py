"""What a person reads in a terminal: the plan first, a bar while it runs, the verdict last.

In: the head of a record, its judgement, or the JSON of `diagnose`. Out: lines on a given file, in
80 columns unless it is a wider terminal, with colours only on a terminal and not under NO_COLOR.
Text from records is untrusted: no markup, no control character of it reaches the terminal. Where
the file's encoding is not UTF-8, signs such as ≤ become ASCII.
"""

import shlex
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from rackproof.diagnostics.evidence import Head, Planned
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.retest.decide import MORE
from rackproof.harness.burns.table import BURNS
from rackproof.harness.model import sort_of
from rackproof.reports.junit import line_of
from rackproof.reports.retests import Retesting, showed, what
from rackproof.reports.rows import Row, findings, gaps
from rackproof.reports.sentence import sentence
from rackproof.reports.words import (
    COMPONENTS,
    PERSISTENCES,
    counted,
    failing,
    headline,
    spoken,
    to_do,
    unknown,
    visible,
    waived,
)

WIDTH = 80
WIDEST = 110
SHOWN = 20  # findings, gaps and diagnoses each; the rest is in the record
REASONS = 5  # of one diagnosis
SUMMARY_AT = 45  # the column at which a burn's summary begins
PATIENCE = 2.0  # seconds that a run may take before a bar is worth its place
STYLES = {"PASS": "bold green", "FAIL": "bold red", "UNKNOWN": "bold yellow"}
_ASCII = str.maketrans({"–": "-", "≤": "<=", "≥": ">=", "×": "x", "…": "...", "⟨": "<", "⟩": ">"})


class Page:
    """Writes wrapped lines to one file; every text passes through `clean`."""

    def __init__(self, file: TextIO) -> None:
        """Find out what the file can show."""
        self.file = file
        self.encoding = (getattr(file, "encoding", None) or "utf-8").lower().replace("_", "-")
        terminal = file.isatty()
        self.console = Console(
            file=file, markup=False, highlight=False, emoji=False, soft_wrap=True,
            force_terminal=terminal,
        )  # fmt: skip
        self.width = min(self.console.width, WIDEST) if terminal else WIDTH

    def clean(self, text: object) -> str:
        """Return text that is safe to write: nothing in it is obeyed, and all can be encoded."""
        plain = visible(str(text))
        if self.encoding not in ("utf-8", "utf8"):
            plain = plain.translate(_ASCII)
            plain = plain.encode(self.encoding, "backslashreplace").decode(self.encoding)
        return plain

    def line(self, text: object = "", *, indent: str = "", hang: str = "", style: str = "") -> None:
        """Write one paragraph, wrapped between words, never inside a subject or a path."""
        body = self.clean(text)
        wrapped = textwrap.wrap(
            body, self.width, initial_indent=indent, subsequent_indent=hang or indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        for part in wrapped or [""]:
            self.console.print(Text(part, style=style))

    def whole(self, text: str) -> None:
        """Write one line unwrapped, to be copied."""
        self.console.print(Text(self.clean(text)))

    def title(self, text: str) -> None:
        """Write a heading with a blank line before it."""
        self.console.print()
        self.line(text, style="bold")

    def verdict(self, verdict: str, text: str) -> None:
        """Write the last line: the verdict and its sentence, unwrapped, so that it is one line."""
        self.console.print()
        line = Text(self.clean(verdict), style=STYLES.get(verdict, "bold"))
        self.console.print(line.append(f"  {self.clean(text)}", style="not bold default"))


# --- before ------------------------------------------------------------------------------------
def head(about: Head, out: Path, file: TextIO, plants: int = 0) -> None:
    """Say what stands there and what will be run on it. `plants` counts planted faults."""
    page = Page(file)
    parts = ", ".join(f"{n} × {sku}" for sku, n in Counter(about.gpus.values()).items())
    if about.source == "emulated":
        page.line(f"EMULATED rack {about.rack}, {parts}: no hardware is tested", style="bold")
    elif about.source == "real":
        page.line(f"REAL hardware, {about.rack}, {parts or 'no GPU'}", style="bold")
    else:
        page.line(f"source {about.source!r} of {about.rack}: neither emulated nor real")
    if plants:
        page.line(f"{counted(plants, 'fault')} planted on purpose")
    page.line(f"{about.verb}, level {about.level}, seed {about.seed}, record in {out}")
    page.console.print()
    for row in _plan(about):
        page.line(row, hang=" " * SUMMARY_AT)
    for title, burns in (("not on this rack", about.skipped), ("left out", about.left_out)):
        for burn, why in burns.items():
            page.line(f"{burn:<18} {title}: {why}", hang=" " * 19, style="yellow")
    page.line(_length(about))
    file.flush()


def _length(about: Head) -> str:
    """Say how much it is: items, rounds, device time of one GPU, and what was asked for."""
    seconds = sum(planned.seconds for planned in about.plan)
    text = counted(sum(_items(about).values()), "item")
    if about.lasting is not None or about.rounds > 1:
        text += f" in each of {counted(about.rounds, 'round')}"
    else:
        text += " in all"
    text += f", {spoken(seconds * about.rounds)} of device time per GPU"
    if about.lasting is not None:
        text += f", for {spoken(about.lasting)} in rounds that are each shuffled anew"
    elif about.budget is not None:
        text += f", the best that fits into {spoken(about.budget)}"
    if about.retest_budget is not None:
        text += f"; then retests of what failed, up to {spoken(about.retest_budget)} in all"
    return text


def _items(about: Head) -> dict[str, int]:
    """Return how many items each burn has: a GPU with its links, a host with its NICs, ..."""
    return {planned.burn: len(about.items(planned)) for planned in about.plan}


def _plan(about: Head) -> list[str]:
    rows = []
    for planned in about.plan:
        on = "all GPUs at once" if planned.wide else ", ".join(_places(about, planned))
        summary = BURNS[planned.burn].summary if planned.burn in BURNS else ""
        left = f"{planned.burn:<18} {on:<16} {planned.seconds:>4g} s"
        rows.append(f"{left:<{SUMMARY_AT - 1}} {summary}")
    return rows


def _places(about: Head, planned: Planned) -> list[str]:
    """Return what a burn is run on, in words."""
    sorts = Counter(sort_of(item) for item in about.items(planned))
    return [counted(n, "GPU" if sort == "gpu" else sort) for sort, n in sorts.items()]


# --- meanwhile ---------------------------------------------------------------------------------
class Progress:
    """A bar on stderr, for a run of over two seconds, when stderr is a terminal; else nothing.

    It is drawn from `advance` alone, with no thread of its own, so it never writes between.
    """

    def __init__(
        self,
        about: Head | int,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare for all items of the plan, or for so many; nothing is drawn yet."""
        if isinstance(about, int):
            self._total = about
        else:
            self._total = sum(_items(about).values()) * about.rounds
        self._file = file or sys.stderr
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        """Start the clock."""
        self._began = self._clock()
        return self

    def advance(self, what: str, subject: str = "", items: int = 1) -> None:
        """Say that one item (or so many) is done; `what` and `subject` name it."""
        self._done += items
        if not self._file.isatty():
            return
        if self._bar is None and self._clock() - self._began > PATIENCE:
            self._bar = self._start()
        if self._bar is not None:
            shown = Page(self._file).clean(f"{what} {subject}".strip())
            self._bar.update(
                self._bar.task_ids[0], completed=self._done, what=shown[-40:], refresh=True,
                total=max(self._total, self._done),
            )  # fmt: skip

    def _start(self) -> Bar:
        page = Page(self._file)
        bar = Bar(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[what]}", markup=False),
            console=page.console, transient=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        bar.add_task("", total=self._total, what="")
        bar.start()
        return bar

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


# --- afterwards --------------------------------------------------------------------------------
def conclusion(
    judgement: Judgement,
    record: Path,
    file: TextIO,
    *,
    everything: bool = False,
    retests: Retesting | None = None,
) -> None:
    """Say what was found, what to do, where the record is; the verdict is the last line.

    `retests` are what was run beyond the plan. At most 20 lines of each sort, unless `everything`,
    which also lists what is PASS.
    """
    page = Page(file)
    most = len(judgement.checks) if everything else SHOWN
    if everything:
        page.title("All checks")
        for check in judgement.checks:
            page.line(line_of(check), hang="    ")
    _findings(page, "FAIL", findings(failing(judgement)), most, record)
    _gaps(page, gaps(unknown(judgement)), most, record)
    _findings(page, "FAIL, waived, does not count", findings(waived(judgement)), most, record)
    _diagnoses(page, [d.as_json() for d in judgement.diagnoses], most, record)
    if retests is not None:
        _retests(page, retests, most, record)
    if judgement.problems:
        page.title("Problems of the record")
        _listed(page, judgement.problems, most)
    page.console.print()
    words = Counter("waived" if c.waiver else str(c.verdict) for c in judgement.checks)
    counts = ", ".join(f"{n} {word}" for word, n in words.most_common())
    page.line(
        f"{judgement.judged} of {counted(judgement.planned, 'planned check')} judged"
        f" ({counts or 'none'})"
    )
    page.line(f"record: {record}")
    page.whole(f"for signing: rackproof report {shlex.quote(str(record))} --as html")
    page.verdict(str(judgement.verdict), headline(judgement))
    file.flush()


def _listed(page: Page, lines: Sequence[str], most: int) -> None:
    for text in lines[:most]:
        page.line(text, indent="  ", hang="    ")
    if len(lines) > most:
        page.line(f"and {len(lines) - most} more", indent="  ")


def _more(page: Page, rows: Sequence[object], most: int, where: object) -> None:
    if len(rows) > most:
        page.line(f"and {len(rows) - most} more, see {where}", indent="  ")


def _findings(page: Page, title: str, rows: Sequence[Row], most: int, where: Path) -> None:
    if not rows:
        return
    page.title(title)
    for row in rows[:most]:
        page.line(f"{row['place']}  {row['burn']}  {row['metric']}", indent="  ", style="red")
        text = f"{row['value']}, limit {row['limit']}; outside in {row['failed']} runs"
        if "," in row["runs"]:
            text += f" ({row['runs']})"
        page.line(text, indent="    ")
        page.line(f"{row['layer']}: {row['source']}", indent="    ")
        waiver = row["waiver"]
        if waiver is not None:
            page.line(
                f"waived by {waiver.owner} until {waiver.until}: {waiver.reason}", indent="    "
            )
    _more(page, rows, most, where)


def _gaps(page: Page, rows: Sequence[Row], most: int, where: object) -> None:
    if not rows:
        return
    page.title("UNKNOWN")
    for row in rows[:most]:
        page.line(", ".join(row["places"]), indent="  ", style="yellow")
        metrics = ", ".join(row["metrics"])
        page.line(f"{row['burn']}: {metrics}: {row['reason']}", indent="    ")
        if row["cure"]:
            page.line(f"cure: {row['cure']}", indent="    ")
    _more(page, rows, most, where)


def _diagnoses(
    page: Page, diagnoses: Sequence[Mapping[str, Any]], most: int, where: object
) -> None:
    """Say each root in words with what to do next; its victims are only counted."""
    roots = [d for d in diagnoses if d["role"] == "root"]
    if not roots:
        return
    victims = Counter(d["case"] for d in diagnoses if d["role"] != "root")
    page.title("Diagnosis")
    for root in roots[:most]:
        part = COMPONENTS.get(root["component"], root["component"])
        lasting = PERSISTENCES.get(root["persistence"], root["persistence"])
        serial = f", serial {root['serial']}" if root.get("serial") else ""
        page.line(f"{root['subject']}{serial}", indent="  ", style="bold")
        page.line(f"{part}, {root['persistence']}: {lasting}", indent="    ")
        page.line(f"{root['action']}: {to_do(root)}", indent="    ")
        _because(page, root["because"])
        if victims[root["case"]]:
            count = counted(victims[root["case"]], "other part")
            page.line(f"{count} failed because of it and need no repair", indent="    ")
    _more(page, roots, most, where)


def _because(page: Page, reasons: Sequence[str]) -> None:
    """List the reasons, the first few and what would tell more."""
    more = [reason for reason in reasons if reason.startswith(MORE)]
    others = [reason for reason in reasons if reason not in more]
    for reason in others[:REASONS]:
        page.line(f"- {reason}", indent="    ", hang="      ")
    if len(others) > REASONS:
        page.line(f"- and {len(others) - REASONS} more", indent="    ")
    for reason in more:
        page.line(f"- {reason}", indent="    ", hang="      ")


def _retests(page: Page, retests: Retesting, most: int, where: Path) -> None:
    page.title(f"Retests: {retests.total}")
    for row in retests.rows[:most]:
        page.line(f"{row.subject}  {what(row)}", indent="  ", hang="    ")
        page.line(showed(row), indent="    ", hang="    ")
    _more(page, retests.rows, most, where)


# --- of files ----------------------------------------------------------------------------------
def diagnosis_conclusion(body: Mapping[str, Any], file: TextIO) -> None:
    """Say what the JSON of `diagnose` (rackproof.diagnosis/1) says; the verdict comes last."""
    page = Page(file)
    inputs: Sequence[Mapping[str, Any]] = body["inputs"]
    page.line("Judged from files, with no look at a device", style="bold")
    for entry in inputs[:SHOWN]:
        records = counted(entry["records"], "record")
        page.line(f"{entry['path']}: {entry['kind']}, {records}", indent="  ", hang="      ")
        _listed_problems(page, [*entry.get("problems", ()), *entry.get("remarks", ())])
    _more(page, inputs, SHOWN, "--json")
    _gaps(page, [row for entry in inputs for row in entry.get("unknown", ())], SHOWN, "--json")
    _diagnoses(page, body["diagnoses"], SHOWN, "--json")
    page.verdict(str(body["verdict"]), sentence(body))
    file.flush()


def _listed_problems(page: Page, problems: Sequence[str]) -> None:
    for problem in problems[:REASONS]:
        page.line(problem, indent="    ", hang="      ", style="yellow")
    if len(problems) > REASONS:
        page.line(f"and {len(problems) - REASONS} more", indent="    ")
