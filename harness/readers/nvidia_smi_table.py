"""The table that nvidia-smi prints without arguments: narrow and wide, of Linux and Windows.

Bars part the cells, whatever their width; of a GPU's rows the first has its address, the second its
memory. Of a loop's repeated tables the last one of each GPU decides, and what was counted between
the first and the last is told. The tool's other words (`No devices were found`) belong here too.
"""

import re
from dataclasses import dataclass, field, replace

from rackproof.harness.model import Measurement
from rackproof.harness.readers.places import ADDRESS, pci
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_fields import GpuFields
from rackproof.harness.readers.smi_messages import LINE_LIMIT, Messages, alone, moment
from rackproof.harness.readers.smi_samples import Samples
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-table"
MOST_GPUS = 4096
_BANNER = re.compile(r"\|\s*NVIDIA-SMI\s+[\w.]+\s.*\|", re.IGNORECASE)
_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*([\d.]{3,16})")
_INDEX = re.compile(r"\s*(\d{1,4})\s+(.{1,64})\Z")
_MIG = re.compile(r"\s*(\d{1,4})\s+\d{1,4}\s+\d{1,4}\s+\d{1,4}\s*\Z")
_BUS = re.compile(r"\s*(" + ADDRESS + r")\s")
_MEMORY = re.compile(r"/\s*(\d{1,12}) ?([KMG]i?B)")
_TEMPERATURE = re.compile(r"(-?\d{1,4}) ?C\Z")
_MODES = ("On", "Off", "N/A", "WDDM", "TCC", "MCDM", "ERR!", "Unknown")
_FEW = 0.4
_ROWS_OF_A_GPU = 3


def likeness(head: bytes) -> float:
    """Return 0.9 where most lines are a table's with nvidia-smi's banner or column heads."""
    text = head.decode("utf-8", "replace").splitlines()[:400]
    lines = [s for line in text if (s := line.strip())]
    if alone(lines[:80]):
        return 0.85
    marks = sum(bool(_BANNER.match(s)) for s in lines)
    heads = sum("Bus-Id" in s and "Uncorr. ECC" in s and s.startswith("|") for s in lines)
    if not marks and not heads:
        return 0.0
    drawn = sum(s.startswith(("|", "+")) for s in lines)
    return 0.9 if drawn / len(lines) >= _FEW else 0.0


@dataclass(slots=True)
class _Block:
    """The rows of one GPU, as far as they have come."""

    gpu: GpuFields
    index: int
    rows: int = 1


@dataclass(slots=True)
class _Table:
    """The walk over the lines."""

    samples: Samples = field(default_factory=lambda: Samples(KIND, MOST_GPUS))
    messages: Messages = field(default_factory=Messages)
    driver: str = ""
    taken: float | None = None
    open: _Block | None = None
    drawn: bool = True
    names: dict[int, str] = field(default_factory=dict)

    def line(self, text: str) -> None:
        """Take one line."""
        bare = text.strip()
        if not bare.startswith(("|", "+")):
            if bare and not self.messages.take(bare) and (at := moment(bare)) is not None:
                self.taken = at
            return
        cells = bare.strip("|").split("|")
        if bare.startswith("+"):
            self._close()
            self.drawn = True
        elif match := _DRIVER.search(bare):
            self.driver = match[1]
            self.drawn = False
        else:
            self.drawn = False
            self._row(cells)

    def _row(self, cells: list[str]) -> None:
        if len(cells) == _ROWS_OF_A_GPU:
            first = _INDEX.match(cells[0])
            bus = _BUS.match(cells[1] + " ")
            lost = "ERR!" in cells[1] or "Unknown" in cells[1]
            if first and (bus or lost) and (self.open is None or self.open.rows > 1):
                self._begin(int(first[1]), first[2], bus[1] if bus else "", cells[2])
            elif self.open is not None:
                self._more(self.open, cells)
        elif (match := _MIG.match(cells[0])) and len(cells) > _ROWS_OF_A_GPU:
            self._mig(int(match[1]), cells)

    def _begin(self, index: int, name: str, bus: str, ecc: str) -> None:
        self._close()
        gpu = GpuFields(pci(bus))
        words = name.split()
        if len(words) > 1 and words[-1] in _MODES:
            words.pop()
        if words and not any(word.endswith("...") for word in words):
            gpu.values["product_name"] = " ".join(words)
        ecc = ecc.strip()
        # "On" stands there under MIG, "Off" without ECC: neither is a count.
        gpu.values["ecc_errors/volatile/double_bit/total"] = "N/A" if ecc in ("On", "Off") else ecc
        self.open = _Block(gpu, index)

    def _more(self, block: _Block, cells: list[str]) -> None:
        block.rows += 1
        values = block.gpu.values
        if any("GPU is lost" in cell for cell in cells):
            values["table"] = "GPU is lost"
        if block.rows > 2:  # noqa: PLR2004 - the third row holds the MIG mode alone
            return
        words = cells[0].replace("ERR!", " ERR! ").split()
        for name, word in zip(("fan_speed", "temperature/gpu_current_temp", "performance_state"),
                              words, strict=False):  # fmt: skip
            values[name] = _TEMPERATURE.sub(r"\1 C", word)
        if "ERR!" in words[3:]:
            values["power_readings/power_draw"] = "ERR!"
        if memory := _MEMORY.search(cells[1]):
            values["fb_memory_usage/total"] = f"{memory[1]} {memory[2]}"
        if load := cells[2].split():
            values["utilization/gpu"] = load[0].replace("%", " %")

    def _mig(self, index: int, cells: list[str]) -> None:
        """Count a MIG device's uncorrected errors to its GPU, whose own cell has none."""
        words = cells[2].split()
        if words and words[-1].isdecimal() and len(words[-1]) < 16 and int(words[-1]):  # noqa: PLR2004
            self.samples.count(self.names.get(index, f"gpu{index}"), int(words[-1]))

    def _close(self) -> None:
        if self.open is None:
            return
        gpu, index = self.open.gpu, self.open.index
        subject = gpu.address or f"gpu{index}"
        if len(self.names) < MOST_GPUS:
            self.names[index] = subject
        self.samples.add(subject, gpu.values, self.taken)
        self.open = None


def read(source: Source) -> Reading:
    """Read the tables in a file, one after the other."""
    walk = _Table()
    for chunk in source.chunks():
        for line in chunk.decode("utf-8", "replace").splitlines():
            walk.line(line[:LINE_LIMIT])
    problems = list(walk.messages.problems)
    cut = not walk.drawn or walk.open is not None
    if cut:
        problems.append("the table breaks off")
        walk._close()  # noqa: SLF001 - what was read of the last GPU counts
    found = walk.samples.reading(source, problems)
    driver = Measurement(KIND, "host", "driver.version", walk.driver, "text")
    events = (*found.events, *walk.messages.events)
    return replace(
        found, events=events, cut=found.cut or cut, taken=walk.taken,
        aliases={f"gpu{n}": s for n, s in walk.names.items() if s.startswith("pci:")},
        measurements=(*found.measurements, *((driver,) if walk.driver else ())),
        worked=bool(found.records) or any(e.code == "smi.lost" for e in events),
        records=found.records or len(events),
        problems=found.problems if found.records or problems else ("no GPU in the table",),
    )  # fmt: skip


READER = Reader(KIND, "nvidia-smi, the table", likeness, read)
