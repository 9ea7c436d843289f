"""Who is who in two runs: a GPU is its serial number, wherever it sits.

In: two records. Out: for each subject of a run the part that it is. A module of two GPUs states one
serial number twice, so that the UUID, or else the order of its GPUs, tells them apart. A slot that
states no serial number holds what its UUID says; with no UUID it is taken to hold what it held
before, unless that turns up elsewhere, and it is untold: nobody can know. Hosts, shelves and the
fabric are known by their place.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rackproof.diagnostics.checks import serials_of
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.harness.model import Measurement

Part = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one run: of each GPU's subject, with the serial number that it stated.

    `untold` are the GPUs that neither serial number nor UUID tells.
    """

    by_gpu: Mapping[str, Part]
    serials: Mapping[str, str]
    untold: frozenset[str] = frozenset()

    def of(self, subject: str) -> Part:
        """Return the part that a subject is: a GPU's, with its link; else its place."""
        gpu = gpu_of(subject)
        part = self.by_gpu.get(gpu)
        return ("place", subject) if part is None else (*part, subject[len(gpu) :])

    def serial(self, subject: str) -> str | None:
        """Return the serial number of a GPU or of the GPU that a link belongs to."""
        return self.serials.get(gpu_of(subject))


def _uuids(record: Record) -> dict[str, str]:
    return {
        what.subject: str(what.value)
        for what in record.seen
        if isinstance(what, Measurement) and what.metric == "gpu.uuid"
    }


def _named(record: Record, serials: Mapping[str, str], *, by_uuid: bool) -> dict[str, Part]:
    uuids = _uuids(record)
    count: Counter[Part] = Counter()
    found: dict[str, Part] = {}
    for gpu in sorted(record.head.gpus):
        if gpu not in serials:
            continue
        stated = ("serial", serials[gpu], uuids.get(gpu, "") if by_uuid else "")
        count[stated] += 1
        found[gpu] = (*stated, str(count[stated]))
    return found


def _once(record: Record) -> dict[str, str]:
    """Return the GPU of each UUID that one GPU alone states."""
    uuids = _uuids(record)
    count = Counter(uuids.values())
    return {
        uuid: gpu for gpu, uuid in uuids.items() if count[uuid] == 1 and gpu in record.head.gpus
    }


def _matched(old: Record, new: Record, first: dict[str, Part], second: dict[str, Part]) -> None:
    """Give each silent slot the part that has its UUID in the other run."""
    before, after = _once(old), _once(new)
    for uuid in sorted(before.keys() & after.keys()):
        was, now = before[uuid], after[uuid]
        part = first.get(was) or second.get(now) or ("uuid", uuid)
        if was not in first and part not in first.values():
            first[was] = part
        if now not in second and part not in second.values():
            second[now] = part


def _kept(own: dict[str, Part], other: Mapping[str, Part], records: tuple[Record, Record]) -> None:
    """Give each slot that is silent still the part that the other run had there, or its place."""
    present = set(own.values())
    here, there = map(_uuids, records)
    for gpu in records[0].head.gpus:
        if gpu not in own:
            before = other.get(gpu)
            another = gpu in here and gpu in there and here[gpu] != there[gpu]
            taken = before in present or another
            place = ("slot", gpu, here[gpu] if another else "")
            own[gpu] = before if before and not taken else place


def parts_of(old: Record, new: Record) -> tuple[Parts, Parts]:
    """Return the parts of two runs, named so that the same part has the same name in both."""
    both = [(record, serials_of(record)) for record in (old, new)]
    by_uuid = all(serials.keys() <= _uuids(record).keys() for record, serials in both)
    first, second = (_named(record, serials, by_uuid=by_uuid) for record, serials in both)
    _matched(old, new, first, second)
    untold = [
        frozenset(rec.head.gpus) - named.keys() for rec, named in ((old, first), (new, second))
    ]
    stated = dict(first)
    _kept(first, second, (old, new))
    _kept(second, stated, (new, old))
    serials: dict[Part, str] = {}
    for (_, own), named in zip(both, (first, second), strict=True):
        serials |= {part: own[gpu] for gpu, part in named.items() if own.get(gpu)}
    return tuple(  # type: ignore[return-value]
        Parts(named, {g: serials[part] for g, part in named.items() if part in serials}, unsure)
        for named, unsure in zip((first, second), untold, strict=True)
    )
