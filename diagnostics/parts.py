"""Who is who in two runs: a GPU is its serial number, wherever it sits.

In: two records. Out: for each subject of a run the part that it is. A module of two GPUs states one
serial number twice, so that the UUID, or else the order of its GPUs, tells them apart. A slot that
states no serial number holds what it held before, unless that turns up elsewhere. Hosts, shelves
and the fabric are known by their place.
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
    """The parts of one run: of each GPU's subject, with the serial number that it stated."""

    by_gpu: Mapping[str, Part]
    serials: Mapping[str, str]

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


def _kept(own: dict[str, Part], other: Mapping[str, Part], record: Record) -> None:
    """Give each silent slot the part that the other run had there, or else its place."""
    present = set(own.values())
    for gpu in record.head.gpus:
        if gpu not in own:
            before = other.get(gpu)
            own[gpu] = before if before and before not in present else ("slot", gpu)


def parts_of(old: Record, new: Record) -> tuple[Parts, Parts]:
    """Return the parts of two runs, named so that the same part has the same name in both."""
    both = [(record, serials_of(record)) for record in (old, new)]
    by_uuid = all(serials.keys() <= _uuids(record).keys() for record, serials in both)
    first, second = (_named(record, serials, by_uuid=by_uuid) for record, serials in both)
    stated = dict(first)
    _kept(first, second, old)
    _kept(second, stated, new)
    serials = {part: serial for (_, own), named in zip(both, (first, second), strict=True)
               for gpu, part in named.items() if (serial := own.get(gpu))}  # fmt: skip
    return tuple(  # type: ignore[return-value]
        Parts(named, {gpu: serials[part] for gpu, part in named.items() if part in serials})
        for named in (first, second)
    )
