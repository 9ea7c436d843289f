"""nvidia-smi -q -x, versions 10 to 13, with or without its DOCTYPE.

Expat is driven by hand, so that the DOCTYPE is passed over, nothing outside is fetched, and an
entity declaration is refused. A document that breaks off keeps the GPUs that were closed before.
"""

import re
from xml.parsers import expat

from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_fields import GpuFields, Report, address_of, slug
from rackproof.harness.readers.smi_report import reading
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-xml"
LIMIT = 64 << 20
DEEPEST = 64
VALUE_LIMIT = 256
_ROOT = re.compile(rb"<nvidia_smi_log[\s>]")
_END = b"</nvidia_smi_log>"


class _RefusedError(Exception):
    """The document holds what no nvidia-smi writes."""


def likeness(head: bytes) -> float:
    """Return 1 where the root element is nvidia-smi's, else 0."""
    return 1.0 if re.search(rb"<nvidia_smi_log[\s>]", head) else 0.0


class _Document:
    """The handlers of one parse: fields of the head, and of each GPU by path."""

    def __init__(self) -> None:
        self.report = Report(whole=False)
        self._path: list[str] = []
        self._gpu: GpuFields | None = None
        self._text: list[str] = []
        self._title = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= DEEPEST:
            msg = "nested too deeply"
            raise _RefusedError(msg)
        self._path.append(slug(name))
        self._text.clear()
        if self._path == ["nvidia_smi_log", "gpu"]:
            self._gpu, self._title = GpuFields(), attributes.get("id", "")

    def data(self, text: str) -> None:
        if sum(map(len, self._text)) < VALUE_LIMIT:
            self._text.append(text[:VALUE_LIMIT])

    def end(self, name: str) -> None:
        path, value = self._path, "".join(self._text).strip()
        self._text.clear()
        if self._gpu is not None and len(path) > 2:  # noqa: PLR2004 - below the root and the GPU
            if value:
                self._gpu.values.setdefault("/".join(path[2:]), value)
        elif self._gpu is not None and path[1:] == ["gpu"]:
            self._gpu.address = address_of(self._title, self._gpu.values)
            self.report.gpus.append(self._gpu)
            self._gpu = None
        elif len(path) == 2:  # noqa: PLR2004 - a field of the head
            self.report.head[path[1]] = value
        path.pop()
        self.report.whole = not path and slug(name) == "nvidia_smi_log"


def _refuse(*_: object) -> None:
    msg = "an entity is declared, and is not expanded"
    raise _RefusedError(msg)


def _parse(text: bytes) -> tuple[Report, str]:
    """Return what one document holds, and what is wrong with it or ""."""
    document, parser = _Document(), expat.ParserCreate("utf-8")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    parser.EntityDeclHandler = _refuse
    parser.StartElementHandler = document.start
    parser.CharacterDataHandler = document.data
    parser.EndElementHandler = document.end
    try:
        parser.Parse(text, True)  # noqa: FBT003 - the binding takes no keyword
    except expat.ExpatError as error:
        document.report.whole = False
        what = expat.ErrorString(error.code)
        return document.report, f"not well-formed at line {error.lineno}: {what}"
    except _RefusedError as error:
        document.report.whole = False
        return document.report, f"line {parser.CurrentLineNumber}: {error}"
    return document.report, ""


def read(source: Source) -> Reading:
    """Read the XML reports in a file; repeated ones (a loop's) one after the other.

    Prologs are left out: they may name an encoding that the text no longer has, or declare things.
    """
    text = source.whole(LIMIT).decode("utf-8", "replace").encode()
    starts = [match.start() for match in _ROOT.finditer(text)] or [0]
    reports, problems = [], []
    if b"<!ENTITY" in text:
        problems.append("an entity is declared, and is not expanded")
    for start, stop in zip(starts, [*starts[1:], len(text)], strict=True):
        end = text.rfind(_END, start, stop)
        report, problem = _parse(text[start : stop if end < 0 else end + len(_END)])
        report.whole &= b"<!ENTITY" not in text
        reports.append(report)
        if problem:
            problems.append(problem)
    return reading(KIND, source, reports, problems)


READER = Reader(KIND, "nvidia-smi -q -x, versions 10 to 13", likeness, read)
