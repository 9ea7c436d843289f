"""What to do after retests: never less than the fault asks for, and nothing that was in vain."""

import pytest

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.remedy import IDLE, action
from rackproof.diagnostics.retest.model import Decision, Outcome, Test
from rackproof.diagnostics.verdict import Verdict

GPU = "rack0/tray00/gpu1"
RESET, REBOOT, SOAK, SWAP = Test.RESET, Test.REBOOT, Test.SOAK, Test.SWAP


def group(metric, cause, component):
    check = Check("burn", GPU, metric, Verdict.FAIL, "", "", runs=(1, 1, 1), failed=(True,) * 3,
                  attempts=(1, 2, 3))  # fmt: skip
    return Group(GPU, cause, component, (check,))


PENDING = group("remap.pending", "hbm", "hbm")
GONE = group("gpu.present", "gone", "pcie")
HOT = group("throttle.thermal", "thermal", "thermal")


def decided(choice="watch", word="persistent"):
    return Decision(word, "unknown", "watch" if choice == "watch" else choice, 0.9, choice=choice)


@pytest.mark.parametrize(
    ("which", "outcomes", "wanted"),
    [
        (PENDING, (), "reset-gpu"),
        (PENDING, (Outcome(RESET),), "none"),
        (PENDING, (Outcome(RESET), Outcome(SOAK, 44)), "none"),
        (PENDING, (Outcome(RESET), Outcome(SOAK, 44, 2)), "reboot-node"),
        (PENDING, (Outcome(RESET, 1, 1),), "reboot-node"),
        (PENDING, (Outcome(RESET, 1, 1), Outcome(REBOOT, 1, 1)), "field-diag"),
        (GONE, (), "reboot-node"),
        (GONE, (Outcome(RESET, 1, 1),), "reboot-node"),
        (GONE, (Outcome(REBOOT, 1, 1),), "field-diag"),
        (GONE, (Outcome(REBOOT, 1, 1), Outcome(SWAP, 1, 0, 1)), "check-cabling"),
        (GONE, (Outcome(REBOOT, 1, 1), Outcome(SWAP, 1, 1)), "field-diag"),
        (GONE, (Outcome(REBOOT),), "watch"),
    ],
    ids=["pending", "cured", "cured for long", "came back", "reset in vain", "both in vain", "gone",
         "gone after a reset", "gone after a reboot", "the place", "the part", "back again"],
)  # fmt: skip
def test_what_was_tried_is_not_advised_again(which, outcomes, wanted):
    assert action(which, decided(word="undetermined"), (), outcomes) == wanted


@pytest.mark.parametrize("choice", ["watch", "keep", "retest"])
def test_a_fault_in_every_run_is_never_only_watched(choice):
    after = (Outcome(REBOOT, 1, 1), Outcome(SOAK, 3, 3))
    assert action(HOT, decided(), (), ()) == "check-cooling"
    assert action(HOT, decided(choice), (), after) not in IDLE
    assert action(HOT, decided("watch"), (), after) == "check-cooling"


def test_what_comes_and_goes_may_be_watched():
    assert action(HOT, decided(word="intermittent"), (), ()) == "watch"
    assert action(HOT, decided(word="intermittent"), (), (Outcome(SOAK, 3, 1),)) == "watch"
