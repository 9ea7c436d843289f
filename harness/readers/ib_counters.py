"""Counters of ports from perfquery (dot leaders) and from sysfs as grep prints it.

Lines come in; Measurements of totals go out, one a port and metric. A counter that stands at the
end of its width counts no further, and is said. Settings and congestion are no errors.
"""

import re
from collections import defaultdict

from rackproof.harness.model import Measurement

KIND = "ib"
_HEAD = re.compile(r"# Port (?:extended )?counters: Lid (\d{1,9}) port (\d{1,3}|ALL)")
_DOTS = re.compile(r"([A-Za-z]\w{1,60}):\.{1,80}(0x[0-9A-Fa-f]{1,16}|\d{1,20})\s*\Z", re.ASCII)
_SYSFS = re.compile(
    r"\S{0,300}?/infiniband/([\w.\-]{1,64})/ports/(\d{1,3})/(?:hw_)?counters/(\w{1,64}):\s?"
    r"(\d{1,20})\s*\Z",
    re.ASCII,
)
# Both spellings of one counter: perfquery's, without its ending, and sysfs's.
_METRICS = {
    "symbolerror": "ib.errors.symbol",
    "linkerrorrecovery": "ib.errors.recovered",
    "linkdowned": "ib.errors.downed",
    "portrcverrors": "ib.errors.received",
    "localintegrityerrors": "ib.errors.integrity",
    "locallinkintegrityerrors": "ib.errors.integrity",
    "excessivebufferoverrunerrors": "ib.errors.overrun",
    "portxmitdiscards": "ib.errors.discarded",
    "vl15dropped": "ib.errors.management",
    "portxmitwait": "ib.wait",
    "rxicrcencapsulated": "ib.errors.checksum",
    "localacktimeouterr": "ib.errors.timeout",
    "packetseqerr": "ib.errors.sequence",
    "outofsequence": "ib.errors.sequence",
    "impliednakseqerr": "ib.errors.sequence",
    "reqcqeerror": "ib.errors.completion",
    "respcqeerror": "ib.errors.completion",
}
_SHORT = {"rcverrors": "portrcverrors", "xmitdiscards": "portxmitdiscards",
          "xmitwait": "portxmitwait"}  # fmt: skip
_WORD = 65535
# A classic counter stops at the end of its width: PortCounters, IBTA specification, section 16.1.3.
_ENDS = {
    "ib.errors.symbol": _WORD,
    "ib.errors.recovered": 255,
    "ib.errors.downed": 255,
    "ib.errors.received": _WORD,
    "ib.errors.integrity": 15,
    "ib.errors.overrun": 15,
    "ib.errors.discarded": _WORD,
    "ib.errors.management": _WORD,
}
_ALL_ONES = frozenset(((1 << 32) - 1, (1 << 64) - 1))
_SUMMED = frozenset(("ib.errors.sequence", "ib.errors.completion"))
_EVENTS = frozenset(("ib.wait", "ib.errors.downed", "ib.errors.recovered"))


class Counters:
    """The counters met so far."""

    def __init__(self) -> None:
        self._subject = ""
        self._wide = False
        self._ports: dict[str, set[int]] = defaultdict(set)
        self._values: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        self._device, self._number = "", 1
        self._notes: list[str] = []
        self._seen: set[tuple[str, int]] = set()

    def take(self, line: str) -> bool:
        """Look at one line; whether it is a counter or a heading of counters."""
        if match := _HEAD.match(line):
            self._device = f"lid{int(match[1])}"
            self._number = int(match[2]) if match[2] != "ALL" else 255
            self._wide = "extended" in match[0]
            return True
        if match := _SYSFS.match(line):
            self._device, self._number, self._wide = match[1], int(match[2]), True
            return self._count(match[3], match[4])
        if match := _DOTS.match(line):
            return self._count(match[1], match[2])
        return False

    def _count(self, name: str, digits: str) -> bool:
        place = (self._device or "unknown", self._number)
        self._ports[place[0]].add(place[1])
        bare = name.lower().replace("_", "").removesuffix("counter")
        value = int(digits, 16) if digits[:2] == "0x" else int(digits)
        if value in _ALL_ONES:
            self._note(f"{name} of {place[0]} is all ones: that is no count")
            return True
        self._seen.add(place)
        metric = _METRICS.get(_SHORT.get(bare, bare))
        if metric is None:
            return True
        if value == _ENDS.get(metric) and (not self._wide or value == _WORD):
            self._note(f"{name} of {place[0]} stands at {value}, where it ends: so many or more")
        sums = self._values[place]
        sums[metric] = sums.get(metric, 0) + value if metric in _SUMMED else value
        return True

    def _note(self, problem: str) -> None:
        if len(self._notes) < 20:  # noqa: PLR2004
            self._notes.append(problem)

    def problems(self) -> list[str]:
        """Return what was wrong with the counters."""
        return self._notes

    def records(self) -> int:
        """Return how many ports were counted on."""
        return len(self._seen)

    def measured(self) -> list[Measurement]:
        """Return the totals; a port's number is written where its device has several."""
        found = []
        for (device, number), values in self._values.items():
            several = len(self._ports[device]) > 1 or number not in (1, 255)
            subject = f"nic:{device}" + (f"/port{number}" if several else "")
            for metric, value in values.items():
                unit = "events" if metric in _EVENTS else "errors"
                found.append(Measurement(KIND, subject, metric, value, unit))
        return found
