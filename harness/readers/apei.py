"""APEI blocks: the firmware's error reports, some ten lines each, told apart by ``{number}``.

Lines come in; a Sign goes out when a block names its severity and its section.
"""

import re

from rackproof.harness.readers.places import ADDRESS, pci
from rackproof.harness.readers.signatures import HOST, Sign

_LINE = re.compile(r"(?:\{(\d{1,9})\})?\[Hardware Error\]: {0,8}(.{0,200})")
_BEGIN = re.compile(r"Hardware error from APEI")
_SEVERITY = re.compile(r"event severity: (\w{1,16})")
_SECTION = re.compile(r"section_?type: (.{1,60})|section type: (.{1,60})")
_DEVICE = re.compile(r"device_id: (" + ADDRESS + r")\s*\Z")
_CLASS = re.compile(r"class_code: ([0-9a-fA-F]{2,6})")
_WHAT = {"01": "storage", "02": "nic", "03": "gpu"}


class Blocks:
    """The block that is being read; `take` returns a finished one."""

    def __init__(self) -> None:
        self._number = ""
        self._facts: dict[str, str] = {}

    def take(self, message: str) -> tuple[bool, Sign | None]:
        """Return (whether the line belongs to a block, the block before it if that is finished)."""
        match = _LINE.match(message)
        if match is None:
            return False, None
        number, said = match[1] or "", match[2] or ""
        done = None
        if number != self._number or _BEGIN.match(said):
            done = self.finish()
            self._number = number
        for key, pattern in (("severity", _SEVERITY), ("section", _SECTION), ("device", _DEVICE),
                             ("class", _CLASS)):  # fmt: skip
            if (found := pattern.search(said)) and key not in self._facts:
                self._facts[key] = next(g for g in found.groups() if g)
        return True, done

    def finish(self) -> Sign | None:
        """Return the block read so far as a Sign, and forget it."""
        facts, self._facts = self._facts, {}
        if "severity" not in facts or "section" not in facts:
            return None
        severity, section = facts["severity"].lower(), facts["section"].lower()
        sort = "memory" if "memory" in section else "pcie" if "pcie" in section else "other"
        subject = pci(facts["device"]) if sort == "pcie" and "device" in facts else None
        detail: dict[str, str | int | float] = {"severity": severity}
        if what := _WHAT.get(facts.get("class", "")[:2]):
            detail["device"] = what
        return Sign(f"apei.{sort}.{severity}", subject or HOST, detail)
