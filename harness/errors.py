"""The tree of errors: a person's mistake is a SpecError, a device that will not a DeviceError.

RackproofError
├── SpecError          a rack, limits, plant or command that makes no sense (exit 2)
├── RecordError        a run directory that cannot be used as asked (exit 2)
├── CheckpointError    a checkpoint that does not verify, or cannot be written
├── DrillError         a drill or a training run that cannot be held as asked (exit 2)
└── DeviceError        we could not look: becomes UNKNOWN, never a verdict by itself
    ├── NotPresent     no driver, no such GPU
    ├── Lost           the GPU fell off the bus while we looked
    ├── Unsupported    the driver says that this part has no such reading
    ├── NotPermitted   the driver wants more rights than we have
    └── TimedOut       no answer in time
        └── OverTime   the burn itself has outstayed the time that it may take
"""

import difflib
from collections.abc import Iterable


class RackproofError(Exception):
    """The root: everything that rackproof raises on purpose."""


class SpecError(RackproofError):
    """The user's input makes no sense; the message says what, where and what to do."""


class RecordError(RackproofError):
    """A run directory cannot be written, read or taken over as asked."""


class SpaceError(RecordError):
    """No space is left for a record."""


class GoneError(RecordError):
    """A run directory was taken away while the run was held: nothing can be judged."""


class CheckpointError(RackproofError):
    """A checkpoint is incomplete, damaged, of another run, or cannot be written."""


class DrillError(RackproofError):
    """A drill cannot be held as asked; the message says what, and what to do."""


class DeviceError(RackproofError):
    """A device did not do or say what it was asked; the caller turns it into a Missing."""


class NotPresent(DeviceError):
    """There is no driver, or the driver knows no such GPU."""


class Lost(DeviceError):
    """The GPU answered before and does not any more."""


class Unsupported(DeviceError):
    """The driver says NOT_SUPPORTED."""


class NotPermitted(DeviceError):
    """The driver says NO_PERMISSION."""


class TimedOut(DeviceError):
    """No answer within the time that was allowed."""


class OverTime(TimedOut):
    """The burn that asks has outstayed its time: it gets nothing more."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` for the known word nearest to `word`, or an empty string."""
    match = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.5)
    return f" (did you mean {match[0]}?)" if match else ""
