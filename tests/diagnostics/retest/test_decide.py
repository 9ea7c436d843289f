"""decide() has an answer for every belief, and keeps to what the contract forbids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS, PERSISTENCES
from rackproof.diagnostics.retest.belief import begin
from rackproof.diagnostics.retest.decide import decide
from rackproof.diagnostics.retest.model import Cause, Outcome, Signs, Test
from tests.diagnostics.retest.conftest import SIGNS, TRIES, believed

few = settings(max_examples=60, deadline=None)
CLEAN = Outcome(Test.SOAK, 44, 0)
MOVES, STAYS = Outcome(Test.SWAP, 3, 3, 0), Outcome(Test.SWAP, 3, 0, 3)


@few
@given(SIGNS, TRIES)
def test_it_is_total_and_keeps_the_rules(signs, tried):
    belief = believed(signs, tried)
    found = decide(belief)
    assert found.persistence in PERSISTENCES
    assert found.component in COMPONENTS
    assert found.action in ACTIONS
    assert 0.0 <= found.confidence <= 1.0
    assert 0.0 <= found.sure <= 1.0
    assert found.risk >= 0.0
    assert any(line.startswith("belief: ") for line in found.because)
    swapped = any(outcome.test is Test.SWAP and outcome.runs for outcome in tried)
    if found.action == "rma" and signs.kind != "terminal":
        assert swapped
        assert belief.posterior[Cause.PERSISTENT] > 0.95
    if signs.failed and belief.before[1]:
        assert found.persistence in ("transient", "intermittent")


@few
@given(st.integers(2, 44))
def test_what_failed_in_all_runs_is_persistent_until_a_retest_lets_it_pass(failed):
    signs = Signs("hbm", prior=0.21, failed=failed)
    assert decide(begin(signs)).persistence == "persistent"
    reset = believed(signs, [Outcome(Test.RESET, 3, 0)])
    assert decide(reset).persistence in ("transient", "undetermined")


@pytest.mark.parametrize(
    ("signs", "tried", "persistence", "component", "action"),
    [
        (Signs("hbm", prior=0.25), (CLEAN,), "transient", "hbm", "none"),
        (Signs("hbm", prior=0.25), (Outcome(Test.SOAK, 44, 6),), "intermittent", "hbm", "watch"),
        (Signs("hbm", prior=0.21, failed=3), (Outcome(Test.RESET, 2, 2),),
         "persistent", "hbm", "swap-to-spare"),
        (Signs("hbm", prior=0.21, failed=3), (Outcome(Test.RESET, 2, 2), MOVES),
         "persistent", "hbm", "rma"),
        (Signs("hbm", kind="terminal", prior=0.95), (), "persistent", "hbm", "rma"),
        (Signs("nvlink", prior=0.35, failed=3), (STAYS,), "persistent", "nvlink", "check-cabling"),
        (Signs("pcie", prior=0.4, failed=3), (STAYS,), "persistent", "pcie", "check-cabling"),
        (Signs("app", kind="app", prior=0.03), (Outcome(Test.ELSEWHERE, 1, 1),),
         "transient", "app", "restart-app"),
        (Signs("unknown", prior=0.1), (Outcome(Test.ELSEWHERE, 5, 5),),
         "transient", "app", "restart-app"),
        (Signs("power", prior=0.6, failed=3, alike=7), (), "persistent", "power", "check-power"),
        (Signs("driver", kind="driver", failed=3), (Outcome(Test.RESET, 1, 0),),
         "transient", "driver", "none"),
        (Signs("driver", kind="driver", waits=True), (), "transient", "driver", "reset-gpu"),
    ],
    ids=["cleared", "now-and-then", "always", "goes-with-the-gpu", "terminal", "link", "slot",
         "job", "job-against-its-signs", "tray", "hang-cured", "hang"],
)  # fmt: skip
def test_what_is_concluded(signs, tried, persistence, component, action):
    found = decide(believed(signs, tried))
    assert (found.persistence, found.component, found.action) == (persistence, component, action)


@pytest.mark.parametrize("component", ["sm", "data"])
def test_clean_burns_do_not_clear_silent_corruption(component):
    signs = Signs(component, prior=0.21, failed=1)
    found = decide(believed(signs, [CLEAN, CLEAN]))
    assert found.action == "watch"
    assert found.posterior[Cause.INTERMITTENT] > 0.03
    loud = decide(believed(Signs("hbm", prior=0.21, failed=1), [CLEAN, CLEAN]))
    assert (loud.action, loud.posterior[Cause.INTERMITTENT] < 0.01) == ("none", True)


def test_what_could_be_anything_is_undetermined():
    found = decide(begin(Signs("pcie", prior=0.9)))
    assert found.persistence == "undetermined"
    assert found.risk > 20


def test_the_reasons_name_the_tests_the_belief_and_the_next_test():
    *ran, belief, more = decide(
        believed(Signs("hbm", prior=0.25, earlier=1, hours=900.0), [Outcome(Test.AGAIN, 2, 1)])
    ).because
    assert ran == [
        "the burn once more: struck in 1 of 2 runs",
        "1 earlier cases of this serial number in 900 h",
    ]
    assert belief.startswith("belief: intermittent 0.")
    assert more.startswith("what would tell more: ")
    assert "GPU-hours" in more
