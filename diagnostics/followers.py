"""What a job says of its end follows the fault that ended it, on whatever machine that was.

Cases come in; those go out that stand for themselves. A lost connection, an aborted collective and
a watchdog are messengers: they follow a hardware fault of their machine, of a machine of their job,
or, where nothing tells of the job or of the time, the only one of the call. A CUDA error follows
the fault of its GPU. A transfer that the other end did not answer follows a port that failed; with
none it is the fabric's, and no host's.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rackproof.diagnostics.cases import HARD, Case
from rackproof.diagnostics.endings import (
    LONG,
    SOON,
    Endings,
    Window,
    codes,
    episodes_of,
    machines_of,
    window,
)
from rackproof.diagnostics.episodes import CASE
from rackproof.diagnostics.jobs import Jobs
from rackproof.diagnostics.rules.job import FOLLOWS, OWN_PORT, PATH

_IDLE = frozenset(("none", "watch", "retest", "restart-app", "update-software"))
_NO_END = frozenset(("storage", "power", "thermal", "data", "app"))
_NETWORK = frozenset(("nic", "fabric"))
_SWITCHED = frozenset(("nvlink", "nvswitch", "fabric"))
# What a CUDA error can follow by its words; any other follows any fault of its GPU.
_OF_PART = {
    "cuda.ecc": frozenset(("hbm", "sram")),
    "cuda.nvlink": _SWITCHED,
    "cuda.notready": frozenset(("fabric", "nvswitch", "driver")),
}
_ANY_GPU = frozenset(("cuda.launch", "cuda.other", "cuda.library", "cuda.contained"))
_BROKEN = frozenset((*HARD, "counted"))
_CLEAN_UP = frozenset(("xid.45",))
_KILLED = re.compile(r"\bKill(?:ed)? process (\d{1,10})\b")
_RANK = re.compile(r"rank\d+")
Find = Callable[[Case], Case | None]


def _faulty(case: Case) -> bool:
    """Whether a case is a fault of hardware or driver that can have ended a job."""
    rule = case.rule
    return rule.action not in _IDLE and rule.component not in _NO_END and not codes(case) <= (
        _CLEAN_UP
    )  # fmt: skip


def _family(case: Case) -> str:
    return episodes_of(case)[0].family


def _cuda(case: Case) -> bool:
    return all(code.startswith("cuda.") for code in codes(case))


def _path(case: Case) -> bool:
    """Whether a case is a transfer that the other end did not answer, and no port's own failure."""
    return _family(case) == PATH and OWN_PORT not in codes(case) and not case.outside


def _follow(found: Iterable[Case], says: Callable[[Case], bool], find: Find) -> list[Case]:
    """Tie each case that `says` holds for to the one that `find` gives; return those that stay."""
    left = []
    for case in found:
        root = find(case) if case.root and says(case) else None
        if root is None:
            left.append(case)
        else:
            root.tied += [*case.root, *case.tied]
    return left


class _Job:
    """Who ended a job: looked for at home, then on its machines, then in all of the call."""

    def __init__(self, found: Sequence[Case], jobs: Jobs, ends: Callable[[Case], bool]) -> None:
        self._jobs = jobs
        self._ran: dict[str, set[int]] = defaultdict(set)
        for number, names in jobs.machines.items():
            for name in names:
                self._ran[name].add(number)
        self._faults = Endings(found, jobs, ends)
        self._causes = Endings([case for case in found if _cause(case, jobs)], jobs, bool)

    def fault(self, said: Case) -> Case | None:
        """Return the fault that ended the job of `said`, or None."""
        when, file = window(said), said.root[0].said[0].file
        job = self._jobs.of.get(file)
        own = [("machine", said.machine), *([("job", job)] if job is not None else [])]
        for key in own:
            if near := self._faults.within(key, said, when.wider(LONG)):
                named = self._jobs.peers.get(file, frozenset())
                return min(near, key=lambda case: not machines_of(case) & named)
        for key in own:
            if only := self._faults.only(key, said, when):
                return only
        if job is not None and (cause := self._cause(said, when, job)):
            return cause
        near = [c for c in self._faults.within(("all",), said, when) if self._may(c, job)]
        if len({case.machine for case in near}) == 1:
            return near[0]
        if near:
            return None
        only = self._faults.only(("all",), said, when) or self._faults.in_a_zone(said, when)
        return only if only is not None and self._may(only, job) else None

    def _cause(self, said: Case, when: Window, job: int) -> Case | None:
        """Return what another file of the job gives as its end: the program's own, a lost node."""
        near = self._causes.within(("job", job), said, when.wider(LONG))
        only = [self._causes.only(("job", job), said, when)]
        file = said.root[0].said[0].file
        return next((c for c in (*near, *only) if c and c.root[0].said[0].file != file), None)

    def _may(self, case: Case, job: int | None) -> bool:
        """Whether nothing says that the machine of `case` ran another job alone."""
        others = {number for name in machines_of(case) for number in self._ran.get(name, ())}
        return job is None or not others or job in others


def _cause(case: Case, jobs: Jobs) -> bool:
    """Whether a case is a cause that a job's own output gives, and no fault of hardware."""
    if not case.root or case.root[0].said[0].file not in jobs.of or case.rule.action == "none":
        return False
    return case.rule.component == "app" or _family(case) == "job-node"


class _Gpus:
    """Who is at fault where a CUDA error was met: a fault of that GPU, or the machine's only."""

    def __init__(self, found: Sequence[Case]) -> None:
        self._at: dict[tuple[str, str], list[Case]] = defaultdict(list)
        self._on: dict[str, list[Case]] = defaultdict(list)
        for case in found:
            if not _faulty(case) or _cuda(case):
                continue
            for place in {(case.machine, case.subject), *case.victims()}:
                self._at[place].append(case)
            for machine in machines_of(case):
                self._on[machine].append(case)

    def fault(self, said: Case) -> Case | None:
        """Return the fault that a CUDA error follows, or None."""
        (code, *more) = codes(said)
        parts = None if more else _OF_PART.get(code)
        own = _fitting(self._at.get((said.machine, said.subject), ()), said, parts)
        if own:
            return own[0]
        near = _fitting(self._on.get(said.machine, ()), said, parts)
        if said.subject == "host" or _RANK.fullmatch(said.subject):
            return near[0] if len({case.subject for case in near}) == 1 else None
        if not codes(said) <= _ANY_GPU:
            return None
        dated = [case for case in near if _apart(case, said) is not None]
        return dated[0] if dated else None


def _apart(case: Case, said: Case) -> float | None:
    """Return the seconds between a fault and what was said; None without a common clock."""
    (one, *_), (other, *_) = episodes_of(case), episodes_of(said)
    if one.clock != other.clock or one.first is None or other.first is None:
        return None
    if one.last is not None and one.first <= other.first <= one.last:
        return 0.0
    return min(abs(one.first - other.first), abs((one.last or one.first) - other.first))


def _fitting(found: Iterable[Case], said: Case, parts: frozenset[str] | None = None) -> list[Case]:
    """Return the faults that are no more than CASE away, or on another clock, the nearest first."""
    fits = []
    for case in found:
        gap = _apart(case, said)
        if case is said or (parts is not None and case.rule.component not in parts):
            continue
        if gap is None or gap <= CASE:
            fits.append((CASE if gap is None else gap, case))
    return [case for _, case in sorted(fits, key=lambda pair: pair[0])]


def _one_nic(found: list[Case]) -> list[Case]:
    """Join a machine's only NIC at fault by its device's name and by its address."""
    ports: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in found:
        if case.rule.component == "nic" and case.rule.kind in _BROKEN and not _path(case):
            ports[case.machine].setdefault(case.subject, case)
    gone: set[int] = set()
    for subjects in ports.values():
        named = [s for s in subjects if s.startswith("nic:")]
        placed = [s for s in subjects if s.startswith("pci:")]
        if len(named) == len(placed) == 1 and len(subjects) == 2:  # noqa: PLR2004
            first, other = subjects[named[0]], subjects[placed[0]]
            first.root += other.root
            first.tied += other.tied
            gone.add(id(other))
    return [case for case in found if id(case) not in gone]


def _of_the_fabric(case: Case) -> Case:
    """Return a transfer that nobody's port explains as the fabric's: either end may be at fault."""
    rule = replace(case.rule, component="fabric")
    return Case("", "fabric", rule, [], [*case.root, *case.tied], "fabric")


def _pids(case: Case) -> set[int]:
    found = {s.event.detail.get("pid") for e in episodes_of(case) for s in e.said}
    texts = (s.event.text for e in episodes_of(case) for s in e.said)
    named = {int(match[1]) for text in texts if (match := _KILLED.search(text))}
    return named | {pid for pid in found if isinstance(pid, int)}


def _killed(found: list[Case]) -> list[Case]:
    """Tie a process that was killed to the kernel's word that it killed it for its memory."""
    of: dict[tuple[str, int], Case] = {}
    for case in found:
        if codes(case) == {"kernel.oom"}:
            for pid in _pids(case):
                of.setdefault((case.machine, pid), case)

    def killer(said: Case) -> Case | None:
        return next((of[said.machine, p] for p in _pids(said) if (said.machine, p) in of), None)

    return _follow(found, lambda case: codes(case) <= {"job.killed", "job.exit"}, killer)


def _soon(case: Case, said: Case) -> bool:
    """Whether a fault and what was said lie within CASE, or of two machines' clocks, SOON."""
    gap = _apart(case, said)
    return gap is not None and gap <= (CASE if said.machine in machines_of(case) else SOON)


def _managers(case: Case) -> bool:
    return all(code == "fm.error" or code.startswith("fm.gpu.") for code in codes(case))


def _fabric_managers(found: list[Case]) -> list[Case]:
    """Tie what the fabric manager complains of to the fault that it complains of."""
    on: dict[str, list[Case]] = defaultdict(list)
    for case in found:
        if _faulty(case) and case.rule.component in (*_SWITCHED, "pcie") and not _managers(case):
            for machine in machines_of(case):
                on[machine].append(case)

    def cause(said: Case) -> Case | None:
        near = _fitting(on.get(said.machine, ()), said)
        return near[0] if near and _apart(near[0], said) is not None else None

    return _follow(found, _managers, cause)


def _cleaned_up(found: list[Case]) -> list[Case]:
    """Tie Xid 45 of other GPUs, which only cleans up, to what ended their processes' job."""
    ended: dict[str, list[Case]] = defaultdict(list)
    for case in found:
        if _faulty(case):
            for machine in {*machines_of(case), *(e.machine for e in case.tied)}:
                ended[machine].append(case)
    for row in ended.values():
        row.sort(key=lambda case: episodes_of(case)[0].order())
    faults = {machine: Endings(row, Jobs(), lambda _: True) for machine, row in ended.items()}

    def cause(said: Case) -> Case | None:
        there, when = faults.get(said.machine), window(said)
        near = there.within(("all",), said, when) if there else []
        return next((case for case in near if _soon(case, said)), None)

    return _follow(found, lambda case: codes(case) <= _CLEAN_UP, cause)


def followed(found: list[Case], jobs: Jobs) -> list[Case]:
    """Return the cases that stand for themselves; the others are tied to what they follow."""
    found = _one_nic(found)
    found = _follow(found, _cuda, _Gpus(found).fault)
    found = _fabric_managers(found)
    port = _Job(found, jobs, lambda c: _faulty(c) and c.rule.component in _NETWORK and not _path(c))
    found = _follow(found, _path, port.fault)
    ended = _Job(found, jobs, lambda case: _faulty(case) and not _path(case))
    found = _follow(found, _path, ended.fault)
    found = [_of_the_fabric(case) if _path(case) else case for case in found]
    found = _killed(found)
    found = _follow(found, lambda c: _family(c) == FOLLOWS, _Job(found, jobs, _faulty).fault)
    return _cleaned_up(found)
