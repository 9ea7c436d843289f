"""mlxlink, perftest and ibdiagnet, line by line: what they read, and what they complain of.

mlxlink prints the range that a module's maker allows behind a reading: ``54 [-5..75]``. perftest
prints MB/s (2^20 bytes) or Gb/s (10^9 bits) by its heading; server and client may write into one
another, so that headings and rows stand twice.
"""

import re

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.places import plain

KIND = "ib"
UNKNOWN = "nic:unknown"
_COMMAND = re.compile(r"\bmlxlink\b.{0,80}?-d {0,4}(?:/dev/mst/)?([\w.:\-]{1,64})")
_FIELD = re.compile(r"([A-Z][\w ./\[\]()\-]{1,48}?) {0,40}: {0,8}(\S.{0,200})\Z")
_RANGE = re.compile(r"(.{1,160}?) {0,8}\[ {0,4}(-?\d{1,9}(?:\.\d{1,6})?) {0,4}\.\. {0,4}"
                    r"(-?\d{1,9}(?:\.\d{1,6})?) {0,4}\]", re.ASCII)  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,6})?(?:[Ee][+-]?\d{1,3})?", re.ASCII)
_SPEED = re.compile(r"(?:IB-)?(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b|(\d{1,4})G", re.ASCII)
# Gb/s of four lanes: InfiniBand Architecture Specification, volume 2, and its Trade Association.
_BERS = {"Effective Physical BER": "ib.ber.effective", "Symbol BER": "ib.ber.symbol",
         "Raw Physical BER": "ib.ber.raw"}  # fmt: skip
_ZERO = 1e-200  # 15E-255 is how the firmware writes that there was no error
_TITLE = re.compile(r" {6,40}(?:RDMA_Write|RDMA_Read|Send|Write|Read)[\w ()\-]{0,40}"
                    r"(?:BW|Latency)[\w ]{0,20}Test")  # fmt: skip
_DEVICE = re.compile(r"\bDevice {1,16}: ([\w.\-]{1,64})")
_HEADING = re.compile(r"#bytes {1,8}#iterations {1,8}(BW peak\[(MB|MiB|Gb)/sec\]|t_)")
_ROW = re.compile(r" {0,4}(\d{1,12}) {1,16}(\d{1,12}) {1,40}(\d{1,9}\.\d{1,6}) {1,40}(\d{1,9}"
                  r"\.\d{1,6})",
                  re.ASCII)  # fmt: skip
_BROKEN = re.compile(r" {0,4}(?:Failed status (\d{1,3}): wr_id|Completion with error at|"
                     r"Couldn't (?:connect|listen|read remote|get device)|Failed to (?:connect"
                     r"|open|modify)|"
                     r"Unable to (?:find|open|init)|IB device .{1,64} not found)")  # fmt: skip
# ibv_poll_cq(3): the other end did not answer, or was not ready; the words that others use for it
_UNANSWERED = {"12": "rdma.12", "13": "rdma.13"}
_COMPLAINT = re.compile(r"-(E|W)- (.{1,300})")
_BOUNDS = {
    "Temperature": "heat",
    "Voltage": "module",
    "Bias": "module",
    "Rx": "signal",
    "Tx": "signal",
}


class Reports:
    """What these tools said so far."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.problems: list[str] = []
        self.records = 0
        self._values: dict[tuple[str, str], tuple[float | str, str]] = {}
        self._subject = UNKNOWN
        self._unit = ""
        self._titled = False
        self._rows = self._failed = 0
        self._device = ""

    def measured(self) -> list[Measurement]:
        """Return the readings."""
        return [
            Measurement(KIND, subject, metric, value, unit)
            for (subject, metric), (value, unit) in self._values.items()
        ]

    def idle(self) -> bool:
        """Whether a bandwidth test began, and measured nothing."""
        return self._titled and not self._rows

    def take(self, line: str, number: int) -> None:
        """Look at one line."""
        if match := _COMMAND.search(line):
            self._subject = f"nic:{match[1]}"
        elif match := _COMPLAINT.match(line):
            self._complaint(match[1], match[2], number)
        elif _TITLE.match(line):
            self._titled = True
        elif match := _HEADING.search(line):
            self._unit, self._titled = match[2] or "", True
        elif match := _BROKEN.match(line):
            self._broken(line, match[1], number)
        elif match := _ROW.match(line):
            self._row(float(match[4]))
        elif match := _DEVICE.search(line):
            self._device = match[1]
        elif match := _FIELD.match(line.strip()):
            self._field(match[1].strip(), match[2].strip(), number)

    def _say(self, code: str, text: str, number: int) -> None:
        self.records += 1
        if len(self.events) < 1000:  # noqa: PLR2004
            self.events.append(
                Event(self._subject, code, plain(text), None, "none", {"line": number})
            )

    def _complaint(self, grade: str, text: str, number: int) -> None:
        code = "ib.fabric.error" if grade == "E" else "ib.fabric.warning"
        self.records += 1
        if len(self.events) < 1000:  # noqa: PLR2004
            self.events.append(Event("fabric", code, plain(text), None, "none", {"line": number}))

    def _broken(self, line: str, status: str | None, number: int) -> None:
        """Note a failed transfer; without a status, the test did not even begin."""
        self._titled = True
        if status is None or self._failed:
            self.problems.append(f"line {number}: {line.strip()}")
        else:
            self._failed += 1
            self._subject = f"nic:{self._device}" if self._device else UNKNOWN
            self._say(_UNANSWERED.get(status, "ib.transfer"), line, number)

    def _row(self, average: float) -> None:
        if not self._titled:
            return
        self._rows += 1
        self.records += 1
        factor = {"MB": 2.0**20 / 1e9, "MiB": 2.0**20 / 1e9, "Gb": 1 / 8}.get(self._unit)
        if factor is None:
            return
        key = (f"nic:{self._device or 'unknown'}", "ib.bandwidth")
        best = self._values.get(key, (0.0, ""))[0]
        self._values[key] = (max(float(best), average * factor), "GB/s")

    def _field(self, name: str, value: str, number: int) -> None:
        if match := _RANGE.match(value):
            self._module(name, match, number)
        elif name in _BERS and (match := _NUMBER.fullmatch(value)):
            rate = float(match[0])
            self._keep(_BERS[name], 0.0 if rate < _ZERO else rate, "ratio")
        elif name == "Link Down Counter" and value.isdecimal() and len(value) < 12:  # noqa: PLR2004
            self._keep("ib.errors.downed", int(value), "events")
        elif name == "Physical state":
            word = value.split(maxsplit=1)[0].lower().replace("_", "")[:32]
            self._keep("ib.port.physical", word, "text")
        elif name == "State":
            self._keep("ib.port.state", value.split(maxsplit=1)[0].lower()[:32], "text")
        elif name == "Status Opcode" and re.fullmatch(r"[0-9]{1,5}", value):
            self._opcode(int(value), number)

    def _keep(self, metric: str, value: float | str, unit: str) -> None:
        self.records += metric == "ib.port.state"
        self._values[self._subject, metric] = (value, unit)

    def _module(self, name: str, match: re.Match[str], number: int) -> None:
        """Hold each lane's value against the range that is printed behind it."""
        low, high = float(match[2]), float(match[3])
        values = [float(part) for part in _NUMBER.findall(match[1])]
        self.records += bool(values)
        if values and name.startswith("Temperature"):
            self._keep("ib.module.temperature", max(values), "C")
        if low < high and any(not low <= value <= high for value in values):
            code = _BOUNDS.get(name.split(maxsplit=1)[0], "module")
            self._say(f"ib.module.{code}", f"{name}: {match[0]}", number)

    def _opcode(self, opcode: int, number: int) -> None:
        """0 is no trouble, 1 a port that somebody closed, 1024 one without a cable."""
        code = {0: "", 1: "", 1024: "ib.cable.absent"}.get(opcode, "ib.trouble")
        self.records += 1
        if code:
            self._say(code, f"troubleshooting status opcode {opcode}", number)
