"""double-fault on a command: the second kill waits until who was hit first is at work again."""

import time
from contextlib import contextmanager
from random import Random

import pytest

from rackproof.diagnostics.drills.members import double_fault
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.launch.member import Member


class Job:
    """A command that others of go on while one is away; `comes` says what is told after a kill."""

    def __init__(self, comes):
        self.comes, self.done = comes, []

    def members(self):
        return [Member("replica0", "replica", 1)]

    def reach(self, step, within=60.0):
        self.done.append(("reach", step))

    def kill(self, member):
        self.done.append(("kill", member))
        self.at = time.monotonic()

    def until(self, what, within=60.0):
        early = Happening(self.at - 1.0, "replica0", "step", {"step": 9})
        for later, who, kind in [(None, "replica0", "step"), *self.comes]:
            told = early if later is None else Happening(self.at + later, who, kind, {"step": 3})
            self.done.append(("told", who, kind, later))
            if what(told):
                return told
        return None

    def gate(self, step):
        pass

    def finish(self, within=120.0):
        self.done.append(("finish",))
        return True


class Stage:
    layer, small = "C", True

    def __init__(self, job):
        self.job, self.draw = job, Random(1)

    def sized(self, plan):
        return plan

    def expect(self, _):
        pass

    def clean(self, _):
        pass

    @contextmanager
    def run(self, _):
        yield self.job


@pytest.mark.parametrize("who", ["replica0", "replica0.0"])
def test_a_command_is_hit_again_only_when_it_has_come_back(who):
    job = Job([(1.0, "replica1", "step"), (1.5, who, "hello"), (2.0, who, "step")])
    double_fault(Stage(job))
    first, second = (n for n, act in enumerate(job.done) if act[0] == "kill")
    between = [act[1:] for act in job.done[first + 1 : second]]
    assert between[-1] == (who, "step", 2.0)
    assert len(between) == 4
    assert job.done[-1] == ("finish",)


def test_one_that_never_comes_back_is_not_said_to_be_hit_twice():
    job = Job([(1.0, "replica1", "step"), (1.5, "replica00", "step")])
    with pytest.raises(DrillError, match="replica0 was killed and made no step after that"):
        double_fault(Stage(job))
    assert [act for act in job.done if act[0] == "kill"] == [("kill", "replica0")]
