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
        for later, who, kind, *step in [(None, "replica0", "step"), *self.comes]:
            fields = {"step": step[0] if step else 3}
            told = early if later is None else Happening(self.at + later, who, kind, fields)
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
        self.job, self.draw, self.facts = job, Random(1), []

    def fact(self, what, **fields):
        self.facts.append((what, fields))

    def sized(self, plan):
        return plan

    def expect(self, _):
        pass

    def clean(self, _):
        pass

    @contextmanager
    def run(self, _):
        yield self.job


@pytest.mark.parametrize("who", ["replica0", "replica0.0", "replica0.rank1"])
def test_a_command_is_hit_again_only_when_it_has_come_back(who):
    job = Job([(0.01, "replica0", "step"), (1.0, "replica1", "step"), (1.5, who, "hello"),
               (2.0, "replica0", "step")])  # fmt: skip
    stage = Stage(job)
    double_fault(stage)
    first, second = (n for n, act in enumerate(job.done) if act[0] == "kill")
    between = [act[1:] for act in job.done[first + 1 : second]]
    assert between[-1] == ("replica0", "step", 2.0)
    assert len(between) == 5
    assert job.done[-1] == ("finish",)
    assert stage.facts == []


def test_those_who_were_not_hit_may_simply_go_on():
    told = [(0.2 * step, "replica0.rank0", "step", step) for step in (4, 5, 6, 7)]
    job = Job(told)
    double_fault(Stage(job))
    assert [act[0] for act in job.done if act[0] != "reach"] == [
        "kill", *["told"] * 4, "kill", "finish"
    ]  # fmt: skip


def test_one_that_never_comes_back_is_not_said_to_be_hit_twice():
    job = Job([(1.0, "replica1", "step"), (1.5, "replica00", "step"), (1.6, "replica0", "hello")])
    stage = Stage(job)
    double_fault(stage)
    assert [act for act in job.done if act[0] == "kill"] == [("kill", "replica0")]
    assert job.done[-1] == ("finish",)
    ((what, fields),) = stage.facts
    assert (what, fields["fault"], fields["fired"]) == ("fired", "the second kill", 0)


class Hasty(Job):
    """A command that has ended before it can be hit."""

    def kill(self, member):
        super().kill(member)
        msg = f"{member}: process 1 was gone before it could be hit"
        raise DrillError(msg)


def test_who_was_gone_before_it_could_be_hit_is_waited_for_all_the_same():
    job = Hasty([(1.5, "replica0", "hello"), (2.0, "replica0", "step")])
    stage = Stage(job)
    double_fault(stage)
    assert job.done[-1] == ("finish",)
    assert [fields["why"] for _, fields in stage.facts] == [
        "replica0: process 1 was gone before it could be hit"
    ] * 2
