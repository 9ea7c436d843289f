"""Lines between two processes: numbers survive, and nothing that comes is trusted or waited for."""

import json
import math
import os

import numpy as np
import pytest

from rackproof.harness.power import lines
from rackproof.harness.power.lines import Channel, EndedError, packed, parsed, unpacked


class Way:
    """Our channel, and the bare ends of the other process."""

    def __init__(self):
        inward, self.theirs = os.pipe()
        self.hears, outward = os.pipe()
        self.channel = Channel(inward, outward)
        self._open = [inward, self.theirs, self.hears, outward]

    def say(self, text):
        os.write(self.theirs, text)

    def close(self):
        for descriptor in self._open:
            os.close(descriptor)
        self._open = []

    def hang_up(self):
        for descriptor in (self.theirs, self.hears):
            self._open.remove(descriptor)
            os.close(descriptor)


@pytest.fixture
def way():
    made = Way()
    yield made
    made.close()


def test_numbers_survive_the_way():
    values = np.array([0.1, -7.0, 1e300, math.nan, math.inf, 0.0])
    text = json.dumps(packed(values), allow_nan=False)
    assert unpacked(json.loads(text), 6).tobytes() == values.tobytes()
    assert np.isnan(unpacked(packed(np.array([-math.inf])), 1)).all()


@pytest.mark.parametrize("wrong", [None, {}, "12", [1.0], [1.0, "2"], [1.0, True], [1.0, []]])
def test_what_is_no_list_of_numbers_is_refused(wrong):
    with pytest.raises(ValueError, match="number"):
        unpacked(wrong, 2)


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"7", b"null", b"{", b"\xff\xfe", b'{"a": NaN}', b'{"a": -Infinity}',
             b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_what_is_no_object_is_refused(line):
    with pytest.raises(ValueError, match=r"."):
        parsed(line)


def test_lines_come_one_by_one_however_they_were_cut(way):
    way.say(b'{"a": 1}\n{"b"')
    assert way.channel.receive(1.0) == b'{"a": 1}'
    assert way.channel.receive(0.01) is None
    way.say(b": 2}\n\n")
    assert way.channel.receive(1.0) == b'{"b": 2}'
    assert way.channel.receive(1.0) == b""


def test_a_line_without_an_end_is_dropped_and_the_next_is_read(way, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 100)
    for _ in range(10):
        way.say(b"x" * 300)
        assert way.channel.receive(0.01) is None
        assert len(way.channel._buffer) <= 300
    way.say(b'x\n{"a": 1}\n' + b"y" * 101 + b"\n")
    assert way.channel.receive(1.0) == b""
    assert way.channel.receive(1.0) == b'{"a": 1}'
    assert way.channel.receive(1.0) == b""


def test_who_has_gone_is_said(way):
    way.say(b'{"a": 1}\n')
    way.hang_up()
    assert way.channel.receive(1.0) == b'{"a": 1}'
    with pytest.raises(EndedError):
        way.channel.receive(1.0)
    with pytest.raises(EndedError):
        way.channel.send({"a": 1}, 1.0)


def test_who_takes_nothing_is_not_waited_for(way):
    with pytest.raises(EndedError, match="takes nothing"):
        way.channel.send({"a": "x" * (4 << 20)}, 0.05)


def test_what_is_sent_is_one_line(way):
    way.channel.send({"a": [None, "inf"]}, 1.0)
    assert json.loads(os.read(way.hears, 1000)) == {"a": [None, "inf"]}
