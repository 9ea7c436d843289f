"""Many files read by several processes, with the answer that one would give.

Tasks and the function that reads one come in; their readings go out in the order of the tasks. It
pays only where there is much to read, since a process needs half a second to begin.
"""

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from rackproof.harness.readers.reading import Reading

MUCH = 64 << 20  # bytes
FILES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Task:
    """A file to read. `folder` is the one that it was met in, `refused` why it cannot be read."""

    path: Path
    folder: Path | None
    refused: str


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _file(path: Path) -> tuple[int, int] | None:
    """Return what is the same for one file by all of its paths, or None."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def distinct(tasks: Iterable[Task]) -> list[Task]:
    """Return `tasks` in their order, each file once; one that was named, by that name."""
    tasks = list(tasks)
    files = [_file(task.path) for task in tasks]
    kept: dict[tuple[int, int], int] = {}
    for index, file in enumerate(files):
        if file is None or tasks[index].refused:
            continue
        before = kept.setdefault(file, index)
        if tasks[before].folder is not None and tasks[index].folder is None:
            kept[file] = index
    return [
        task for index, task in enumerate(tasks)
        if (file := files[index]) is None or task.refused or kept[file] == index
    ]  # fmt: skip


def spread(read: Callable[[Task], Reading], tasks: Sequence[Task], workers: int) -> list[Reading]:
    """Return ``read(task)`` of every task in order, by up to `workers` processes.

    The processes are spawned: they share no state with this one. Where they cannot be had, or one
    of them is killed, this process reads everything itself.
    """
    workers = min(workers, len(tasks))
    if workers < 2 or sum(_size(task.path) for task in tasks) < MUCH:  # noqa: PLR2004
        return [read(task) for task in tasks]
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            return list(pool.map(read, tasks, chunksize=FILES_AT_ONCE))
    except (BrokenProcessPool, OSError):
        return [read(task) for task in tasks]
