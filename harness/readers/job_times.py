"""When a line of a job's output was written: the stamp that its launcher or library put first.

A line comes in; seconds and their clock go out, ``epoch`` or, where the stamp names no year,
``calendar``. Stamps: ISO with T or blank, with or without brackets and zone (kubectl, Megatron,
NCCL 2.26, Python's logging), glog's letter, month and day (c10d), seconds of UCX.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

FIRST = 200  # characters of a line within which its stamp stands
_ISO = re.compile(
    r"(?<![\d-])(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d)?"
)
_GLOG = re.compile(r"(?<!\w)[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_SECONDS = re.compile(r" {0,4}\[(\d{10})\.(\d{3,9})\] ")
_LEAP = 1992


@dataclass(frozen=True, slots=True)
class Stamp:
    """Seconds on `clock`; `local` where no zone was told, and UTC was taken."""

    at: float
    clock: str
    local: bool


def _seconds(parts: tuple[int, ...], fraction: str | None, zone: timezone = UTC) -> float | None:
    try:
        year, month, day, hour, minute, second = parts
        return datetime(
            year, month, day, hour, minute, second, tzinfo=zone
        ).timestamp() + float(f"0.{fraction or 0}")  # fmt: skip
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> timezone | None:
    if text in (None, "Z"):
        return UTC
    digits = str(text)[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    if offset >= timedelta(hours=24):
        return None
    return timezone(-offset if str(text)[0] == "-" else offset)


def stamp_of(line: str) -> Stamp | None:
    """Return the stamp of a line, or None where it has none."""
    head = line[:FIRST]
    if match := _SECONDS.match(head):
        return Stamp(int(match[1]) + float(f"0.{match[2]}"), "epoch", local=False)
    if match := _ISO.search(head):
        zone = _zone(match[8])
        parts = tuple(map(int, match.group(1, 2, 3, 4, 5, 6)))
        at = _seconds(parts, match[7], zone) if zone else None
        return Stamp(at, "epoch", local=match[8] is None) if at is not None else None
    if match := _GLOG.search(head):
        parts = (_LEAP, *map(int, match.group(1, 2, 3, 4, 5)))
        at = _seconds(parts, match[6])
        began = datetime(_LEAP, 1, 1, tzinfo=UTC).timestamp()
        return Stamp(at - began, "calendar", local=True) if at is not None else None
    return None


@dataclass(slots=True)
class Times:
    """The stamps of one log as its lines are read; `last` is the latest on the epoch.

    A stamp without a year is given the year in which it lies nearest to those that have one.
    """

    last: float | None = None

    def of(self, line: str) -> Stamp | None:
        """Return a line's stamp, on the epoch where this log tells of a year."""
        stamp = stamp_of(line)
        if stamp is not None and stamp.clock == "calendar" and self.last is not None:
            stamp = self._dated(stamp, self.last)
        if stamp is not None and stamp.clock == "epoch":
            self.last = stamp.at
        return stamp

    @staticmethod
    def _dated(stamp: Stamp, about: float) -> Stamp:
        moment = datetime.fromtimestamp(
            datetime(_LEAP, 1, 1, tzinfo=UTC).timestamp() + stamp.at, UTC
        )
        options = []
        year = datetime.fromtimestamp(about, UTC).year
        for one in range(year - 1, year + 2):
            try:
                at = moment.replace(year=one).timestamp()
            except ValueError:  # the 29th of February
                continue
            options.append((abs(at - about), at))
        return Stamp(min(options)[1], "epoch", local=True) if options else stamp
