"""Which files are the output of one job, and on which machines it ran.

Readings with what they tell of their job come in; two files with a communicator, a run or a
scheduler's number in common are one job. Its machines are those that its files are of, that they
name, and whose addresses they name as the other end of a connection.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.machines import Machines
from rackproof.harness.readers.reading import Job, Reading


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs by number: `of` a file, the `machines` of each, and the machines that a file names."""

    of: Mapping[str, int] = field(default_factory=dict)
    machines: Mapping[int, frozenset[str]] = field(default_factory=dict)
    peers: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _numbered(jobs: Mapping[int, Job]) -> dict[int, int]:
    """Return a number for each reading's job: one for those that share a name."""
    above = {index: index for index in jobs}

    def top(index: int) -> int:
        while above[index] != index:
            above[index] = above[above[index]]
            index = above[index]
        return index

    first: dict[str, int] = {}
    for index, job in jobs.items():
        for name in sorted(job.names):
            above[top(index)] = top(first.setdefault(name, index))
    return {index: top(index) for index in jobs}


def _own(
    indices: Iterable[int], readings: Sequence[Reading], known: Machines
) -> dict[int, set[str]]:
    """Return the machines that each reading is of, or speaks for."""
    return {
        i: {known.of[i]} | {known.place(i, event.subject)[0] for event in readings[i].events}
        for i in indices
    }  # fmt: skip


def jobs_of(readings: Sequence[Reading], known: Machines) -> Jobs:
    """Return the jobs that `readings` are the output of."""
    jobs = {i: reading.job for i, reading in enumerate(readings) if reading.job is not None}
    own = _own(jobs, readings, known)
    called: dict[str, set[str]] = defaultdict(set)
    for i, job in jobs.items():
        if len(own[i]) == 1:
            for address in job.addresses:
                called[address] |= own[i]
    for name in {*known.of, *(name for names in own.values() for name in names)}:
        called[name.lower()].add(name)
        called[name.lower().partition(".")[0]].add(name)
    of: dict[str, int] = {}
    peers: dict[str, frozenset[str]] = {}
    machines: dict[int, set[str]] = defaultdict(set)
    for i, number in _numbered(jobs).items():
        named = {
            machine
            for peer in jobs[i].peers
            for machine in called.get(peer) or called.get(peer.partition(".")[0]) or ()
        }
        file = str(readings[i].path)
        of[file], peers[file] = number, frozenset(named)
        machines[number] |= own[i] | named
    return Jobs(of, {number: frozenset(names) for number, names in machines.items()}, peers)
