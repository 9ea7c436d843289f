"""One suite against every Fabric: what the link burns rely on."""

from collections.abc import Iterator

import pytest

from rackproof.harness.devices import Bench, connect, connect_local, cupy_plane
from rackproof.harness.devices.protocol import LinkCounters, Moved
from rackproof.harness.errors import DeviceError, NotPresent
from rackproof.harness.spec import load

SIZE = 256 << 20


@pytest.fixture(scope="module", params=["hgx-h100", "gb300-nvl72", "catalina", "real"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A bench of two GPUs or more that links join."""
    if request.param == "real":
        if not cupy_plane.available():
            pytest.skip("optional: no CuPy with a GPU")
        opened = connect_local()
        if len(opened.devices) < 2 or not opened.links:
            opened.close()
            pytest.skip("optional: no two GPUs with NVLinks")
    else:
        opened = connect(load(request.param), seed=5)
    yield opened
    opened.close()


@pytest.fixture
def pair(bench: Bench) -> Iterator[tuple[str, str]]:
    """The first and the last GPU, within a run."""
    ends = (next(iter(bench.devices)), list(bench.devices)[-1])
    for subject in ends:
        bench.devices[subject].begin("contract", 1)
    yield ends
    for subject in ends:
        bench.devices[subject].end()


def sent(bench: Bench, subject: str) -> int:
    counters = bench.devices[subject].telemetry.link_counters(bench.links or 0)
    assert all(isinstance(link, LinkCounters) for link in counters)
    return sum(link.sent for link in counters if isinstance(link.sent, int))


def test_a_copy_is_timed_and_compared(bench, pair):
    (moved,) = bench.fabric.exchange([pair], SIZE, 3).values()
    assert isinstance(moved, Moved)
    assert (moved.size >= SIZE, moved.wrong) == (True, 0)
    assert moved.seconds > 0
    assert 1 < moved.rate < 10_000


def test_every_pair_that_is_asked_is_answered(bench, pair):
    a, b = pair
    asked = [(a, b), (b, a), (a, "rack9/tray00/gpu0")]
    found = bench.fabric.exchange(asked, SIZE, 3)
    assert list(found) == asked
    assert isinstance(found[a, b], Moved)
    assert isinstance(found[b, a], Moved)
    assert isinstance(found[asked[2]], NotPresent)
    assert bench.fabric.exchange([], SIZE, 3) == {}


def test_what_crosses_is_counted_by_link(bench, pair):
    before = sent(bench, pair[0])
    bench.fabric.exchange([pair], SIZE, 3)
    assert sent(bench, pair[0]) - before >= SIZE / 1024 * 0.99


def test_an_all_reduce_sums_on_all_ranks(bench):
    gpus = list(bench.devices)
    reduced = bench.fabric.all_reduce(gpus, SIZE, 3)
    assert (reduced.ranks, set(reduced.wrong)) == (len(gpus), set(gpus))
    assert set(reduced.wrong.values()) == {0}
    assert reduced.seconds > 0


def test_alone_there_is_nothing_to_sum(bench, pair):
    with pytest.raises(DeviceError):
        bench.fabric.all_reduce(pair[:1], SIZE, 3)
