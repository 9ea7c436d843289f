"""What a process does last is read before it is said to be gone, and hides nothing of it."""

import pytest

from rackproof.harness.training.plan import Plan
from rackproof.harness.training.run import COORDINATOR
from tests.harness.training.test_run import STEPS, digests, ran


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The bits of a run that nobody hits."""
    return digests(ran(tmp_path_factory.mktemp("clean"), Plan(steps=STEPS)))


def test_a_last_word_that_is_read_late_is_no_death_without_an_end(tmp_path, clean):
    """The coordinator says that it ended and goes, between a look at its log and one at itself."""

    class Late:
        def __init__(self, job):
            self.job, self.tail, self.held = job, job.tail, []

        def __getattr__(self, name):
            return getattr(self.tail, name)

        def poll(self):
            found, self.held = self.held, []
            for what in self.tail.poll():
                (self.held if what.kind == "ended" else found).append(what)
            if self.held:
                self.job._living[COORDINATOR].wait()
            return found

    def hit(job):
        job.tail = Late(job)

    assert digests(ran(tmp_path, Plan(steps=STEPS), hit)) == clean


def test_an_order_that_was_under_way_to_one_who_is_gone_hides_no_death(tmp_path, clean):
    def hit(job):
        job.reach(9)
        with job._news:  # nobody looks meanwhile
            child = job._living[COORDINATOR]
            child.terminate()
            child.wait()
            child.stdin.write(b"{}\n")

    job = ran(tmp_path, Plan(steps=STEPS), hit)
    assert digests(job) == clean
    died = [each.fields for each in job.seen if each.what == "died"]
    assert (died[0]["member"], died[0]["code"], died[0]["by"]) == (COORDINATOR, -15, "")
