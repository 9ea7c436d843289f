"""``ipmitool sel list -v`` and ``-c``: the same records in blocks of fields, or with commas.

Lines come in; lines of the form that ``ipmitool sel elist`` has go out, so that one reader of
records is enough.
"""

import re

_ID = re.compile(r"SEL Record ID {1,20}: {0,4}([0-9A-Fa-f]{1,4})\s*\Z")
_FIELD = re.compile(r" ?([A-Z][\w ()]{2,30}?) {1,24}: {0,4}(.{0,200})\Z")
_STAMP = re.compile(r"(\S{1,12}) (.{1,24})\Z")
_COMMAS = re.compile(
    r"\s{0,8}([0-9A-Fa-f]{1,5}),(\d{1,4}[/.\-]\d{1,2}[/.\-]\d{2,4}|Pre-?Init[^,]{0,20}),([^,]{0,24}),"
    r"([^|]{1,400})\Z",
    re.ASCII,
)


def with_bars(line: str) -> str:
    """Return a line of ``-c`` with bars for its commas; any other line as it is."""
    match = _COMMAS.match(line)
    if match is None:
        return line
    return " | ".join((match[1], match[2], match[3], *match[4].split(",", 2)))


class Blocks:
    """The block of fields that is being read."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> tuple[bool, str]:
        """Look at one line: whether it is a block's, and the record that ended before it, or ""."""
        if match := _ID.match(line):
            ended = self.end()
            self._fields = {"id": match[1]}
            return True, ended
        if self._fields and (match := _FIELD.match(line)):
            self._fields.setdefault(match[1].lower(), match[2].strip())
            return True, ""
        return False, self.end() if line.strip() else ""

    def end(self) -> str:
        """Return the record that is open as one line, or ""."""
        fields, self._fields = self._fields, {}
        if "timestamp" not in fields or "description" not in fields:
            return ""
        match = _STAMP.match(fields["timestamp"])
        date, clock = (match[1], match[2]) if match else (fields["timestamp"], "")
        sensor = f"{fields.get('sensor type', '')} #0x{fields.get('sensor number', '')}"
        way = (
            "Deasserted" if "deassert" in fields.get("event direction", "").lower() else "Asserted"
        )
        return " | ".join((fields["id"], date, clock, sensor, fields["description"], way))
