"""Work that is queued ahead of the GPU, so that looking at it meanwhile costs it nothing.

In: a function that enqueues one piece of work, and for how long it shall run. Out: how many pieces
ran, and the device's seconds for them. Batches of tens of milliseconds stay queued while `watch`
reads what only shows under load, and the host never waits for the last of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.harness.devices.protocol import Watch

TRIALS = 3  # pieces by which the number of repeats is chosen
BATCH_S = 0.03  # of work between two marks
AHEAD = 3  # batches that are queued while one waits: 90 ms, more than a look at NVML takes
WATCHES = 8  # how often one train lets itself be watched
LEAST_S = 1e-6  # an event resolves half a microsecond


@dataclass(frozen=True, slots=True)
class Train:
    """Pieces of work that ran back to back, and the device's seconds for all of them."""

    repeats: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Lanes:
    """The streams that a piece of work is enqueued on; times are taken on the first.

    There is at least one.
    """

    streams: Sequence[Any]

    @property
    def first(self) -> Any:
        """Return the stream of the marks."""
        return self.streams[0]

    def part(self, event: Any) -> None:
        """Let no other stream begin before `event` of the first."""
        for stream in self.streams[1:]:
            stream.wait_event(event)

    def meet(self, cupy: Any) -> None:
        """Let what comes next on the first stream wait for all the others."""
        for stream in self.streams[1:]:
            done = cupy.cuda.Event(disable_timing=True)
            done.record(stream)
            self.first.wait_event(done)


def paced(
    cupy: Any,
    enqueue: Callable[[], None],
    seconds: float,
    watch: Watch = None,
    lanes: Lanes | None = None,
) -> Train:
    """Run work back to back for about `seconds`; call `watch` a few times while it runs.

    `watch` is called at least once, with work still queued. What it raises comes out after the
    queue has run dry.
    """
    # Said to each event: what an event records without one is not the same in every CuPy.
    lanes = lanes or Lanes([cupy.cuda.get_current_stream()])
    each = max(_Timer(cupy, lanes).run(enqueue, TRIALS, TRIALS, None) / TRIALS, LEAST_S)
    repeats = max(1, round(seconds / each))
    batch = max(1, min(repeats, round(BATCH_S / each)))
    return Train(repeats, _Timer(cupy, lanes).run(enqueue, repeats, batch, watch))


class _Timer:
    """Events around a queue of work."""

    def __init__(self, cupy: Any, lanes: Lanes) -> None:
        self._cupy, self._lanes = cupy, lanes
        self._begin, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def run(self, enqueue: Callable[[], None], repeats: int, batch: int, watch: Watch) -> float:
        """Enqueue `repeats` pieces; return the device's seconds from the first to the last."""
        self._begin.record(self._lanes.first)
        self._lanes.part(self._begin)
        try:
            self._queue(enqueue, repeats, batch, watch)
        finally:
            self._lanes.meet(self._cupy)
            self._end.record(self._lanes.first)
            self._end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self._begin, self._end)) / 1000.0

    def _queue(self, enqueue: Callable[[], None], repeats: int, batch: int, watch: Watch) -> None:
        queued: deque[Any] = deque()
        done = watched = 0
        while done < repeats:
            count = min(batch, repeats - done)
            for _ in range(count):
                enqueue()
            done += count
            mark = self._cupy.cuda.Event(block=True, disable_timing=True)
            mark.record(self._lanes.first)
            queued.append(mark)
            if len(queued) <= AHEAD:
                continue
            queued.popleft().synchronize()
            due = watched < WATCHES and done * (WATCHES + 1) >= repeats * (watched + 1)
            if watch is not None and due:
                watched += 1
                watch()
        if watch is not None and not watched:
            watch()
