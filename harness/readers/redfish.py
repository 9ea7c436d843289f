"""Redfish resources as JSON: single documents, collections, several in a row with prompts between.

What a management controller says of its parts goes out as events: a Health that is not OK once, at
the part and not at the parents that roll it up; readings beyond a sensor's own thresholds; leaks;
entries of event logs, less those that were taken back.
"""

import re

from rackproof.harness.model import Missing, Why
from rackproof.harness.readers.documents import documents
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.redfish_logs import Entries
from rackproof.harness.readers.redfish_parts import Parts
from rackproof.harness.readers.redfish_tree import walk
from rackproof.harness.readers.source import Source

KIND = "redfish"
LIMIT = 16 << 20


def read(source: Source) -> Reading:
    """Read every resource of every document in the file."""
    text = source.whole(LIMIT).decode("utf-8", "replace")
    found, problems = documents(text)
    parts, entries = Parts(), Entries()
    refused = 0
    for document in found:
        for resource in walk(document):
            if resource.sort == "LogEntry":
                entries.take(resource)
            elif resource.sort == "Refusal":
                refused += 1
            else:
                parts.take(resource)
    if refused:
        problems.append(f"{refused} answers are errors of the service, and say nothing of parts")
    if parts.empty:
        problems.append(f"{parts.empty} resources give neither health nor reading")
    mute = (
        bool(parts.mute) and parts.mute == parts.records and not (parts.measured or entries.records)
    )
    if mute and not problems:
        problems.append(f"{parts.mute} sensors give no reading, and nothing else is told")
    missing = [
        Missing(KIND, "host", "bmc.sensor", Why.NO_READING, f"{name} gives no reading")
        for name in parts.silent
    ]
    records = parts.records + entries.records
    return Reading(
        source.path, KIND, records, tuple(map(plain, (*source.problems, *problems))),
        (*parts.events(), *entries.events()), tuple(parts.measured), tuple(missing),
        cut=source.cut or (bool(problems) and len(found) == 0) or _broken(problems),
        worked=bool(records) and not mute, serials=parts.serials, uuids=parts.uuids,
        host=parts.host,
    )  # fmt: skip


def _broken(problems: list[str]) -> bool:
    return any("JSON" in problem for problem in problems)


_PATH = re.compile(rb'"@odata\.(?:id|context)"\s{0,4}:\s{0,4}"/redfish/v1')
_TYPE = re.compile(rb'"@odata\.type"\s{0,4}:\s{0,4}"#[A-Z]\w{2,40}\.')
_REFUSAL = re.compile(rb'"@Message\.ExtendedInfo"\s{0,4}:')
_JSON = re.compile(rb"[{\[]")


def likeness(head: bytes) -> float:
    """Return 0.9 for JSON that links into a Redfish service or names a Redfish type, else 0."""
    if not _JSON.search(head[:4096]):
        return 0.0
    links, typed = _PATH.search(head), _TYPE.search(head)
    if links and typed:
        return 0.95
    return 0.8 if links or typed or _REFUSAL.search(head) else 0.0


READER = Reader(KIND, "Redfish resources and event logs as JSON", likeness, read)
