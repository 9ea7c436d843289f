"""Files that people already have, read into events and measurements; never judged here."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rackproof.harness.readers import composite, kernel_log
from rackproof.harness.readers.marks import is_report
from rackproof.harness.readers.places import TEXT_LIMIT, plain
from rackproof.harness.readers.pool import Task, distinct, spread
from rackproof.harness.readers.prose import is_document
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
        return _plain(_read(source))
    except Unreadable as error:
        return Reading(path, problems=(str(error),))


def _plain(found: Reading) -> Reading:
    """Return a Reading whose texts are short and hold nothing that a terminal would obey.

    Readers see to it themselves where they cut a text out of a file; here nothing gets past.
    """
    events = found.events
    if not all(event.text.isprintable() and len(event.text) <= TEXT_LIMIT for event in events):
        events = tuple(replace(event, text=plain(event.text)) for event in events)
    problems = found.problems
    if not all(text.isprintable() and len(text) <= TEXT_LIMIT for text in problems):
        problems = tuple(map(plain, problems))
    parts = tuple(map(_plain, found.parts))
    if (events, problems) == (found.events, found.problems) and parts == found.parts:
        return found
    return replace(found, events=events, problems=problems, parts=parts)


def _read(source: Source) -> Reading:
    reader = recognise(source.head)
    if is_report(source.head):
        return composite.read(source, reader, recognise)
    if reader is None:
        quoted = is_document(source.head)
        what = "a text or a program, and no tool's output" if quoted else "no known kind of file"
        return Reading(source.path, problems=(what, *source.problems))
    if reader is kernel_log.READER:
        found = reader.read(source)
        if not source.others:
            return found
    elif not composite.is_composite(source, reader.kind):
        return reader.read(source)
    return composite.read(Source(source.path), reader, recognise)


def read_all(paths: Iterable[Path], workers: int = 1) -> list[Reading]:
    """Read files, and folders with all regular files below them, in the order given.

    A file that is met again, by whatever path, is read once. A file met in a folder has `named`
    False and that `folder`. An empty folder gives one Reading that says so. With several `workers`,
    as many processes share the work where there is much of it; the answer is the same.
    """
    tasks: list[Task] = []
    for path in paths:
        if not _is_folder(path):
            tasks.append(Task(path, None, ""))
            continue
        found = [Task(each, path, why) for each, why in regular_files(path)]
        tasks += found or [Task(path, None, "a folder with no file in it")]
    return spread(_task, distinct(tasks), workers)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # above it stands a folder that may not be entered
        return False


def _task(task: Task) -> Reading:
    found = Reading(task.path, problems=(task.refused,)) if task.refused else read(task.path)
    if task.folder is None:
        return found
    parts = tuple(replace(part, folder=task.folder) for part in found.parts)
    return replace(found, named=False, folder=task.folder, parts=parts)
