"""What a sentence of a program or a person says in passing: Xids, a GPU's address, a time.

Text comes in; codes as the kernel log has them go out, so that the same rules judge a health
daemon's message, a drain reason and the driver's own line. ``SXid`` is no ``Xid``, and a count of
Xids is no code.
"""

import email.utils
import re
from datetime import UTC, datetime

from rackproof.harness.readers.places import ADDRESS, pci

_XID = re.compile(
    r"(?<![A-Za-z])(S?)Xid(?:CriticalError| error| code)?(?: ?[:=#] ?| )?"
    r"(?:\((?:PCI:)?(?:" + ADDRESS + r")[^)]{0,24}\): )?([0-9]{1,5})"
    r"(?![0-9%]|\.[0-9]| ?(?:errors|events|times))",
    re.IGNORECASE,
)
_PCI = re.compile(
    r"\b(?:PCI|BDF|bus[ _]?id|GPU(?= ?(?:[0-9A-F]{4}){1,2}:[0-9A-F]{2}:))[:= ]{0,3}("
    + ADDRESS
    + r")(?![0-9A-Fa-f:])",
    re.IGNORECASE,
)
_PLACED = re.compile(r"Xid \((?:PCI:)?(" + ADDRESS + r")", re.IGNORECASE)
_GPU = re.compile(
    r"\bGPU(?:[:#= _]|: )?([0-9]{1,2})\b|handle by index ([0-9]{1,2})\b", re.IGNORECASE
)
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_EARLIEST, _LATEST = 946684800.0, 4102444800.0  # 2000 and 2100: a clock outside was never set
LOOKED_AT = 2000  # characters of a message


def xids(text: str) -> list[str]:
    """Return the codes ``xid.N`` and ``sxid.N`` that a sentence names, each once, in its order."""
    found = (f"{m[1].lower()}xid.{int(m[2])}" for m in _XID.finditer(text[:LOOKED_AT]))
    return list(dict.fromkeys(found))


def device(text: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return (subject, aliases, uuids) of the GPU that a sentence names; ``host`` without one.

    A GPU known by its UUID alone is ``gpu-`` and the UUID's first part, until another file of the
    machine tells where that UUID is.
    """
    text = text[:LOOKED_AT]
    match = _PLACED.search(text) or _PCI.search(text)
    address = pci(match[1]) if match else None
    number, uuid = _GPU.search(text), _UUID.search(text)
    name = f"gpu{int(number[1] or number[2])}" if number else None
    subject = address or name or (f"gpu-{uuid[0][4:12]}" if uuid else "host")
    aliases = {name: address} if name and address else {}
    return subject, aliases, {subject: uuid[0]} if uuid and subject != "host" else {}


def _sane(at: float) -> float | None:
    return at if _EARLIEST <= at <= _LATEST else None


def moment(text: object) -> float | None:
    """Return the seconds since the epoch of an ISO 8601 or RFC 5322 time, taken as UTC if bare.

    None for what is no time, and for a clock that was never set (1970, or after 2100).
    """
    if not isinstance(text, str) or len(text) > 64 or not text[:1].strip():  # noqa: PLR2004
        return None
    text = text.strip().strip("\"'")
    try:
        if "," in text[:5]:
            parts = email.utils.parsedate_tz(text)
            return _sane(float(email.utils.mktime_tz(parts))) if parts else None
        stamp = datetime.fromisoformat(text)
        return _sane((stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, TypeError):
        return None
