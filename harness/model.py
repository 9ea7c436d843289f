"""The nouns between the rooms: what a rack is made of, and what was seen on it.

A *subject* is a string in the contract's spelling: ``rack0/tray03/gpu1``,
``rack0/tray03/gpu1/link07``, ``rack0/tray03/host``, ``rack0/switch00``, ``fabric``, or, from a
file, ``[host:NAME/]pci:dddd:bb:dd.f``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Value = float | int | str

WIDE = "fabric"
"""The item of a burn that works on all GPUs at once."""


def sort_of(subject: str) -> str:
    """Return the sort of a subject in a rack: gpu, link, host, nic, switch, shelf and so on."""
    return subject.rpartition("/")[2].rstrip("0123456789")


def item_of(subject: str, *, wide: bool = False) -> str:
    """Return the item that a subject is burnt with.

    A link's is its GPU, a NIC's its host, a shelf's its rack's power, and of a wide burn's subjects
    it is the whole rack; the others stand for themselves.
    """
    if wide:
        return WIDE
    head, _, last = subject.rpartition("/")
    match last.rstrip("0123456789"):
        case "link" | "shelf":
            return head
        case "nic":
            return f"{head}/host"
        case _:
            return subject


class Why(StrEnum):
    """Why a reading is absent."""

    NOT_RUN = "not-run"
    NO_READING = "no-reading"
    NOT_SUPPORTED = "not-supported"
    NOT_PERMITTED = "not-permitted"
    LOST = "lost"
    TIMED_OUT = "timed-out"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU's place: subject, rack, tray (both from 0), index within its tray, and SKU key."""

    subject: str
    rack: int
    tray: int
    index: int
    sku: str

    @property
    def host(self) -> str:
        """The subject of the host that it sits in."""
        return f"rack{self.rack}/tray{self.tray:02d}/host"

    def link(self, number: int) -> str:
        """Return the subject of its link `number`."""
        return f"{self.subject}/link{number:02d}"


@dataclass(frozen=True, slots=True)
class Tray:
    """A compute tray (an HGX node is one): its GPUs, and how many CPUs and NICs it has.

    `nic_rate` is the rate of each NIC in Gb/s, where the rack's file says it.
    """

    rack: int
    number: int
    gpus: tuple[Gpu, ...]
    cpus: int | None
    nics: int | None
    nic_rate: float | None = None

    @property
    def host(self) -> str:
        """The subject of its host."""
        return f"rack{self.rack}/tray{self.number:02d}/host"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value that was read. `value` is in `unit`; `window` is (start, end) in device seconds."""

    check: str
    subject: str
    metric: str
    value: Value
    unit: str
    attempt: int = 1
    window: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that ought to be there and is not; never a number. `cure` says what would help."""

    check: str
    subject: str
    metric: str
    why: Why
    reason: str
    cure: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Event:
    """What the hardware or its driver said: ``xid.79``, ``sxid.20034``, ``aer.fatal`` and more.

    `at` is seconds since the epoch, or on the clock of its source where `clock` says so (``boot``:
    seconds since boot; ``virtual``: the emulated device's), or None. `detail` holds what the text
    gave: ``link``, ``cause`` (an Xid number), ``action`` (an Xid 154 number), ``pid``, ``count``.
    """

    subject: str
    code: str
    text: str
    at: float | None = None
    clock: str = "epoch"
    detail: Mapping[str, str | int | float] = field(default_factory=dict)


Seen = Measurement | Missing | Event
