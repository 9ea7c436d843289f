"""What a person reads of `campus`: the plan, a bar, what each level and each priority bore.

In: what is asked and the campus that is planned, then the JSON of `campus` (rackproof.campus/1).
Out: lines on a given file; with JSON asked for, on stderr.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self, TextIO

from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from rackproof.harness.power.campus import Wanted
from rackproof.harness.power.campus_plan import LEVELS, Plan, figure
from rackproof.harness.power.dimmer import Settings
from rackproof.reports.terminal import PATIENCE, Page
from rackproof.reports.words import counted

Row = Mapping[str, Any]
SHOWN = 10
MEGA, KILO = 1e6, 1e3
SMALL = 10.0
"""MW, or MWh: below it is told in kW, or kWh."""


class Watching:
    """Tells what is simulated, and how far it is."""

    def __init__(self, file: TextIO) -> None:
        """Write to `file`; a bar only where it and stderr are terminals."""
        self._page = Page(file)
        self._bars = file.isatty() and sys.stderr.isatty()
        self._bar: Bar | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begins(self, wanted: Wanted, campus: Plan) -> None:
        """Say the plan."""
        page = self._page
        page.line(f"SIMULATED campus of {wanted.gpus:,} GPUs, seed {wanted.seed}: no hardware is"
                  " tested", style="bold")  # fmt: skip
        counts = [int((campus.level == depth).sum()) for depth in range(len(LEVELS))]
        parts = [counted(count, name) for name, count in zip(LEVELS, counts, strict=True)]
        page.line(f"{', '.join(parts)}; {counted(len(campus.jobs), 'job')} of"
                  f" {min(len(job.gpus) for job in campus.jobs):,} to"
                  f" {max(len(job.gpus) for job in campus.jobs):,} GPUs", hang="    ")  # fmt: skip
        page.line(f"built for {_power(float(campus.limit[0]) / MEGA)} at the utility; each level"
                  " carries less than the sum of what hangs on it", hang="    ")  # fmt: skip
        page.line(self._event(wanted), hang="    ")
        page.file.flush()

    @staticmethod
    def _event(wanted: Wanted) -> str:
        if wanted.event == "none":
            return "no event: what the limits of the campus itself cost"
        minutes = figure("event", "lasts") / 60.0
        return (f"event: the utility asks for {100 * wanted.cut:.3g} % less than the load of now,"
                f" without notice, for {minutes:.0f} min; then all is given back")  # fmt: skip

    def passed(self, share: float) -> None:
        """Hear that this share is done."""
        if not self._bars or time.monotonic() - self._began < PATIENCE:
            return
        if self._bar is None:
            self._bar = Bar(BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn(),
                            console=self._page.console, transient=True, auto_refresh=False,
                            redirect_stdout=False, redirect_stderr=False)  # fmt: skip
            self._bar.add_task("", total=1.0)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=share, refresh=True)


def _table(page: Page, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        first, *rest = zip(row, widths, strict=True)
        cells = [f"{first[0]:<{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]
        page.whole("  " + "  ".join(cells).rstrip())


def _levels(page: Page, rows: Sequence[Row]) -> None:
    page.title("Feeds, level by level")
    head = ("level", "feeds", "highest load", "over its limit", "strain", "tripped")
    _table(page, [head, *(
        (row["level"], f"{row['feeds']}", f"{100 * row['peak']:.1f} %",
         f"{row['over_seconds']:.0f} s", f"{row['strain']:.3f}", f"{row['tripped']}")
        for row in rows
    )])  # fmt: skip
    page.line("highest load: of what the feed is built for. Over its limit: the longest time at a"
              " stretch, net of the batteries. Strain: of the breaker, which trips at 1",
              indent="  ")  # fmt: skip


def _classes(page: Page, body: Row) -> None:
    page.title("Jobs, by priority (0 is dimmed first)")
    head = ("priority", "jobs", "GPUs", "goodput lost", "energy not used")
    _table(page, [head, *(
        (f"{row['priority']}", f"{row['jobs']}", f"{row['gpus']:,}", _share(row["lost"]),
         _energy(row["megawatt_hours"]))
        for row in body["classes"]
    )])  # fmt: skip
    page.line(f"against the same {body['seconds'] / 60.0:.0f} min undimmed: goodput"
              f" {_share(body['lost'])} lost, {_energy(body['energy_not_used'])} not used",
              indent="  ")  # fmt: skip


def _power(mega: float) -> str:
    return f"{mega:,.1f} MW" if mega >= SMALL else f"{KILO * mega:,.0f} kW"


def _energy(mega: float) -> str:
    # Noise may leave a little less than nothing.
    return f"{mega:,.2f} MWh" if mega >= SMALL else f"{KILO * max(mega, 0.0):,.1f} kWh"


def _share(value: float) -> str:
    return f"{100 * abs(value):.2f} %"


def _event(page: Page, body: Row) -> None:
    page.title("The event")
    under = "never under it" if body["under"] is None else f"under it after {body['under']:.0f} s"
    page.line(f"limit {_power(body['limit'])}, {under}, {100 * body['settled']:.1f} % of it at the"
              f" end; asked: within {body['deadline']:.0f} s", indent="  ",
              hang="    ")  # fmt: skip
    page.line(f"highest load before {_power(body['peak'])}, after it {100 * body['rebound']:.1f} %"
              f" of that; the batteries gave {_energy(body['bess_used'])}", indent="  ",
              hang="    ")  # fmt: skip


def _sentence(body: Row) -> str:
    tripped = [row for row in body["levels"] if row["tripped"]]
    if tripped:
        worst = tripped[0]
        would = f"{counted(worst['tripped'], 'breaker')} of level {worst['level']} would trip"
        return f"{would}; load and goodput are reckoned as if it had held"
    if not body["held"]:
        return f"the limit of {_power(body['limit'])} was not kept within {body['deadline']:.0f} s"
    strain = max(row["strain"] for row in body["levels"])
    said = f"no breaker trips (strain {strain:.2f} at most), goodput {_share(body['lost'])} lost"
    if not body["reserve"]:
        said += (f"; the limit is kept, its reserve was not reached: {100 * body['settled']:.1f} %"
                 f" of it at the end, {100 * Settings().target:.0f} % wanted")  # fmt: skip
    return said


def campus(body: Row, file: TextIO) -> None:
    """Say what the JSON of `campus` says; the verdict comes last."""
    page = Page(file)
    if body["limit"] is not None:
        _event(page, body)
    _levels(page, body["levels"])
    _classes(page, body)
    if body["alarms"]:
        page.title("Alarms")
        for text in body["alarms"][:SHOWN]:
            page.line(text, indent="  ", hang="    ")
        if len(body["alarms"]) > SHOWN:
            page.line(f"and {len(body['alarms']) - SHOWN} more, see --json", indent="  ")
    page.verdict(str(body["verdict"]), _sentence(body))
    file.flush()
