"""The retests of a run: judged by their own readings; they move persistence and action alone."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.evidence import Retested
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.retest.model import Outcome, Test
from rackproof.diagnostics.retest.proposal import proposals
from rackproof.harness.model import Measurement

GPU, NEAR = "rack0/tray00/gpu1", "rack0/tray00/gpu2"
BURN, METRIC = "memory.march", "ecc.corrected.delta"


def retest(test, *attempts, stayed=(), other="", cause="hbm"):
    place = other or GPU
    return Retested(
        str(test), GPU, cause, BURN, [(place, n) for n in attempts],
        [(GPU, n) for n in stayed], 60.0, other,
    )  # fmt: skip


def run(bed, values, *retests, near=()):
    """Return a record whose GPU read `values`, its neighbour `near`; later ones are retests'."""
    runs = {(BURN, GPU, METRIC): values}
    if near:
        runs[BURN, NEAR, METRIC] = near
    return replace(bed(runs=runs).record(), retests=retests)


@pytest.mark.parametrize(
    ("values", "near", "retests", "persistence", "action"),
    [
        ([3, 3, 3], (), (), "persistent", "swap-to-spare"),
        ([3, 3, 3, 3, 3], (), (retest(Test.RESET, 4), retest(Test.REBOOT, 5)),
         "persistent", "swap-to-spare"),
        ([3, 3, 3, 0, *[0] * 13], (), (retest(Test.RESET, 4), retest(Test.SOAK, *range(5, 18))),
         "transient", "none"),
        ([3, 3, 3, 0, 0, 0, 0], (), (retest(Test.SOAK, 4, 5, 6, 7),), "intermittent", "watch"),
        ([3, 0, 0, *[0] * 44], (), (retest(Test.SOAK, *range(4, 48)),), "transient", "none"),
        ([3, 0, 0, *[0] * 40, 3, 3, 3, 3], (), (retest(Test.SOAK, *range(4, 48)),),
         "intermittent", "watch"),
        ([3, 3, 3, 0, 0, 0], (0, 3, 3, 3),
         (retest(Test.SWAP, 2, 3, 4, stayed=(4, 5, 6), other=NEAR),), "persistent", "rma"),
    ],
    ids=["none", "always", "cured-by-a-reset", "passes-by-itself", "cleared", "comes-again",
         "goes-with-the-gpu"],
)  # fmt: skip
def test_what_retests_move(bed, values, near, retests, persistence, action):
    plain = run(bed, values[:3]).planned()
    record = run(bed, values, *retests, near=near)
    judgement = judge(record)
    (root,) = judgement.diagnoses
    assert (root.subject, root.component) == (GPU, "hbm")
    assert (root.persistence, root.action) == (persistence, action)
    assert judgement.verdict == judge(plain).verdict == "FAIL"
    assert judgement.checks == judge(plain).checks


def test_what_a_retest_showed_is_read_from_its_own_attempts(bed):
    swap = retest(Test.SWAP, 2, 3, 4, stayed=(4, 5, 6), other=NEAR)
    unread = retest(Test.AGAIN, 9)
    elsewhere = retest(Test.ELSEWHERE, 5, other=NEAR)
    record = run(bed, [3, 3, 3, 0, 7, 0], swap, unread, elsewhere, near=(0, 3, 3, 0, 9))
    (found,) = proposals(record, judge(record))
    assert found.belief.outcomes == (
        Outcome(Test.SWAP, 3, 2, 1),
        Outcome(Test.ELSEWHERE, 1, 1),
    )
    assert (found.root.subject, found.cause, found.burn) == (GPU, "hbm", BURN)
    assert found.signs == found.belief.signs
    assert (found.signs.failed, found.signs.passed) == (3, 0)


def test_a_retest_of_another_root_says_nothing_of_this_one(bed):
    record = run(bed, [3, 3, 3, 0], retest(Test.RESET, 4, cause="thermal"))
    (found,) = proposals(record, judge(record))
    assert found.belief.outcomes == ()


def test_the_other_gpu_is_not_accused_by_what_a_swap_brought_it(bed, accuse):
    swap = retest(Test.SWAP, 2, stayed=(4,), other=NEAR)
    judgement = judge(run(bed, [3, 3, 3, 0], swap, near=(0, 3)))
    assert accuse(judgement) == {GPU}


def test_a_run_that_is_told_of_earlier_cases_says_so(bed):
    record = bed(runs={(BURN, GPU, METRIC): [3, 0, 0]}).record()
    serial = next(
        seen.value for seen in record.seen
        if isinstance(seen, Measurement) and (seen.subject, seen.metric) == (GPU, "gpu.serial")
    )  # fmt: skip
    known = judge(replace(record, pasts={serial: (3, 2000.0)}))
    (before,), (after,) = judge(record).diagnoses, known.diagnoses
    assert "3 earlier cases of this serial number in 2000 h" in after.because
    assert after.confidence < before.confidence  # less surely transient
    assert known.checks == judge(record).checks
