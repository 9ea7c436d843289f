"""The burn boundary: whatever happens inside, everything owed comes out as a value or as Missing.

Whether the GPU was still there at the end of a run is a reading of its own, of every burn
(`gpu.present`): less than was planned is a FAIL of that GPU, and what it still owed is Missing. An
exception means that we could not look; so does a run that takes longer than it may (lease.py).
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rackproof.harness.burns.base import Burn, Crew, Run, Settings, why
from rackproof.harness.burns.lease import Lease, deadline, leased_bench, within
from rackproof.harness.burns.orderly import orderly
from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError, Lost, NotPresent, OverTime, Unsupported
from rackproof.harness.model import WIDE, Event, Measurement, Missing, Seen, Why

PRESENT = "gpu.present"


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why a run could not be finished."""

    why: Why
    reason: str
    cure: str


def _guard(work: Callable[[], None]) -> _Stop | None:
    """Do the work; return why it could not be finished, or None."""
    try:
        work()
    except (Lost, NotPresent) as error:
        word, cure = why(error)
        gone = "was lost while the burn ran" if isinstance(error, Lost) else "is not there"
        return _Stop(word, f"the GPU {gone}: {error}", cure)
    except DeviceError as error:
        word, cure = why(error)
        if isinstance(error, Unsupported):  # one reading is; the rest of the burn was not asked
            word, cure = Why.NO_READING, "look at the cause, burn again"
        return _Stop(word, f"the burn was stopped: {error}", cure)
    except Exception as error:  # noqa: BLE001 - the burn boundary: unknown trouble is UNKNOWN
        reason = f"the burn broke: {type(error).__name__}: {error}"
        return _Stop(Why.CRASHED, reason, "report this: the burn itself is at fault")
    return None


Key = tuple[str, str]  # subject, metric


def _written(run: Run) -> frozenset[Key]:
    """Return what has a value, or a Missing, already."""
    return frozenset((s.subject, s.metric) for s in run.seen if not isinstance(s, Event))


def _complete(run: Run, owed: Iterable[Key], stop: _Stop | None, have: frozenset[Key]) -> None:
    """Add a Missing for everything that is owed and that is not in `have`."""
    stop = stop or _Stop(Why.NO_READING, "the burn gave no value", "report this")
    run.seen.extend(
        Missing(run.check, subject, metric, stop.why, stop.reason, stop.cure, run.settings.attempt)
        for subject, metric in owed
        if (subject, metric) not in have
    )


def execute(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run `burn` once on the item `subject`; return everything seen, complete as owed.

    An item is a GPU, a host, a rack's power or cooling, or ``fabric``, which is the whole rack.
    """
    if burn.wide is not None:
        return execute_wide(burn, bench, settings)
    if subject not in bench.devices:
        return execute_part(burn, bench, subject, settings)
    return _execute_gpu(burn, bench, subject, settings)


def _execute_gpu(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    device = bench.devices[subject]
    run = Run(burn.id, subject, settings)
    task = _Task(burn, bench, run, (subject,))
    run, stop = _timed(task, lambda lent, limit: _work(burn, lent, run, limit))
    if stop is None:
        if not _noted(run, PRESENT):
            run.note(PRESENT, 1)
    elif stop.why is Why.LOST or stop.why is Why.NOT_RUN:
        run.seen = [s for s in run.seen if isinstance(s, Event) or s.metric != PRESENT]
        run.note(PRESENT, 0)
    links = [device.gpu.link(n) for n in range(bench.links or 0)]
    owed = itertools.chain(
        ((subject, metric) for metric in dict.fromkeys((PRESENT, *burn.owes.get("gpu", ())))),
        ((link, metric) for metric in burn.owes.get("link", ()) for link in links),
    )
    _complete(run, owed, stop, _written(run))
    return run.seen


def _noted(run: Run, metric: str) -> bool:
    return any(not isinstance(s, Event) and s.metric == metric for s in run.seen)


@dataclass(frozen=True, slots=True)
class _Task:
    """One run of a burn: on which of a bench's GPUs, and where its notes go."""

    burn: Burn
    bench: Bench
    run: Run
    subjects: Sequence[str] = ()


Work = Callable[[Bench, float], None]
"""The run itself: on a bench that is lent to it, for so many seconds of device time."""


def _timed(task: _Task, work: Work) -> tuple[Run, _Stop | None]:
    """Do the work within its time; return its notes, and why it could not be finished.

    A burn that outstays its time is left behind: its notes are those of that moment, and its GPUs
    are cleaned up here.
    """
    burn, bench, run = task.burn, task.bench, task.run
    refusal = _refusal(burn, bench, run.settings)
    if refusal is not None:
        return run, refusal
    patience, lease = run.settings.patience, Lease()
    planned = burn.seconds.get(run.settings.level, 0.0)
    limit = patience.device(planned)
    lent = leased_bench(bench, lease, limit)
    stops: list[_Stop | None] = []
    devices = [bench.devices[subject] for subject in task.subjects]
    virtual = all(isinstance(d.clock, VirtualClock) for d in devices or bench.devices.values())
    machine = patience.machine if virtual else limit + patience.settle
    with orderly(burn.changes):
        in_time = within(
            machine, lambda: stops.append(_guard(lambda: work(lent, limit))), lease, patience.grace
        )
    if in_time:
        return run, stops[0]
    kept = replace(run, seen=list(run.seen))
    within(patience.grace, lambda: _clean(devices), Lease())
    reason = f"the burn outstayed {machine:g} s (it is planned to take {planned:g} s)"
    return kept, _Stop(Why.TIMED_OUT, reason, why(OverTime())[1])


def _refusal(burn: Burn, bench: Bench, settings: Settings) -> _Stop | None:
    """Return why a burn may not be run at all: it changes real GPUs, and nobody allowed it."""
    if not burn.changes or bench.source != "real" or burn.id in settings.allowed:
        return None
    reason = "it changes settings of real GPUs, and nobody allowed that: nothing was touched"
    return _Stop(Why.NOT_PERMITTED, reason, f"allow it: --allow {burn.id}")


def _clean(devices: Iterable[Device]) -> None:
    """Free what a burn that was left behind had claimed, and take its load away."""
    for device in devices:
        with contextlib.suppress(DeviceError):
            device.end()


def _work(burn: Burn, bench: Bench, run: Run, limit: float) -> None:
    """Run the burn between begin and end; whatever happens, its events are read and end is said."""
    device = bench.devices[run.subject]
    run.now = device.clock.now
    run.begun = run.now()
    if burn.run is None:
        msg = f"{burn.id} does nothing on a single GPU"
        raise ValueError(msg)
    try:
        device.begin(burn.id, run.settings.attempt, run.settings.at)
        run.begun = run.now()
        run.say(device.telemetry.events())  # what came before is evidence, and not this burn's
        try:
            with deadline([device], limit):
                burn.run(device, bench, run)
        finally:
            _events(burn, device, run)
    finally:
        device.end()


def _events(burn: Burn, device: Device, run: Run) -> None:
    """Write what the driver reported since the burn began, and how much it was where it is owed."""
    counted = "xid.count" in burn.owes.get("gpu", ())
    try:
        found = run.say(device.telemetry.events())
    except (Lost, NotPresent):
        raise
    except DeviceError as error:
        if counted:
            run.miss("xid.count", error)
        return
    if counted:
        run.note("xid.count", found)


def execute_part(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run `burn` once on a host, or on a rack's power or cooling; return everything seen."""
    run = Run(burn.id, subject, settings)
    work = burn.host if subject.endswith("/host") else burn.zone
    stop = None
    if work is not None:
        run, stop = _timed(_Task(burn, bench, run), lambda lent, _: _around(work, lent, run))
    owed = (
        (each, metric)
        for sort, metrics in burn.owes.items()
        for each in bench.parts(subject, sort)
        for metric in metrics
    )
    _complete(run, owed, stop, _written(run))
    return run.seen


def _around(work: Callable[[Bench, Run], None], bench: Bench, run: Run) -> None:
    """Do the work on what stands around the GPUs, between begin and end."""
    bench.around.begin(run.check, run.settings.attempt, run.settings.at)
    try:
        work(bench, run)
    finally:
        bench.around.end()


def execute_wide(burn: Burn, bench: Bench, settings: Settings) -> list[Seen]:
    """Run a wide burn once on all its GPUs; return everything seen, complete as owed."""
    run = Run(burn.id, WIDE, settings)
    run.now = bench.now
    subjects = settings.gpus or tuple(bench.devices)
    stops: dict[str, Exception] = {}
    task = _Task(burn, bench, run, subjects)
    run, stop = _timed(
        task, lambda lent, limit: _work_wide(burn, Crew(lent, subjects, stops), lent, limit, run)
    )
    stops, have = dict(stops), _written(run)
    for subject in subjects:
        own = _guard(partial(_raise, stops[subject])) if subject in stops else None
        gone = own is not None and own.why in (Why.LOST, Why.NOT_RUN)
        if own is None and stop is not None:
            own = stop
        there = own is None or gone
        if there:
            run.note(PRESENT, 0 if gone else 1, subject)
        gpu = bench.devices[subject].gpu
        links = [gpu.link(n) for n in range(bench.links or 0)]
        names = dict.fromkeys((PRESENT, *burn.owes.get("gpu", ())))
        owed = [(subject, metric) for metric in names if not (there and metric == PRESENT)]
        owed += [(k, metric) for metric in burn.owes.get("link", ()) for k in links]
        _complete(run, owed, own, have)
    rest = (sort for sort in burn.owes if sort not in ("gpu", "link"))
    owed = [(k, m) for sort in rest for k in bench.parts(WIDE, sort) for m in burn.owes[sort]]
    _complete(run, owed, stop, have)
    return run.seen


def _raise(error: Exception) -> None:
    raise error


def _work_wide(burn: Burn, crew: Crew, bench: Bench, limit: float, run: Run) -> None:
    """Run a wide burn between the begin and the end of all its GPUs."""
    if burn.wide is None:
        msg = f"{burn.id} does nothing on a whole rack"
        raise ValueError(msg)
    began = dict(crew.devices)
    check, attempt = burn.id, run.settings.attempt
    try:
        crew.each(lambda device: device.begin(check, attempt, run.settings.at))
        bench.align(crew.devices.values())
        run.begun = run.now()
        for events in crew.each(lambda device: device.telemetry.events()).values():
            run.say(events)
        try:
            with deadline(crew.devices.values(), limit):
                burn.wide(crew, bench, run)
        finally:
            counts = crew.each(lambda device: run.say(device.telemetry.events()))
            if "xid.count" in burn.owes.get("gpu", ()):
                for subject, count in counts.items():
                    run.note("xid.count", count, subject)
            for subject in crew.stops:  # what a GPU said before it was lost is evidence too
                with contextlib.suppress(DeviceError):
                    run.say(bench.devices[subject].telemetry.events())
    finally:
        for subject, device in began.items():
            try:
                device.end()
            except DeviceError as error:
                crew.leave(subject, error)


def measurements(seen: Iterable[Seen]) -> list[Measurement]:
    """Return the measurements among `seen`."""
    return [s for s in seen if isinstance(s, Measurement)]
