"""nvidia-smi nvlink (-s, -e, -c and others) and dcgmi nvlink (-e, -s), alone or in a transcript.

A line names a GPU, a link, and what is told of it. Several answers of one file about the same
counter are taken as snapshots: the last one is its value, and what was counted since the first is
told beside it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rackproof.harness.model import Measurement, Missing, Why
from rackproof.harness.readers.link_counters import (
    ALL,
    DELTAS,
    RATES,
    SUCCEEDED,
    UNITS,
    ber,
    count,
    metric_of,
)
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_messages import LINE_LIMIT, Messages, moment
from rackproof.harness.readers.smi_report import identity
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-nvlink"
MOST_GPUS, MOST_NUMBER = 1024, 64
MOST_TIMES = 65536
_GPU = re.compile(r"GPU (\d{1,4}): (.{1,96}?)(?: \(UUID: (GPU-[0-9a-fA-F-]{8,64})\))?\s*\Z")
_LINK = re.compile(r"\s*Link (\d{1,3})([:,]) ?(.{0,200})\Z")
_SPEED = re.compile(r"(\d{1,6}(?:[.,]\d{1,6})?) ?GB/s\Z")
_DCGMI_GPU = re.compile(r"\|\s*GPU (\d{1,4})\s*(?:\|.{0,120})?\|?\Z")
_DCGMI_LINK = re.compile(r"\|\s*Link (\d{1,3})\s*\|")
_DCGMI_COUNT = re.compile(r"\|\s*->\s*([^|]{1,64})\|\s*([^|]{0,64})\|")
_DCGMI_STATE = re.compile(r"gpuId (\d{1,4}):\s*\Z")
_STATES = re.compile(r"(?:[UDX_] ?){1,64}\Z")
_PROMPT = re.compile(r"\[?[\w.-]{1,32}@([A-Za-z0-9-]{1,63})[:\s].{0,200}nvidia-smi nvlink")
_NONE = ("does not have or support nvlink", "nvlink is not supported", "not support nvlink")
_DOWN = "all links are inactive"


def likeness(head: bytes) -> float:
    """Return 0.9 with the blocks of nvidia-smi nvlink or the headings of dcgmi's, else 0."""
    text = head.decode("utf-8", "replace").splitlines()[:400]
    lines = [s for line in text if (s := line.strip())]
    gpus = sum(bool(_GPU.match(s)) for s in lines)
    links = sum(bool(_LINK.match(s)) for s in lines)
    told = any(word in s.lower() for s in lines for word in (*_NONE, _DOWN))
    dcgmi = sum("NVLINK Error Counts" in s or "NvLink Link Status" in s for s in lines)
    counts = sum(bool(_DCGMI_COUNT.match(s) or _DCGMI_LINK.match(s)) for s in lines)
    if dcgmi and (counts or any(_DCGMI_STATE.match(s) for s in lines)):
        return 0.9
    asked = any("nvidia-smi nvlink" in s for s in lines)
    few = gpus + links >= 0.4 * len(lines) or (asked and links >= 2)  # noqa: PLR2004
    return 0.9 if gpus and (links or told) and few else 0.0


@dataclass(slots=True)
class _Links:
    """The walk over the lines: the GPU and the link in force, and what was told of each."""

    messages: Messages = field(default_factory=Messages)
    first: dict[tuple[str, str], float] = field(default_factory=dict)
    last: dict[tuple[str, str], float] = field(default_factory=dict)
    lacking: dict[tuple[str, str], str] = field(default_factory=dict)
    sums: dict[str, dict[tuple[str, str], dict[str, int]]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)
    times: list[float] = field(default_factory=list)
    again: set[tuple[str, str]] = field(default_factory=set)
    host: str | None = None
    down: set[str] = field(default_factory=set)
    gpu: str = ""
    link: str = ""
    states: str = ""
    broken: bool = False

    def line(self, line: str) -> None:
        """Take one line."""
        bare = line.strip()
        if bare.startswith("Link "):
            if self.gpu and (match := _LINK.match(bare)):
                self._told(int(match[1]), match[2], match[3].strip())
        elif match := _GPU.match(bare) or _DCGMI_GPU.match(bare) or _DCGMI_STATE.match(bare):
            self._begin(match)
        elif self.gpu and (match := _DCGMI_LINK.match(bare)):
            self.link = self._place(int(match[1]))
        elif self.link and (match := _DCGMI_COUNT.match(bare)):
            self._count(self.link, match[1].strip(), match[2].strip())
        elif self.states and _STATES.match(bare):
            self._status(bare.split())
        elif self.gpu and any(text in bare.lower() for text in _NONE):
            self.quiet.add(self.gpu)
        elif self.gpu and _DOWN in bare.lower():
            self.down.add(self.gpu)
        elif bare and not self.messages.take(bare):
            self._other(bare)

    def _begin(self, match: re.Match[str]) -> None:
        self.gpu = f"gpu{int(match[1])}" if int(match[1]) < MOST_GPUS else ""
        self.link = self.states = ""
        if not self.gpu:
            return
        self.states = self.gpu if match.re is _DCGMI_STATE else ""
        self._flush(self.gpu)
        if match.re is _GPU:
            self.names[self.gpu] = plain(match[2], 80)
            if match[3] and (uuid := identity(match[3])):
                self.uuids[self.gpu] = uuid

    def _other(self, bare: str) -> None:
        if "NvSwitches" in bare or bare.startswith("$"):
            self.gpu = self.link = self.states = ""
        if len(self.times) < MOST_TIMES and (at := moment(bare)) is not None:
            self.times.append(at)
        if self.host is None and (match := _PROMPT.match(bare)):
            self.host = match[1]

    def _place(self, number: int) -> str:
        return f"{self.gpu}/link{number:02d}" if number < MOST_NUMBER else ""

    def _told(self, number: int, sign: str, text: str) -> None:
        place = self._place(number)
        if not place or sign == ",":
            return  # capabilities: what a link could do says nothing about its health
        if speed := _SPEED.match(text):
            self._keep(place, "nvlink.speed", float(speed[1].replace(",", ".")))
            self._keep(place, "nvlink.active", 1)
        elif text.strip("<> ").lower() in ("inactive", "disabled"):
            self._keep(place, "nvlink.active", 0)
        else:
            name, colon, value = text.rpartition(":")
            self.broken = not colon or not value.strip()
            if not self.broken:
                self._count(place, name[:64], value.strip())

    def _status(self, states: list[str]) -> None:
        """Take a row of dcgmi's letters: U up, D down, X disabled, _ not supported."""
        for number, state in enumerate(states):
            if state in "UD" and (place := self._place(number)):
                self._keep(place, "nvlink.active", int(state == "U"))
        self.states = ""

    def _count(self, place: str, name: str, text: str) -> None:
        metric = metric_of(name)
        if not metric:
            self._keep(place, "", 0)
            return
        value = ber(text) if metric in RATES else count(text.partition(" ")[0])
        if isinstance(value, Why):
            self.lacking.setdefault((place, metric), text)
        elif metric in RATES:
            self._keep(place, metric, value)
        else:
            self._sum(place, metric, name, int(value))

    def _sum(self, place: str, metric: str, name: str, value: int) -> None:
        """Add up the counters of one metric; a name that comes again begins a new snapshot."""
        sums = self.sums.setdefault(self.gpu, {})
        parts = sums.setdefault((place, metric), {})
        if name in parts:
            self._keep(place, metric, sum(parts.values()))
            sums[place, metric] = parts = {}
        parts[name] = value

    def _flush(self, gpu: str) -> None:
        """Close the counters of a GPU that is named again."""
        for (place, metric), parts in self.sums.pop(gpu, {}).items():
            self._keep(place, metric, sum(parts.values()))

    def finish(self) -> None:
        """Close all counters."""
        for gpu in list(self.sums):
            self._flush(gpu)

    def _keep(self, place: str, metric: str, value: float) -> None:
        key = (place, metric)
        if key in self.last:
            self.again.add(key)
        self.first.setdefault(key, value)
        self.last[key] = value


def counters(
    kind: str, first: dict[tuple[str, str], float], last: dict[tuple[str, str], float],
    again: Iterable[tuple[str, str]], window: tuple[float, float] | None = None,
) -> list[Measurement]:  # fmt: skip
    """Return totals, and what was counted since the first snapshot where there were several.

    `first` and `last` are by (subject, metric of link_counters); a count that fell was reset.
    """
    found, repeated = [], set(again)
    for (place, metric), value in last.items():
        name = metric
        if metric == ALL:
            if (place, SUCCEEDED) in last:
                continue
            name = SUCCEEDED
        if name not in UNITS:
            continue
        whole = value if name in RATES else int(value)
        found.append(Measurement(kind, place, name, whole, UNITS[name]))
        grown = value - first[place, metric]
        if (place, metric) in repeated and name in DELTAS and grown >= 0:
            delta = Measurement(kind, place, DELTAS[name], int(grown), UNITS[name], window=window)
            found.append(delta)
    return found


def _measured(walk: _Links) -> list[Measurement]:
    window = (walk.times[0], walk.times[-1]) if len(walk.times) > 1 else None
    found = counters(KIND, walk.first, walk.last, walk.again, window)
    for (place, metric), value in walk.last.items():
        if metric == "nvlink.active":
            found.append(Measurement(KIND, place, metric, int(value), "links"))
        elif metric == "nvlink.speed":
            found.append(Measurement(KIND, place, metric, value, "GB/s"))
    for gpu in sorted({*walk.down, *walk.names}):
        if gpu in walk.down:
            found.append(Measurement(KIND, gpu, "nvlink.up", 0, "links"))
        if name := walk.names.get(gpu):
            found.append(Measurement(KIND, gpu, "gpu.name", name, "text"))
    return found


def read(source: Source) -> Reading:
    """Read all blocks of a file."""
    walk = _Links()
    for chunk in source.chunks():
        for line in chunk.decode("utf-8", "replace").splitlines():
            walk.line(line[:LINE_LIMIT])
    walk.finish()
    problems = list(walk.messages.problems)
    told = {place.partition("/")[0] for place, _ in walk.last}
    heard = told | walk.quiet | walk.down
    silent = sorted({*walk.names, *([walk.gpu] if walk.gpu else [])} - heard)
    problems += [f"{gpu}: nothing is told of its links" for gpu in silent[:8]]
    if walk.broken:
        problems.append("the last line breaks off")
    problems += [f"{gpu}: all links are inactive" for gpu in sorted(walk.down)[:8]]
    missing = [
        Missing(KIND, place, SUCCEEDED if metric == ALL else metric, Why.NO_READING,
                f"{plain(text, 60)!r} is no count")
        for (place, metric), text in walk.lacking.items() if (place, metric) not in walk.last
    ]  # fmt: skip
    return Reading(
        source.path, KIND, len(heard) or len(walk.messages.events),
        (*source.problems, *problems), tuple(walk.messages.events), tuple(_measured(walk)),
        tuple(missing), source.cut or walk.broken or bool(silent), bool(heard), {}, {},
        walk.uuids, walk.host, taken=walk.times[-1] if walk.times else None,
    )  # fmt: skip


READER = Reader(KIND, "nvidia-smi nvlink and dcgmi nvlink", likeness, read)
