"""Entries of a Redfish event log: words in, the codes of bmc.py and of Xids out.

An entry that its source has resolved, or whose deassertion follows in the log, is over. A Created
time before 2000 is a clock that was never set.
"""

import re

from rackproof.harness.model import Event
from rackproof.harness.readers.bmc import cleared, code_of
from rackproof.harness.readers.clues import device, moment, xids
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.redfish_parts import gpu_in, memory_code
from rackproof.harness.readers.redfish_tree import Resource, text

MOST = 5000
_OVER = (
    "deassert",
    "de-assert",
    "cleared",
    "returned to normal",
    "is restored",
    "has been restored",
    "operating normally",
    "power restored",
    "within range",
    "is now ok",
)
_PART = re.compile(
    r"\b(power ?supply|psu?|fan|dimm|drive|disk|pump|temp\w{0,8}|cpu|volt\w{0,4})s?[ _#\-]{0,2}"
    r"(\d{1,3}|[a-z]\d{1,2})\b"
)


class Entries:
    """The entries met so far, each once."""

    def __init__(self) -> None:
        self.records = 0
        self._seen: set[tuple[str, str, str]] = set()
        self._entries: list[tuple[float, int, Resource]] = []

    def take(self, resource: Resource) -> None:
        """Take one entry in."""
        fields = resource.fields
        key = (resource.path, text(fields.get("Created")), text(fields.get("Message")))
        if key in self._seen or len(self._entries) >= MOST:
            return
        self._seen.add(key)
        self.records += 1
        at = moment(fields.get("Created") or fields.get("EventTimestamp"))
        self._entries.append((at or 0.0, self.records, resource))

    def events(self) -> list[Event]:
        """Return the signs in order of time, whichever end of the log is listed first."""
        told: list[tuple[Event, str]] = []
        open_: dict[tuple[str, str], list[int]] = {}
        parts: dict[str, set[str]] = {}
        over: set[int] = set()
        for at, number, resource in sorted(self._entries, key=lambda entry: entry[:2]):
            words = _words(resource)
            code = _code(resource, words)
            part = _part(resource, words)
            if _back(resource):
                for back in [code] if code else sorted(parts.get(part, ())) if part else []:
                    over.update(open_.pop((part, back), ()))
            elif code:
                open_.setdefault((part, code), []).append(len(told))
                parts.setdefault(part, set()).add(code)
                if resource.fields.get("Resolved") is True:
                    over.add(len(told))
                told.append((_event(resource, words, at, number), code))
        found = []
        for index, (event, code) in enumerate(told):
            if code.startswith(("xid.", "sxid.")):
                named = [Event(event.subject, c, event.text, event.at, event.clock, event.detail)
                         for c in xids(event.text)]  # fmt: skip
                found += [] if index in over else named
            elif last := cleared(code) if index in over and code.startswith("bmc.") else code:
                found.append(
                    Event(event.subject, last, event.text, event.at, event.clock, event.detail)
                )
        return found


def _words(resource: Resource) -> str:
    sensor = text(resource.fields.get("SensorType"))
    message = text(resource.fields.get("Message")) or resource.name
    origin = _origin(resource).rstrip("/").rpartition("/")[2]
    named = [origin] if origin and origin not in message else []
    return plain(": ".join((*named, *filter(None, (sensor, message)))))


def _part(resource: Resource, words: str) -> str:
    """Return a name for the part that an entry is about, the same when it is taken back, or ""."""
    number = resource.fields.get("SensorNumber")
    if isinstance(number, int | str) and str(number).strip():
        return f"{text(resource.fields.get('SensorType'))} {number}"
    if origin := _origin(resource):
        return origin
    match = _PART.search(words.lower())
    return f"{match[1].replace(' ', '')}{match[2]}" if match else ""


def _origin(resource: Resource) -> str:
    links = resource.fields.get("Links")
    origin = links.get("OriginOfCondition") if isinstance(links, dict) else None
    return text(origin.get("@odata.id")) if isinstance(origin, dict) else ""


def _back(resource: Resource) -> bool:
    """Whether an entry takes an earlier one back."""
    entry = text(resource.fields.get("EntryCode")).lower()
    message = text(resource.fields.get("Message")).lower()
    return "deassert" in entry or any(word in message for word in _OVER)


def _code(resource: Resource, words: str) -> str:
    if named := xids(words):
        return named[0]
    severity = text(resource.fields.get("Severity")).lower()
    code = code_of(words)
    if code and severity == "ok" and not _back(resource):
        return ""  # its own source says that it is no problem
    if gpu_in(_origin(resource), words) and (memory := memory_code(words, "critical")):
        return memory
    if not code and severity == "critical":
        return "bmc.event.critical"
    return code


def _event(resource: Resource, words: str, at: float, number: int) -> Event:
    subject, _, _ = device(words)
    if subject == "host":
        subject = gpu_in(_origin(resource), words) or subject
    return Event(subject, "", words, at or None, "epoch" if at else "none", {"entry": number})
