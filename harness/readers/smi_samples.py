"""Samples of GPUs over time, as a loop of nvidia-smi writes them: last values decide, deltas tell.

Of each GPU the first and the last sample are kept, so memory does not grow with the time that was
watched. What comes out has the metrics of one report, and beside them what was counted in between.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement, Missing
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reading
from rackproof.harness.readers.smi_fields import GpuFields, measure, why_absent
from rackproof.harness.readers.smi_report import identity
from rackproof.harness.readers.source import Source

ECC = "ecc_errors/volatile/double_bit/total"
_GROWING = (
    ("ecc.uncorrected.volatile", "ecc.uncorrected.delta"),
    ("ecc.corrected.volatile", "ecc.corrected.delta"),
)


@dataclass(slots=True)
class _Seen:
    """The first and the last sample of one GPU, when they were taken, and how many there were."""

    first: Mapping[str, str]
    last: dict[str, str]
    began: float | None
    ended: float | None
    count: int = 1


@dataclass(slots=True)
class Samples:
    """All samples of one file, by subject; at most `most` subjects.

    `fields` turns what was kept of a sample into the fields of `nvidia-smi -q`; only the first and
    the last are turned.
    """

    kind: str
    most: int
    fields: Callable[[Mapping[str, str]], dict[str, str]] = dict
    seen: dict[str, _Seen] = field(default_factory=dict)
    left_out: int = 0

    def add(self, subject: str, values: Mapping[str, str], at: float | None = None) -> None:
        """Take one sample of one GPU."""
        seen = self.seen.get(subject)
        if seen is None:
            if len(self.seen) >= self.most:
                self.left_out += 1
                return
            self.seen[subject] = _Seen(dict(values), dict(values), at, at)
            return
        seen.last, seen.ended = dict(values), at
        seen.count += 1

    def count(self, subject: str, errors: int) -> None:
        """Add uncorrected errors that are told apart from the GPU's own (of a MIG device)."""
        if seen := self.seen.get(subject):
            before = seen.last.get(ECC, "")
            own = int(before) if before.isdecimal() and len(before) < 16 else 0  # noqa: PLR2004
            seen.last[ECC] = str(own + errors)

    def _gone(self) -> list[Event]:
        """Tell of GPUs that a loop listed at first and, while others went on, no longer at last."""
        if len(self.seen) <= 1:
            return []
        most = max(seen.count for seen in self.seen.values())
        return [
            Event(subject, "smi.gone", f"listed {seen.count} times, others {most} times",
                  clock="none")
            for subject, seen in self.seen.items()
            if seen.count + 1 < most and self._ended_early(seen)
        ]  # fmt: skip

    def _ended_early(self, seen: _Seen) -> bool:
        """Whether the others went on after its last sample; without times nobody can tell."""
        last = max((s.ended for s in self.seen.values() if s.ended is not None), default=None)
        return last is not None and seen.ended is not None and seen.ended + 1.0 < last

    def reading(self, source: Source, problems: Sequence[str]) -> Reading:
        """Return the Reading of all samples."""
        measurements: list[Measurement] = []
        missing: list[Missing] = []
        events: list[Event] = list(self._gone())
        serials: dict[str, str] = {}
        uuids: dict[str, str] = {}
        for subject, seen in self.seen.items():
            out = measure(self.kind, subject, GpuFields(None, self.fields(seen.last)))
            measurements += out.measurements
            missing += out.missing
            events += out.events
            if seen.count > 1:
                measurements += self._deltas(subject, seen, out.measurements)
            for name, found in (("serial", serials), ("uuid", uuids)):
                if known := identity(seen.last.get(name, "")):
                    found[subject] = known
        if self.left_out:
            problems = [*problems, f"more than {self.most} GPUs: the rest is not read"]
        return Reading(
            source.path, self.kind, len(self.seen), (*source.problems, *problems), tuple(events),
            tuple(measurements), tuple(missing), source.cut or bool(self.left_out),
            bool(self.seen), {}, serials, uuids,
        )  # fmt: skip

    def _deltas(self, subject: str, seen: _Seen, last: Sequence[Measurement]) -> list[Measurement]:
        """Return what was counted from first to last sample; a count that fell was reset."""
        first = measure(self.kind, subject, GpuFields(None, self.fields(seen.first)))
        before = {m.metric: m.value for m in first.measurements}
        window = None
        if seen.began is not None and seen.ended is not None:
            window = (seen.began, seen.ended)
        found = []
        for total, delta in _GROWING:
            new = next((m.value for m in last if m.metric == total), None)
            old = before.get(total)
            if isinstance(new, int) and isinstance(old, int) and new >= old:
                found.append(
                    Measurement(self.kind, subject, delta, new - old, "errors", window=window)
                )
        return found


def word(text: str) -> str:
    """Return a cell without its brackets, as one plain word, "" where it holds no value."""
    return "" if why_absent(text) else plain(text.strip(" []"), 80)
