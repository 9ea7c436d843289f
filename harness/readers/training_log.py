"""What a training job writes: steps, losses, and how it died; PyTorch, NCCL, Megatron and others.

One alternation over whole chunks finds the lines with progress or trouble, so a log of gigabytes
passes with flat memory. Equal words of one rank between two steps are one event with a count. Each
event says at which step it stood: what follows a cause without a step between follows from it. A
line has the time of its own stamp; one without lies ``after`` the last and ``until`` the next.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers import job_signs
from rackproof.harness.readers.job_places import LEARN, Places, Spoken
from rackproof.harness.readers.job_signs import Sign, sign_of
from rackproof.harness.readers.job_times import Stamp
from rackproof.harness.readers.numbered import Numbered, alternation
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.signatures import sign_of as kernel_sign
from rackproof.harness.readers.source import Source

KIND = "training-log"
MOST_EVENTS = 2000
_XID = "NVRM: Xid ("
_APART = ("peer", "nic", "place", "link", "node")  # what else tells one event from another
_PROGRESS = (b"iteration", b"grad norm", b"grad_norm", b"loss", b"Loss", b"skipped=", b"LOSS",
             b"learning rate:", b"batch size:", b"elapsed time per", b"consumed ", b"samples per",
             b" |\n")  # fmt: skip
_PATTERN = alternation([*job_signs.literals(), *LEARN, *_PROGRESS, _XID.encode()])
_NUMBER = (  # Lightning pads what it prints, also ``nan.0``
    r"(?:['\"]?\]? {0,4}[:=] {0,4}['\"]?| {1,2}(?:is )?)"
    r"(-?[nN]a[nN](?:\.0{0,4})?|[+-]?[iI]nf(?:inity)?(?:\.0{0,4})?"
    r"|[+-]?\d[\d.]{0,30}(?:[eE][+-]?\d{1,4})?)(?![\w.%])"
)
# Each begins with a literal, which re looks for fast, and asks afterwards what stands before it.
_VALUES = (
    ("loss", re.compile(r"oss(?<=[lL]oss|LOSS)(?: value)?" + _NUMBER)),
    ("norm", re.compile(r"orm(?<=[gG]rad[ _][nN]orm)" + _NUMBER)),
)
_MEGATRON = re.compile(r"\biteration {1,12}(\d{1,12})/ {0,12}\d{1,12} {0,4}\|")
_STEP = re.compile(
    r"\b(?:global_)?(?:step|iter|iteration|epoch)s?['\"]?[ =:#\[(]{1,4}(\d{1,12})|\d/\d{1,12} \["
    r"|'epoch'|\bstep=\d",
    re.IGNORECASE,
)
_SKIPPED = re.compile(r"number of skipped iterations: {0,6}(\d{1,9})")
_NAN_COUNT = re.compile(r"number of nan iterations: {0,6}(\d{1,9})")
_KEYS = re.compile(r"[A-Za-z][\w .()]{1,60}: {0,12}[\w.+\-]{1,40}(?: \w{1,4})? {0,4}(?:\||\Z)")


@dataclass(slots=True)
class _Record:
    """One step's line, which may go on over the next lines."""

    said: Spoken
    line: int
    text: str
    last: int


@dataclass(slots=True)
class _Told:
    """An event that may still grow."""

    sign: Sign
    said: Spoken
    line: int
    step: int
    after: float | None
    until: float | None = None
    last: Stamp | None = None
    count: int = 0


@dataclass(slots=True)
class _Job:
    """What was read so far."""

    places: Places = field(default_factory=Places)
    told: dict[tuple[object, ...], _Told] = field(default_factory=dict)
    undated: list[_Told] = field(default_factory=list)
    steps: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    finite: Counter[int | None] = field(default_factory=Counter)
    record: _Record | None = None
    keys: int = 0
    lossy: bool = False
    short: bool = False
    dropped: int = 0

    def take(self, line: str, number: int) -> None:
        """Look at one line of interest."""
        before = self.places.times.last
        said = self.places.spoken(line)
        self.places.learn(said)
        if self.undated and said.stamp is not None and said.stamp.clock == "epoch":
            for told in self.undated:
                told.until = said.stamp.at
            self.undated.clear()
        if self._progress(said, number) and "rror" not in said.text:
            return
        if _XID in said.text:
            self._kernel(said, number)
        elif (sign := sign_of(said.text)) is not None:
            self.add(sign, said, number, before)
            self.places.met_peer(said.text)

    def _kernel(self, said: Spoken, number: int) -> None:
        """Take in a line of the kernel's log that the job's launcher shows."""
        sign = kernel_sign(said.text[said.text.index(_XID) :])
        if sign is not None and sign.subject.startswith("pci:"):
            self.add(Sign(sign.code, {**sign.detail, "place": sign.subject}), said, number)

    def add(self, sign: Sign, said: Spoken, number: int, after: float | None = None) -> None:
        """Take a sign in: into an equal one at the same step, or as a new one."""
        key = (sign.code, said.rank, said.host, self.steps, *map(sign.detail.get, _APART))
        if key not in self.told:
            if len(self.told) >= MOST_EVENTS:
                self.dropped += 1
                return
            self.told[key] = _Told(sign, said, number, self.steps, after)
            if said.stamp is None:
                self.undated.append(self.told[key])
        told = self.told[key]
        told.count += 1
        told.last = said.stamp or told.last

    def _progress(self, said: Spoken, number: int) -> bool:
        """Take in a step's record; False where the line is none."""
        going = self.record
        if going and number == going.last + 1 and going.said.host == said.host and (
            not _MEGATRON.search(said.text) and _KEYS.match(said.text.lstrip())
        ):  # fmt: skip
            going.text += f" {said.text}"
            going.last = number
            return True
        if _MEGATRON.search(said.text):
            self.close()
            self.record = _Record(said, number, said.text, number)
            return True
        values = _values(said.text) if _STEP.search(said.text) else []
        if values or "skipped=" in said.text:
            self.close()
            self._settle(_Record(said, number, said.text, number), values, "line")
            return True
        return False

    def close(self) -> None:
        """Settle the record that was going on."""
        record, self.record = self.record, None
        if record is None:
            return
        values = _values(record.text)
        self._settle(record, values, "iteration")
        skipped = _SKIPPED.search(record.text)
        loss = any(name == "loss" for name, _ in values)
        quiet = skipped is not None and int(skipped[1]) == 0
        if self.lossy and not loss and quiet and not any(_odd(value) for _, value in values):
            self.add(Sign("job.loss_missing"), _words(record), record.line)
        if (nans := _NAN_COUNT.search(record.text)) and int(nans[1]):
            self.add(Sign("job.nan"), _words(record), record.line)
        keys = len(_KEYS.findall(record.text))
        self.short = keys < self.keys
        self.keys = max(self.keys, keys)
        self.lossy = self.lossy or loss

    def _settle(self, record: _Record, values: list[tuple[str, str]], shape: str) -> None:
        self.steps += 1
        self.shapes["skipped=" if "skipped=" in record.text else shape] += 1
        skipped = _SKIPPED.search(record.text)
        if skipped is not None and int(skipped[1]):
            return  # the loss scale was too high: the step was left out, and another one comes
        odd = [name for name, value in values if _odd(value)]
        if odd:
            self.add(Sign("job.nan", {"name": odd[0]}), _words(record), record.line)
        elif values:
            self.finite[record.said.rank] += 1


def _values(text: str) -> list[tuple[str, str]]:
    """Return (loss or norm, its value) for each that a record holds."""
    return [(name, value) for name, pattern in _VALUES for value in pattern.findall(text)]


def _odd(value: str) -> bool:
    return "n" in value.lower()  # nan, inf


def _words(record: _Record) -> Spoken:
    said = record.said
    return Spoken(record.text, said.host, said.rank, said.pid, said.stamp)


def _subject(told: _Told, job: _Job) -> str:
    """Return what a sign is about: a place that it names itself, else who said it."""
    sign, said = told.sign, told.said
    if "node" in sign.detail:
        return f"host:{sign.detail['node']}"
    place = sign.detail.get("place")
    if place is None or sign.code.startswith("job."):
        return job.places.subject(said, str(sign.detail.get("nic", "")))
    home = f"host:{said.host}/" if len(job.places.hosts) > 1 and said.host else ""
    return f"{home}{place}"


def _when(told: _Told) -> dict[str, str | int | float]:
    """Return what is known of the time beside the stamp itself."""
    stamp, last = told.said.stamp, told.last
    if stamp is None:
        bounds = {"after": told.after, "until": told.until}
        return {name: at for name, at in bounds.items() if at is not None}
    detail: dict[str, str | int | float] = {"local": 1} if stamp.local else {}
    if last is not None and last.clock == stamp.clock and last.at > stamp.at:
        detail["last"] = last.at
    return detail


def _event(told: _Told, job: _Job) -> Event:
    sign, said = told.sign, told.said
    detail = {**sign.detail, "count": told.count, "line": told.line, "step": told.step}
    detail |= _when(told)
    detail["later_steps"] = job.steps - told.step
    if said.rank is not None:
        detail["rank"] = said.rank
    if sign.code == "job.nan" and said.rank is not None:
        detail["finite_ranks"] = len([rank for rank in job.finite if rank not in (None, said.rank)])
    if job.places.world:
        detail["world"] = job.places.world
    at, clock = (said.stamp.at, said.stamp.clock) if said.stamp else (None, "none")
    return Event(_subject(told, job), sign.code, plain(said.text), at, clock, detail)


def _late(job: _Job) -> Iterator[Event]:
    """Yield the one rank that did not wait where all the others did, or waited elsewhere."""
    waits = {
        told.said.rank: told.sign.detail.get("sequence")
        for told in job.told.values()
        if told.sign.code == "nccl.timeout" and told.said.rank is not None
    }
    ranks = range(max(job.places.world or 0, 1 + max(waits, default=-1)))
    late = [rank for rank in ranks if rank not in waits]
    if not late:
        common, votes = Counter(waits.values()).most_common(1)[0] if waits else (None, 0)
        late = [rank for rank, at in waits.items() if at != common and 2 * votes > len(waits)]
    if len(late) == 1 and len(waits) > 1:
        said = Spoken(f"{len(waits)} ranks waited for a collective; rank {late[0]} was not there",
                      rank=late[0])  # fmt: skip
        detail = {"rank": late[0], "step": job.steps}
        yield Event(job.places.subject(said), "nccl.late", said.text, clock="none", detail=detail)


def _ill(job: _Job) -> bool:
    """Whether anything went wrong: that a scheduler ended it tells nothing of the machine."""
    return any(told.sign.code != "job.cancelled" for told in job.told.values())


def _ran(job: _Job) -> Iterator[Event]:
    """Yield where the job ran, if on several hosts: no sign of anything."""
    hosts = sorted(job.places.hosts)[:MOST_EVENTS]
    for host in hosts if len(hosts) > 1 else ():
        yield Event(f"host:{host}", "job.ran", f"the job ran on {host}", clock="none")


def read(source: Source) -> Reading:
    """Read a job's output whole. `records` counts its lines, ``job.steps`` its steps."""
    job, lines = _Job(), Numbered(source, _PATTERN)
    for line, number in lines:
        job.take(line, number)
    job.close()
    problems = list(source.problems)
    if job.dropped:
        problems.append(f"{job.dropped} further events are not kept: more than {MOST_EVENTS}")
    cut = source.cut
    if job.short and not lines.whole:
        cut = True
        problems.append(f"line {lines.total}: cut short")
    if not job.steps and not _ill(job):
        problems.append("no step of a training, and no sign of how it ended")
    hosts = job.places.hosts
    home = next(iter(hosts)) if len(hosts) == 1 else None
    aliases = {
        name.rpartition("/")[2]: gpu for name, gpu in job.places.aliases.items()
        if home and name.startswith(f"{home}/")
    }  # fmt: skip
    return Reading(
        source.path, KIND, lines.total, tuple(problems),
        (*(_event(told, job) for told in job.told.values()), *_late(job), *_ran(job)),
        (Measurement(KIND, "host", "job.steps", max(job.shapes.values(), default=0), "events"),),
        cut=cut, worked=bool(job.steps) or _ill(job), aliases=aliases, host=home,
        job=job.places.job,
    )  # fmt: skip


# What only a job's libraries write, anchored behind a launcher's prefixes.
_BEFORE = (
    rb"^(?:[\w.\-]{1,64}: |\[[\w,]{1,24}\](?:<std\w{3}>)?: ?|\d{1,6}: |\[pod/[\w.\-/]{1,250}\] "
    rb"|\([\w.:]{1,64} pid=[^)\n]{1,64}\) "
    rb"| ?\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?\]? ){0,4} {0,2}"
)
_MARKS = re.compile(
    _BEFORE + rb"(?:"
    rb"[\w.\-]{1,64}:\d{1,10}:\d{1,10} \[\d{1,4}\] (?:[\w/.]{1,40}:\d{1,6} )?NCCL (?:INFO|WARN)"
    rb"|\[[EWIF][\d: .\-]{0,34} ?(?:\d{1,9} )?ProcessGroupNCCL\.cpp:\d"
    rb"|iteration {1,12}\d{1,12}/ {0,12}\d{1,12} {0,4}\|"
    rb"|\[\d{10}\.\d{3,9}\] \[[\w.\-]{1,253}:\d{1,10}:\d{1,10}\] [^\n]{0,60}UCX "
    rb"|srun: error: |slurmstepd: error: "
    rb"|\[\d{4}-\d\d-\d\d [\d:,.]{8,16}\] \[\w{4,8}\] \[(?:launch|runner|logging|engine|real_accel"
    rb"erator|multinode_runner|timer|comm|stage\w{1,24})\.py:\d"
    rb"|\[?[EWI]?[\d: .\-,]{0,34}\]? ?(?:\d{1,9} )?(?:\[\w{4,8}\] )?torch[/.]distributed[/.]elastic"
    rb"|(?:torch\.)?(?:RuntimeError|AcceleratorError|cuda\.OutOfMemoryError|OutOfMemoryError): CUDA"
    rb"|torch\.distributed\.DistBackendError: "
    rb"|\{'(?:train_)?loss': '?(?:nan|inf|\d)"
    rb"|(?:[\w:.\- \[\],]{0,60} - (?:root - )?INFO - )?step: {0,4}\d{1,9} {1,4}loss: {1,4}[\dn]"
    rb"|(?:Training e|E)poch:? \[?\d{1,7}[^\n]{0,200}(?:\b|_)[lL]oss(?: ?[=:]|_\w{1,20}=)? ?(?:nan|"
    rb"\d)"
    rb"|(?:[Ee]poch[ :=]{1,2}\d{1,7}[ ,|/]{1,3})?(?:[Ss]tep|[Ii]ter(?:ation)?)[ :=]{1,2}\d{1,9}"
    rb"(?:/\d{1,9})?[ ,:|][^\n]{0,80}\b[lL]oss(?: is)?[ :=]{1,3}(?:nan|\d))",
    re.MULTILINE,
)
_SOURCE = re.compile(
    rb"^(?:import \w|from \S{1,80} import |def \w|class \w|#include|package \w|func |```"
    rb"|</?\w{1,12}>|<!DOCTYPE|#{1,4} [A-Z])",
    re.MULTILINE,
)
MOST_MARKS = 40


def likeness(head: bytes) -> float:
    """Return in 0..1 how much the head looks like a job's output: by what its libraries write."""
    marks = 0
    for _ in _MARKS.finditer(head):
        marks += 1
        if marks == MOST_MARKS:
            break
    if not marks:
        return 0.0
    foreign = sum(1 for _ in _SOURCE.finditer(head))
    return 0.0 if foreign >= marks else min(0.75, 0.3 + 0.1 * marks)


READER = Reader(KIND, "output of a training job: PyTorch, NCCL, Megatron, DeepSpeed and others",
                likeness, read)  # fmt: skip
