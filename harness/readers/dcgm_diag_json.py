"""`dcgmi diag -j` of DCGM 2 to 4, and the log of a wrapper that prints its results as objects.

DCGM 3 names GPUs by ``gpu_id`` or ``gpu_ids`` ("0,1,2", text or number), DCGM 4 by entities;
reasons are texts, or objects with the error's number, category and severity.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rackproof.harness.readers.dcgm_results import (
    HIGHEST_GPU,
    Diagnostic,
    Reason,
    Result,
    reading,
    status_of,
)
from rackproof.harness.readers.objects import objects
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "dcgm-diag-json"
LIMIT = 32 << 20
BANNER_LINES = 40
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_MARK = re.compile(rb'"DCGM (?:GPU )?Diagnostic"\s{0,64}:')
_WRAPPER = re.compile(
    rb'"event"\s{0,8}:\s{0,8}"(?:Diagnostic summary|Test (?:warn|fail|pass|skip))'
)
_BEGINS = re.compile(rb"^\s{0,64}\{", re.MULTILINE)
_IDS = re.compile(r"\d{1,4}")
_STAND_IN = re.compile(r"[\w\-]{4,64}\Z")
# Blank values of dcgm_fields.h: anything from 0x7ffffff0 or 0x7ffffffffffffff0 up is no number.
_BLANK = frozenset(range(0x7FFFFFF0, 0x80000000))
_GPU_ENTITY = "gpu"


def likeness(head: bytes) -> float:
    """Return 0.95 where an object begins that holds what only this tool writes."""
    begin = _BEGINS.search(head)
    if begin is None or head.count(b"\n", 0, begin.start()) > BANNER_LINES:
        return 0.0
    if _MARK.search(head, begin.start()):
        return 0.95
    return 0.9 if _WRAPPER.search(head) and b'"module"' in head else 0.0


def _whole_number(value: object) -> int:
    """Return a number that is one, from text or number; 0 for none and for blank values."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return 0
    text = str(value).strip() if isinstance(value, str) else ""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 0  # noqa: PLR2004
    number = value if isinstance(value, int) else number
    return number if 0 <= number < 1 << 20 and number not in _BLANK else 0


def _ids(result: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the GPUs of a result: one id or several, as text, number or list."""
    group = str(result.get("entity_group", _GPU_ENTITY)).lower()
    if group != _GPU_ENTITY:
        return ()
    for key in ("entity_id", "gpu_id", "gpu_ids", "entity_ids"):
        if key in result:
            found = {int(n) for n in _IDS.findall(str(result[key])[:8000])}
            return tuple(sorted(n for n in found if n <= HIGHEST_GPU))
    return ()


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _reasons(result: Mapping[str, Any]) -> list[Reason]:
    found = []
    for said in _listed(result.get("warnings")):
        if isinstance(said, dict):
            found.append(Reason(
                plain(str(said.get("warning", ""))),
                _whole_number(said.get("error_id")),
                _whole_number(said.get("error_severity")),
                _whole_number(said.get("error_category")),
            ))  # fmt: skip
        else:
            found.append(Reason(plain(str(said))))
    info = _listed(result.get("info"))
    # Info may tell the same as a warning; alone it explains what did not pass.
    return found or [Reason(plain(str(said))) for said in info]


def _results(category: str, test: Mapping[str, Any]) -> Iterator[Result]:
    name = plain(str(test.get("name", test.get("test_name", "unnamed"))), 40)
    results = [one for one in _listed(test.get("results")) if isinstance(one, dict)]
    summary = test.get("test_summary")
    if not results and isinstance(summary, dict):
        results = [summary]
    for one in results:
        yield Result(category, name, status_of(one.get("status")), _ids(one), _reasons(one))


def _categories(root: Mapping[str, Any]) -> Iterator[Result]:
    for category in _listed(root.get("test_categories")):
        if isinstance(category, dict):
            name = plain(str(category.get("category", "")), 40)
            for test in _listed(category.get("tests")):
                if isinstance(test, dict):
                    yield from _results(name, test)


def _identity(found: Diagnostic, value: Mapping[str, Any]) -> None:
    """Take serial numbers and UUIDs: of the entities (4), or of a map by GPU (3)."""
    for group in _listed(value.get("entity_groups")):
        entities = _listed(group.get("entities")) if isinstance(group, dict) else []
        if not isinstance(group, dict) or str(group.get("entity_group")).lower() != _GPU_ENTITY:
            continue
        for entity in entities:
            for gpu in _ids(entity) if isinstance(entity, dict) else ():
                _name(found.serials, gpu, entity.get("serial_num"))
                _name(found.uuids, gpu, entity.get("uuid", entity.get("entity_uuid")))
    for key in ("GPU Device Serials", "gpu_device_serials"):
        serials = value.get(key)
        if isinstance(serials, dict):
            for gpu, serial in serials.items():
                for number in _IDS.findall(str(gpu)[:8]):
                    _name(found.serials, int(number), serial)


def _name(names: dict[str, str], gpu: int, value: object) -> None:
    text = str(value or "").strip()
    if _STAND_IN.match(text) and any(c.isdigit() and c != "0" for c in text):
        names[f"gpu{gpu}"] = text


def _driver(*places: object) -> str:
    for place in places:
        if isinstance(place, dict):
            for key in ("Driver Version Detected", "driver_version"):
                if isinstance(place.get(key), str):
                    return str(place[key])
    return ""


class _Wrapper:
    """The events of a wrapper: its own summary is held against what follows."""

    def __init__(self, found: Diagnostic) -> None:
        self._found = found
        self._seen = {"fail": 0, "warn": 0}
        self._told = {"fail": 0, "warn": 0}
        self._any = False

    def take(self, value: Mapping[str, Any]) -> None:
        """Take one object of its log."""
        event = str(value.get("event", ""))
        if event == "Diagnostic summary":
            self._any = True
            self._told = {"fail": _whole_number(value.get("failed")),
                          "warn": _whole_number(value.get("warned"))}  # fmt: skip
        elif event.startswith("Test ") and "test" in value:
            self._any = True
            status = status_of(event.removeprefix("Test "))
            text = plain(str(value.get("detail", "")))
            reason = Reason(text, _whole_number(value.get("error_code")))
            name = plain(str(value["test"]), 40)
            gpus = tuple(int(n) for n in re.findall(r"\bGPU (\d{1,3})\b", text)[:1])
            self._found.results.append(Result("", name, status, gpus, [reason]))
            if status in self._seen:
                self._seen[status] += 1
            for gpu in gpus:
                _name(self._found.uuids, gpu, value.get("gpu"))

    def close(self) -> None:
        """Say what the summary counts and the file does not hold."""
        for status, word in (("fail", "failed"), ("warn", "warned")):
            if self._any and self._seen[status] < self._told[status]:
                told, seen = self._told[status], self._seen[status]
                self._found.note(f"the summary counts {told} tests that {word}, {seen} are in it")
                self._found.cut = True


def read(source: Source) -> Reading:
    """Read every object of the file, whole or broken off."""
    text = source.whole(LIMIT).decode("utf-8", "replace")
    parsed, found = objects(text), Diagnostic()
    wrapper = _Wrapper(found)
    found.cut = parsed.cut
    if parsed.cut:
        found.note("the JSON breaks off: only what stands before is read")
    for value in parsed.values:
        if not isinstance(value, dict):
            continue
        root = next((value[key] for key in _ROOTS if isinstance(value.get(key), dict)), None)
        if root is None:
            wrapper.take(value)
            continue
        found.results += _categories(root)
        for key in ("runtime_error", "Warning", "warning"):
            if isinstance(root.get(key), str):
                found.note(plain(root[key]))
        for place in (value, root):
            _identity(found, place)
        found.driver = found.driver or _driver(value.get("metadata"), root, value)
    wrapper.close()
    return reading(KIND, source, found)


READER = Reader(KIND, "dcgmi diag -j, DCGM 2 to 4", likeness, read)
