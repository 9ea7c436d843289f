"""A zone out of band, against boards that do what they are told, do not, or say nonsense."""

import json
import time
from contextlib import ExitStack, closing

import numpy as np
import pytest

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import connect, redfish
from rackproof.harness.devices.attached import of_bench
from rackproof.harness.devices.real import put_back
from rackproof.harness.devices.redfish import PASSWORD, URL, USER, accesses
from rackproof.harness.errors import DeviceError, DrillError, NotPresent
from rackproof.harness.journal import Journal
from rackproof.harness.power.meter import ToldMeter
from rackproof.harness.power.nvml_zone import NvmlZone
from rackproof.harness.power.redfish_zone import Board, RedfishZone
from rackproof.harness.power.zone import TOP, Layout
from rackproof.harness.spec import load

SECRET = "s3cret-and-more"  # noqa: S105 - of our own server
GPUS, HIGH, LOW, DRAWN = 4, 1200.0, 200.0, 900.5


class Rack:
    """Two boards of two GPUs each, and the zone over them."""

    def __init__(self, site, stack, folder, **how):
        self.site, self.stack, self.folder = site, stack, folder
        self.boards, self.paths = [], []
        for number in range(2):
            tree = site.site(0, 0)
            own = site.gpus(tree, GPUS // 2, controls=how.get("controls", False))
            for name, value in tree.items():
                if value.get("ProcessorType") == "GPU":
                    value["UUID"] = f"{number}-{name[-1]}"
            board = site.Board(tree, etags=how.get("etags", True))
            self.boards.append(stack.enter_context(site.controller(board)))
            self.paths.append(own)
        self.clock = VirtualClock(5.0)
        self.layout = Layout(
            tuple(f"rack0/tray00/gpu{n}" for n in range(GPUS)), ("rack0/power",),
            np.zeros(GPUS, dtype=np.intp), np.array([TOP]), np.array([1000.0]),
        )  # fmt: skip
        self.paused = []

    def zone(self, uuids=None, within=5.0):
        urls = " ".join(board.url for board in self.boards)
        found = accesses({URL: urls, USER: "reader", PASSWORD: SECRET})
        board = Board(
            found, uuids or {}, self.folder, within, self.clock, self.paused.append
        )  # fmt: skip
        made = RedfishZone(board, self.layout, ToldMeter(1))
        self.stack.callback(made.close)
        return made

    def own(self, gpu):
        """Return the board and the path of a GPU's limit."""
        return self.boards[gpu // 2], self.paths[gpu // 2][gpu % 2]

    def limit(self, gpu):
        board, path = self.own(gpu)
        return board.tree[path].get("PowerLimitWatts", board.tree[path])

    def says(self, gpu, body, status=200):
        board, path = self.own(gpu)
        board.odd[path] = lambda request: self.site.say(request, status, body)

    def set_points(self):
        return [self.limit(gpu)["SetPoint"] for gpu in range(GPUS)]

    def files(self):
        return list(self.folder.glob("*.jsonl"))


@pytest.fixture
def make(site, tmp_path):
    with ExitStack() as stack:
        yield lambda **how: Rack(site, stack, tmp_path / "journal", **how)


@pytest.fixture
def rack(make):
    return make()


@pytest.fixture(params=["metrics", "controls", "no etags"])
def any_rack(make, request):
    return make(controls=request.param == "controls", etags=request.param != "no etags")


# --- healthy -------------------------------------------------------------------------------------
def test_limits_are_set_and_read_back_and_put_back(any_rack):
    zone = any_rack.zone()
    any_rack.limit(1)["SetPoint"] = 1000
    bounds = zone.bounds()
    assert (bounds.low == LOW).all()
    assert (bounds.high == HIGH).all()
    got = zone.ask(np.array([700.0, 800.9, np.nan, 600.0]))
    assert got[[0, 1, 3]].tolist() == [700.0, 800.0, 600.0]  # whole W, never more
    assert np.isnan(got[2])
    assert any_rack.set_points() == [700, 800, 1200, 600]
    assert zone.bounds().requested.tolist() == [1200.0, 1000.0, 1200.0, 1200.0]
    sample = zone.sample()
    assert sample.gpu.tolist() == [DRAWN] * GPUS
    assert sample.current.tolist() == [700.0, 800.0, 1200.0, 600.0]
    assert len(any_rack.files()) == 1
    assert (zone.restore(), zone.changed) == ("", 0)
    assert any_rack.set_points() == [1200, 1000, 1200, 1200]
    assert any_rack.files() == []
    assert zone.problems == {}


def test_a_limit_never_leaves_its_bounds(rack):
    zone = rack.zone()
    got = zone.ask(np.array([5.0, 9999.0, np.inf, 500.0]))
    assert got[[0, 1, 3]].tolist() == [LOW, HIGH, 500.0]
    assert np.isnan(got[2])
    assert rack.set_points() == [200, 1200, 1200, 500]
    zone.restore()


def test_a_limit_that_is_in_force_already_is_not_set_again(rack):
    zone = rack.zone()
    caps = np.full(GPUS, 700.0)
    zone.ask(caps)
    sent = [len(board.patched) for board in rack.boards]
    assert zone.ask(caps).tolist() == [700.0] * GPUS
    assert [len(board.patched) for board in rack.boards] == sent
    zone.restore()


def test_gpus_are_known_by_their_uuid_where_it_is_told(rack):
    uuids = dict(zip(rack.layout.gpus, ["GPU-1-1", "GPU-0-0", "GPU-1-0", "GPU-0-1"], strict=True))
    zone = rack.zone(uuids)
    zone.ask(np.array([700.0, 710.0, 720.0, 730.0]))
    assert rack.set_points() == [710, 730, 720, 700]
    zone.restore()


def test_a_cap_out_of_band_shows_in_band_as_a_limit_below_the_requested(make, site, tmp_path):
    with ExitStack() as stack:
        bench = stack.enter_context(closing(connect(load("hgx-h100"), seed=1)))
        rows = bench.backing.rack.driver.rows
        tree = site.site(0, 0)
        paths = site.gpus(tree, len(rows))
        board = stack.enter_context(site.controller(site.Board(tree)))
        for path in paths:
            board.tree[path]["PowerLimitWatts"] |= {"SetPoint": 700, "AllowableMax": 700}

        def changed(path):
            point = board.tree[path]["PowerLimitWatts"]["SetPoint"]
            rows["limit_out_of_band_mw"][paths.index(path)] = point * 1000

        board.changed = changed
        (access,) = accesses({URL: board.url, USER: "reader", PASSWORD: SECRET})
        layout = Layout(
            tuple(bench.devices), ("rack0/power",), np.zeros(len(rows), dtype=np.intp),
            np.array([TOP]), np.zeros(1),
        )  # fmt: skip
        clock = VirtualClock()
        outer = RedfishZone(
            Board([access], folder=tmp_path / "o", clock=clock), layout, ToldMeter(1)
        )
        inner = NvmlZone(
            of_bench(bench, clock), layout, ToldMeter(1),
            Journal(tmp_path / "i", put_back, listens=False),
        )  # fmt: skip
        outer.ask(np.full(len(rows), 450.0))
        sample = inner.sample()
        assert (set(sample.requested), set(sample.current)) == ({700.0}, {450.0})
        assert set(inner.ask(np.full(len(rows), 600.0))) == {450.0}
        assert inner.restore() == outer.restore() == ""
        assert set(inner.sample().current) == {700.0}
        outer.close()


# --- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("status", "said"), [(400, "HTTP 400"), (403, "refuses"), (404, "404"),
                                              (500, "HTTP 500"), (308, "HTTP 308")])  # fmt: skip
def test_a_board_that_refuses_stops_nobody_else(rack, status, said):
    zone = rack.zone()
    board, path = rack.own(1)
    board.takes[path] = status
    got = zone.ask(np.full(GPUS, 700.0))
    assert got[[0, 2, 3]].tolist() == [700.0] * 3
    assert np.isnan(got[1])
    assert said in zone.problems["rack0/tray00/gpu1"]
    assert list(zone.problems) == ["rack0/tray00/gpu1"]
    assert zone.restore() == ""
    assert rack.set_points() == [1200] * GPUS


def test_a_board_that_ignores_is_read_back_as_it_is(rack):
    zone = rack.zone()
    board, path = rack.own(2)
    board.takes[path] = 200
    assert zone.ask(np.full(GPUS, 700.0)).tolist() == [700.0, 700.0, 1200.0, 700.0]
    assert len(rack.paused) == 2  # it was looked at three times
    assert zone.restore() == ""


def test_a_limit_that_is_not_in_force_is_none(rack):
    zone = rack.zone()
    rack.limit(0)["ControlMode"] = "Disabled"
    rack.limit(1)["SetPoint"] = None
    assert zone.ask(np.full(GPUS, 700.0)).tolist() == [1200.0, 700.0, 700.0, 700.0]
    zone.restore()


def test_a_change_that_others_were_faster_with_is_tried_again(rack):
    zone = rack.zone()
    board, path = rack.own(0)
    real, stale = board.take, [True, True]

    def take(at, body, request):
        if at == path and stale:
            stale.pop()
            board.versions[path] = board.versions.get(path, 0) + 1
        return real(at, body, request)

    board.take = take
    assert zone.ask(np.array([700.0, *[np.nan] * 3]))[0] == 700.0
    assert len(board.patched) == 3
    stale += [True] * redfish.TRIES
    assert np.isnan(zone.ask(np.array([800.0, *[np.nan] * 3]))[0])
    assert "changed by others" in zone.problems["rack0/tray00/gpu0"]
    zone.restore()


@pytest.mark.parametrize(
    "wrong",
    [{"SetPoint": 700_000, "AllowableMin": 200_000, "AllowableMax": 1_200_000},  # mW
     {"SetPoint": 0.7, "AllowableMin": 0.2, "AllowableMax": 1.2},  # kW
     {"AllowableMin": 1200, "AllowableMax": 200}, {"AllowableMin": None},
     {"AllowableMax": "1200"}, {"AllowableMax": True}, {"SetPoint": -5}, {"SetPoint": 1e9},
     {"SetPointUnits": "kW"}, {"AllowableMax": 10**400}],
)  # fmt: skip
def test_what_is_no_w_of_a_gpu_is_not_trusted_with_a_limit(rack, wrong):
    zone = rack.zone()
    rack.limit(3).update(wrong)
    before = dict(rack.limit(3))
    got = zone.ask(np.full(GPUS, 700.0))
    assert got[:3].tolist() == [700.0] * 3
    assert np.isnan(got[3])
    assert rack.limit(3) == before
    assert "rack0/tray00/gpu3" in zone.problems
    assert np.isnan(zone.bounds().high[3])
    assert zone.restore() == ""


@pytest.mark.parametrize("value", [None, "900", -1.0, 1e9, True, {}])
def test_a_power_that_is_none_is_nan_and_the_limit_is_read_all_the_same(rack, value):
    board, path = rack.own(0)
    zone = rack.zone()
    board.tree[path]["PowerWatts"] = {"Reading": value}
    sample = zone.sample()
    assert np.isnan(sample.gpu[0])
    assert sample.current[0] == HIGH


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"PowerLimitWatts": NaN}', b"{}",
                                  b'{"PowerLimitWatts": []}'])  # fmt: skip
def test_garbage_is_nan_for_that_gpu_alone(rack, body):
    zone = rack.zone()
    rack.says(1, body)
    sample = zone.sample()
    assert np.flatnonzero(np.isnan(sample.gpu)).tolist() == [1]
    assert np.flatnonzero(np.isnan(sample.current)).tolist() == [1]
    assert list(zone.problems) == ["rack0/tray00/gpu1"]
    assert SECRET not in zone.problems["rack0/tray00/gpu1"]


def test_a_gpu_that_is_lost_midway_keeps_its_entry_until_it_is_back(rack):
    zone = rack.zone()
    zone.ask(np.full(GPUS, 700.0))
    rack.says(2, b"", 404)
    got = zone.ask(np.full(GPUS, 600.0))
    assert np.flatnonzero(np.isnan(got)).tolist() == [2]
    assert "1 limits could not be put back" in zone.restore()
    assert rack.set_points() == [1200, 1200, 700, 1200]
    assert len(rack.files()) == 1
    rack.boards[1].odd.clear()
    assert zone.restore() == ""
    assert rack.set_points() == [1200] * GPUS


def test_a_board_that_is_silent_costs_its_time_and_no_more(rack):
    zone = rack.zone(within=0.3)
    board, path = rack.own(0)
    board.odd[path] = lambda _request: board.over.wait(30)
    began = time.monotonic()
    sample = zone.sample()
    assert time.monotonic() - began < 10.0
    assert np.flatnonzero(np.isnan(sample.gpu)).tolist() == [0, 1]  # no time was left for the next
    board.odd.clear()


# --- what was there before, and who else is there ------------------------------------------------
def test_nothing_is_changed_where_it_cannot_be_written_down(rack, monkeypatch):
    zone = rack.zone()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    assert np.isnan(zone.ask(np.full(GPUS, 700.0))).all()
    assert rack.set_points() == [1200] * GPUS
    assert "nothing is changed" in zone.problems["rack0/tray00/gpu0"]


def test_what_somebody_else_has_set_since_is_his(rack):
    zone = rack.zone()
    zone.ask(np.full(GPUS, 700.0))
    rack.limit(1)["SetPoint"] = 450
    assert zone.restore() == ""
    assert rack.set_points() == [1200, 450, 1200, 1200]
    assert "somebody else" in zone.problems["rack0/tray00/gpu1"]


def test_what_a_killed_controller_left_is_put_back_by_the_next(rack):
    zone = rack.zone()
    zone.ask(np.full(GPUS, 700.0))
    (file,) = rack.files()
    text = file.read_text()
    zone.restore()
    rack.limit(0)["SetPoint"] = rack.limit(3)["SetPoint"] = 700
    entries = [json.loads(line) for line in text.splitlines() if line]
    zone.close()
    dead = [json.dumps({**entry, "pid": 1 << 22, "started": 7}) for entry in entries]
    (rack.folder / f"{1 << 22}-7-0.jsonl").write_text("\n".join(dead) + "\n")
    said = rack.zone().said
    assert rack.set_points() == [1200] * GPUS
    assert len(said) == GPUS
    assert rack.files() == []


def test_a_second_controller_out_of_band_is_refused(rack):
    zone = rack.zone()
    zone.ask(np.full(GPUS, 700.0))
    with pytest.raises(DrillError, match="runs already"):
        rack.zone()
    assert rack.set_points() == [700] * GPUS
    zone.close()
    assert rack.set_points() == [1200] * GPUS
    rack.zone()


def test_gpus_that_cannot_be_told_apart_are_no_zone(rack):
    rack.layout = Layout(
        rack.layout.gpus[:3], ("rack0/power",), np.zeros(3, dtype=np.intp), np.array([TOP]),
        np.zeros(1),
    )  # fmt: skip
    with pytest.raises(NotPresent, match="4 GPUs are found and 3 planned"):
        rack.zone()


def test_a_gpu_without_a_limit_is_no_zone(rack):
    board, path = rack.own(0)
    del board.tree[path]["PowerLimitWatts"]
    with pytest.raises(DeviceError, match="no power limit that could be set"):
        rack.zone()
