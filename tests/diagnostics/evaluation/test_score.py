"""The score counts what it says it counts, and the classifier beats what is simpler."""

import pytest

from rackproof.diagnostics.evaluation.score import scored
from rackproof.diagnostics.evaluation.trials import trials
from rackproof.diagnostics.evaluation.worlds import OF_GPU, world

pytestmark = pytest.mark.slow
SEED = 7
CASES = {"matched": 300} | dict.fromkeys(
    ("priors-low", "priors-high", "hits-low", "lost-lines", "no-xid", "false-passes"), 100
)


@pytest.fixture(scope="module")
def found():
    return {name: list(trials(world(name), SEED, count)) for name, count in CASES.items()}


@pytest.fixture(scope="module")
def scores(found):
    everything = [trial for name in CASES if name != "matched" for trial in found[name]]
    return {"matched": scored(found["matched"], 1), "misspecified": scored(everything, 1)}


def test_every_incident_is_counted_once(found, scores):
    score = scores["matched"]
    assert score["cases"] == CASES["matched"]
    assert sum(sum(row.values()) for row in score["confusion"].values()) == CASES["matched"]
    assert sum(entry["of"] for entry in score["components"].values()) == CASES["matched"]
    for policy in score["policies"]:
        assert sum(part["of"] for part in policy["recall"].values()) == CASES["matched"]
        healthy = sum(trial.truth.cause not in OF_GPU for trial in found["matched"])
        assert policy["false_rma"]["of"] == healthy


def test_shares_lie_within_their_intervals(scores):
    for score in scores.values():
        for policy in score["policies"]:
            for part in (policy["cause"], policy["component"], *policy["recall"].values()):
                if part["of"]:
                    assert 0.0 <= part["low"] <= part["share"] <= part["high"] <= 1.0


def test_losses_are_means_and_differences_are_of_pairs(scores):
    for score in scores.values():
        own = score["policies"][0]["loss"]
        for policy, entry in zip(score["policies"][1:], score["against"], strict=True):
            assert entry["difference"] == pytest.approx(own - policy["loss"], abs=2e-3)
            assert entry["low"] <= entry["difference"] <= entry["high"]


def test_a_belief_is_held_against_every_truth_where_the_root_is_named(scores):
    calibration = scores["misspecified"]["calibration"]
    assert sum(entry["of"] for entry in calibration["bins"]) == calibration["of"]
    assert 0.0 < calibration["brier"] < calibration["brier_of_base_rates"]


def test_the_same_seed_gives_the_same_incidents_and_outcomes(found):
    again = list(trials(world("matched"), SEED, 20))
    assert again == found["matched"][:20]


@pytest.mark.parametrize("name", ["matched", "misspecified"])
def test_the_classifier_loses_least(scores, name):
    own, *others = (policy["loss"] for policy in scores[name]["policies"])
    assert all(own < other for other in others)


def test_misspecified_it_beats_each_baseline_beyond_a_tie(scores):
    assert all(entry["better"] for entry in scores["misspecified"]["against"])


def test_healthy_gpus_are_seldom_taken_out(scores):
    for score in scores.values():
        assert score["policies"][0]["false_rma"]["high"] < 0.06
