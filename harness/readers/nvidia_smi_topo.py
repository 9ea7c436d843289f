"""nvidia-smi topo -m: how many NVLinks join each pair of GPUs, and what the NICs are called.

The matrix is read by words, not by columns: tabs become blanks when it is pasted, and rows are cut.
The legend gives the names (``NIC3`` is ``mlx5_5``); the header promises the rows.
"""

import re
from dataclasses import dataclass, field

from rackproof.harness.model import Measurement
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_messages import LINE_LIMIT, Messages
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-topo"
LIMIT = 16 << 20
MOST_DEVICES = 512
_DEVICE = re.compile(r"(?:GPU|NIC|mlx5_|mlx4_|ib|bnxt_re)\d{1,4}\Z")
_GPU = re.compile(r"GPU\d{1,4}\Z")
_CELL = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|SOC|NV\d{1,3}|N/A|PXN|C2C|P2C)\Z")
_LINKS = re.compile(r"NV(\d{1,3})\Z")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s*([A-Za-z][\w.-]{1,31})\s*\Z")


def _header(line: str) -> list[str] | None:
    """Return the devices that a header names, or None for another line."""
    words = line[:LINE_LIMIT].split()
    devices: list[str] = []
    for word in words:
        if not _DEVICE.match(word):
            break
        devices.append(word)
    rest = words[len(devices) :]
    known = not rest or rest[:2] in (["CPU", "Affinity"], ["NUMA", "Affinity"])
    return devices if devices and _GPU.match(devices[0]) and known else None


def _row(line: str) -> tuple[str, list[str]] | None:
    """Return (device, cells) of a row of the matrix, or None for another line."""
    words = line[:LINE_LIMIT].split()
    if len(words) < 2 or not _DEVICE.match(words[0]) or not _CELL.match(words[1]):  # noqa: PLR2004
        return None
    cells = []
    for word in words[1:]:
        if not _CELL.match(word):
            break
        cells.append(word)
    return words[0], cells


def likeness(head: bytes) -> float:
    """Return 0.9 where a header of devices is followed by a row of the matrix, else 0."""
    lines = head.decode("utf-8", "replace").splitlines()[:200]
    for number, line in enumerate(lines):
        devices = _header(line)
        if devices is None:
            continue
        following = [found for other in lines[number + 1 : number + 4] if (found := _row(other))]
        if following and following[0][0] == devices[0] and "X" in following[0][1]:
            return 0.9
    return 0.0


@dataclass(slots=True)
class _Matrix:
    """The walk over the lines. `cells` is by (row, column)."""

    messages: Messages = field(default_factory=Messages)
    devices: list[str] = field(default_factory=list)
    rows: dict[str, list[str]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    short: list[str] = field(default_factory=list)

    def line(self, line: str) -> None:
        """Take one line."""
        if devices := _header(line):
            self.devices = devices[:MOST_DEVICES]
        elif self.devices and (found := _row(line)):
            name, cells = found
            if name in self.devices:
                self.rows[name] = cells[: len(self.devices)]
                if len(cells) < len(self.devices):
                    self.short.append(name)
            else:
                self.short.append(name)  # the header was cut
        elif (match := _LEGEND.match(line[:LINE_LIMIT])) and len(self.aliases) < MOST_DEVICES:
            self.aliases[match[1]] = f"nic:{match[2]}"
        else:
            self.messages.take(line)

    def gpus(self) -> list[str]:
        """Return the GPUs that the header names."""
        return [device for device in self.devices if _GPU.match(device)]

    def pairs(self) -> dict[tuple[str, str], int]:
        """Return the NVLinks of each pair of GPUs, by the row that is there; 0 without any."""
        found: dict[tuple[str, str], int] = {}
        gpus = set(self.gpus())
        for row, cells in self.rows.items():
            for column, cell in zip(self.devices, cells, strict=False):
                if row not in gpus or column not in gpus or cell in ("X", "N/A"):
                    continue
                match = _LINKS.match(cell)
                key = (min(row, column), max(row, column))
                links = int(match[1]) if match else 0
                found[key] = min(links, found.get(key, links))
        return found


def _odd(pairs: dict[tuple[str, str], int]) -> dict[str, tuple[int, int]]:
    """Return the NVLinks of each GPU to its worst and its best peer, where all are joined alike.

    Only a matrix where three pairs in four have the same number of NVLinks says anything, or one
    where all pairs but one GPU's have it: with bridges between some cards, or a cube mesh, pairs
    differ by design.
    """
    counts = sorted(pairs.values())
    if len(counts) < 6:  # noqa: PLR2004 - four GPUs have six pairs
        return {}
    usual = counts[len(counts) // 2]
    off = {pair for pair, links in pairs.items() if links < usual}
    gpus = sorted({gpu for pair in pairs for gpu in pair})
    common = [gpu for gpu in gpus if off and all(gpu in pair for pair in off)]
    alike = 4 * counts.count(usual) >= 3 * len(counts) or len(common) == 1
    if not (usual and alike):
        return {}
    root = max(common, key=lambda gpu: sum(gpu in pair for pair in off), default="")
    found = {}
    for gpu in gpus:
        mine = [links for pair, links in pairs.items() if gpu in pair]
        blame = gpu == root or (off and not root and any(gpu in pair for pair in off))
        found[gpu] = (min(mine) if blame else usual, max(mine))
    return found


def read(source: Source) -> Reading:
    """Read the last matrix of a file, with its legend."""
    walk = _Matrix()
    for line in source.whole(LIMIT).decode("utf-8", "replace").splitlines():
        walk.line(line)
    gpus = walk.gpus()
    problems = list(walk.messages.problems)
    lacking = [device for device in walk.devices if device not in walk.rows]
    if lacking:
        problems.append(
            f"the header names {len(walk.devices)} devices, and {len(walk.rows)} rows follow"
        )
    if walk.short:
        problems.append(f"the row of {walk.short[0]} is cut")
    measurements = [Measurement(KIND, "host", "gpu.count", len(gpus), "gpus")] if gpus else []
    measurements += [
        Measurement(KIND, f"gpu{int(gpu[3:])}", metric, links, "links")
        for gpu, joined in _odd(walk.pairs()).items()
        for metric, links in zip(("nvlink.joined", "nvlink.joined.best"), joined, strict=True)
    ]
    return Reading(
        source.path, KIND, sum(gpu in walk.rows for gpu in gpus),
        (*source.problems, *problems), tuple(walk.messages.events), tuple(measurements), (),
        source.cut or bool(lacking or walk.short), bool(walk.rows), walk.aliases,
    )  # fmt: skip


READER = Reader(KIND, "nvidia-smi topo -m", likeness, read)
