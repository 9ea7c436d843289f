"""The emulated driver's state: one file that Python writes and ``libnvidia-ml.so.1`` answers from.

In: a path and a number of GPUs, then whatever the emulated rack writes into ``rows``. Out: a file
that unmodified NVML programs read through the C library, in this process and in any other.
"""

import ctypes
import functools
import mmap
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated import build
from rackproof.harness.devices.emulated.driver_state import (
    EVENT,
    EVENTS,
    HEADER,
    LINK,
    MAGIC,
    ROW,
    VERSION,
    Flag,
    Sensor,
    sensor_of,
)
from rackproof.harness.errors import DeviceError

__all__ = ["EmulatedDriver", "Flag", "PostedEvent", "Sensor", "matching_library", "sensor_of"]

Structured = npt.NDArray[np.void]
OPEN_FILES = Path("/proc/self/fd")
_TEXT = EVENT["text"].itemsize


@dataclass(frozen=True, slots=True)
class PostedEvent:
    """One event of the ring: number (1, 2, …), row, XID, text, and when, on the devices' clock."""

    sequence: int
    row: int
    code: int
    text: str
    at: float


class EmulatedDriver:
    """A mapped state file. One process writes it; any number of processes read it.

    ``header`` is one HEADER record, ``rows`` an array of ROW records, one for each GPU; both are
    views of the file: what is written there is what NVML says from then on.
    """

    def __init__(self, path: Path) -> None:
        """Map an existing state file; a DeviceError where its layout is another one."""
        self.path = path
        with path.open("r+b") as file:
            if os.fstat(file.fileno()).st_size < HEADER.itemsize:
                msg = f"{path} is no state file of the emulated driver: it is too short"
                raise DeviceError(msg)
            self._map = mmap.mmap(file.fileno(), 0)
        self.header: Any = np.frombuffer(self._map, HEADER, count=1)[0]
        self._refuse_another_layout()
        count, start = int(self.header["rows"]), int(self.header["rows_offset"])
        self.rows: Structured = np.frombuffer(self._map, ROW, count=count, offset=start)
        self._events: Structured = np.frombuffer(
            self._map,
            EVENT,
            count=int(self.header["events"]),
            offset=int(self.header["events_offset"]),
        )
        self._posting = threading.Lock()

    @classmethod
    def create(
        cls, path: Path, rows: int, *, driver_version: str, cuda_version: int
    ) -> "EmulatedDriver":
        """Write a state file of `rows` GPUs, all fields zero, and map it.

        `cuda_version` is 1000 × major + 10 × minor. The file appears under `path` complete (it is
        renamed into place, and replaces a file of that name) and is sparse. A path of OPEN_FILES
        is a file that is open already.
        """
        if rows < 1:
            msg = f"an emulated driver needs at least one GPU, not {rows}"
            raise ValueError(msg)
        header = np.zeros(1, HEADER)
        header["magic"], header["version"] = MAGIC, VERSION
        header["header_size"], header["event_size"] = HEADER.itemsize, EVENT.itemsize
        header["row_size"], header["link_size"] = ROW.itemsize, LINK.itemsize
        header["rows"], header["events"] = rows, EVENTS
        header["events_offset"] = HEADER.itemsize
        header["rows_offset"] = HEADER.itemsize + EVENTS * EVENT.itemsize
        header["cuda_version"] = cuda_version
        header["driver_version"] = driver_version.encode("ascii")
        header["nvml_version"] = f"13.{driver_version}".encode("ascii")
        header["view_rack"] = header["view_tray"] = -1
        _write(path, header.tobytes(), int(header["rows_offset"][0]) + rows * ROW.itemsize)
        return cls(path)

    def _refuse_another_layout(self) -> None:
        head = self.header
        found = [int(head[f"{what}_size"]) for what in ("header", "event", "row", "link")]
        ours = [d.itemsize for d in (HEADER, EVENT, ROW, LINK)]
        ends = (
            int(head["events_offset"]) + int(head["events"]) * EVENT.itemsize,
            int(head["rows_offset"]) + int(head["rows"]) * ROW.itemsize,
        )
        if (
            self._map[: len(MAGIC)] != MAGIC
            or int(head["version"]) != VERSION
            or found != ours
            or max(ends) > len(self._map)
        ):
            msg = f"{self.path} is no state file of this version of the emulated driver"
            raise DeviceError(msg)

    def view(self, rack: int | None, tray: int | None) -> None:
        """Show only this tray's GPUs to NVML, or all for (None, None); read at the next nvmlInit.

        The environment variable RACKPROOF_NVML_TRAY (``rack,tray``) of a reader wins over it.
        """
        self.header["view_rack"] = -1 if rack is None else rack
        self.header["view_tray"] = -1 if tray is None else tray

    def post_xid(self, row: int, code: int, text: str, at: float = 0.0) -> int:
        """Report XID `code` of the GPU in `row`; return the event's number.

        `at` is on the devices' clock in seconds. Every event set that waits for this GPU wakes.
        """
        if not 0 <= row < len(self.rows):
            msg = f"no GPU in row {row}: there are {len(self.rows)}"
            raise IndexError(msg)
        with self._posting:
            number = int(self.header["events_head"]) + 1
            slot = self._events[(number - 1) % len(self._events)]
            slot["sequence"], slot["at"], slot["row"], slot["code"] = number, at, row, code
            cut = text.encode("utf-8")[: _TEXT - 1].decode("utf-8", "ignore")
            slot["text"] = cut.encode("utf-8")
            # Last, so that a reader in another process never sees half an event.
            self.header["events_head"] = number
        return number

    def posted(self, after: int = 0) -> list[PostedEvent]:
        """Return the events whose number is above `after`, oldest first.

        A DeviceError where the ring has already dropped some of them.
        """
        with self._posting:
            head = int(self.header["events_head"])
            if head - after > len(self._events):
                msg = f"{head - after - len(self._events)} events were overwritten unread"
                raise DeviceError(msg)
            room = len(self._events)
            slots = [self._events[number % room].copy() for number in range(after, head)]
        return [
            PostedEvent(
                int(slot["sequence"]),
                int(slot["row"]),
                int(slot["code"]),
                slot["text"].decode("utf-8"),
                float(slot["at"]),
            )
            for slot in slots
        ]

    def close(self) -> None:
        """Let go of the file, which stays; the views must not be used any more."""
        empty = np.zeros(1, HEADER)
        self.header, self.rows, self._events = empty[0], np.zeros(0, ROW), np.zeros(0, EVENT)


def _write(path: Path, head: bytes, size: int) -> None:
    """Write `head` into a sparse file of `size` bytes."""
    if path.parent == OPEN_FILES:
        with path.open("r+b") as file:
            file.write(head)
            file.truncate(size)
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(head)
            file.truncate(size)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _members() -> dict[str, tuple[int, int]]:
    """Return the layout as Python has it: name -> (offset, size) in bytes."""
    found = {}
    for name, dtype in (("Header", HEADER), ("Event", EVENT), ("Link", LINK), ("Row", ROW)):
        found[name] = (0, dtype.itemsize)
        for member, (kind, offset, *_) in (dtype.fields or {}).items():
            found[f"{name}.{member}"] = (offset, kind.itemsize)
    return found


def library_members(library: Path) -> dict[str, tuple[int, int]]:
    """Return the layout as the compiled `library` has it: name -> (offset, size) in bytes."""
    try:
        layout = ctypes.CDLL(str(library)).rackproofLayout
    except (OSError, AttributeError) as error:
        msg = f"{library} is no emulated driver that can be loaded here ({error}); delete it"
        raise DeviceError(msg) from error
    name, offset, size = ctypes.c_char_p(), ctypes.c_uint(), ctypes.c_uint()
    found: dict[str, tuple[int, int]] = {}
    while layout(len(found), *map(ctypes.byref, (name, offset, size))) == 0:
        found[(name.value or b"").decode()] = (offset.value, size.value)
    return found


@functools.cache
def matching_library() -> Path:
    """Return the path of libnvidia-ml.so.1 (built where need be), its layout compared with ours.

    Raises NotPresent where it cannot be built, DeviceError where its layout differs.
    """
    library = build.library()
    theirs, ours = library_members(library), _members()
    if theirs != ours:
        odd = sorted(n for n in theirs | ours if theirs.get(n) != ours.get(n))
        msg = f"{library} was built from another version: {', '.join(odd[:5])} differ; delete it"
        raise DeviceError(msg)
    return library
