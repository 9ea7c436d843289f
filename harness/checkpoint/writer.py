"""Writer: training waits for one copy in memory; the rest happens behind its back.

In: a Snapshot each time, whose arrays may change as soon as `save` returns. Out: checkpoints in all
tiers, nearest first, and a tale of each: staged, committed, failed or skipped. One save is on its
way at a time; the next one waits for it, or is skipped, and the time it waited is told.

Two buffers, touched before they are needed, are enough: the newest full checkpoint that deltas rest
on stays in one, and the save on its way is in the other. A tier that hangs with a buffer in its
hands makes us take one more.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypedDict, Unpack

from rackproof.harness.checkpoint import anatomy, tiers
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.image import Buffer, Cut, Image
from rackproof.harness.checkpoint.lane import Job, Lane, Tell
from rackproof.harness.errors import CheckpointError

Busy = Literal["wait", "skip"]
THREADS = min(4, os.cpu_count() or 1)  # that hash and pack
MEEK = 5  # more nice than the process: training and writing go first


class Words(TypedDict, total=False):
    """The words of a Policy, as they are handed to a Writer."""

    busy: Busy
    delta: bool
    full_every: int
    parts: int
    keep: int
    patience: float
    domain: str
    leave_out: str


@dataclass(frozen=True, slots=True)
class Policy:
    """How checkpoints are written.

    `busy`: a save that comes while one is on its way waits, or is skipped. `delta`: write what
    changed since the last full one, and a full one every `full_every`. `parts`: files of tensors
    (0: by size). `keep`: that many full ones stay, with their deltas (0: all). `patience`: seconds
    after which the next tier is written, though one is not done. `domain`: the failure domain of
    this process, in which no tier from T2 on may lie. `leave_out`: one of the seven fields that
    is not written, as a careless trainer would: for drills and tests only.
    """

    busy: Busy = "wait"
    delta: bool = False
    full_every: int = 8
    parts: int = 0
    keep: int = 0
    patience: float = 30.0
    domain: str = ""
    leave_out: str = ""

    def __post_init__(self) -> None:
        """Raise CheckpointError for a policy that makes no sense."""
        if self.busy not in {"wait", "skip"} or self.full_every < 1 or self.keep < 0:
            msg = f"busy={self.busy!r}, full_every={self.full_every}, keep={self.keep} cannot be"
            raise CheckpointError(msg)
        if self.leave_out and self.leave_out not in anatomy.FIELDS:
            msg = f"{self.leave_out!r} is none of {', '.join(anatomy.FIELDS)}"
            raise CheckpointError(msg)


@dataclass(slots=True)
class Held:
    """A buffer, and how many are reading it."""

    buffer: Buffer = field(default_factory=Buffer)
    readers: int = 0


class Writer:
    """Writes checkpoints; use it as a context, or call `close`. One thread saves at a time."""

    def __init__(
        self,
        places: Sequence[tiers.Tier],
        *,
        tell: Tell = lambda _: None,
        files: Files | None = None,
        **policy: Unpack[Words],
    ) -> None:
        """Raise CheckpointError where a local tier holds somebody else's files."""
        self.policy = Policy(**policy)
        self.stalled = 0.0  # seconds that saves waited for the one before, all together
        self._tell = tell
        self._telling = threading.Lock()
        self._turn = threading.Condition()
        self._pending = False
        self._working = 0
        self._closed = False
        self._held = [Held(), Held()]
        self._base: tuple[Image, Held, int] | None = None
        self._pool = ThreadPoolExecutor(THREADS, "checkpoint-pack", _meek)
        together = tiers.apart(places, self.policy.domain)
        if together:
            raise CheckpointError("; ".join(together))
        self._lanes = [
            Lane(place, place.store(files), self._say, self.policy.keep) for place in places
        ]
        for lane in self._lanes:
            if lane.tier.local and lane.tier.root.is_dir() and lane.store.foreign():
                msg = f"{lane.tier.url} holds files that are not ours, and nothing is written there"
                raise CheckpointError(msg)

    def prepare(self, like: anatomy.Snapshot) -> None:
        """Make both buffers as large as `like` needs and touch them, before it matters."""
        for held in self._held:
            held.buffer.reserve(like.nbytes)

    def save(self, snapshot: anatomy.Snapshot) -> float:
        """Copy a snapshot and have it written; return the seconds that this took.

        Raises CheckpointError where one of the seven fields is missing; nothing is written then.
        """
        began = time.perf_counter()
        with self._turn:
            if self._closed:
                msg = "the writer of checkpoints is closed"
                raise CheckpointError(msg)
            if self._pending and self.policy.busy == "skip":
                self._skip(snapshot.step)
                return time.perf_counter() - began
            self._turn.wait_for(lambda: not self._pending)
            waited = time.perf_counter() - began
            self.stalled += waited
            self._pending = True
            held = self._spare()
        try:
            image = held.buffer.take(snapshot, Cut(self.policy.parts, self.policy.leave_out))
        except BaseException:
            self._land(held)
            raise
        seconds = time.perf_counter() - began
        said = {"seconds": round(seconds, 6), "stalled": round(waited, 6)}
        self._say({"phase": "staged", "step": snapshot.step, "uri": "", "tier": "T0", **said})
        threading.Thread(
            target=self._send, args=(image, held, began), name="checkpoint-writer", daemon=True
        ).start()
        return time.perf_counter() - began

    def flush(self, within: float | None = None) -> bool:
        """Wait until nothing is on its way any more, slow tiers too; False when time is over."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._pending and not self._working, within)

    def close(self, within: float | None = None) -> bool:
        """Take no more saves, and wait for those that are on their way, as `flush` does."""
        with self._turn:
            self._closed = True
        done = self.flush(within)
        self._pool.shutdown(wait=done)
        return done

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it, and wait."""
        self.close()

    def _send(self, image: Image, held: Held, began: float) -> None:
        """Offer a save to all tiers in turn, and keep it where later deltas rest on it."""
        try:
            base = self._resting(image)
            job = Job(image, base and base[0], self._pool, began)
            read = [held, base[1]] if base else [held]
            for lane in self._lanes:
                lane.offer(job, self.policy.patience, self._reading(read))
            self._remember(image, held)
        finally:
            self._land(held)

    def _resting(self, image: Image) -> tuple[Image, Held] | None:
        """Return the full Image that this one is to be a delta of, and where it lies, or None."""
        if not self.policy.delta or self._base is None:
            return None
        base, held, since = self._base
        fits = base.parts == image.parts and base.step < image.step
        return (base, held) if fits and since < self.policy.full_every - 1 else None

    def _remember(self, image: Image, held: Held) -> None:
        """Count the deltas since the last full one, or take this one as the last full one."""
        if not self.policy.delta:
            return
        with self._turn:
            if any(lane.base is not None and lane.base[0] is image for lane in self._lanes):
                if self._base is not None:
                    self._base[1].readers -= 1
                held.readers += 1
                self._base = (image, held, 0)
            elif self._base is not None:
                self._base = (*self._base[:2], self._base[2] + 1)

    def _spare(self) -> Held:
        """Return a buffer that nobody reads, and a new one where tiers hold all; its reader now."""
        free = next((held for held in self._held if not held.readers), None)
        if free is None:
            free = Held()
            self._held.append(free)
        free.readers += 1
        return free

    def _reading(self, read: Sequence[Held]) -> Callable[[], None]:
        """Count a tier that reads buffers, and return what it calls when it is done."""
        with self._turn:
            self._working += 1
            for held in read:
                held.readers += 1

        def done() -> None:
            with self._turn:
                self._working -= 1
                for held in read:
                    held.readers -= 1
                self._turn.notify_all()

        return done

    def _land(self, held: Held) -> None:
        """Let the next save begin."""
        with self._turn:
            held.readers -= 1
            self._pending = False
            self._turn.notify_all()

    def _skip(self, step: int) -> None:
        said = {"uri": "", "tier": "T0", "seconds": 0.0}
        why = "the save before is still on its way"
        self._say({"phase": "skipped", "step": step, **said, "why": why})

    def _say(self, what: Mapping[str, Any]) -> None:
        with self._telling:
            self._tell(what)


def _meek() -> None:
    """Let a thread of ours step back behind those that train; Linux knows threads by their ids."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + MEEK)
