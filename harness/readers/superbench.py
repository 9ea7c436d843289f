"""SuperBench: the results and the diagnosis of nodes as JSON lines, and the logs of GPCNeT.

A result is named ``benchmark/metric:rank``. The diagnosis lists defects in one string, each with
its own rule in brackets; ``_miss`` there means that there is no value, which is not a bad value.
What SuperBench holds against its baseline is its own judgement, and is read as what it says.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.objects import objects
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "superbench"
LIMIT, MOST_EVENTS, MOST_ITEMS = 64 << 20, 2000, 5000
MOST_RANKS = 16  # GPUs of one node, at most
_LINES = re.compile(
    rb'"(?:Defective Details|diagnosis/(?:accept|issue_details)|[\w\-./]{1,100}/return_code'
    rb'(?::\d{1,4})?)"\s{0,4}:'
)
_NODE = re.compile(rb'"(?:index|node|Index|Node)"\s{0,4}:\s{0,4}"')
_REFUSED = re.compile(
    rb"^ERROR: this application must be run on at least \d{1,9} nodes", re.MULTILINE
)
_GPCNET = re.compile(rb"^Network (?:Load )?Tests v\d", re.MULTILINE)
_ROW = re.compile(r"\| {1,60}([A-Z][^|]{2,60}?) \| +(-?[\d.]{1,20}) \|")
_NODE_KEYS = ("node", "index", "Node", "Index")
_HOST = re.compile(r"[\w.\-]{1,100}\Z")
_NAME = re.compile(r"([\w\-.]{1,100})/([\w\-./]{1,200}?)(?::(\d{1,4}))?\Z")
_GPU = re.compile(r"gpu_?(\d{1,3})")
_PASSED = re.compile(r"gpu_(\d{1,3})_pass\Z")
_CODE = "return_code"
# What a benchmark strains most, by the beginning of its name; the first that fits counts.
_STRAINS = (
    ("gpu-burn", "unknown"), ("kernel-launch", "unknown"), ("gemm-flops", "sm"),
    ("cublas", "sm"), ("cudnn", "sm"), ("matmul", "sm"), ("sharding-matmul", "sm"),
    ("mem-bw", "pcie"), ("gpu-stream", "hbm"), ("nvbandwidth", "unknown"), ("nccl-bw", "nvlink"),
    ("ib-", "nic"), ("tcp-connectivity", "fabric"), ("gpcnet", "fabric"), ("disk-", "storage"),
    ("cpu-", "host"),
)  # fmt: skip
_COMPUTING, _MOVING = ("gemm-flops", "cublas", "matmul"), ("mem-bw", "gpu-stream", "gpu-copy-bw")
# Readings of SuperBench's monitor that have a name of our own: (metric, unit).
_MONITOR = {
    "gpu_uncorrected_ecc": ("ecc.uncorrected.volatile", "errors"),
    "gpu_remap_uncorrectable_error": ("remap.rows.uncorrected", "rows"),
    "gpu_remap_low": ("remap.banks.low", "banks"),
    "gpu_remap_none": ("remap.banks.none", "banks"),
}


def likeness(head: bytes) -> float:
    """Return 0.9 for its JSON lines, or for what GPCNeT prints; both at the file's beginning."""
    bare = head.lstrip()
    if bare[:1] in (b"{", b"["):
        return 0.9 if _LINES.search(head) and _NODE.search(head) else 0.0
    if _REFUSED.match(bare) or _GPCNET.match(bare):
        return 0.85
    return 0.0


@dataclass(slots=True)
class _Nodes:
    """What all objects told."""

    events: dict[tuple[str, str], Event] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    worked: bool = False
    problems: list[str] = field(default_factory=list)

    def say(self, subject: str, code: str, text: str) -> None:
        """Add an event; the same code of one subject again only counts."""
        key = (subject, code)
        old = self.events.get(key)
        if old is not None:
            count = old.detail.get("count", 1)
            more = {"count": (count if isinstance(count, int) else 1) + 1}
            self.events[key] = Event(subject, code, old.text, clock="none", detail=more)
        elif len(self.events) < MOST_EVENTS:
            self.events[key] = Event(subject, code, plain(text), clock="none")

    def code(self, host: str, benchmark: str, value: float, *, diagnosed: bool) -> None:
        """Take what a benchmark ended with; a diagnosis has told of it already."""
        self.measurements.append(Measurement(benchmark, host, "superbench.code", value, "events"))
        self.worked |= value == 0
        if value and not diagnosed:
            self.say(host, "superbench.failed", f"{benchmark}/{_CODE}: {value}")

    def note(self, problem: str) -> None:
        """Add a problem once."""
        if problem not in self.problems and len(self.problems) < 20:  # noqa: PLR2004
            self.problems.append(problem)


def items(details: str) -> Iterator[tuple[str, str]]:
    """Yield (metric, what stands in its brackets) for each defect of a diagnosis.

    The rule in the brackets is code with commas and brackets of its own, so brackets are counted.
    """
    start, depth, opened = 0, 0, -1
    for at, c in enumerate(details[: 1 << 20]):
        if c == "(":
            depth += 1
            opened = at if depth == 1 else opened
        elif c == ")" and depth:
            depth -= 1
        elif c == "," and not depth:
            yield _item(details[start:at], opened - start)
            start, opened = at + 1, -1
    if details[start:].strip():
        yield _item(details[start:], opened - start)


def _item(text: str, opened: int) -> tuple[str, str]:
    if opened < 0:
        return text.strip(), ""
    return text[:opened].strip(), text[opened:].strip().removeprefix("(").removesuffix(")")


def _component(benchmark: str, metric: str) -> str:
    name = benchmark.lower()
    if "copy" in name:
        return "unknown" if "dtod" in metric or metric.count("gpu") > 1 else "pcie"
    return next((part for begin, part in _STRAINS if name.startswith(begin)), "unknown")


@dataclass(slots=True)
class _Node:
    """One node's row: its name, and how many ranks each of its metrics has."""

    name: str
    ranks: Counter[str]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the node of a row."""
        names = (row.get(key) for key in _NODE_KEYS)
        name = next((name for name in names if isinstance(name, str)), "")
        parts = (_NAME.match(str(name)) for name in row)
        ranks = Counter(f"{found[1]}/{found[2]}" for found in parts if found and found[3])
        return cls(name if _HOST.match(name) else "unnamed", ranks)

    @property
    def host(self) -> str:
        """The node itself."""
        return f"host:{self.name}"

    def subject(self, parts: re.Match[str]) -> str:
        """Return the GPU of a metric: by its own words, else by its rank; else the node.

        Where a metric has more ranks than a node has GPUs, a rank is a GPU and a NUMA node, or a
        process of some other node, and names no GPU.
        """
        named = set(_GPU.findall(parts[2].lower()))
        if len(named) == 1:
            return f"{self.host}/gpu{int(named.pop())}"
        if named or parts[3] is None or self.ranks[f"{parts[1]}/{parts[2]}"] > MOST_RANKS:
            return self.host
        return f"{self.host}/gpu{int(parts[3])}" if int(parts[3]) < MOST_RANKS else self.host


def _defect(found: _Nodes, node: _Node, metric: str, rule: str) -> None:
    """Take one defect of a node's diagnosis."""
    parts = _NAME.match(metric.removesuffix("_miss"))
    benchmark = plain(parts[1] if parts else metric, 60)
    if metric.endswith("_miss"):
        found.say(node.host, "superbench.miss", f"{benchmark}: no value for {metric}")
    elif parts is None or parts[2].endswith(_CODE):
        found.say(node.host, "superbench.failed", f"{metric}: {rule}")
    else:
        part = _component(benchmark, parts[2].lower())
        found.say(node.subject(parts), f"superbench.defect.{part}", f"{metric}: {rule}")


def _rate(parts: re.Match[str]) -> tuple[str, str] | None:
    """Return (metric, unit) of a result that is a rate of one GPU, by the end of its name."""
    if parts[1].startswith(_COMPUTING) and parts[2].endswith("_flops"):
        return "superbench.flops", "GFLOP/s"
    if parts[1].startswith(_MOVING) and parts[2].endswith("_bw"):
        return "superbench.bandwidth", "GB/s"
    return None


def _values(found: _Nodes, node: _Node, row: Mapping[str, Any], *, diagnosed: bool) -> None:
    """Take the results of one node that mean something without a baseline."""
    per_gpu: Counter[str] = Counter()
    for name, value in islice(row.items(), MOST_ITEMS):
        parts = _NAME.match(str(name))
        if parts is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        subject, metric = node.subject(parts), parts[2]
        if subject != node.host:
            per_gpu[subject] += 1
        if metric.endswith(_CODE):
            found.code(node.host, plain(parts[1], 60), value, diagnosed=diagnosed)
        elif metric == "abort" and parts[1].startswith("gpu-burn") and value:
            found.say(node.host, "superbench.failed", f"{name}: {value}")
        elif _PASSED.match(metric) and parts[1].startswith("gpu-burn") and value == 0:
            found.say(subject, "gpu-burn.faulty", f"{name}: {value}")
        elif (rate := _rate(parts)) and subject != node.host and value > 0 and not diagnosed:
            check = plain(f"{KIND}.{parts[1]}/{metric}", 120)
            found.measurements.append(Measurement(check, subject, rate[0], value, rate[1]))
        elif parts[1] == "monitor" and metric in _MONITOR and value >= 0 and not diagnosed:
            ours, unit = _MONITOR[metric]
            found.measurements.append(Measurement(KIND, subject, ours, value, unit))
    for subject, count in sorted(per_gpu.items()):
        found.measurements.append(Measurement(KIND, subject, "superbench.results", count, "events"))


def _row(found: _Nodes, row: Mapping[str, Any]) -> None:
    """Take one node."""
    node = _Node.of(row)
    found.nodes.add(node.name)
    details = row.get("Defective Details", row.get("diagnosis/issue_details"))
    diagnosed = isinstance(details, str) and details.strip() not in ("", "N/A")
    if diagnosed:
        for metric, rule in islice(items(str(details)), MOST_ITEMS):
            _defect(found, node, metric, rule)
        found.worked = True
    accepted = row.get("diagnosis/accept")
    found.worked |= accepted is True
    if accepted is False and not diagnosed:
        found.say(node.host, "superbench.rejected", "not accepted, for a reason not told")
    _values(found, node, row, diagnosed=diagnosed)


def _json(source: Source, text: str) -> Reading:
    parsed, found = objects(text), _Nodes()
    for row in parsed.values:
        if isinstance(row, dict) and any(key in row for key in _NODE_KEYS):
            _row(found, row)
    if parsed.cut:
        found.note("the JSON breaks off: only what stands before is read")
    if not found.worked:
        found.note("no benchmark in it that ended well, and no diagnosis")
    return Reading(
        source.path, KIND, len(found.nodes), (*source.problems, *found.problems),
        tuple(found.events.values()), tuple(found.measurements),
        cut=source.cut or parsed.cut, worked=found.worked,
    )  # fmt: skip


def _gpcnet(source: Source, text: str) -> Reading:
    """Read what GPCNeT prints: rows of a table, or why it did not run."""
    rows = len(_ROW.findall(text))
    problems = [
        plain(line, 160) for line in text.splitlines()[:200]
        if line.startswith("ERROR: ") or "exited with non-zero status" in line
    ]  # fmt: skip
    closed = text.rstrip().endswith("+")
    if not rows:
        problems.append("no result in it: nothing was measured")
    elif not closed:
        problems.append("the table breaks off")
    return Reading(
        source.path, KIND, rows, (*source.problems, *problems),
        cut=source.cut or (rows > 0 and not closed), worked=rows > 0,
    )  # fmt: skip


def read(source: Source) -> Reading:
    """Read results or a diagnosis of nodes, or GPCNeT's log."""
    text = source.whole(LIMIT).decode("utf-8", "replace")
    if text.lstrip()[:1] in ("{", "["):
        return _json(source, text)
    return _gpcnet(source, text)


READER = Reader(KIND, "SuperBench's results and diagnosis, GPCNeT's log", likeness, read)
