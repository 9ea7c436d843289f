"""Frames between coordinator and replicas: a JSON header, then bytes. Nothing is unpickled.

A frame is two little-endian uint32 (lengths of header and payload), the header, the payload. Out of
order or oversized frames end the connection: the peer is not one of ours.
"""

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

LENGTHS = struct.Struct("<II")
MOST_HEADER = 1 << 22
MOST_PAYLOAD = 1 << 31
BLOCK = 1 << 18

Header = dict[str, Any]


class Closed(ConnectionError):
    """The other end is gone, or speaks something else."""


def packed(
    header: Header, payload: bytes | bytearray | memoryview = b""
) -> list[bytes | bytearray | memoryview]:
    """Return the parts of a frame, so that a large payload is not copied."""
    text = json.dumps(header, separators=(",", ":")).encode()
    parts: list[bytes | bytearray | memoryview] = [LENGTHS.pack(len(text), len(payload)) + text]
    return [*parts, payload] if len(payload) else parts


def open_to(address: tuple[str, int], within: float) -> socket.socket:
    """Return a connection without Nagle's delay; raises OSError."""
    connection = socket.create_connection(address, timeout=within)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def send(
    connection: socket.socket, header: Header, payload: bytes | bytearray | memoryview = b""
) -> None:
    """Send a whole frame; raises Closed."""
    try:
        for part in packed(header, payload):
            connection.sendall(part)
    except OSError as error:
        raise Closed(str(error)) from error


def receive(connection: socket.socket) -> tuple[Header, bytearray]:
    """Return the next frame, waiting for it; raises Closed."""
    lengths = LENGTHS.unpack(_exactly(connection, LENGTHS.size))
    _check(*lengths)
    header = _header(_exactly(connection, lengths[0]))
    return header, _exactly(connection, lengths[1])


def _exactly(connection: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    view, have = memoryview(found), 0
    while have < size:
        try:
            got = connection.recv_into(view[have:])
        except OSError as error:
            raise Closed(str(error)) from error
        if not got:
            msg = "the other end has closed"
            raise Closed(msg)
        have += got
    return found


def _check(header: int, payload: int) -> None:
    if header > MOST_HEADER or payload > MOST_PAYLOAD:
        msg = "a frame beyond any size that we send"
        raise Closed(msg)


def _header(raw: bytes | bytearray) -> Header:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        msg = "a frame whose header is no JSON"
        raise Closed(msg) from error
    if not isinstance(header, dict):
        msg = "a frame whose header is no object"
        raise Closed(msg)
    return header


@dataclass(slots=True)
class Line:
    """One end of a connection that never blocks: what came in, and what is still to go out."""

    socket: socket.socket
    _want: int = LENGTHS.size
    _part: int = 0  # 0 lengths, 1 header, 2 payload
    _lengths: tuple[int, int] = (0, 0)
    _header: Header = field(default_factory=dict)
    _buffer: bytearray = field(default_factory=lambda: bytearray(LENGTHS.size))
    _have: int = 0
    _out: list[memoryview] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the socket one that does not block."""
        self.socket.settimeout(0)

    @property
    def full(self) -> bool:
        """Whether something is still to go out."""
        return bool(self._out)

    def put(self, header: Header, payload: bytes | bytearray | memoryview = b"") -> None:
        """Queue a frame and send what goes at once; raises Closed."""
        self._out += [memoryview(part).cast("B") for part in packed(header, payload)]
        self.flush()

    def flush(self) -> None:
        """Send as much as goes without waiting; raises Closed."""
        while self._out:
            try:
                sent = self.socket.send(self._out[0])
            except BlockingIOError:
                return
            except OSError as error:
                raise Closed(str(error)) from error
            if sent == len(self._out[0]):
                del self._out[0]
            else:
                self._out[0] = self._out[0][sent:]

    def take(self) -> list[tuple[Header, bytearray]]:
        """Return the whole frames that have come; raises Closed at the end."""
        found: list[tuple[Header, bytearray]] = []
        budget = 64 * BLOCK  # so that one that never stops sending starves nobody
        while budget > 0:
            try:
                got = self.socket.recv_into(memoryview(self._buffer)[self._have : self._want])
            except BlockingIOError:
                break
            except OSError as error:
                raise Closed(str(error)) from error
            if not got and self._want > self._have:
                if found:  # what came before the end still counts; the next call says the end
                    break
                msg = "the other end has closed"
                raise Closed(msg)
            self._have += got
            budget -= got
            while self._have == self._want and self._step(found):
                pass
        return found

    def _step(self, found: list[tuple[Header, bytearray]]) -> bool:
        """Go on to the next part of a frame; True while that part is empty and done as well."""
        if self._part == 0:
            lengths = LENGTHS.unpack(self._buffer)
            _check(*lengths)
            self._lengths = (int(lengths[0]), int(lengths[1]))
            self._next(1, self._lengths[0])
        elif self._part == 1:
            self._header = _header(self._buffer)
            self._next(2, self._lengths[1])
        else:
            found.append((self._header, self._buffer))
            self._next(0, LENGTHS.size)
        return self._want == 0

    def _next(self, part: int, size: int) -> None:
        self._part, self._want, self._have = part, size, 0
        self._buffer = bytearray(size)
