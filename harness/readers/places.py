"""Addresses as the contract writes them: any spelling of a PCI address in, one subject out."""

import re

# [domain:]bus:device[.function], domain of 4 or 8 digits.
ADDRESS = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?"
_PARTS = re.compile(
    r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-9A-Fa-f]))?\Z"
)
_FOUR_DIGITS = 0xFFFF


def pci(address: str) -> str | None:
    """Return ``pci:dddd:bb:dd.f`` for an address, or None where it is none.

    The domain has four digits where it fits, else eight; the function is 0 where none is given.
    """
    parts = _PARTS.match(address.strip())
    if parts is None:
        return None
    domain = int(parts[1] or "0", 16)
    width = 4 if domain <= _FOUR_DIGITS else 8
    return f"pci:{domain:0{width}x}:{parts[2]}:{parts[3]}.{parts[4] or '0'}".lower()


_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
TEXT_LIMIT = 300


def plain(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return `text` on one line, without control characters, at most `limit` characters long."""
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.strip()[: limit + 1])
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 1] + "…"
