"""A Redfish document taken apart into resources: what each is, and where it stands.

A document comes in; Resources go out, parents before their parts. What a resource is stands in its
``@odata.type``, or in the name of the array that it was met in, as in the older Power and Thermal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_ARRAYS = {
    "Temperatures": "Temperature", "Fans": "Fan", "Voltages": "Voltage",
    "PowerSupplies": "PowerSupply", "Redundancy": "Redundancy", "PowerControl": "PowerControl",
    "PowerSupplyRedundancy": "Redundancy", "FanRedundancy": "Redundancy",
    "Detectors": "LeakDetector",
    "Drives": "Drive", "StorageControllers": "StorageController", "Pumps": "Pump",
    "IndicatorLED": "", "Sensors": "Sensor", "Links": "", "Conditions": "",
    "LeakDetectors": "LeakDetector",
}  # fmt: skip
MOST = 200_000


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource. `path` is its address, made up from its parent's where it has none.

    `inside` holds the paths of the resources that it stands in, in this document.
    """

    sort: str
    path: str
    name: str
    fields: Mapping[str, Any]
    inside: tuple[str, ...] = ()


def text(value: object) -> str:
    """Return a string of a document, or "" for anything else."""
    return value if isinstance(value, str) else ""


def _sort(fields: Mapping[str, Any], key: str) -> str:
    kind = text(fields.get("@odata.type")).rpartition(".")[2]
    if kind:
        return kind
    if "error" in fields and isinstance(fields["error"], dict) and "Status" not in fields:
        return "Refusal"
    if "MessageId" in fields and ("EntryType" in fields or "EventTimestamp" in fields):
        return "LogEntry"
    if "ReadingCelsius" in fields:
        return "Temperature"
    if "DetectorState" in fields:
        return "LeakDetector"
    return _ARRAYS.get(key, "")


def walk(document: object) -> Iterator[Resource]:
    """Yield the resources of a document; bare links to others are none."""
    stack: list[tuple[object, str, str, tuple[str, ...], int]] = [(document, "", "", (), 0)]
    seen = 0
    while stack and seen < MOST:
        node, key, path, inside, place = stack.pop()
        seen += 1
        if isinstance(node, list):
            items = [(each, key, path, inside, i) for i, each in enumerate(node[:MOST])]
            stack += reversed(items)
            continue
        if not isinstance(node, dict):
            continue
        sort = _sort(node, key)
        own = text(node.get("@odata.id")).rstrip("/") or f"{path}#{key}/{place}"
        whole = len(node) > 1 and (sort or isinstance(node.get("Status"), dict))
        if whole:
            name = text(node.get("Name")) or text(node.get("Id")) or own.rpartition("/")[2]
            yield Resource(sort, own, name, node, inside)
        within = (*inside, own)[-16:] if whole else inside
        items = [
            (value, name, own, within, 0) for name, value in node.items()
            if isinstance(value, dict | list) and name not in ("Links", "Actions", "Oem", "Status")
        ]  # fmt: skip
        stack += reversed(items)
