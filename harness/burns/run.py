"""The burn boundary: whatever happens inside, everything owed comes out as a value or as Missing.

A GPU that is not there, or is lost in the middle, is a reading (`gpu.present` = 0): less than was
planned is a FAIL of that GPU, and what it still owed is Missing. An exception means that we could
not look.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence

from rackproof.harness.burns.base import Burn, Run, Settings
from rackproof.harness.devices.bench import Bench
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.model import Event, Measurement, Missing, Seen, Why


def _guard(run: Run, work: Callable[[], None]) -> tuple[Why, str, str] | None:
    """Do the work; return why it could not be finished, or None."""
    try:
        work()
    except (Lost, NotPresent) as error:
        run.note("gpu.present", 0)
        gone = "was lost while the burn ran" if isinstance(error, Lost) else "is not there"
        word = Why.LOST if isinstance(error, Lost) else Why.NOT_RUN
        return word, f"the GPU {gone}: {error}", "bring the GPU back, then burn it again"
    except DeviceError as error:
        return Why.NO_READING, f"the burn was stopped: {error}", "look at the cause, burn again"
    except Exception as error:  # noqa: BLE001 - the burn boundary: unknown trouble is UNKNOWN
        reason = f"the burn broke: {type(error).__name__}: {error}"
        return Why.CRASHED, reason, "report this: the burn itself is at fault"
    return None


def _complete(run: Run, owed: Iterable[tuple[str, str]], stop: tuple[Why, str, str] | None) -> None:
    """Add a Missing for everything that is owed and was not written."""
    word, reason, cure = stop or (Why.NO_READING, "the burn gave no value", "report this")
    have = {(s.subject, s.metric) for s in run.seen if not isinstance(s, Event)}
    run.seen.extend(
        Missing(run.check, subject, metric, word, reason, cure, run.settings.attempt)
        for subject, metric in owed
        if (subject, metric) not in have
    )


def execute(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run `burn` once on GPU `subject`; return everything seen, complete as owed."""
    device = bench.devices[subject]
    run = Run(burn.id, subject, settings, device.clock.now(), device.clock.now)
    links = [device.gpu.link(n) for n in range(bench.links or 0)]

    def work() -> None:
        device.begin(burn.id, settings.attempt)
        run.begun = device.clock.now()
        device.telemetry.events()  # what came before is not this burn's
        try:
            burn.run(device, bench, run)
        finally:
            if "xid.count" in burn.owes.get("gpu", ()):
                _count_events(run, device.telemetry.events)
            device.end()

    stop = _guard(run, work)
    owed = itertools.chain(
        ((subject, metric) for metric in burn.owes.get("gpu", ())),
        ((link, metric) for metric in burn.owes.get("link", ()) for link in links),
    )
    _complete(run, owed, stop)
    return run.seen


def _count_events(run: Run, events: Callable[[], Sequence[Event]]) -> None:
    try:
        found = events()
    except DeviceError:
        return
    run.note("xid.count", run.say(found))


def execute_host(burn: Burn, bench: Bench, subject: str, settings: Settings) -> list[Seen]:
    """Run the host's part of `burn` once on host `subject`; return everything seen."""
    run = Run(burn.id, subject, settings)
    work = burn.host
    stop = None if work is None else _guard(run, lambda: work(bench, run))
    _complete(run, ((subject, metric) for metric in burn.owes.get("host", ())), stop)
    return run.seen


def measurements(seen: Iterable[Seen]) -> list[Measurement]:
    """Return the measurements among `seen`."""
    return [s for s in seen if isinstance(s, Measurement)]
