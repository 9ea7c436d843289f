"""Which kind of file this is, by its content alone: names and suffixes say nothing.

Every reader says how much the first bytes look like its own; the surest one above FLOOR wins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackproof.harness.readers import kernel_log, nvidia_smi_q, nvidia_smi_xml
from rackproof.harness.readers.reading import Reading
from rackproof.harness.readers.source import Source

FLOOR = 0.05


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of file: `likeness` of its head in 0..1, and `read` for the whole of it."""

    kind: str
    summary: str
    likeness: Callable[[bytes], float]
    read: Callable[[Source], Reading]


READERS: Sequence[Reader] = (
    Reader("nvidia-smi-xml", "nvidia-smi -q -x, versions 10 to 13",
           nvidia_smi_xml.likeness, nvidia_smi_xml.read),
    Reader("nvidia-smi-q", "nvidia-smi -q, whole or in parts",
           nvidia_smi_q.likeness, nvidia_smi_q.read),
    Reader("kernel-log", "dmesg, kern.log, journalctl -k, /dev/kmsg, ftrace",
           kernel_log.likeness, kernel_log.read),
)  # fmt: skip


def recognise(head: bytes) -> Reader | None:
    """Return the reader whose files begin like `head`, or None. Between equals the first wins."""
    best = max(READERS, key=lambda reader: reader.likeness(head))
    return best if best.likeness(head) >= FLOOR else None
