"""Files that hold the output of several tools: bug reports, shell sessions, files put together.

A Source comes in; it is parted at the marks, each part is read by the reader that knows it, and
what the kernel says anywhere in a part goes to the kernel's reader. One Reading goes out, with the
parts in it: each is judged as a file of its own, since its clock and its boots are.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rackproof.harness.model import Event
from rackproof.harness.readers import kernel_log, marks
from rackproof.harness.readers.kernel_shapes import LINE_LIMIT
from rackproof.harness.readers.reading import UNRECOGNISED, Reader, Reading
from rackproof.harness.readers.search import line_spans, newlines
from rackproof.harness.readers.signatures import sign_of
from rackproof.harness.readers.source import HEAD, Excerpt, Source
from rackproof.harness.readers.stamps import parse

LIMIT = 64 << 20
SHOWN = 12
_UNAME = re.compile(rb"^uname: Linux ([\w.\-]{1,253}) ", re.MULTILINE)
Recognise = Callable[[bytes], Reader | None]


@dataclass(slots=True)
class _Part:
    """A part of the text: where it lies, and who reads it."""

    start: int
    end: int
    reader: Reader | None


def kernel_speaks(chunk: bytes) -> bool:
    """Whether a line of the kernel with a signature stands in `chunk`, with a stamp or NVRM's."""
    for start, end in line_spans(chunk):
        found = parse(chunk[start : min(end, start + LINE_LIMIT)].decode(
            "utf-8", "replace").rstrip("\r"))  # fmt: skip
        told = found.shape or found.message.startswith("NVRM: ")
        if found.kernel and told and sign_of(found.message) is not None:
            return True
    return False


def is_composite(source: Source, kind: str) -> bool:
    """Whether a file that `kind` was recognised in may hold what another reader has to read."""
    return any(
        marks.marked(chunk, kind) >= 0 or kernel_speaks(chunk) for chunk in source.chunks()
    )  # fmt: skip


def _pieces(text: bytes, whole: Reader | None, recognise: Recognise) -> list[_Part]:
    """Part `text` at every mark. `whole` is who would read all of it.

    A few lines alone can look like anything: what a tool's mark begins has to be that tool's, and
    what stands before the first mark has to be of `whole` or a kernel's log.
    """
    starts, found = marks.starts(text), []
    first = {whole.kind, kernel_log.KIND} if whole else {marks.ANY}
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        promised = {marks.kind_of(text[start : start + HEAD])} if start else first
        reader = recognise(text[start : min(end, start + HEAD)])
        kept = reader is not None and (reader.kind in promised or marks.ANY in promised)
        found.append(_Part(start, end, reader if kept else None))
    if whole and whole not in [piece.reader for piece in found]:
        next(piece for piece in found if piece.reader is None or piece is found[-1]).reader = whole
    return found


def _parts(text: bytes, whole: Reader | None, recognise: Recognise) -> list[_Part]:
    """Part `text`; a piece of no known kind, or of the same, goes on with what stands before."""
    found: list[_Part] = []
    for piece in _pieces(text, whole, recognise):
        last = found[-1] if found else None
        if last is None or (
            piece.reader is not None and last.reader is not None
            and (piece.reader is not last.reader or piece.reader is kernel_log.READER)
        ):  # fmt: skip
            found.append(piece)
        else:
            last.end, last.reader = piece.end, last.reader or piece.reader
    return found


def _sections(text: bytes, recognise: Recognise) -> list[_Part]:
    """Part a bug report; of some fifty sections those that are known here."""
    starts = marks.starts(text)
    found = [
        _Part(start, end, recognise(text[start : min(end, start + HEAD)]))
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True)
    ]
    return [part for part in found if part.reader is not None]


def _moved(event: Event, lines: int) -> Event:
    """Return an event of a part with the line that it has in the whole file."""
    moved = {key: value + lines for key in ("line", "last_line")
             if isinstance(value := event.detail.get(key), int) and value}  # fmt: skip
    return replace(event, detail={**event.detail, **moved}) if moved else event


def _read_parts(source: Source, text: bytes, parts: Sequence[_Part]) -> Iterator[Reading]:
    lines = counted = 0
    for part in parts:
        lines += newlines(text, counted, part.start)
        counted = part.start
        yield from _read_part(source, text[part.start : part.end], part, lines)


def _read_part(source: Source, excerpt: bytes, part: _Part, lines: int) -> Iterator[Reading]:
    """Yield what the part's reader made of it, and what the kernel says in another's part."""
    readers = [part.reader] if part.reader else []
    if part.reader is not kernel_log.READER and kernel_speaks(excerpt):
        readers.append(kernel_log.READER)
    for reader in readers:
        found = reader.read(Excerpt(source.path, excerpt))
        if reader is not part.reader:
            found = replace(found, records=len(found.events))  # the other lines are the part's own
        if found.kind != UNRECOGNISED:
            yield replace(
                found, events=tuple(_moved(event, lines) for event in found.events),
                problems=tuple(f"{found.kind} from line {lines + 1} on: {problem}"
                               for problem in found.problems),
            )  # fmt: skip


def _names(source: Source, parts: Sequence[Reading]) -> Iterator[Reading]:
    """Give each part a name of its own, and what the others tell of the machine."""
    hosts = {part.host for part in parts if part.host}
    uname = _UNAME.search(source.head)
    if not hosts and uname:
        hosts = {uname[1].decode()}
    host = next(iter(hosts)) if len(hosts) == 1 else None
    uuids = {place: uuid for part in reversed(parts) for place, uuid in part.uuids.items()}
    met: Counter[str] = Counter()
    for part in parts:
        met[part.kind] += 1
        number = f" {met[part.kind]}" if met[part.kind] > 1 else ""
        path = source.path.with_name(f"{source.path.name}, {part.kind}{number}")
        own = part.uuids if any(uuids[place] != u for place, u in part.uuids.items()) else uuids
        yield replace(part, path=path, named=False, host=part.host or host, uuids=own)


def _joined(source: Source, parts: Sequence[Reading], problems: Sequence[str]) -> Reading:
    kinds = ", ".join(part.kind for part in parts[:SHOWN])
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    hosts = {part.host for part in parts if part.host}
    return Reading(
        source.path, parts[0].kind, sum(part.records for part in parts),
        (f"read in {len(parts)} part{'s' * (len(parts) > 1)}: {kinds}{more}", *problems,
         *(problem for part in parts for problem in part.problems)),
        tuple(event for part in parts for event in part.events),
        tuple(one for part in parts for one in part.measurements),
        tuple(one for part in parts for one in part.missing),
        cut=source.cut or any(part.cut for part in parts),
        worked=any(part.worked for part in parts), host=hosts.pop() if len(hosts) == 1 else None,
        parts=tuple(parts),
    )  # fmt: skip


def read(source: Source, reader: Reader | None, recognise: Recognise) -> Reading:
    """Read a file part by part; as `reader` alone reads it, where it has but one part.

    A file longer than LIMIT that is no bug report is read by `reader`, and said to be cut where
    something of another kind begins in it.
    """
    report = marks.is_report(source.head)
    text = source.whole(LIMIT)
    if len(text) >= LIMIT and reader is not None and not report:
        return _too_long(Source(source.path), reader)
    parts = _sections(text, recognise) if report else _parts(text, reader, recognise)
    found = list(_read_parts(source, text, parts))
    problems = list(source.problems)
    if len(marks.starts(text)) >= marks.MOST:
        source.cut = True
        problems.append(f"more than {marks.MOST} parts: what stands behind is not parted")
    if report and not marks.is_whole(text):
        source.cut = True
        problems.append("the bug report ends before its last line")
    if len(found) == 1 and not report and reader is not None:
        return reader.read(Source(source.path))
    if not found:
        said = "a bug report without one part that is read here" if report else "no known kind"
        return Reading(source.path, problems=(said, *problems), worked=False)
    return _joined(source, tuple(_names(source, found)), problems)


def _too_long(source: Source, reader: Reader) -> Reading:
    found, line = reader.read(source), 1
    for chunk in Source(source.path).chunks():
        at = marks.marked(chunk, reader.kind)
        if at >= 0:
            line += newlines(chunk, 0, at)
            problem = (f"line {line}: what begins there is not read: of another kind, in a file "
                       f"of more than {LIMIT >> 20} MiB")  # fmt: skip
            return replace(found, cut=True, problems=(*found.problems, problem))
        line += newlines(chunk)
    return found
