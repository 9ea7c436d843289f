"""Checkpoints on object stores: fsspec's memory, and a real S3 server on loopback (moto's)."""

import secrets

import fsspec
import pytest

from rackproof.harness.checkpoint import restore, verify
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError


@pytest.fixture(scope="module")
def s3():
    """The options of a client of a real S3 server, whose bucket `drill` is there."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "key": "k", "secret": "s",
        "client_kwargs": {"endpoint_url": f"http://{host}:{port}", "region_name": "us-west-2"},
    }  # fmt: skip
    fsspec.filesystem("s3", **options).mkdir("drill")
    yield options
    server.stop()


@pytest.fixture(params=["memory", "s3"])
def place(request):
    """A tier on a store of that kind, which holds nothing."""
    name = secrets.token_hex(4)
    if request.param == "memory":
        return Tier.of(f"T3=memory://{name}/run")
    return Tier.of(f"T3=s3://drill/{name}", **request.getfixturevalue("s3"))


class Dies(Files):
    """Puts so many objects, and then nothing any more."""

    def __init__(self, puts):
        self.left, self.done = puts, []

    def put(self, address, send):
        if self.left <= 0:
            msg = "the machine is gone"
            raise OSError(5, msg)
        self.left -= 1
        self.done.append(address)
        send()


def save(tier, *snapshots, files=None, **policy):
    told = []
    with Writer([tier], tell=told.append, files=files, **policy) as writer:
        for each in snapshots:
            writer.save(each)
            assert writer.flush(60)
    return [row for row in told if row["phase"] != "staged"]


def test_full_and_delta_go_to_a_store_and_come_back(place, snapshot, same):
    saves = [snapshot(step, dense=False) for step in (1, 2, 3)]
    told = save(place, *saves, delta=True, full_every=2)
    assert [row["kind"] for row in told] == ["full", "delta", "full"]
    assert place.steps() == [1, 2, 3]
    assert all(verify.verify(place, step).verifies for step in (1, 2, 3))
    assert same(restore.newest([place]).snapshot, saves[-1])


def test_a_large_object_is_put_in_pieces(place, snapshot, same, monkeypatch):
    monkeypatch.setattr("rackproof.harness.checkpoint.objects.AT_ONCE", 5 << 20)
    large = snapshot(4)
    state = {name: value.repeat(40_000) for name, value in large.weights.items()}
    large = type(large)(4, state, large.optimizer, large.context)
    assert large.nbytes > 20 << 20
    save(place, large, parts=1)
    assert same(restore.newest([place]).snapshot, large)


def test_the_manifest_is_the_commit(place, snapshot, same):
    save(place, snapshot(1))
    puts = Dies(99)
    save(place, snapshot(2), files=puts)
    for left in range(len(puts.done)):
        row = save(place, snapshot(3), files=Dies(left))[-1]
        committed = row["phase"] == "committed"
        assert committed == (left == len(puts.done) - 1)
        found = restore.newest([place])
        assert same(found.snapshot, snapshot(3 if committed else 2))
        assert not found.passed_over
        assert bool(found.remarks) is (left > 0)


def test_without_a_manifest_there_is_no_checkpoint(place, snapshot):
    save(place, snapshot(1), snapshot(2))
    place.store().remove("step-000000000002", ["MANIFEST.json"])
    assert place.steps() == [1]
    found = restore.newest([place])
    assert found.snapshot.step == 1
    assert any("step 2 to T3 was never finished" in words for words in found.remarks)
    assert any("LATEST of T3 names step 2" in words for words in found.remarks)


def test_what_is_somebody_elses_is_not_touched(place, snapshot):
    system, root = fsspec.core.url_to_fs(place.url, **dict(place.options))
    system.pipe_file(f"{root}/thesis.txt", b"mine")
    row = save(place, snapshot(1))[-1]
    assert row["phase"] == "failed"
    assert "not ours" in row["why"]
    assert [str(name).rpartition("/")[2] for name in system.find(root)] == ["thesis.txt"]


def test_old_ones_are_removed(place, snapshot):
    save(place, *(snapshot(step, dense=False) for step in range(1, 7)), delta=True, full_every=2,
         keep=2)  # fmt: skip
    assert place.steps() == [3, 4, 5, 6]
    assert all(verify.verify(place, step).verifies for step in place.steps())


@pytest.mark.parametrize("url", ["nosuch://a/b", "s3://no-such-bucket-here/x"])
def test_a_store_that_cannot_be_asked_is_an_error_of_ours(url, snapshot, s3):
    tier = Tier.of(url, **s3) if url.startswith("s3") else Tier.of(url)
    assert save(tier, snapshot(1))[-1]["phase"] == "failed"
    with pytest.raises(CheckpointError, match="no checkpoint"):
        restore.newest([tier])
    assert not verify.verify(tier, 1).verifies


def test_a_server_that_is_not_there_fails_in_time(snapshot, s3):
    gone = {**s3, "client_kwargs": {**s3["client_kwargs"], "endpoint_url": "http://127.0.0.1:1"},
            "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1}}  # fmt: skip
    tier = Tier.of("T3=s3://drill/gone", **gone)
    assert save(tier, snapshot(1))[-1]["phase"] == "failed"
    with pytest.raises(CheckpointError):
        restore.newest([tier], expect=restore.Expect(within=60))
