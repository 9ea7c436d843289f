"""Which steps led to the end: through healing by a peer, a checkpoint, and commits that were lost.

The happenings are written by hand; no torch is needed.
"""

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training.torch.lineage import lineage


class Log:
    """Happenings a second apart."""

    def __init__(self):
        self.said = []

    def add(self, who, kind, attempt=1, **fields):
        self.said.append(Happening(float(len(self.said)), who, kind, fields, attempt))
        return self

    def steps(self, who, first, last, members, attempt=1):
        for step in range(first, last + 1):
            self.add(who, "step", attempt, step=step, participants=members, digest=f"{who}{step}")
        return self


def told(log):
    return [(each.step, each.participants) for each in lineage(log.said)]


def test_one_member_tells_it_all():
    log = Log().steps("r0", 1, 3, ["r0", "r1"]).add("r0", "ended", step=3)
    assert told(log) == [(1, (0, 1)), (2, (0, 1)), (3, (0, 1))]


def test_who_was_healed_takes_the_steps_of_who_healed_it():
    log = Log().steps("r0", 1, 2, ["r0", "r1"]).steps("r1", 1, 2, ["r0", "r1"])
    log.steps("r0", 3, 4, ["r0"])
    log.add("r1", "restore", 2, step=4, uri="peer:r0").steps("r1", 5, 5, ["r0", "r1"], 2)
    log.add("r1", "ended", step=5)
    assert told(log) == [(1, (0, 1)), (2, (0, 1)), (3, (0,)), (4, (0,)), (5, (0, 1))]


def test_a_commit_that_nobody_goes_on_from_does_not_count():
    # r0 commits step 3 with both and dies; r1 did not, repeats it alone, and r0 is healed by r1.
    log = Log().steps("r0", 1, 3, ["r0", "r1"]).steps("r1", 1, 2, ["r0", "r1"])
    log.steps("r1", 3, 4, ["r1"])
    log.add("r0", "restore", 2, step=4, uri="peer:r1").steps("r0", 5, 5, ["r0", "r1"], 2)
    log.add("r0", "ended", step=5)
    assert told(log)[2:] == [(3, (1,)), (4, (1,)), (5, (0, 1))]


def test_a_checkpoint_leads_to_who_wrote_it():
    log = Log().steps("r1", 1, 2, ["r0", "r1"])
    log.add("r1", "ckpt", phase="staged", step=2).add("r1", "ckpt", phase="committed", step=2)
    log.steps("r1", 3, 3, ["r0", "r1"])
    log.add("r0", "restore", 2, step=2, uri="file:///c/2").steps("r0", 3, 4, ["r0"], 2)
    log.add("r0", "ended", step=4)
    assert told(log) == [(1, (0, 1)), (2, (0, 1)), (3, (0,)), (4, (0,))]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (Log().steps("r0", 1, 3, ["r0"]), "does not say that the run came to its end"),
        (Log().steps("r0", 2, 3, ["r0"]).add("r0", "ended", step=3), "step 1"),
        (Log().steps("r0", 1, 3, ["r0"]).add("r1", "ended", step=3), "step 3"),
        (Log().add("r0", "step", step=1).add("r0", "ended", step=1), "who took part in step 1"),
        (Log().steps("r0", 1, 1, ["r0", "x"]).add("r0", "ended", step=1), "who is no replica"),
        (
            Log().add("r0", "restore", step=1, uri="file:///c/1").steps("r0", 2, 2, ["r0"])
            .add("r0", "ended", step=2),
            "who wrote file:///c/1",
        ),
    ],
)  # fmt: skip
def test_a_log_with_a_gap_is_refused(log, said):
    with pytest.raises(DrillError, match=said):
        lineage(log.said)


def test_peers_that_point_at_each_other_end():
    log = Log().add("r0", "restore", step=2, uri="peer:r1").add("r1", "restore", step=2)
    log.add("r0", "restore", step=2, uri="peer:r1").add("r0", "ended", step=2)
    with pytest.raises(DrillError, match=r"who wrote|step 2"):
        lineage(log.said)
