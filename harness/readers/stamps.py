"""What stands before a kernel message: when, on which host, said by whom; in every log's shape.

A line comes in; a Stamped goes out: time and its clock, host, tag, the message itself. Shapes:
dmesg (uptime, -T, -d, -e, -x, -r, --time-format iso), syslog of RFC 3164 and 5424, journalctl
(short, short-iso, short-full, short-unix, short-monotonic, json), /dev/kmsg, ftrace, and no stamp;
behind what pdsh and grep write before a line, with a printk caller, inside the JSON lines and the
CRI lines of containers. Entries over several lines (journalctl -o export) are entries.py's.

Clocks: ``epoch`` seconds since 1970 (a stamp without zone is taken as UTC), ``boot`` seconds since
boot, ``calendar`` seconds since the first of January of a year that the stamp does not name.
"""

import calendar
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

# The first letters of months in the languages that journalctl and dmesg were seen to write in.
_MONTHS = {
    prefix: number
    for number, words in enumerate(
        (
            "jan gen ene янв sty led oca tam 1月 styczeń ιαν",
            "feb fév fev şub helm лют фев lut úno 2月",
            "mar mär mrt maa мар märz бер 3月",
            "apr avr abr nis huh апр кві kwi dub 4月",
            "may mai mag mei maj май мая tou тра kvě 5月",
            "jun juin giu haz kes июн чер cze čvn 6月",
            "jul juil lug tem hei июл лип lip čvc 7月",
            "aug aoû ago ağu elo авг сер sie srp 8月",
            "sep set eyl syy сен вер wrz zář 9月",
            "oct okt ott out eki lok окт жов paź říj 10月",
            "nov kas mar. ноя лис lis 11月",
            "dec déc dez dic ara jou дек гру gru pro 12月",
        ),
        start=1,
    )
    for prefix in words.split()
}
_DAYS_BEFORE = [0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335]  # of a leap year
YEAR = 366 * 86400.0
_CLOCK = r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)"
_KMSG = re.compile(r"(\d{1,4}),(\d{1,20}),(\d{1,20}),[^;]{0,64};")
_PRIORITY = re.compile(r"<\d{1,3}>(?:1 (?=\d{4}-))?")
_FACILITY = re.compile(r"(?:kern|user|daemon|auth|syslog|mail|local\d) {0,4}:[a-z]{3,6} {0,4}: ")
_ISO = re.compile(
    r"(?:\w{2,4} )?(\d{4})-(\d\d)-(\d\d)[T ]" + _CLOCK + r"(?:[.,](\d{1,9}))?"
    r" ?(Z|UTC|[+-]\d\d:?\d\d|(?=[ \t]))[ \t]{1,4}"
)
_RFC3164 = re.compile(
    r"(?:(\S{2,12}) {1,2}(\d{1,2})|(\d{1,2})\.? (\S{2,12})) (?:(\d{4}) )?"
    + _CLOCK
    + r"(?:\.(\d{1,9}))?(?: (\d{4}))? "
)
_HUMAN = re.compile(
    r"\[\S{1,10} (?:(\S{2,12}) {1,2}(\d{1,2})|(\d{1,2}) (\S{2,12})) "
    + _CLOCK
    + r" (\d{4})(?: *<[^>]{0,24}>)?\] ?"
)
_UPTIME = re.compile(r"\[ {0,12}(\d{1,10}\.\d{3,9})(?: {0,4}<[^>]{0,24}>)?\] ?")
# CONFIG_PRINTK_CALLER: the task, or the processor in an interrupt (Documentation: dev-kmsg, printk)
_CALLER = re.compile(r"\[ {0,8}[TC]\d{1,9}\] ?")
RELATIVE = re.compile(r"\[ {0,8}\+ {0,8}(\d{1,9}\.\d{3,9})\] ?")
MINUTE = re.compile(r"\[([A-Z][a-z]{2}) ?(\d{1,2}) ([01]\d|2[0-3]):([0-5]\d)\] ?")
_UNIX = re.compile(r"(\d{9,10}\.\d{3,9}) ")
_FTRACE = re.compile(
    r" {0,16}\S.{0,31}?-\d{1,8} {1,16}(?:\([^)]{0,16}\) {1,4})?\[\d{1,4}\](?: [\w.#]{2,8})? {1,4}"
    r"(\d{1,10}\.\d{6}): (\w{1,64}): "
)
_HOST = re.compile(r"[\w.\-]{1,253}")
_HOSTED = re.compile(r"([\w.\-]{1,253}) (kernel(?:\[\d{1,10}\])?)(?::| - - -) ?")
_FIELDS_5424 = re.compile(r"([\w.\-]{1,253}) (kernel|-) \S{1,128} \S{1,32} (?:-|\[[^\]]{0,256}\]) ")
_TAGGED = re.compile(r"([\w.\-]{1,253}) ([\w.@/()\-]{1,128})(?:\[\d{1,10}\])?: ")
_BARE_KERNEL = re.compile(r"kernel(?:\[\d{1,10}\])?: ?")
_PDSH = re.compile(r"([\w.\-]{1,253}):[ \t]{1,2}(?=\[|\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} |<\d)")
# grep -H, -n and zgrep: a path or the name of a log, a line's number; ":", or "-" in a context line
_GREP = re.compile(
    r"(?:([\w.\-]{1,253}):[ \t]{1,2}(?=/))?"
    r"(?:(?:[\w.~+@-]{0,64}/[\w./~+@-]{1,250}?|[\w-]{1,64}(?:\.[\w-]{1,32}){1,4}?"
    r"|(?:syslog|messages|kern|kernel|dmesg)[\w.-]{0,40}?)[:-](?:\d{1,10}[:-])?|\d{1,10}[:-])"
    r"(?=\[|\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} {1,2}\d|<\d|kern {0,4}:|NVRM: )"
)
_CRI = re.compile(r"(?:stdout|stderr) [FP] ")  # a line of a container: Kubernetes' CRI logging
_EXPORT = re.compile(r'[ \t]{0,40}(?:MESSAGE=|"MESSAGE" ?: ?"(?=[^"]))')
# Words with which the kernel itself begins: they are no host names.
_SUBSYSTEMS = frozenset(
    "NVRM nvidia EDAC nvme pcieport mlx5_core mce AER XFS EXT4-fs BTRFS Memory Kernel watchdog "
    "Linux Buffer blk_update_request md snd_hda_intel CPU0".split()
)


@dataclass(frozen=True, slots=True)
class Stamped:
    """A line taken apart. `tag` is ``kernel``, another program's name, or "" where none stood.

    `uptime` is the seconds since boot of a line that tells its date, too.
    """

    message: str
    at: float | None = None
    clock: str = ""
    host: str | None = None
    tag: str = ""
    shape: str = ""
    uptime: float | None = None

    @property
    def kernel(self) -> bool:
        """Whether the kernel said it: audit daemons and shells quote its words, too."""
        return self.tag in ("kernel", "")


def month_of(word: str) -> int | None:
    """Return 1..12 for a month's name or its beginning in the languages known here, else None."""
    word = word.lower().rstrip(".")
    for length in (len(word), 4, 3):
        if (found := _MONTHS.get(word[:length])) is not None:
            return found
    return None


def _epoch(parts: tuple[str, ...], fraction: str | None, zone: str | None) -> float | None:
    try:
        year, month, day, hour, minute, second = (int(p) for p in parts)
        offset = UTC if not zone or zone in ("Z", "UTC") else _zone(zone)
        leap = second == 60  # noqa: PLR2004 - a leap second is the next minute's first
        at = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=offset)
        return calendar.timegm(at.utctimetuple()) + leap + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError):
        return None


def _zone(text: str) -> timezone:
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)


def _of_year(
    month: int | None, day: str, clock: tuple[str, ...], fraction: str | None
) -> float | None:
    if month is None or not 1 <= int(day) <= 31:  # noqa: PLR2004
        return None
    hour, minute, second = (int(c) for c in clock)
    days = _DAYS_BEFORE[month - 1] + int(day) - 1
    return days * 86400.0 + hour * 3600 + minute * 60 + second + float(f"0.{fraction or 0}")


def _dated(match: re.Match[str]) -> tuple[float | None, str]:
    """Return the time and clock of an RFC 3164 or dmesg -T stamp, months in any language."""
    word, day = (match[1], match[2]) if match[1] else (match[4], match[3])
    month = month_of(word)
    if match.re is _HUMAN:
        clock, year, fraction = match.group(5, 6, 7), match[8], None
    else:
        clock, year, fraction = match.group(6, 7, 8), match[5] or match[10], match[9]
    if year is None:
        return _of_year(month, day, clock, fraction), "calendar"
    return _epoch((year, str(month or 0), day, *clock), fraction, None), "epoch"


def _whose(stamped: Stamped) -> Stamped:
    """Take host and tag off the message, and the uptime that rsyslog leaves behind them."""
    rest, host, tag = stamped.message, stamped.host, stamped.tag
    if match := _FIELDS_5424.match(rest) or _HOSTED.match(rest):
        host, tag, rest = match[1], "kernel", rest[match.end() :]
    elif match := _BARE_KERNEL.match(rest):
        tag, rest = "kernel", rest[match.end() :]
    elif (
        stamped.shape in ("iso", "syslog", "unix", "uptime")
        and (match := _TAGGED.match(rest))
        and match[1] not in _SUBSYSTEMS
    ):
        host, tag, rest = match[1], match[2], rest[match.end() :]
    stamped_twice = tag == "kernel" or (not tag and stamped.shape)  # else an indented quotation
    if stamped_twice and rest.lstrip(" ")[:1] == "[":
        rest = rest.lstrip(" ")
        if match := _UPTIME.match(rest):
            rest = rest[match.end() :]
            if stamped.at is None:
                stamped = replace(stamped, at=float(match[1]), clock="boot")
            elif stamped.clock != "boot":
                stamped = replace(stamped, uptime=float(match[1]))
        if match := _CALLER.match(rest):
            rest = rest[match.end() :]
    at, clock, uptime = stamped.at, stamped.clock, stamped.uptime
    return Stamped(rest, at, clock, host, tag, stamped.shape, uptime)  # quicker than replace()


def _json(line: str) -> Stamped | None:
    """Take a line of JSON apart: of the journal, of dmesg, or of a container's log."""
    try:
        entry: Any = json.loads(line.lstrip("\x1e").rstrip(" \t,"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    if "MESSAGE" in entry:
        return journal(entry)
    if isinstance(message := entry.get("msg"), str) and isinstance(entry.get("time"), float):
        return _whose(Stamped(message, entry["time"], "boot", None, "kernel", "dmesg-json"))
    if isinstance(message := entry.get("log"), str) and isinstance(entry.get("time"), str):
        return _within(message.rstrip("\r\n"), _stamped(f"{entry['time']} "))
    return None


def _within(line: str, outer: Stamped) -> Stamped:
    """Take a line apart that stood in another: its own time and host, or those of the outer."""
    found = _line(line)
    at, clock = (found.at, found.clock) if found.at is not None else (outer.at, outer.clock)
    return replace(found, at=at, clock=clock, host=found.host or outer.host,
                   shape=found.shape or outer.shape)  # fmt: skip


def journal(entry: dict[str, Any]) -> Stamped:
    """Take an entry of the journal apart, given its fields by name."""
    message = entry["MESSAGE"]
    if isinstance(message, list):
        octets = [o for o in message if isinstance(o, int) and 0 <= o < 256]  # noqa: PLR2004
        message = bytes(octets).decode("utf-8", "replace")
    who = entry.get("SYSLOG_IDENTIFIER", "kernel" if entry.get("_TRANSPORT") == "kernel" else "")
    host = entry.get("_HOSTNAME")
    at, uptime = _microseconds(entry, "__REALTIME_TIMESTAMP"), None
    for key in ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"):
        uptime = _microseconds(entry, key) if uptime is None else uptime
    clock = "epoch" if at is not None else "boot" if uptime is not None else ""
    message = str(message)
    if who in ("kernel", "") and (match := _CALLER.match(message)):
        message = message[match.end() :]
    return Stamped(
        message,
        uptime if at is None else at,
        clock,
        host if isinstance(host, str) and _HOST.fullmatch(host) else None,
        str(who),
        "journal-json",
        None if at is None else uptime,
    )


def _microseconds(entry: dict[str, Any], key: str) -> float | None:
    stamp = entry.get(key)
    if not isinstance(stamp, str | int) or not re.fullmatch(r"\d{1,18}", str(stamp), re.ASCII):
        return None
    return int(stamp) / 1e6


def _stamped(line: str) -> Stamped:  # noqa: PLR0911 - one return a shape
    """Take the leading stamp off; the shape is "" where there is none."""
    if match := _KMSG.match(line):
        return Stamped(line[match.end() :], int(match[3]) / 1e6, "boot", None, "kernel", "kmsg")
    line = line[match.end() :] if (match := _PRIORITY.match(line)) else line
    line = line[match.end() :] if (match := _FACILITY.match(line)) else line
    if match := _ISO.match(line):
        at = _epoch(match.group(1, 2, 3, 4, 5, 6), match[7], match[8])
        return Stamped(line[match.end() :], at, "epoch", shape="iso")
    if match := _UPTIME.match(line):
        return Stamped(line[match.end() :], float(match[1]), "boot", shape="uptime")
    if match := _HUMAN.match(line):
        return Stamped(line[match.end() :], *_dated(match), shape="human")
    if match := RELATIVE.match(line) or MINUTE.match(line):
        return Stamped(line[match.end() :], shape="relative")
    if match := _RFC3164.match(line):
        return Stamped(line[match.end() :], *_dated(match), shape="syslog")
    if match := _UNIX.match(line):
        return Stamped(line[match.end() :], float(match[1]), "epoch", shape="unix")
    if match := _FTRACE.match(line):
        said = line[match.end() :]
        tag = "kernel" if "xid" in match[2].lower() else match[2]
        return Stamped(said, float(match[1]), "boot", None, tag, "ftrace")
    return Stamped(line)


def _prefixed(line: str) -> Stamped | None:
    """Take apart what stands behind a prefix of pdsh or of grep, None without one."""
    match = _PDSH.match(line)
    if match is None or match[1] in _SUBSYSTEMS:
        match = _GREP.match(line)
    return replace(_stamped(line[match.end() :]), host=match[1]) if match else None


def _line(line: str) -> Stamped:
    found = _stamped(line)
    if not found.shape:
        found = _prefixed(line) or found
    if found.shape == "iso" and (match := _CRI.match(found.message)):
        return _within(found.message[match.end() :], found)
    found = _whose(found)
    return replace(found, clock="") if found.at is None and found.clock else found


def parse(line: str) -> Stamped:
    """Take a line of a kernel log apart. Never fails: what is unknown stays in the message."""
    if line[:1] in ("{", "\x1e") and (entry := _json(line)):
        return entry
    if match := _EXPORT.match(line):
        return Stamped(line[match.end() :].removesuffix('",').removesuffix('"'), shape="export")
    return _line(line)
