"""The evidence of a case in a person's words: which code, how often, when or where in the file."""

from collections.abc import Sequence
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


def _name(said: Said) -> str:
    """Return the file's name; bytes that are no text are shown as escapes."""
    return PurePath(said.file).name.encode("utf-8", "backslashreplace").decode()


def _line(group: Sequence[Said]) -> str:
    first = min(group, key=Said.order)
    last = max(group, key=lambda s: (s.last or 0.0, s.line))
    if first.event.text.startswith(first.event.code):  # a reading, not a line of a log
        return f"{first.event.text} ({_name(first)})"
    count = told(group)
    often = "once" if count == 1 else f"{count} times"
    words = [f"{first.event.code} {often}"]
    own = len({s.event.clock for s in group}) == 1  # else only the common clock says how they lie
    if when := _stamp(first, first.at, own=own):
        words.append(when)
        if last.last != first.at and (until := _stamp(last, last.last, own=own)):
            words.append(f"to {until.removeprefix('at ').removeprefix('on ')}")
    if first.line:
        words.append(f"({_name(first)} line {first.line})")
    note = f" [{first.rule.note}]" if first.rule.note else ""
    return f"{' '.join(words)}: {first.event.text}{note}"


def because(case: Case) -> tuple[str, ...]:
    """Return a line for each code at each place of a case, root first, MOST at most."""
    lines = []
    if case.slot:
        names = ", ".join(carriers(case))
        lines.append(f"it stays with the place: seen there with each of {names}")
    for episodes in (case.root, case.tied):
        groups: dict[tuple[str, str, str], list[Said]] = {}
        for episode in episodes:
            for said in episode.said:
                groups.setdefault((said.machine, said.subject, said.event.code), []).append(said)
        for (machine, subject, _), group in groups.items():
            mine = (machine, subject) == (case.machine, case.subject)
            lines.append(_line(group) if mine else f"{subject}: {_line(group)}")
    if len(lines) > MOST:
        lines = [*lines[:MOST], f"and {len(lines) - MOST} more"]
    return tuple(lines)
