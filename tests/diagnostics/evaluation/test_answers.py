"""How each cause answers each retest, with chance taken out: hit rates of one and of nought."""

from dataclasses import replace

import numpy as np
import pytest

from rackproof.diagnostics.evaluation import truth as truths
from rackproof.diagnostics.evaluation import worlds
from rackproof.diagnostics.evaluation.answers import Answers
from rackproof.diagnostics.evaluation.bench import Bench
from rackproof.diagnostics.retest.model import Cause, Outcome, Test

PLAIN = replace(
    worlds.world("matched"), chance=0.0, persistent_hit=1.0, reset_clears=1.0, reboot_clears=1.0,
    driver_reset_clears=1.0, driver_again=0.0, driver_elsewhere=0.0, reseat_cures=0.0,
    host_reboot_cures=0.0, app_racy=0.0, app_hit=1.0, fixed_hit=1.0, flapping=0.0,
)  # fmt: skip
RUNS = 4


def incident(cause, sort="nvlink", **more):
    """A truth of a cause, drawn until it is one, with hit rate 1 and no stuck GPU."""
    chosen = next(s for s in PLAIN.sorts if s.name == sort)
    for index in range(2000):
        found = truths.draw(np.random.default_rng((1, index)), PLAIN)
        if found.site.wide:
            own = replace(found, sort=chosen, cause=cause, hit=1.0, stuck=False, seen=True, **more)
            return replace(own, places=frozenset({own.home}), near=frozenset())
    raise AssertionError


def ask(found, test, world=PLAIN):
    return Answers(found, world, (7, 7))(found.home, test, RUNS)


@pytest.mark.parametrize(
    ("cause", "struck"),
    [  # again, reset, reboot, elsewhere, swap: new place, swap: old place
        (Cause.APP, (1, 1, 1, 1, 1, 1)),
        (Cause.PERSISTENT, (1, 1, 1, 0, 1, 0)),
        (Cause.INTERMITTENT, (1, 1, 1, 0, 1, 0)),
        (Cause.LINK, (1, 1, 1, 0, 0, 1)),
        (Cause.HOST, (1, 1, 1, 0, 0, 1)),
        (Cause.NIC, (1, 1, 1, 0, 0, 1)),
        (Cause.SWITCH, (1, 1, 1, 0, 0, 1)),
    ],
)
def test_each_cause_answers_in_its_own_way(cause, struck):
    found = incident(cause, wide=False)
    seen = [ask(found, t).struck / RUNS for t in list(Test)[:4]]
    swap = ask(found, Test.SWAP)
    assert (*seen, swap.struck / RUNS, swap.stayed / RUNS) == struck


def test_a_bad_chip_of_a_switch_strikes_everywhere():
    found = incident(Cause.SWITCH, wide=True)
    assert ask(found, Test.ELSEWHERE).struck == RUNS
    assert ask(found, Test.SWAP) == Outcome(Test.SWAP, RUNS, RUNS, RUNS)


@pytest.mark.parametrize("cause", [Cause.TRANSIENT, Cause.DRIVER])
@pytest.mark.parametrize("cure", [Test.RESET, Test.REBOOT, Test.SWAP])
def test_what_is_stuck_strikes_until_a_reset_and_not_after(cause, cure):
    found = replace(incident(cause), stuck=True, hit=0.0)
    answers = Answers(found, PLAIN, (8, 8))
    assert answers(found.home, Test.AGAIN, 50).struck > 40
    assert answers.stuck
    assert answers(found.home, cure, RUNS).struck == 0
    assert not answers.stuck
    assert answers(found.home, Test.SOAK, 44).struck == 0


def test_a_burn_that_cannot_see_it_passes_however_often():
    found = replace(incident(Cause.PERSISTENT), seen=False)
    assert ask(found, Test.SOAK).struck == 0


def test_a_seat_that_cured_it_stays_a_cure():
    found = incident(Cause.LINK)
    answers = Answers(found, replace(PLAIN, reseat_cures=1.0), (9, 9))
    assert answers(found.home, Test.AGAIN, RUNS).struck == RUNS
    answers(found.home, Test.SWAP, 1)
    assert answers.cured
    assert answers(found.home, Test.AGAIN, RUNS).struck == 0


def test_a_healthy_gpu_passes_whatever_its_neighbour_has():
    found = incident(Cause.PERSISTENT)
    answers = Answers(found, PLAIN, (9, 9))
    assert answers(("elsewhere", "pci:0000:01:00.0"), Test.SOAK, 44).struck == 0


def test_policies_that_ask_the_same_get_the_same_whatever_else_they_ask():
    found = replace(incident(Cause.INTERMITTENT), hit=0.4)
    one, other = (Answers(found, PLAIN, (3, 1)) for _ in range(2))
    other(found.home, Test.ELSEWHERE, 5)
    assert one(found.home, Test.SOAK, 20) == other(found.home, Test.SOAK, 20)


@pytest.mark.parametrize(
    ("test", "hours"),
    [
        (Test.AGAIN, 4 / 60),
        (Test.RESET, 4 / 60 + 2 / 60),
        (Test.REBOOT, 4 / 60 + 4 * 0.25),
        (Test.ELSEWHERE, 4 / 60),
        (Test.SWAP, 8 / 60 + 2 * 4 * 1.5),
        (Test.SOAK, 4 / 60),
    ],
)
def test_the_bench_charges_what_a_test_keeps_from_work(test, hours):
    found = incident(Cause.TRANSIENT)
    bench = Bench(Answers(found, PLAIN, (2, 2)), found.site)
    bench.run(found.home, test, RUNS)
    assert bench.hours == pytest.approx(hours)
    assert bench.asked == 1
