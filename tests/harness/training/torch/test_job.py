"""Replicas under torchft, hit for real: one is lost, all are, one is told to go, one lies."""

import os
import re
import signal
from collections import defaultdict
from pathlib import Path

import pytest

from rackproof.harness.checkpoint import verify
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.training.plan import Plan, Shape
from rackproof.harness.training.torch.job import TorchftJob
from rackproof.harness.training.torch.replay import replayed

pytestmark = pytest.mark.slow
SHAPE = Shape(layers=2, width=48)


def plan(**more):
    known = {"seed": 4, "steps": 60, "every": 10, "shape": SHAPE, "mode": "drop-batch"}
    known["pace"] = 0.05  # so that a busy machine does not miss the moment
    return Plan(**{**known, **more})


def of(job, kind):
    return [what for what in job.happenings if what.kind == kind]


def digests(said):
    """Return the digests that were told of each step."""
    found = defaultdict(set)
    for what in said:
        if what.kind == "step":
            found[what.number("step")].add(what.text("digest"))
    return found


def left_of(job):
    """Return who of the run's processes is still there."""
    pids = [what.number("pid") for what in of(job, "hello")]
    return [pid for pid in pids if (seen := processes.look(pid)) and seen.alive]


def listening(pid):
    """Return the addresses on which a process listens, as /proc/net/tcp writes them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        inodes |= set(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text("ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.append(words[1].rpartition(":")[0])
    return found


@pytest.fixture(scope="module")
def hit(module, tmp_path_factory):
    """Three replicas, one of which is killed in the middle: the job when it is over."""
    module("torch")
    job = TorchftJob(plan(replicas=3), tmp_path_factory.mktemp("hit"), placement={"r1": "x/gpu1"})
    with job:
        job.reach(15)
        addresses = [each for member in job.members() for each in listening(member.pid)]
        job.kill("r1")
        finished = job.finish()
    return job, finished, addresses


def test_it_comes_to_its_end_and_leaves_nothing_behind(hit):
    job, finished, _ = hit
    assert finished, job.problems
    assert job.committed() == 60
    assert left_of(job) == []
    assert job.problems == []


def test_all_agree_on_every_step_and_each_is_taken_once(hit):
    job, _, _ = hit
    found = digests(job.happenings)
    assert sorted(found) == list(range(1, 61))
    assert {len(told) for told in found.values()} == {1}
    assert len({each for told in found.values() for each in told}) == 60


def test_the_lost_one_is_left_out_and_comes_back_with_the_same_bits(hit):
    job, _, _ = hit
    assert [what.text("member") for what in of(job, "isolated")] == ["r1"]
    back = [what for what in of(job, "restore") if what.who == "r1"]
    assert back
    assert {what.attempt for what in back} == {2}
    # Another one may be healed too: who did not see the last step of all committed.
    assert all(what.text("uri").startswith("peer:r") for what in of(job, "restore"))
    for same in of(job, "resynchronised"):
        assert same.text("digest") in digests(job.happenings)[same.number("step")]
    assert of(job, "restarted") == []
    died = [seen for seen in job.seen if seen.what == "died" and seen.fields["code"] != 0]
    assert [(seen.fields["member"], seen.fields["by"]) for seen in died] == [("r1", "drill")]


def test_a_death_that_somebody_else_caused_says_so(module, tmp_path):
    module("torch")
    with TorchftJob(plan(steps=30, replicas=2), tmp_path) as job:
        job.reach(5)
        os.kill(job.members()[0].pid, signal.SIGKILL)
        assert job.until(lambda what: what.kind == "hello" and what.attempt == 2)
    died = [seen.fields for seen in job.seen if seen.what == "died"]
    assert {(each["member"], each["by"]) for each in died if each["code"] == -9} >= {("r0", "")}
    assert [each["by"] for each in died].count("") == 1
    assert len(died) == 3


def test_a_replay_by_one_process_gives_the_same_bits(hit, tmp_path):
    job, _, _ = hit
    said, problems = replayed(job.plan, tmp_path, job.happenings)
    assert problems == []
    assert digests(said) == digests(job.happenings)
    alone = [what for what in of(job, "step") if len(what.fields["participants"]) < 3]
    assert alone  # the membership did change


def test_participants_are_logged_before_the_reduction(hit):
    job, _, _ = hit
    intents = defaultdict(list)
    for what in of(job, "intent"):
        intents[what.who, what.attempt, what.number("step")].append(what)
    for step in of(job, "step"):
        before = intents[step.who, step.attempt, step.number("step")][-1]
        assert before.at < step.at
        assert before.fields["participants"] == step.fields["participants"]
        assert before.fields["samples"] == step.fields["samples"]


def test_nothing_listens_but_on_the_loopback(hit):
    _, _, addresses = hit
    loopback = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}
    assert len(addresses) >= 6  # of each replica its store and its manager, at least
    assert set(addresses) <= loopback


def test_the_last_checkpoint_holds_the_last_state(hit):
    job, _, _ = hit
    tier = Tier.of(f"T1={job.folder / 'checkpoints'}")
    found = verify.verify(tier, 60)
    assert found.verifies, found.problem
    assert {found.digest} == digests(job.happenings)[60]


def test_all_are_lost_and_the_run_goes_on_from_a_checkpoint(module, tmp_path):
    module("torch")
    with TorchftJob(plan(auto=False, steps=40), tmp_path) as job:
        assert job.until(lambda what: what.text("phase") == "committed" and what.kind == "ckpt")
        job.kill("r0")
        job.kill("r1")
        job.start(resume=True)
        assert job.finish(), job.problems
    (again,) = of(job, "restarted")
    assert again.number("step") in {10, 20, 30}
    assert {what.text("uri") for what in of(job, "restore")} == {again.text("uri")}
    found = digests(job.happenings)
    assert sorted(found) == list(range(1, 41))
    assert {len(told) for told in found.values()} == {1}  # what was repeated, too
    said, problems = replayed(job.plan, tmp_path, job.happenings)
    assert problems == []
    assert digests(said) == found
    assert left_of(job) == []


def test_one_is_told_to_go_saves_and_another_takes_its_place(module, tmp_path):
    module("torch")
    with TorchftJob(plan(auto=False, every=1000), tmp_path) as job:
        job.reach(5)
        job.replace("r1", "rack0/tray09/gpu0")
        assert {each.name: each.subject for each in job.members()}["r1"] == "rack0/tray09/gpu0"
        assert job.finish(), job.problems
    assert [what.attempt for what in of(job, "hello") if what.who == "r1"] == [1, 2]
    saved = [what for what in of(job, "ckpt") if what.text("phase") == "committed"]
    assert {what.who for what in saved} == {"r1"}
    assert {len(told) for told in digests(job.happenings).values()} == {1}


def test_a_stopped_one_is_evicted_and_healed_when_it_runs_again(module, tmp_path):
    module("torch")
    with TorchftJob(plan(silence=0.5), tmp_path) as job:
        job.reach(5)
        job.freeze("r1")
        assert job.until(lambda what: what.kind == "isolated")
        job.thaw("r1")
        assert job.until(lambda what: what.kind == "resynchronised" and what.who == "r1")
        assert job.finish(), job.problems
    assert [what.attempt for what in of(job, "hello") if what.who == "r1"] == [1]
    assert {len(told) for told in digests(job.happenings).values()} == {1}


def test_a_liar_is_found_by_the_replay(module, tmp_path):
    module("torch")
    with TorchftJob(plan(replicas=1, steps=5, defect="lie"), tmp_path) as job:
        assert job.finish(), job.problems
    said, problems = replayed(job.plan, tmp_path, job.happenings)
    assert problems == []
    assert all(digests(said)[step] != told for step, told in digests(job.happenings).items())


def test_a_plan_that_cannot_be_run_is_said_at_once(module, tmp_path):
    module("torch")
    with TorchftJob(plan(replicas=1, device="cupy"), tmp_path) as job:
        with pytest.raises(DrillError, match="runs on the CPU with gloo") as error:
            job.reach(1)
        assert "r0 ended with exit code 2 before any step" in str(error.value)
        assert not job.finish()


@pytest.mark.parametrize(
    ("what", "words"), [("order", ("r0", "poison")), ("link", ("r0",)), ("gate", (3,))]
)
def test_what_only_layer_a_can_do_is_refused(tmp_path, what, words):
    job = TorchftJob(plan(), tmp_path)
    with pytest.raises(DrillError, match=r"only (in )?the reference"):
        getattr(job, what)(*words)


def test_who_is_not_there_cannot_be_hit(tmp_path):
    job = TorchftJob(plan(), tmp_path)
    for act in (job.kill, job.freeze):
        with pytest.raises(DrillError, match="r0 is no living member: nobody is"):
            act("r0")
    with pytest.raises(DrillError, match="takes no part"):
        job.replace("r9", "x")
