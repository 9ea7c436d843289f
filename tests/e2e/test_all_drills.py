"""Every drill at a small size, and gpu-loss twenty times: each must show its best proof."""

import pytest

from rackproof.diagnostics.drills.table import DRILLS
from rackproof.fixtures.drill import hold, rack_of
from rackproof.fixtures.stage import Asked, Silence


def held(name, folder, *, turn=0, rack=None, steps=None):
    drill = DRILLS[name]
    asked = Asked(drill, rack_of(drill, rack), 11, folder, small=True, turn=turn, steps=steps)
    found = hold(asked, Silence())
    problems = [f"{each.id}: {each.message}" for each in found.recovery.claims]
    return found.recovery, "\n".join([found.remark, *problems])


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_passes_with_its_best_proof(tmp_path, name):
    recovery, told = held(name, tmp_path / "run")
    assert str(recovery.verdict) == "PASS", told
    assert recovery.proof == ("L3" if name == "nan-shard" else "L4")
    assert abs(sum(recovery.as_json()["ledger"].values()) - 1.0) < 1e-9


def test_a_rack_of_two_fails_over_to_the_other(tmp_path):
    recovery, told = held("rack-power-loss", tmp_path / "run", rack="catalina")
    assert (str(recovery.verdict), recovery.proof, recovery.restarts) == ("PASS", "L4", 0), told


@pytest.mark.parametrize("group", range(4))
def test_gpu_loss_at_twenty_drawn_moments_is_bit_identical_each_time(tmp_path, group):
    for turn in range(5 * group, 5 * group + 5):
        recovery, told = held("gpu-loss", tmp_path / str(turn), turn=turn, steps=48)
        assert (str(recovery.verdict), recovery.proof) == ("PASS", "L4"), told
