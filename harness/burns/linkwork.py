"""What the link burns share: the counters of links over a burn's window, and copies that were made.

In: readings of each GPU's link counters at several marks; what the fabric says of each copy. Out:
what each link is noted with, and for each GPU its rates, its wrong words, and whom it exchanged
with. Every figure of a GPU is the median over its partners, so that one bad partner shows nowhere
but on itself.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rackproof.harness.burns.base import Crew, Run
from rackproof.harness.devices.protocol import Device, LinkCounters, Moved
from rackproof.harness.errors import DeviceError, Lost, NotPresent

Pair = tuple[str, str]
DELTAS = {"nvlink.errors.delta": "errors", "nvlink.recoveries.delta": "recoveries"}


def present(device: Device) -> None:
    """Raise Lost or NotPresent when the GPU is; whatever else it answers, it is there."""
    try:
        device.telemetry.read("gpu.name")
    except (Lost, NotPresent):
        raise
    except DeviceError:
        return


class LinkWindow:
    """The counters of the crew's links at marks; the time between two marks is a segment."""

    def __init__(self, crew: Crew, links: int, notes: Run) -> None:
        """Set the first mark."""
        self._crew, self._links, self._notes = crew, links, notes
        self._marks: dict[str, list[list[LinkCounters] | DeviceError]] = defaultdict(list)
        self.mark()

    def mark(self) -> None:
        """Read all counters; a GPU that got lost leaves the crew."""
        for subject, found in self._crew.each(self._read).items():
            self._marks[subject].append(found)

    def _read(self, device: Device) -> list[LinkCounters] | DeviceError:
        try:
            return device.telemetry.link_counters(self._links)
        except (Lost, NotPresent):
            raise
        except DeviceError as error:
            return error

    def note(self, *, share: bool) -> None:
        """Set the last mark, and note every link of the GPUs that are still there."""
        self.mark()
        self._crew.each(partial(self._note, share=share))

    def _note(self, device: Device, *, share: bool) -> None:
        marks = self._marks[device.gpu.subject]
        read = [mark for mark in marks if not isinstance(mark, DeviceError)]
        broken = next((mark for mark in marks if isinstance(mark, DeviceError)), None)
        for number in range(self._links):
            link = device.gpu.link(number)
            state = partial(device.telemetry.read_link, "nvlink.active", number)
            self._notes.read("nvlink.active", state, link)
            for metric, name in DELTAS.items():
                grown = broken or grown_by(read[0][number], read[-1][number], name)
                self._say(metric, grown, link)
        if share:
            found = [broken] * self._links if broken else shares(read)
            for number, value in enumerate(found):
                self._say("nvlink.share", value, device.gpu.link(number))

    def _say(self, metric: str, value: float | DeviceError, link: str) -> None:
        if isinstance(value, DeviceError):
            self._notes.miss(metric, value, link)
        else:
            self._notes.note(metric, value, link)


def grown_by(before: LinkCounters, after: LinkCounters, name: str) -> int | DeviceError:
    """Return by how much a counter grew; one that went back is no reading."""
    first, last = getattr(before, name), getattr(after, name)
    for value in (first, last):
        if isinstance(value, DeviceError):
            return value
    if last < first:
        return DeviceError(f"the counter of {name} went back from {first} to {last}")
    return int(last - first)


def shares(marks: Sequence[Sequence[LinkCounters]]) -> list[float | DeviceError]:
    """Return for each link what it carried, both ways, over the mean of its GPU's links.

    That is the best of the segments between marks: what a partner's dead link keeps from it in one
    segment it carries in another with other partners, and what its own trouble keeps from it stays
    away in all of them.
    """
    found: list[float | DeviceError] = [DeviceError("no data crossed the links")] * len(marks[0])
    for before, after in itertools.pairwise(marks):
        carried = [_carried(a, b) for a, b in zip(before, after, strict=True)]
        known = [c for c in carried if not isinstance(c, DeviceError)]
        mean = sum(known) / len(known) if known else 0.0
        for number, own in enumerate(carried):
            best = found[number]
            if isinstance(own, DeviceError):
                found[number] = own if isinstance(best, DeviceError) else best
            elif mean > 0:
                share = own / mean
                found[number] = share if isinstance(best, DeviceError) else max(best, share)
    return found


def _carried(before: LinkCounters, after: LinkCounters) -> int | DeviceError:
    sent, received = (grown_by(before, after, name) for name in ("sent", "received"))
    if isinstance(sent, DeviceError):
        return sent
    return received if isinstance(received, DeviceError) else sent + received


@dataclass(slots=True)
class Copies:
    """Copies between GPUs that were asked for, with what came of each."""

    made: dict[Pair, Moved] = field(default_factory=dict)
    failed: dict[Pair, DeviceError] = field(default_factory=dict)

    def add(self, found: Mapping[Pair, Moved | DeviceError]) -> bool:
        """Take in what one exchange gave; return whether a GPU was lost in it."""
        lost = False
        for pair, outcome in found.items():
            if isinstance(outcome, DeviceError):
                self.failed[pair] = outcome
                lost |= isinstance(outcome, Lost | NotPresent)
            else:
                self.made[pair] = outcome
        return lost

    def _of(self, subject: str, pairs: Iterable[Pair]) -> set[str]:
        """Return the partners of a GPU among `pairs`."""
        return {b if a == subject else a for a, b in pairs if subject in (a, b)}

    def note(self, prefix: str, subjects: Iterable[str], notes: Run, *, extras: bool) -> None:
        """Note rate and wrong words of each GPU, and with `extras` its worst rate and coverage."""
        rates: dict[str, list[float]] = defaultdict(list)
        for pair, moved in self.made.items():
            for subject in pair:
                rates[subject].append(moved.rate)
        wrong, subjects = self.wrong(), list(subjects)
        able = {subject: rates[subject] for subject in subjects}  # who was lost on the way is not
        for subject in subjects:
            if rates[subject]:
                notes.note(f"{prefix}.rate", statistics.median(rates[subject]), subject)
                notes.note(f"{prefix}.wrong", wrong.get(subject, 0), subject)
            else:
                reason = self._why(subject)
                notes.miss(f"{prefix}.rate", reason, subject)
                notes.miss(f"{prefix}.wrong", reason, subject)
            if extras:
                notes.note(f"{prefix}.coverage", self.coverage(subject, able), subject)
                if rates[subject]:
                    notes.note(f"{prefix}.worst", min(rates[subject]), subject)

    def _why(self, subject: str) -> DeviceError:
        failed = (error for pair, error in self.failed.items() if subject in pair)
        return next(failed, DeviceError("it had no partner to copy with"))

    def wrong(self) -> dict[str, int]:
        """Return the wrong words by GPU: of each copy they are the end's with more bad partners.

        Where both have as many, they are the sender's.
        """
        bad = [pair for pair, moved in self.made.items() if moved.wrong]
        partners = {subject: len(self._of(subject, bad)) for pair in bad for subject in pair}
        found: dict[str, int] = defaultdict(int)
        for sender, receiver in bad:
            guilty = receiver if partners[receiver] > partners[sender] else sender
            found[guilty] += self.made[sender, receiver].wrong
        return found

    def coverage(self, subject: str, able: Mapping[str, Sequence[float]]) -> float:
        """Return the share of its partners that it exchanged with, both ways where planned.

        A partner that could exchange with nobody is not counted: that is its own trouble. `able`
        holds something for each GPU that could.
        """
        asked = [pair for pair in (*self.made, *self.failed) if subject in pair]
        counted = [p for p in asked if able.get(p[1] if p[0] == subject else p[0])]
        if not counted:
            return 0.0
        return sum(pair in self.made for pair in counted) / len(counted)
