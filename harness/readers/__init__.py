"""Files that people already have, read into events and measurements; never judged here."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rackproof.harness.readers.pool import Task, spread
from rackproof.harness.readers.reading import UNRECOGNISED, Reader, Reading
from rackproof.harness.readers.recognise import READERS, recognise
from rackproof.harness.readers.source import Source, Unreadable, regular_files

__all__ = ["READERS", "UNRECOGNISED", "Reader", "Reading", "read", "read_all"]


def read(path: Path) -> Reading:
    """Read one file. Never raises for what is in it: what cannot be used is said in `problems`."""
    try:
        source = Source(path)
        if not source.head.strip():
            what = "empty" if source.size == 0 else "holds no text at its beginning"
            return Reading(path, problems=(what, *source.problems), worked=False)
        reader = recognise(source.head)
        if reader is None:
            return Reading(path, problems=("no known kind of file",))
        return reader.read(source)
    except Unreadable as error:
        return Reading(path, problems=(str(error),))


def read_all(paths: Iterable[Path], workers: int = 1) -> list[Reading]:
    """Read files, and folders with all regular files below them, in the order given.

    A file met in a folder has `named` False and that `folder`. An empty folder gives one Reading
    that says so. With several `workers`, as many processes share the work where there is much of
    it; the answer is the same.
    """
    tasks: list[Task] = []
    for path in paths:
        if not path.is_dir():
            tasks.append(Task(path, None, ""))
            continue
        found = [Task(each, path, why) for each, why in regular_files(path)]
        tasks += found or [Task(path, None, "a folder with no file in it")]
    return spread(_task, tasks, workers)


def _task(task: Task) -> Reading:
    found = Reading(task.path, problems=(task.refused,)) if task.refused else read(task.path)
    return found if task.folder is None else replace(found, named=False, folder=task.folder)
