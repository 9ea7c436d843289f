"""The exposition text of dcgm-exporter: DCGM's fields of each GPU and link, by their labels.

Streamed line by line; of each series the first and the last sample are kept. One GPU's samples may
come several times (MIG instances, pods): its value is their greatest, never their sum. The gauge of
Xids keeps only the last code, so a code of clean-up there hides the one before it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rackproof.harness.model import Event, Measurement, Missing, Why
from rackproof.harness.readers import dcgm_fields as fields
from rackproof.harness.readers.exposition import Sample, sample
from rackproof.harness.readers.link_counters import ALL, RATES, SUCCEEDED, packed_ber
from rackproof.harness.readers.nvidia_smi_nvlink import counters
from rackproof.harness.readers.places import pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_report import identity
from rackproof.harness.readers.source import Source

KIND = "dcgm-metrics"
MOST_SERIES, MOST_TEXT = 200_000, 64 << 20
_PREFIX = "DCGM_"
_HOSTS = ("Hostname", "hostname")
_MOSTLY = 0.6
_LONGEST_CODE = 4
# What follows another error or is the application's: as a last code it hides what came before.
_HIDING = frozenset((45,))
_Seen = TypeVar("_Seen", Event, Measurement, Missing)


def likeness(head: bytes) -> float:
    """Return 0.95 where most lines are of the exposition format and some are DCGM's, else 0."""
    text = head.decode("utf-8", "replace").splitlines()[:400]
    lines = [s for line in text if (s := line.strip())]
    dcgm = sum(
        s.startswith(("# HELP DCGM_", "# TYPE DCGM_")) or (s.startswith(_PREFIX) and _known(s))
        for s in lines
    )
    if not dcgm:
        return 0.0
    shaped = sum(s.startswith(("# HELP ", "# TYPE ", "# EOF")) or sample(s) is not None
                 for s in lines)  # fmt: skip
    return 0.95 if shaped + 1 >= _MOSTLY * len(lines) else 0.0


def _known(line: str) -> bool:
    found = sample(line)
    return found is not None and found.name.startswith(("DCGM_FI_", "DCGM_EXP_"))


@dataclass(slots=True)
class _Series:
    """The first and the last sample of one series."""

    subject: str
    labels: dict[str, str]
    first: float
    last: float
    began: float | None
    ended: float | None
    count: int = 1


@dataclass(slots=True)
class _Scrape:
    """The walk over the lines, and what it has kept."""

    series: dict[str, dict[tuple[str, ...], _Series]] = field(default_factory=dict)
    known: dict[str, _Series] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    kept: int = 0
    size: int = 0
    full: bool = False
    odd: int = 0
    last_line: str = ""
    taken: float | None = None

    def line(self, line: str) -> None:
        """Take one line."""
        if not line.strip():
            return
        self.last_line = line[:200]
        if not line.lstrip().startswith(_PREFIX):
            return
        end = line.rfind("}") + 1
        known = self.known.get(line[:end]) if end else None
        found = sample(f"known{line[end:]}") if known else sample(line)
        if found is None:
            self.odd += 1
            return
        self.samples += 1
        if found.at is not None:
            self.taken = max(self.taken or found.at, found.at)
        self._keep(found, known, line[:end])

    def _keep(self, found: Sample, seen: _Series | None, raw: str) -> None:
        of = self.series.setdefault(found.name, {}) if seen is None else {}
        key = tuple(found.labels.values())
        seen = seen or of.get(key)
        if seen is not None:
            seen.last, seen.ended, seen.count = found.value, found.at, seen.count + 1
        elif self.kept >= MOST_SERIES or self.size > MOST_TEXT:
            self.full = True
        else:
            self.kept, self.size = self.kept + 1, self.size + len(raw)
            of[key] = self.known[raw] = _Series(
                self._subject(found.labels), found.labels, found.value, found.value,
                found.at, found.at,
            )  # fmt: skip

    def _subject(self, labels: dict[str, str]) -> str:
        """Return the GPU of a sample with its host before it; "host" where the labels tell none."""
        host = next((plain(labels[h], 63) for h in _HOSTS if labels.get(h)), "")
        self.hosts[host] = None
        index, address = labels.get("gpu", ""), pci(labels.get("pci_bus_id", ""))
        name = f"gpu{int(index)}" if index.isdecimal() and len(index) <= _LONGEST_CODE else ""
        subject = address or name or "host"
        if address and name:
            self.aliases[f"{host}/{name}"] = address
        if uuid := identity(labels.get("UUID", "")):
            self.uuids[f"{host}/{subject}"] = uuid
        link = labels.get("nvlink", "").removeprefix("nvlink")
        if subject != "host" and link.isdecimal() and len(link) < 3:  # noqa: PLR2004
            subject = f"{subject}/link{int(link):02d}"
        return f"{host}/{subject}"


class _Told:
    """What a scrape says in metrics and events; subjects carry their host until the end."""

    def __init__(self, scrape: _Scrape) -> None:
        self.scrape = scrape
        self.measurements: list[Measurement] = []
        self.missing: list[Missing] = []
        self.events: dict[tuple[str, str], Event] = {}
        self.first: dict[tuple[str, str], float] = {}
        self.last: dict[tuple[str, str], float] = {}
        self.again: set[tuple[str, str]] = set()
        self.values: dict[tuple[str, str], float] = {}
        self.summed: dict[tuple[str, str], float] = {}
        self.whys: dict[tuple[str, str], Why] = {}
        self.units: dict[str, str] = {}
        self.lasting: dict[str, str] = {}

    def _series(self, name: str) -> Iterator[tuple[_Series, float]]:
        """Yield the series of a name that hold a number."""
        for one in self.scrape.series[name].values():
            if fields.blank(one.last) is None:
                yield one, one.last

    def take(self, name: str) -> None:
        """Take all series of one name."""
        bare = name.removeprefix(fields.FIELD)
        metric, link = fields.link_of(bare)
        if name in fields.XIDS or self._all_xids(name):
            self._xids(name)
        elif name in fields.HEALTH:
            self._health(name)
        elif bare in fields.COUNTS:
            self._count(name, *fields.COUNTS[bare])
        elif metric:
            self._link(name, metric, link)
        elif bare in fields.RETIRED:
            self._add(name, "retired.pages", "pages")
        elif part := next((m for p, m in fields.PARTS.items() if bare.startswith(p)), ""):
            self._add(name, part, "errors")
        elif bare in fields.REASONS or name == "DCGM_EXP_CLOCK_EVENTS_COUNT":
            self._throttles(name)
        elif bare in ("FABRIC_MANAGER_STATUS", "GPU_NVLINK_ERRORS"):
            self._states(name, bare)

    @staticmethod
    def _all_xids(name: str) -> bool:
        return name.startswith(fields.EXPORTED) and "XID_ERRORS" in name

    def _count(self, name: str, metric: str, unit: str) -> None:
        self.units[metric] = unit
        for one in self.scrape.series[name].values():
            key, value = (one.subject, metric), one.last
            why = fields.blank(value)
            if why is None and value < 0 and unit != "C":
                why = Why.NO_READING
            if why is not None:
                self.whys.setdefault(key, why)
                continue
            value = value * fields.NANO if unit == "s" else value
            self.values[key] = max(value, self.values.get(key, value))
            grown = one.last - one.first
            if one.count > 1 and grown >= 0 and metric.startswith("violation.thermal"):
                delta = (one.subject, "violation.thermal.delta")
                self.values[delta] = max(grown * fields.NANO, self.values.get(delta, 0.0))
                self.units["violation.thermal.delta"] = "s"

    def _add(self, name: str, metric: str, unit: str) -> None:
        """Add up the parts of a count, each once for a GPU; used where the whole is not there."""
        self.units[metric] = unit
        most: dict[str, float] = {}
        for one, value in self._series(name):
            if value >= 0:
                most[one.subject] = max(value, most.get(one.subject, 0.0))
        for subject, value in most.items():
            key = (subject, metric)
            self.summed[key] = self.summed.get(key, 0.0) + value

    def _link(self, name: str, metric: str, link: int | None) -> None:
        packed = metric in RATES and not name.endswith("_FLOAT")
        for one in self.scrape.series[name].values():
            place = one.subject if link is None else f"{one.subject}/link{link:02d}"
            key, why = (place, metric), fields.blank(one.last)
            if why is not None or one.last < 0:
                self.whys.setdefault(key, why or Why.NO_READING)
                continue
            value: float | Why = packed_ber(int(one.last)) if packed else one.last
            if isinstance(value, Why) or (not packed and value == 65535):  # noqa: PLR2004
                self.whys.setdefault(key, Why.NO_READING)
                continue
            if metric not in RATES:
                self._grown(key, one)
            self.last[key] = max(value, self.last.get(key, 0.0))
            self.first.setdefault(key, self.last[key])

    def _grown(self, key: tuple[str, str], one: _Series) -> None:
        """Keep the greatest growth of a counter over its series."""
        if one.count > 1 and fields.blank(one.first) is None and one.last >= one.first:
            delta = (key[0], f"{key[1]} grown")
            self.again.add(key)
            self.values[delta] = max(one.last - one.first, self.values.get(delta, 0.0))

    def _xids(self, name: str) -> None:
        for one, value in self._series(name):
            label = one.labels.get("xid", "")
            window = bool(label) or name != "DCGM_FI_DEV_XID_ERRORS"
            text = label if window else f"{value:.0f}"
            if not window:
                self.lasting.setdefault(one.subject, text[:_LONGEST_CODE])
            if value < 1 or not text.isdecimal() or len(text) > _LONGEST_CODE or not int(text):
                continue
            code, times = int(text), int(value) if window else 1
            hides = code in _HIDING
            event = f"exporter.xid.{code}" if hides else f"xid.{code}"
            said = f"{name} says {code}" + (f", {times} times in its window" if window else
                                            ", the last code alone")  # fmt: skip
            self._event(one.subject, event, said, times)

    def _health(self, name: str) -> None:
        for one, value in self._series(name):
            if value < fields.WARNED:
                continue
            watch = one.labels.get("health_watch", "").lower()
            part = watch if watch in fields.WATCHES else "other"
            level = "fail" if value >= fields.FAILED else "warn"
            code = plain(one.labels.get("health_error_code", ""), 60)
            text = f"health watch {plain(watch, 40) or 'without a name'}: {level} {code}".strip()
            self._event(one.subject, f"exporter.health.{part}.{level}", text, 1)

    def _throttles(self, name: str) -> None:
        for one, value in self._series(name):
            if not 0 <= value < 1 << 53:
                continue
            reason = one.labels.get("clock_event", "")
            for metric, (bits, words) in fields.THROTTLES.items():
                counted = name == "DCGM_EXP_CLOCK_EVENTS_COUNT"
                on = value > 0 and reason in words if counted else bool(int(value) & bits)
                key = (one.subject, metric)
                self.units[metric] = "flag"
                self.values[key] = max(float(on), self.values.get(key, 0.0))

    def _states(self, name: str, bare: str) -> None:
        for one, value in self._series(name):
            if bare == "GPU_NVLINK_ERRORS":
                word = {1: "recovery", 2: "fatal"}.get(int(value), "")
                if word:
                    self._event(one.subject, f"exporter.nvlink.{word}", f"{name} {value:.0f}", 1)
                continue
            state, status = fields.FABRIC.get(int(value), ("", ""))
            for metric, text in (("fabric.state", state), ("fabric.status", status)):
                if text and text != "not-supported":
                    self.measurements.append(Measurement(KIND, one.subject, metric, text, "text"))

    def _event(self, subject: str, code: str, text: str, count: int) -> None:
        detail = {"count": count}
        self.events.setdefault(
            (subject, code),
            Event(subject, code, plain(text), clock="none", detail=detail),
        )

    def finish(self) -> None:
        """Put what was gathered into measurements and missing values."""
        for key, value in self.summed.items():
            self.values.setdefault(key, value)
        for (subject, metric), value in self.values.items():
            if metric.endswith(" grown"):
                continue
            exact = int(value) if math.isfinite(value) and value == int(value) else value
            self.measurements.append(Measurement(KIND, subject, metric, exact, self.units[metric]))
        self.measurements += [
            Measurement(KIND, subject, "xid.last", code, "text")
            for subject, code in self.lasting.items()
        ]
        for key in self.again:
            self.first[key] = self.last[key] - self.values[key[0], f"{key[1]} grown"]
        self.measurements += counters(KIND, self.first, self.last, sorted(self.again))
        known = {*self.values, *self.last}
        self.missing = [
            Missing(KIND, subject, SUCCEEDED if metric == ALL else metric, why,
                    "DCGM has a blank in place of a value")
            for (subject, metric), why in self.whys.items() if (subject, metric) not in known
        ]  # fmt: skip


def _homes(scrape: _Scrape) -> tuple[str | None, bool]:
    """Return (the one host or None, whether there are several): then subjects carry their host."""
    named = [host for host in scrape.hosts if host]
    return (named[0] if len(named) == 1 else None), len(named) > 1


def _placed(subject: str, *, several: bool) -> str:
    host, _, rest = subject.partition("/")
    if not several or not host:
        return rest
    return f"host:{host}" if rest == "host" else f"host:{host}/{rest}"


def _moved(told: Iterable[_Seen], placed: Callable[[str], str]) -> Iterator[_Seen]:
    """Give what was told its final subject."""
    return (replace(one, subject=placed(one.subject)) for one in told)


def _problems(source: Source, scrape: _Scrape, *, cut: bool) -> Iterable[str]:
    yield from source.problems
    if scrape.odd:
        yield f"{scrape.odd} lines of DCGM's are no samples"
    if cut:
        yield "the text breaks off"
    if scrape.full:
        yield f"more than {scrape.kept} series: the rest is not read"
    if not scrape.samples:
        yield "no sample of DCGM's in it"


def _breaks_off(scrape: _Scrape) -> bool:
    """Whether the last line promises more: a comment without its samples, half a sample."""
    last = scrape.last_line.strip()
    if last.startswith("#"):
        return last.startswith(("# HELP", "# TYPE", "# H", "# T")) or last == "#"
    return last.startswith(_PREFIX) and sample(last) is None and len(last) < 200  # noqa: PLR2004


def read(source: Source) -> Reading:
    """Read one scrape, or several one after the other."""
    scrape = _Scrape()
    for chunk in source.chunks():
        for line in chunk.decode("utf-8", "replace").splitlines():
            scrape.line(line)
    told = _Told(scrape)
    for name in sorted(scrape.series):
        told.take(name)
    told.finish()
    host, several = _homes(scrape)
    cut = _breaks_off(scrape)

    def placed(subject: str) -> str:
        return _placed(subject, several=several)

    return Reading(
        source.path, KIND, scrape.samples, tuple(_problems(source, scrape, cut=cut)),
        tuple(_moved(told.events.values(), placed)), tuple(_moved(told.measurements, placed)),
        tuple(_moved(told.missing, placed)), source.cut or cut or scrape.full,
        scrape.samples > 0,
        {} if several else {k.partition("/")[2]: v for k, v in scrape.aliases.items()},
        {}, {placed(k): v for k, v in scrape.uuids.items()}, host, taken=scrape.taken,
    )  # fmt: skip


READER = Reader(KIND, "the exposition text of dcgm-exporter", likeness, read)
