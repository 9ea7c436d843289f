"""Copies between GPUs and NCCL's all-reduce, on two cards of the stand-in."""

import ctypes

import numpy as np
import pytest

from rackproof.harness.devices import real_fabric
from rackproof.harness.devices.cupy_plane import MIB, CupyPlane
from rackproof.harness.devices.real_fabric import REPEATS, SUMS, RealFabric
from rackproof.harness.errors import DeviceError, Lost, NotPresent

A, B, C = (f"rack0/tray00/gpu{n}" for n in range(3))
SIZE = 1 << 16


class Site:
    """Planes by subject, and whose driver says that it is lost."""

    def __init__(self):
        self.planes = {A: CupyPlane(0), B: CupyPlane(1)}
        self.lost = set()

    def find(self, subject):
        if subject not in self.planes:
            msg = f"{subject}: no such GPU"
            raise NotPresent(msg)
        return self.planes[subject]

    def reads(self, subject):
        if subject in self.lost:
            msg = "NVML says so"
            raise Lost(msg)


@pytest.fixture
def site(machine):
    return Site()


@pytest.fixture
def fabric(site, monkeypatch):
    monkeypatch.setattr(real_fabric, "PERIOD", 1009)
    monkeypatch.setattr(real_fabric, "BLOCK", 4 * 1009)
    return RealFabric(site.find, site.reads)


def test_each_pair_moves_and_compares_its_data(fabric, machine):
    found = fabric.exchange([(B, A), (A, B)], SIZE, 7)
    assert list(found) == [(B, A), (A, B)]
    for moved in found.values():
        assert (moved.size, moved.seconds, moved.wrong) == (SIZE, 0.01 / REPEATS, 0)
    assert machine.log.count(("peer", 0, 1)) == machine.log.count(("peer", 1, 0)) == REPEATS + 1
    assert machine.enabled == {(0, 1), (1, 0)}
    assert [card.free for card in machine.cards] == [300 * MIB] * 2  # nothing is kept


def test_all_pairs_are_under_way_before_one_is_waited_for(fabric, machine):
    fabric.exchange([(A, B), (B, A)], SIZE, 7)
    kinds = [entry[0] for entry in machine.log if entry[0] in ("peer", "synchronize")]
    assert kinds[-2:] == ["synchronize"] * 2
    assert kinds[:-2].count("peer") == 2 * (REPEATS + 1)


def test_a_word_that_arrives_wrong_is_counted_for_its_pair(fabric, machine):
    def corrupt(pointer, size):
        if machine.log[-1] == ("peer", 0, 1):
            ctypes.c_uint64.from_address(pointer + 800).value = 5

    machine.corrupt = corrupt
    found = fabric.exchange([(A, B), (B, A)], SIZE, 7)
    assert [found[A, B].wrong, found[B, A].wrong] == [1, 0]


def test_a_copy_that_brings_nothing_is_all_wrong(fabric, site, monkeypatch):
    runtime = site.planes[A].cupy.cuda.runtime
    monkeypatch.setattr(runtime, "memcpyPeerAsync", lambda *_: None)
    assert fabric.exchange([(A, B)], SIZE, 7)[A, B].wrong == SIZE // 8


def test_gpus_that_do_not_reach_each_other_copy_all_the_same(fabric, machine):
    machine.peers = False
    assert fabric.exchange([(A, B)], SIZE, 7)[A, B].wrong == 0
    assert machine.enabled == set()


def test_access_that_somebody_enabled_before_is_fine(fabric, machine):
    machine.enabled.add((0, 1))
    assert fabric.exchange([(A, B)], SIZE, 7)[A, B].wrong == 0


def test_a_pair_that_cannot_is_an_error_and_the_others_go_on(fabric, machine, stand_in):
    found = fabric.exchange([(A, C), (A, B)], SIZE, 7)
    assert isinstance(found[A, C], NotPresent)
    assert found[A, B].wrong == 0
    machine.cards[1].largest = 0
    found = fabric.exchange([(A, B), (B, A)], SIZE, 7)
    assert all(isinstance(error, DeviceError) for error in found.values())
    assert "in one piece" in str(found[A, B])


def test_a_pair_of_which_a_gpu_is_lost_names_it(fabric, site, machine, stand_in):
    machine.cards[1].breaks["memcpyPeer"] = stand_in.CudaError(719)
    site.lost.add(B)
    error = fabric.exchange([(A, B)], SIZE, 7)[A, B]
    assert isinstance(error, Lost)
    assert str(error).startswith(f"{B} is lost")


def test_what_cuda_calls_lost_and_no_driver_does_accuses_no_gpu(fabric, machine, stand_in):
    machine.cards[1].breaks["memcpyPeer"] = stand_in.CudaError(999)
    error = fabric.exchange([(A, B)], SIZE, 7)[A, B]
    assert type(error) is DeviceError
    assert "cuda error 999" in str(error)


# --- all-reduce ----------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 1009, 5000, 8 * 1009, 3])
def test_the_sum_is_compared_exactly_with_the_hosts(fabric, machine, count):
    reduced = fabric.all_reduce([A, B], 4 * count, 7)
    assert (reduced.size, reduced.ranks, reduced.wrong) == (4 * count, 2, {A: 0, B: 0})
    assert reduced.seconds == 0.01 / SUMS


def test_wrong_sums_are_counted_where_they_are(fabric, machine):
    def spoil(received):
        received[1][[3, 4999]] += 1.0

    machine.collective = spoil
    assert fabric.all_reduce([A, B], 20_000, 7).wrong == {A: 0, B: 2}


def test_a_piece_that_landed_in_anothers_place_is_seen(fabric, machine):
    """By a power of two, as NCCL cuts: the numbers do not repeat with one."""

    def shift(received):
        received[0][:] = np.roll(received[0], 1024)

    machine.collective = shift
    assert fabric.all_reduce([A, B], 32_768, 7).wrong[A] > 7000


def test_a_sum_that_never_came_is_all_wrong(fabric, machine):
    machine.collective = lambda received: received[0].fill(-1.0)
    assert fabric.all_reduce([A, B], 4000, 7).wrong == {A: 1000, B: 0}


def test_ranks_give_different_numbers_and_seeds_too():
    one, other, third = (real_fabric._numbers(*key, 1009) for key in ((7, 0), (7, 1), (8, 0)))
    assert (one != other).mean() > 0.9
    assert (one != third).mean() > 0.9
    assert (one.min(), one.max()) == (0, real_fabric.VALUES - 1)


def test_communicators_are_kept_for_the_same_gpus_and_go_at_the_end(fabric, machine):
    fabric.all_reduce([A, B], 64, 7)
    fabric.all_reduce([A, B], 64, 8)
    assert machine.log.count(("initAll", (0, 1))) == 1
    fabric.all_reduce([B], 64, 8)
    assert ("initAll", (1,)) in machine.log
    fabric.close()
    fabric.close()
    assert [entry for entry in machine.log if entry[0] == "destroy"] == [
        ("destroy", 0), ("destroy", 1), ("destroy", 1),
    ]  # fmt: skip


def test_a_collective_that_fails_is_a_device_error_or_lost(fabric, site, machine, stand_in):
    machine.cards[1].breaks["allReduce"] = stand_in.CudaError(2)
    with pytest.raises(DeviceError, match="all-reduce") as caught:
        fabric.all_reduce([A, B], 64, 7)
    assert type(caught.value) is DeviceError
    assert ("destroy", 0) in machine.log  # what failed is not used again
    site.lost.add(B)
    with pytest.raises(Lost, match=f"{B} is lost"):
        fabric.all_reduce([A, B], 64, 7)
    with pytest.raises(NotPresent):
        fabric.all_reduce([A, C], 64, 7)


@pytest.mark.parametrize("how", ["missing", "unavailable"])
def test_without_nccl_it_says_what_to_install(fabric, machine, monkeypatch, how):
    def none(name):
        if how == "missing":
            raise ModuleNotFoundError(name)
        return type("nccl", (), {"available": False})

    monkeypatch.setattr(real_fabric, "module", none)
    with pytest.raises(DeviceError, match="pip install nvidia-nccl") as caught:
        fabric.all_reduce([A, B], 64, 7)
    assert not isinstance(caught.value, NotPresent)
