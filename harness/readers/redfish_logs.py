"""Entries of a Redfish event log: words in, the codes of bmc.py and of Xids out.

An entry that its source has resolved, or whose deassertion follows in the log, is over. A Created
time before 2000 is a clock that was never set.
"""

from rackproof.harness.model import Event
from rackproof.harness.readers.bmc import cleared, code_of
from rackproof.harness.readers.clues import device, moment, xids
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.redfish_tree import Resource, text

MOST = 5000
_OVER = (
    "deassert",
    "de-assert",
    "cleared",
    "returned to normal",
    "is restored",
    "has been restored",
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
        over: set[int] = set()
        for at, number, resource in sorted(self._entries, key=lambda entry: entry[:2]):
            words = _words(resource)
            code = _code(resource, words)
            key = (text(resource.fields.get("SensorNumber")) or _origin(resource), code)
            if code and _back(resource):
                over.update(open_.pop(key, ()))
            elif code:
                open_.setdefault(key, []).append(len(told))
                if resource.fields.get("Resolved") is True:
                    over.add(len(told))
                told.append((_event(words, at, number), code))
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
    return plain(f"{sensor}: {message}" if sensor else message)


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
    if not code and severity == "critical":
        return "bmc.event.critical"
    return code


def _event(words: str, at: float, number: int) -> Event:
    subject, _, _ = device(words)
    return Event(subject, "", words, at or None, "epoch" if at else "none", {"entry": number})
