"""Frames: whole, in order, bounded, and never unpickled."""

import socket

import pytest

from rackproof.harness.training import wire


@pytest.fixture
def ends():
    one, two = socket.socketpair()
    with one, two:
        yield one, two


def test_frames_come_whole_and_in_order(ends):
    one, two = ends
    for number in range(3):
        wire.send(one, {"n": number}, bytes([number]) * number)
    found = [wire.receive(two) for _ in range(3)]
    assert [(head["n"], bytes(payload)) for head, payload in found] == [
        (0, b""), (1, b"\1"), (2, b"\2\2")
    ]  # fmt: skip


def test_a_line_takes_frames_in_pieces_and_gives_what_is_whole(ends):
    one, two = ends
    line = wire.Line(two)
    raw = b"".join(bytes(part) for part in wire.packed({"a": 1}, b"xyz"))
    for cut in raw[:-1]:
        one.sendall(bytes([cut]))
        assert line.take() == []
    one.sendall(raw[-1:] + raw)
    assert [bytes(payload) for _, payload in line.take()] == [b"xyz", b"xyz"]


def test_a_large_frame_passes_through_lines_that_never_block(ends):
    one, two = (wire.Line(end) for end in ends)
    sent = bytes(range(256)) * 40_000
    one.put({"a": 1}, sent)
    assert one.full
    found = []
    while not found:
        one.flush()
        found = two.take()
    assert bytes(found[0][1]) == sent
    assert not one.full


def test_what_came_before_the_end_counts(ends):
    one, two = ends
    line = wire.Line(two)
    wire.send(one, {"a": 1})
    one.close()
    assert line.take() == [({"a": 1}, bytearray())]
    with pytest.raises(wire.Closed):
        line.take()


@pytest.mark.parametrize(
    "raw",
    [
        wire.LENGTHS.pack(wire.MOST_HEADER + 1, 0),
        wire.LENGTHS.pack(2, wire.MOST_PAYLOAD + 1),
        wire.LENGTHS.pack(2, 0) + b"[]",
        wire.LENGTHS.pack(3, 0) + b"{]}",
        wire.LENGTHS.pack(4, 0) + b"\x80\x04K\x01",
    ],
)
def test_what_is_no_frame_ends_the_connection(ends, raw):
    one, two = ends
    one.sendall(raw)
    with pytest.raises(wire.Closed):
        wire.receive(two)
    other, line = socket.socketpair()
    with other, line:
        other.sendall(raw)
        with pytest.raises(wire.Closed):
            wire.Line(line).take()
