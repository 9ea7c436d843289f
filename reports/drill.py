"""What a person reads of a drill in a terminal: the plan, the timeline as it happens, the verdict.

In: what the stage tells, the contract's JSON of `drill`, the record. Out: lines on a given file,
with a bar of committed steps where it and stderr are terminals. Text of a training run is
untrusted: nothing in it is obeyed.
"""

import contextlib
import math
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from rackproof.diagnostics.recovery.record import DrillRecord, Head
from rackproof.harness.happening import Happening
from rackproof.reports.drill_words import (
    COURSES,
    LEDGER,
    WORDS,
    expectations,
    headline,
    of_power,
    proven,
    run_of,
    told,
    unshown,
)
from rackproof.reports.terminal import PATIENCE, Page
from rackproof.reports.words import counted

SHOWN = 40  # lines of a timeline, while it happens and afterwards
PROBLEMS = 10
STYLES = {"FAIL": "red", "UNKNOWN": "yellow"}


class Watching:
    """Tells a person what goes on; an Onlooker of the stage. Takes calls of several threads."""

    def __init__(self, file: TextIO, out: Path) -> None:
        """Write to `file`; the run's directory is `out`."""
        self._page, self._out = Page(file), out
        self._bars = file.isatty() and sys.stderr.isatty()
        self._lock = threading.RLock()
        self._bar: Bar | None = None
        self._began = 0.0
        self._steps = self._step = 0
        self._course = ""
        self._hit, self._back, self._power = math.inf, False, False
        self._lines = 0

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._stop()

    def _stop(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def begins(self, head: Head) -> None:
        """Say what is started, what will be broken, what must hold."""
        page = self._page
        self._steps, self._power = head.steps, bool(head.expected.power)
        page.line(f"{head.drill} on {head.source.upper()} rack {head.rack}, seed {head.seed}",
                  style="bold")  # fmt: skip
        command = head.plan.get("command")
        if isinstance(command, list):
            page.line(f"started: {shlex.join(str(word) for word in command)}", hang="    ")
        page.line(f"training run: {run_of(head)}", hang="    ")
        seats = [f"{name} on {subject}" for name, subject in head.placement.items()]
        if seats:
            more = f" and {len(seats) - 4} more" if len(seats) > 4 else ""  # noqa: PLR2004
            page.line(f"placed: {', '.join(seats[:4])}{more}", hang="    ")
        if self._power:
            page.line("its seconds are virtual: they pass faster than those of this machine")
        page.line("what must hold:")
        for text in expectations(head):
            page.line(text, indent="  - ", hang="    ")
        page.line(f"record in {self._out}")
        page.file.flush()

    def course(self, name: str, *, again: bool) -> None:
        """Say that a course begins."""
        self._stop()
        with self._lock:
            self._course, self._began, self._step = name, time.monotonic(), 0
            if name in ("clean1", "faulted"):
                self._page.console.print()
            text = f"{name}: {COURSES.get(name, name)}"
            self._page.line(f"{text} (taken from an earlier drill)" if again else text)
            self._page.file.flush()

    def said(self, name: str, what: Happening) -> None:
        """Move the bar on, and tell what belongs to the timeline."""
        with self._lock:
            if what.kind == "step":
                self._step = max(self._step, what.number("step") or 0)
                self._draw()
            if name == "faulted":
                self._timeline(what)

    def _timeline(self, what: Happening) -> None:
        word, text = WORDS.get(what.kind, ""), told(what)
        if what.kind == "injected":
            self._hit = min(self._hit, what.at)
        if what.kind == "step" and what.at > self._hit and not self._back and not self._power:
            word, text = self._resumed(what)
        if word and what.at >= self._hit and self._lines < SHOWN:
            self._lines += 1
            at = max(what.at - self._began, 0.0)
            self._page.line(f"{at:8.2f} s  {word:<15} {text}", hang=" " * 28)
            self._page.file.flush()

    def _resumed(self, what: Happening) -> tuple[str, str]:
        """The first step after the fault is only seen to be one: what it proves is judged later."""
        self._back = True
        return "next step", f"step {what.number('step')} of {self._steps}"

    def _draw(self) -> None:
        if not self._bars:
            return
        if self._bar is None and time.monotonic() - self._began > PATIENCE:
            self._bar = Bar(
                BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("steps of {task.fields[what]}", markup=False),
                console=self._page.console, transient=True, auto_refresh=False,
                redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._bar.add_task("", total=self._steps, what=self._course)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._step, refresh=True)


def conclusion(body: Mapping[str, Any], record: DrillRecord, file: TextIO) -> None:
    """Say what was found: timeline, claims, ledger, proof, planted faults; the verdict last."""
    page = Page(file)
    _timeline(page, body)
    _claims(page, body)
    _ledger(page, body)
    page.title("Proof")
    page.line(proven(body), indent="  ")
    for level in unshown(body):
        page.line(level, indent="  ", hang="    ")
    page.line(f"{record.head.expected.proof} was required, {record.head.expected.best} is the most"
              " that this drill can show", indent="  ")  # fmt: skip
    _planted(page, body)
    told = [*body.get("problems", ()), *([body["remark"]] if body.get("remark") else [])]
    problems = list(dict.fromkeys(told))
    if problems:
        page.title("Problems")
        for problem in problems[:PROBLEMS]:
            page.line(problem, indent="  ", hang="    ", style="yellow")
        if len(problems) > PROBLEMS:
            page.line(f"and {len(problems) - PROBLEMS} more", indent="  ")
    page.console.print()
    page.line(f"record: {body['record']}")
    page.whole(f"as a page: rackproof report {shlex.quote(str(body['record']))} --as html")
    page.verdict(str(body["verdict"]), headline(body))
    with contextlib.suppress(OSError):
        file.flush()


def _claims(page: Page, body: Mapping[str, Any]) -> None:
    """Write every claim that was to be judged; those that do not apply are only counted."""
    page.title("Claims")
    wide = 21 if of_power(body) else 16
    for claim in body["claims"]:
        verdict = claim["verdict"]
        if verdict == "SKIP":
            continue
        text = f"{verdict:<8} {claim['id']:<{wide}} {claim['message']}"
        page.line(text, indent="  ", hang=" " * (12 + wide), style=STYLES.get(verdict, ""))
    left = sum(1 for claim in body["claims"] if claim["verdict"] == "SKIP")
    if left:
        page.line(
            f"{counted(left, 'claim')} more: not asked for, or not of this drill", indent="  "
        )


def _timeline(page: Page, body: Mapping[str, Any]) -> None:
    power = of_power(body)
    page.title("Timeline, in virtual seconds" if power else "Timeline")
    entries, wide = body["timeline"], 24 if power else 15
    for entry in entries[:SHOWN]:
        about = entry.get("member", "") if power else ""
        step = f"step {entry['step']}" if "step" in entry else about
        page.line(f"{entry['at']:8.2f} s  {entry['what']:<{wide}} {step}".rstrip())
    if len(entries) > SHOWN:
        page.line(f"and {len(entries) - SHOWN} more", indent="  ")
    if not entries:
        page.line("nothing of it was seen", indent="  ")
    steps = body["steps"]
    restarts = counted(body["restarts"], "restart")
    text = f"{steps['committed']} of {counted(steps['planned'], 'step')} committed"
    text += f", {steps['lost']} lost, {steps['repeated']} repeated"
    page.line(f"{text}; {restarts} of the whole job", indent="  ")


def _ledger(page: Page, body: Mapping[str, Any]) -> None:
    page.title("Ledger, of virtual time" if of_power(body) else "Ledger")
    for name, share in body["ledger"].items():
        if not isinstance(share, int | float) or isinstance(share, bool):
            continue
        if name in LEDGER and (share or name == "productive"):
            page.line(f"{share:7.2%}  {name:<12} {LEDGER[name]}", indent="  ")


def _planted(page: Page, body: Mapping[str, Any]) -> None:
    planted = body.get("planted") or ()
    if not planted:
        return
    page.title("Planted")
    for entry in planted:
        fired = f"fired {counted(entry['fired'], 'time')}" if entry["fired"] else "never fired"
        page.line(f"{entry['kind']}@{entry['subject']}  {fired}", indent="  ")
