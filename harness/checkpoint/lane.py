"""Lane: one tier as a writer sees it. A commit runs in a thread of its own, one at a time.

In: a Job, which is one save on its way to all tiers. Out: what became of it, told. A tier that
fails or is slow keeps nobody waiting: the writer goes on to the next one, and comes back with a
later step when the thread has ended.
"""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.checkpoint import delta, load, manifest
from rackproof.harness.checkpoint.image import Image, Made, Output
from rackproof.harness.checkpoint.manifest import Manifest, Parent
from rackproof.harness.checkpoint.store import Bundle, Store
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.errors import CheckpointError

Tell = Callable[[Mapping[str, Any]], None]
RATIO_MOST = 0.8  # of a full one; a delta that is larger is not worth its parent


@dataclass(slots=True)
class Job:
    """One save: the Image, the Image of the full one before it, and the files made of them once.

    `began` is when the save began, on the clock of `time.perf_counter`.
    """

    image: Image
    base: Image | None
    pool: Executor
    began: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    ratio: float | None = None
    _full: Made | None = None
    _delta: Made | None = None

    def full(self) -> Made:
        """Return the files of a full checkpoint, made when they are first asked for."""
        with self.lock:
            self._full = self._full or self.image.full(self.pool)
            return self._full

    def difference(self) -> Made | None:
        """Return the files of a delta; None where there is no parent, or it is hardly smaller."""
        with self.lock:
            if self.base is not None and self.ratio is None:
                self._delta = self._encode(self.base)
            return self._delta

    def _encode(self, base: Image) -> Made | None:
        made = [
            delta.encode(self.image.part(number), base.part(number), found.word, self.pool)
            for number, (_, found) in enumerate(self.image.parts)
        ]
        size = sum(each.nbytes for each in made)
        self.ratio = round(size / max(self.image.data.size, 1), 4)
        if self.ratio > RATIO_MOST:
            return None
        outputs = [
            Output.of(f"part-{number}.safetensors", each.pieces(), self.pool)
            for number, each in enumerate(made)
        ]
        return Made((*outputs, self.image.context_file(self.pool)), self.ratio)


@dataclass(slots=True)
class Lane:
    """A tier's thread, if one is at work, and the full checkpoint there that deltas rest on."""

    tier: Tier
    store: Store
    tell: Tell
    keep: int = 0
    busy: int | None = None
    swept: bool = False
    base: tuple[Image, Parent] | None = None
    known: dict[str, Manifest] = field(default_factory=dict)

    def offer(self, job: Job, within: float, done: Callable[[], None]) -> None:
        """Commit a job to the tier; return when that is done, or `within` seconds are over.

        `done` is called once, when the tier has no more use for the job.
        """
        step = job.image.step
        if self.busy is not None:
            self._say("skipped", step, why=f"step {self.busy} is still being written there")
            done()
            return
        self.busy = step
        thread = threading.Thread(
            target=self._work, args=(job, done), name=f"checkpoint-{self.tier.name}", daemon=True
        )
        thread.start()
        thread.join(within)
        if thread.is_alive():
            why = f"not done in {within:g} s: the other tiers go on without it"
            self._say("failed", step, why=why, seconds=time.perf_counter() - job.began)

    def _work(self, job: Job, done: Callable[[], None]) -> None:
        step = job.image.step
        try:
            directory, said = self._commit(job)
        except Exception as error:  # noqa: BLE001 - a thread's boundary: it is told
            seconds = time.perf_counter() - job.began
            self._say("failed", step, why=reason(error), seconds=seconds)
        else:
            self._say("committed", step, directory, **said)
            with contextlib.suppress(OSError, CheckpointError):  # the next commit tries again
                self._retain(directory)
        finally:
            self.busy = None
            done()

    def _commit(self, job: Job) -> tuple[str, dict[str, Any]]:
        """Store a delta or a full one; return its directory, and what is to be told of it."""
        if not self.swept:
            self.store.sweep()
            self.swept = True
        parent = self._parent(job)
        made = job.difference() if parent else None
        if made is None:
            made, parent = job.full(), None
        text: list[bytes] = []

        def last() -> bytes:
            text.append(made.manifest(job.image.step, parent))
            return text[0]

        files = [(output.name, output.pieces) for output in made.outputs]
        directory = self.store.commit(Bundle(job.image.step, files, last))
        seconds = time.perf_counter() - job.began
        self.known[directory] = manifest.read(text[0])
        if parent is None:
            self.base = (job.image, Parent(directory, hashlib.sha256(text[0]).hexdigest()))
        said: dict[str, Any] = {"seconds": seconds, "kind": "delta" if parent else "full"}
        said["bytes"] = sum(output.size for output in made.outputs)
        if job.ratio is not None:
            said["ratio"] = job.ratio
        try:
            self.store.point(directory)
        except (OSError, CheckpointError) as error:
            said["why"] = f"committed, but LATEST could not be written: {reason(error)}"
        return directory, said

    def _parent(self, job: Job) -> Parent | None:
        """Return the parent of a delta, where this tier still has it, unchanged."""
        if self.base is None or job.base is not self.base[0]:
            return None
        parent = self.base[1]
        try:
            return parent if load.head(self.store, parent.name)[1] == parent.sha256 else None
        except (OSError, CheckpointError):
            return None

    def _retain(self, newest: str) -> None:
        """Take away what is older than the last `keep` full ones and the deltas on them."""
        if not self.keep:
            return
        for name in self.store.names():
            if name not in self.known:
                with contextlib.suppress(OSError, CheckpointError):  # damaged: it is left alone
                    self.known[name] = load.head(self.store, name)[0]
        kept = retained(self.known, self.keep) | {newest}
        kept |= {self.base[1].name} if self.base else set()
        for name in sorted(set(self.known) - kept, reverse=True):  # a delta before its parent
            self.store.remove(name, [*self.known.pop(name).files, manifest.NAME])

    def _say(self, phase: str, step: int, directory: str = "", **more: Any) -> None:
        uri = self.tier.uri(directory) if directory else self.tier.url
        more["seconds"] = round(more.get("seconds", 0.0), 6)
        self.tell({"phase": phase, "step": step, "uri": uri, "tier": self.tier.name, **more})


def retained(known: Mapping[str, Manifest], keep: int) -> set[str]:
    """Return the names of the last `keep` full checkpoints, and of the deltas that rest on them."""
    in_order = sorted(known, key=lambda name: manifest.place(name) or (0, 0))
    fulls = [name for name in in_order if known[name].parent is None]
    kept = set(fulls[-keep:])
    return kept | {name for name, it in known.items() if it.parent and it.parent.name in kept}


def reason(error: BaseException) -> str:
    """Return an error in a few words."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words) if isinstance(error, OSError | CheckpointError) else repr(error)[:200]
