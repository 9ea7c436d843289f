"""Every drill at a small size, and gpu-loss twenty times: each must show its best proof."""

from random import Random

import pytest

from rackproof.diagnostics.drills import power
from rackproof.diagnostics.drills.table import DRILLS as ALL
from rackproof.fixtures.drill import hold, rack_of
from rackproof.fixtures.stage import Asked, Silence

SEED = 11
DRILLS = {name: each for name, each in ALL.items() if each not in power.DRILLS}
"""Those of the power zone are held in test_power_drills.py."""
SOME = frozenset(Random(SEED).sample(sorted(DRILLS), 8))
"""Drills that are held at their least size each time; the others where there is time."""


def held(name, folder, *, rack=None, **more):
    drill = DRILLS[name]
    found = hold(Asked(drill, rack_of(drill, rack), SEED, folder, small=True, **more), Silence())
    problems = [f"{each.id}: {each.message}" for each in found.recovery.claims]
    return found, "\n".join([found.remark, *problems])


def struck_in_training(record):
    """Assert that each fault came after a step, and was seen before it was got over."""
    said = record.faulted.happenings
    first = min(what.at for what in said if what.kind == "step")
    assert all(what.at > first for what in said if what.kind == "injected")


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_passes_with_its_best_proof(tmp_path, name):
    found, told = held(name, tmp_path / "run")
    recovery = found.recovery
    assert str(recovery.verdict) == "PASS", told
    assert recovery.proof == ("L3" if name == "nan-shard" else "L4")
    assert abs(sum(recovery.as_json()["ledger"].values()) - 1.0) < 1e-9
    struck_in_training(found.record)


@pytest.mark.parametrize(
    "name", [n if n in SOME else pytest.param(n, marks=pytest.mark.slow) for n in DRILLS]
)
def test_a_drill_passes_at_its_least_size(tmp_path, name):
    least = DRILLS[name].needs("A", SEED)
    found, told = held(name, tmp_path / "run", steps=least.steps, replicas=least.replicas)
    assert str(found.recovery.verdict) == "PASS", told
    assert found.recovery.proof == ("L3" if name == "nan-shard" else "L4")
    struck_in_training(found.record)


def test_the_fault_of_a_bad_shard_is_the_step_that_meets_it(tmp_path):
    found, told = held("nan-shard", tmp_path / "run")
    assert [each["what"] for each in found.recovery.as_json()["timeline"]] == [
        "fault", "detected", "resumed"
    ], told  # fmt: skip
    said = found.record.faulted.happenings
    (injected,) = (what for what in said if what.kind == "injected")
    (met,) = (what for what in said if what.kind == "quarantine")
    before = max(what.number("step") for what in said if what.kind == "step" and what.at < met.at)
    assert (
        max(what.number("step") for what in said if what.kind == "step" and what.at < injected.at)
        == before
    )


def test_a_rack_of_two_fails_over_to_the_other(tmp_path):
    found, told = held("rack-power-loss", tmp_path / "run", rack="catalina")
    recovery = found.recovery
    assert (str(recovery.verdict), recovery.proof, recovery.restarts) == ("PASS", "L4", 0), told


@pytest.mark.parametrize("group", range(4))
def test_gpu_loss_at_twenty_drawn_moments_is_bit_identical_each_time(tmp_path, group):
    for turn in range(5 * group, 5 * group + 5):
        found, told = held("gpu-loss", tmp_path / str(turn), turn=turn, steps=48)
        recovery = found.recovery
        assert (str(recovery.verdict), recovery.proof) == ("PASS", "L4"), told


def test_a_rack_of_one_tray_has_a_hot_spare_stand_in(tmp_path):
    found, told = held("sdc", tmp_path / "run", rack="hgx-h100")
    assert (str(found.recovery.verdict), found.recovery.proof) == ("PASS", "L4"), told
    (decided,) = [w for w in found.record.faulted.happenings if w.kind == "decided"]
    assert (decided.text("decision"), decided.fields["meanwhile"]) == ("keep", True)
    assert decided.text("spare").startswith("rack0/tray00/gpu")
