"""A PATCH by the client that trusts nobody: with the ETag that was read, in time, nowhere else."""

import contextlib

import pytest

from rackproof.harness.devices import redfish
from rackproof.harness.devices.redfish import PASSWORD, URL, USER, Service, accesses
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, TimedOut

SECRET = "s3cret-and-more"  # noqa: S105 - of our own server
CHANGE = {"PowerLimitWatts": {"SetPoint": 700}}


@pytest.fixture
def board(site):
    """A board of one GPU."""
    tree = site.site(0, 0)
    (path,) = site.gpus(tree, 1)
    with site.controller(site.Board(tree)) as made:
        made.path = path
        yield made


@pytest.fixture
def client(board):
    (access,) = accesses({URL: board.url, USER: "reader", PASSWORD: SECRET})
    with contextlib.closing(Service(access, request_s=0.5)) as service:
        yield service


def set_point(board):
    return board.tree[board.path]["PowerLimitWatts"]["SetPoint"]


def heads(board):
    """Keep the headers of each PATCH."""
    found, real = [], board.take

    def take(path, body, request):
        found.append(request.headers)
        return real(path, body, request)

    board.take = take
    return found


def test_a_change_goes_with_the_etag_that_was_read(board, client):
    sent = heads(board)
    before = board.etag(board.path)
    client.patch(board.path, CHANGE)
    assert sent[0]["If-Match"] == before
    assert sent[0]["Content-Type"] == "application/json"
    assert board.patched == [(board.path, CHANGE)]
    assert set_point(board) == 700


def test_what_was_read_before_a_change_is_not_read_again(board, client):
    assert client.get(board.path)["PowerLimitWatts"]["SetPoint"] == 1200
    client.patch(board.path, CHANGE)
    assert client.get(board.path)["PowerLimitWatts"]["SetPoint"] == 700
    board.tree[board.path]["PowerLimitWatts"]["SetPoint"] = 800
    assert client.get(board.path)["PowerLimitWatts"]["SetPoint"] == 700  # once a run
    assert client.look(board.path)["PowerLimitWatts"]["SetPoint"] == 800


@pytest.mark.parametrize("etag", ['x"\r\nX-Evil: 1', "a b", "\u00e4", "x" * 300, 7, None, ""])
def test_an_etag_that_is_none_is_not_sent(board, client, etag):
    board.etags = False
    board.tree[board.path]["@odata.etag"] = etag
    sent = heads(board)
    client.patch(board.path, CHANGE)
    assert "If-Match" not in sent[0]
    assert "X-Evil" not in sent[0]
    assert set_point(board) == 700


def test_an_etag_in_the_body_is_one(board, client):
    board.etags = False
    board.tree[board.path]["@odata.etag"] = 'W/"17"'
    sent = heads(board)
    client.patch(board.path, CHANGE)
    assert sent[0]["If-Match"] == 'W/"17"'


@pytest.mark.parametrize("lost", [1, redfish.TRIES - 1, redfish.TRIES])
def test_a_stale_etag_is_read_again_and_not_for_ever(board, client, lost):
    real, left = board.take, [None] * lost

    def take(path, body, request):
        if left:
            left.pop()
            board.versions[path] = board.versions.get(path, 0) + 1
        return real(path, body, request)

    board.take = take
    if lost < redfish.TRIES:
        client.patch(board.path, CHANGE)
        assert set_point(board) == 700
    else:
        with pytest.raises(DeviceError, match="changed by others"):
            client.patch(board.path, CHANGE)
        assert set_point(board) == 1200
    assert len(board.patched) == min(lost + 1, redfish.TRIES)


@pytest.mark.parametrize("path", ["/etc/passwd", "/redfish/v1/a b", "/redfish/v1/\r\nX: y", ""])
def test_only_paths_below_redfish_are_changed(board, client, path):
    with pytest.raises(DeviceError):
        client.patch(path, CHANGE)
    assert board.patched == []
    assert board.asked == []


@pytest.mark.parametrize(
    ("status", "kind"), [(400, DeviceError), (401, NotPermitted), (403, NotPermitted),
                         (404, NotPresent), (405, DeviceError), (428, DeviceError),
                         (307, DeviceError), (503, DeviceError), (201, DeviceError)],
)  # fmt: skip
def test_a_refusal_is_told_by_its_sort_and_not_tried_again(board, client, status, kind):
    board.takes[board.path] = status
    with pytest.raises(DeviceError) as caught:
        client.patch(board.path, CHANGE)
    assert type(caught.value) is kind
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    assert len(board.patched) == 1


def test_silence_ends_in_time(board, client):
    board.take = lambda *_: board.over.wait(30) or 200
    with pytest.raises(TimedOut):
        client.patch(board.path, CHANGE)


def test_a_number_that_is_none_is_not_sent(board, client):
    with pytest.raises(ValueError, match="JSON"):
        client.patch(board.path, {"SetPoint": float("nan")})
    assert board.patched == []
