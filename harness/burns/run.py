"""The burn boundary: whatever happens inside, everything owed comes out as a value or as Missing.

Whether the GPU was still there at the end of a run is a reading of its own, of every burn
(`gpu.present`): less than was planned is a FAIL of that GPU, and what it still owed is Missing. An
exception means that we could not look.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rackproof.harness.burns.base import Burn, Run, Settings, why
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError, Lost, NotPresent, Unsupported
from rackproof.harness.model import Event, Measurement, Missing, Seen, Why

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


def _complete(run: Run, owed: Iterable[tuple[str, str]], stop: _Stop | None) -> None:
    """Add a Missing for everything that is owed and was not written."""
    stop = stop or _Stop(Why.NO_READING, "the burn gave no value", "report this")
    have = {(s.subject, s.metric) for s in run.seen if not isinstance(s, Event)}
    run.seen.extend(
        Missing(run.check, subject, metric, stop.why, stop.reason, stop.cure, run.settings.attempt)
        for subject, metric in owed
        if (subject, metric) not in have
    )


def execute(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run `burn` once on GPU `subject`; return everything seen, complete as owed."""
    device = bench.devices[subject]
    run = Run(burn.id, subject, settings)
    stop = _guard(lambda: _work(burn, device, bench, run))
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
    _complete(run, owed, stop)
    return run.seen


def _noted(run: Run, metric: str) -> bool:
    return any(not isinstance(s, Event) and s.metric == metric for s in run.seen)


def _work(burn: Burn, device: Device, bench: Bench, run: Run) -> None:
    """Run the burn between begin and end; whatever happens, its events are read and end is said."""
    run.now = device.clock.now
    run.begun = run.now()
    try:
        device.begin(burn.id, run.settings.attempt)
        run.begun = run.now()
        run.say(device.telemetry.events())  # what came before is evidence, and not this burn's
        try:
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


def execute_host(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run the host's part of `burn` once on host `subject`; return everything seen."""
    run = Run(burn.id, subject, settings)
    work = burn.host
    stop = None if work is None else _guard(lambda: work(bench, run))
    _complete(run, ((subject, metric) for metric in burn.owes.get("host", ())), stop)
    return run.seen


def measurements(seen: Iterable[Seen]) -> list[Measurement]:
    """Return the measurements among `seen`."""
    return [s for s in seen if isinstance(s, Measurement)]
