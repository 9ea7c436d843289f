"""The evidence of a case in a person's words: which code, how often, when, in which file and where.

A file is called by its name; where several inputs have that name, by its folder and name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePath

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import Said, told
from rackproof.diagnostics.slots import carriers

MOST = 12


def _when(at: float | None, clock: str) -> str:
    if at is None:
        return ""
    if clock == "epoch":
        try:
            stamp = datetime.fromtimestamp(at, UTC)
        except (ValueError, OverflowError, OSError):
            return f"at {at:.3f} s"
        return f"at {stamp:%Y-%m-%dT%H:%M:%S}.{stamp.microsecond // 1000:03d}Z"
    if clock == "calendar":
        day, rest = divmod(at % (366 * 86400), 86400)
        stamp = datetime.fromtimestamp(day * 86400 + 694224000, UTC)  # 1992, a leap year
        hour, second = divmod(int(rest), 3600)
        return f"on {stamp:%m-%d} at {hour:02d}:{second // 60:02d}:{second % 60:02d}"
    word = {"boot": "after boot", "relative": "after the first line"}.get(clock, "")
    return f"{at:.3f} s {word}".rstrip()


def _stamp(said: Said, at: float | None, *, own: bool) -> str:
    """Return a time of `said` as its file has it, or on the clock that all files have."""
    if at is None or not own:
        return _when(at, str(said.clock[0]))
    return _when(at - said.shift, said.event.clock)


def names(files: Iterable[str]) -> dict[str, str]:
    """Return what each file is called: as much of its path's end as no other file has.

    Bytes that are no text are shown as escapes.
    """
    found: dict[str, str] = {}
    left, parts = sorted(set(files)), 1
    deepest = max((len(PurePath(file).parts) for file in left), default=0)
    while left:
        short = {file: "/".join(PurePath(file).parts[-parts:]) for file in left}
        often = Counter(short.values())
        done = [file for file in left if often[short[file]] == 1 or parts >= deepest]
        found |= {file: short[file].encode("utf-8", "backslashreplace").decode() for file in done}
        left, parts = [file for file in left if file not in found], parts + 1
    return found


def _line(group: Sequence[Said], called: Mapping[str, str]) -> str:
    first = min(group, key=Said.order)
    last = max(group, key=lambda s: (s.last or 0.0, s.line))
    name = called.get(first.file) or names([first.file])[first.file]
    if first.event.text.startswith(first.event.code):  # a reading, not a line of a log
        return f"{first.event.text} ({name})"
    count = told(group)
    often = "once" if count == 1 else f"{count} times"
    words = [f"{first.event.code} {often}"]
    own = len({s.event.clock for s in group}) == 1  # else only the common clock says how they lie
    if when := _stamp(first, first.at, own=own):
        words.append(when)
        if last.last != first.at and (until := _stamp(last, last.last, own=own)):
            words.append(f"to {until.removeprefix('at ').removeprefix('on ')}")
    words.append(f"({name} line {first.line})" if first.line else f"({name})")
    note = f" [{first.rule.note}]" if first.rule.note else ""
    return f"{' '.join(words)}: {first.event.text}{note}"


def _place(machine: str, subject: str) -> str:
    """Return a place of a case over several machines, by the name that diagnoses have for it."""
    if not machine or subject == "fabric":
        return subject
    return f"host:{machine}" if subject == "host" else f"host:{machine}/{subject}"


def because(case: Case, called: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each code at each place of a case, root first, MOST at most.

    `called` gives the names of the files.
    """
    lines = []
    if case.slot:
        names = ", ".join(carriers(case))
        lines.append(f"it stays with the place: seen there with each of {names}")
    several = len({case.machine, *(e.machine for e in (*case.root, *case.tied))}) > 1
    for episodes in (case.root, case.tied):
        groups: dict[tuple[str, str, str], list[Said]] = {}
        for episode in episodes:
            for said in episode.said:
                groups.setdefault((said.machine, said.subject, said.event.code), []).append(said)
        for (machine, subject, _), group in groups.items():
            mine = (machine, subject) == (case.machine, case.subject)
            line = _line(group, called)
            where = _place(machine, subject) if several else subject
            lines.append(line if mine else f"{where}: {line}")
    if len(lines) > MOST:
        lines = [*lines[:MOST], f"and {len(lines) - MOST} more"]
    return tuple(lines)
