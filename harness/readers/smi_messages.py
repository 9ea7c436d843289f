"""What nvidia-smi says in place of a report, and how it writes the time; for all its outputs.

A line comes in; an event of the GPU that it names goes out, or a code for the whole machine. Times
carry no zone: they are taken as UTC, which is right for the difference of two files of one machine.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rackproof.harness.model import Event
from rackproof.harness.readers.places import ADDRESS, pci, plain

LINE_LIMIT = 4096
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)? ?(\d{1,4})?(?:: ?|(?<![0-9]))"
    r"(" + ADDRESS + r")?: (.{1,200})"
)
_DECISIVE = ("lost", "unknown error", "not detected")
# What the tool says when it can do no work at all; a code where that is a sign of its own.
_IDLE = (
    ("no devices were found", ""),
    ("no devices found", ""),
    ("nvml library version:", ""),
    ("failed to initialize nvml: driver/library version mismatch", "smi.mismatch"),
    ("failed to initialize nvml", ""),
    ("nvidia-smi has failed because it couldn't communicate with the nvidia driver", ""),
    ("couldn't find libnvidia-ml.so", ""),
    ("nvidia-smi couldn't find", ""),
    ("nvidia-smi: command not found", ""),
    ('field "', ""),
)
# Each message holds one of these: a quick look, since every row of a loop is asked.
_HINTS = ("devices", "device handle", "NVML", "nvml", "NVIDIA", "nvidia", "Field")
_WEEKDAY = "%a %b %d %H:%M:%S %Y"
_ISO = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:?\d\d)")


def idle(line: str) -> str | None:
    """Return the code of a message that stands for no work done ("" where it has none), or None."""
    low = line.strip()[:LINE_LIMIT].lower()
    for text, code in _IDLE:
        if low.startswith(text) or (": " in low and low.partition(": ")[2].startswith(text)):
            return None if text == 'field "' and "is not a valid field" not in low else code
    return None


def handle(line: str) -> Event | None:
    """Return what a line says of a GPU whose handle cannot be had, or None."""
    match = _HANDLE.search(line[:LINE_LIMIT])
    if match is None:
        return None
    subject = pci(match[2] or "") or (f"gpu{int(match[1])}" if match[1] else "host")
    decisive = any(word in match[3].lower() for word in _DECISIVE) and subject != "host"
    code = "smi.lost" if decisive else "smi.unread"
    return Event(subject, code, plain(line), clock="none")


@dataclass(slots=True)
class Messages:
    """The messages among the lines of one file: events, problems, and whether it did no work."""

    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    idle: bool = False

    def take(self, line: str) -> bool:
        """Take a line if it is such a message; return whether it was."""
        if not any(hint in line for hint in _HINTS):
            return False
        if event := handle(line):
            self._add(event)
            return True
        code = idle(line)
        if code is None:
            return False
        self.idle = True
        if code:
            self._add(Event("host", code, plain(line), clock="none"))
        said = f"the tool says: {plain(line, 120)}"
        if said not in self.problems:
            self.problems.append(said)
        return True

    def _add(self, event: Event) -> None:
        """Keep an event once: a loop says it again every second."""
        if event not in self.events:
            self.events.append(event)


def alone(lines: Iterable[str]) -> bool:
    """Whether all of a few lines are such messages: the tool was run, and gave nothing else."""
    said = [line for line in lines if line.strip()]
    return 0 < len(said) <= 64 and all(handle(s) or idle(s) is not None for s in said)  # noqa: PLR2004


def moment(text: str) -> float | None:
    """Return a time of nvidia-smi's, or one with a zone, in seconds since the epoch; else None."""
    text = text.strip()
    if not text or ":" not in text:
        return None
    try:
        if text[4:5] == "/":
            return (
                datetime.fromisoformat(text[:26].replace("/", "-")).replace(tzinfo=UTC).timestamp()
            )
        return datetime.strptime(text[:40], _WEEKDAY).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        pass
    match = _ISO.search(text[:LINE_LIMIT])
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3]}").timestamp()
    except (ValueError, OverflowError):
        return None
