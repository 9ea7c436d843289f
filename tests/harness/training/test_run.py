"""The reference run as real processes: hit in every way, it keeps the bits of the unhurt one."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.training.diary import Diary
from rackproof.harness.training.plan import Plan, Samples
from rackproof.harness.training.run import COORDINATOR, LayerA

STEPS = 24


def digests(job):
    """Return what the coordinator committed: step → digest."""
    found = {}
    for what in job.happenings:
        if what.kind == "step" and what.who == COORDINATOR:
            found.setdefault(what.number("step"), what.text("digest"))
    return found


def said(job, kind):
    return [what for what in job.happenings if what.kind == kind]


def committed(job):
    """Return the coordinator's steps."""
    return [what for what in said(job, "step") if what.who == COORDINATOR]


def ran(folder, plan, hit=lambda job: None):
    """Run a plan, hit it, and return the job as it was at its end."""
    with LayerA(plan, folder) as job:
        hit(job)
        done = job.finish(30)
        pids = [child.pid for child in job._living.values()]
    logs = "".join(path.read_text() for path in (folder / "logs").iterdir())
    assert done, logs
    assert not logs
    assert not job.tail.told()
    assert all(processes.look(pid) is None for pid in pids)
    return job


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """The bits of a run that nobody hits."""
    return digests(ran(tmp_path_factory.mktemp("clean"), Plan(steps=STEPS, replicas=2)))


@pytest.mark.parametrize("replicas", [1, 3])
def test_any_number_of_replicas_gives_the_same_bits(tmp_path, clean, replicas):
    job = ran(tmp_path, Plan(steps=STEPS, replicas=replicas, spares=0))
    assert digests(job) == clean


def test_a_killed_replica_is_replaced_and_nothing_is_lost(tmp_path, clean):
    def hit(job):
        job.reach(7)
        job.kill("r0")

    job = ran(tmp_path, Plan(steps=STEPS), hit)
    assert digests(job) == clean
    assert [what.text("member") for what in said(job, "isolated")] == ["r0"]
    assert [what.text("instead") for what in said(job, "spare-active")] == ["r0"]
    assert committed(job)[-1].fields["participants"] == ["s0", "r1"]
    assert not said(job, "restarted")


def senders(job):
    """Return of each death who sent the signal: member → (code, by)."""
    died = [each.fields for each in job.seen if each.what == "died"]
    return {each["member"]: (each["code"], each["by"]) for each in died}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_death_says_who_sent_the_signal(tmp_path, number):
    def hit(job):
        job.reach(3)
        pids = {each.name: each.pid for each in job.members()}
        job.kill("r0")
        assert job.until(lambda what: what.kind == "resynchronised")
        os.kill(pids["r1"], number)

    job = ran(tmp_path, Plan(steps=STEPS, replicas=3), hit)
    found = senders(job)
    assert found.pop("r1") == (-number, "")
    assert found.pop("r0") == (-signal.SIGKILL, "drill")
    assert set(found.values()) == {(0, "")}


def test_whom_the_end_finds_is_ended_by_the_drill_the_second_coordinator_too(tmp_path):
    with LayerA(Plan(steps=STEPS, replicas=2, gate=5, proxied=True), tmp_path) as job:
        job.reach(3)
        job.kill(COORDINATOR)
        job.reach(5)
    assert set(senders(job).values()) == {(-signal.SIGKILL, "drill")}


def test_a_writer_that_was_ordered_to_die_died_of_its_order(tmp_path):
    def hit(job):
        job.reach(2)
        job.order("r0", "storage", breaks="torn")

    job = ran(tmp_path, Plan(steps=STEPS, replicas=2, every=4), hit)
    assert senders(job)["r0"] == (-signal.SIGKILL, "order")


def test_who_is_stopped_from_outside_is_seen_and_our_own_stop_is_told_apart(tmp_path):
    with LayerA(Plan(steps=STEPS, replicas=3), tmp_path) as job:
        job.reach(3)
        pids = {each.name: each.pid for each in job.members()}
        job.freeze("r1")
        os.kill(pids["r0"], signal.SIGSTOP)
        assert job.until(lambda what: what.kind == "lost" and what.text("member") == "r0")
        stops = [each.fields for each in job.seen if each.what == "stopped"]
    assert [(each["member"], each["by"]) for each in stops] == [("r1", "drill"), ("r0", "")]


def test_without_a_spare_the_others_do_its_work(tmp_path, clean):
    def hit(job):
        job.reach(7)
        job.kill("r1")

    job = ran(tmp_path, Plan(steps=STEPS, replicas=3, spares=0), hit)
    assert digests(job) == clean
    assert committed(job)[-1].fields["participants"] == ["r0", "r2"]


def test_a_short_stop_evicts_nobody_and_a_long_one_does(tmp_path, clean):
    def hit(job):
        job.reach(5)
        job.freeze("r1")
        job.thaw("r1")
        job.reach(8)
        assert not said(job, "lost")
        job.freeze("r1")
        assert job.until(lambda what: what.kind == "lost", 20).text("why") == "silent"
        job.thaw("r1")

    job = ran(tmp_path, Plan(steps=STEPS, silence=1.0), hit)
    assert digests(job) == clean
    left = [seen for seen in job.seen if seen.what == "died" and seen.fields["member"] == "r1"]
    assert [seen.fields["code"] for seen in left] == [4]  # told to leave, when it came back


def test_a_coordinator_that_dies_is_followed_by_one_that_goes_on(tmp_path, clean):
    def hit(job):
        job.reach(9)
        job.kill(COORDINATOR)

    job = ran(tmp_path, Plan(steps=STEPS), hit)
    assert digests(job) == clean
    assert job._attempts[COORDINATOR] == 2
    assert not said(job, "restarted")


def test_a_disk_that_is_full_is_told_in_words_and_what_died_is_started_again(
    tmp_path, clean, monkeypatch
):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def hit(job):
        job.reach(7)
        monkeypatch.setattr(Diary, "note", full)  # of this process; its children write on
        job.kill(COORDINATOR)

    job = ran(tmp_path, Plan(steps=STEPS, replicas=2), hit)
    assert digests(job) == clean
    assert job.problems == [f"{tmp_path}: cannot be written (No space left on device)"]
    assert senders(job)[COORDINATOR] == (0, "")


def test_a_run_that_cannot_be_begun_leaves_nobody(tmp_path, monkeypatch):
    job = LayerA(Plan(steps=STEPS, replicas=2), tmp_path)
    spawn = job._spawn

    def one(name, more):
        if name == "r1":
            (tmp_path / "logs").rename(tmp_path / "gone")
        spawn(name, more)

    monkeypatch.setattr(job, "_spawn", one)
    with pytest.raises(DrillError, match="cannot be started"), job:
        pass
    pids = [each.fields["pid"] for each in job.seen if each.what == "died"]
    assert len(pids) == 2
    assert all(processes.look(pid) is None for pid in pids)


def test_a_gate_that_was_opened_stays_open_when_the_coordinator_dies(tmp_path, clean):
    def hit(job):
        job.reach(6)
        job.gate(None)
        job.kill(COORDINATOR)

    assert digests(ran(tmp_path, Plan(steps=STEPS, replicas=2, gate=6), hit)) == clean


def test_a_spare_with_a_wrong_state_is_refused_and_the_next_one_is_taken(tmp_path, clean):
    def hit(job):
        job.order("s0", "wrong-state")
        job.reach(6)
        job.kill("r0")

    job = ran(tmp_path, Plan(steps=STEPS, spares=2), hit)
    assert digests(job) == clean
    assert [what.text("member") for what in said(job, "refused")] == ["s0"]
    assert committed(job)[-1].fields["participants"] == ["s1", "r1"]


@pytest.mark.parametrize("order", ["flip-bit", "nan"])
def test_a_wrong_gradient_is_found_by_another_member(tmp_path, clean, order):
    def hit(job):
        job.reach(6)
        job.order("r2", order)

    job = ran(tmp_path, Plan(steps=STEPS, replicas=3, audit="all"), hit)
    assert digests(job) == clean
    assert {what.text("member") for what in said(job, "suspect")} == {"r2"}
    assert {what.text("member") for what in said(job, "isolated")} == {"r2"}


def test_an_audit_of_a_healthy_run_suspects_nobody(tmp_path, clean):
    job = ran(tmp_path, Plan(steps=STEPS, audit="one"))
    assert digests(job) == clean
    assert not said(job, "suspect")


def test_a_broken_shard_of_the_data_is_put_aside_in_the_same_step(tmp_path):
    plan = Plan(steps=STEPS, samples=Samples(shards=8, per_shard=32, reserve=2, poisoned=(1, 3)))
    job = ran(tmp_path, plan)
    assert {what.number("shard") for what in said(job, "quarantine")} == {1, 3}
    assert sorted(digests(job)) == list(range(1, STEPS + 1))
    assert not said(job, "restarted")
    assert not said(job, "lost")


def test_a_cut_link_loses_that_member_alone(tmp_path, clean):
    def hit(job):
        job.reach(6)
        job.link("r0", cut=True)
        assert job.until(lambda what: what.kind == "isolated", 20).text("member") == "r0"

    job = ran(tmp_path, Plan(steps=STEPS, proxied=True), hit)
    assert digests(job) == clean


def test_a_slow_link_evicts_nobody_and_gets_less_work(tmp_path, clean):
    def hit(job):
        job.reach(3)
        job.link("r2", delay=0.04)
        assert job.until(lambda what: what.kind == "reslot", 20)

    job = ran(tmp_path, Plan(steps=STEPS, replicas=3, proxied=True, regions=("a", "b")), hit)
    assert digests(job) == clean
    assert not said(job, "lost")
    assert ("r2", "link") in {(w.text("member"), w.text("why")) for w in said(job, "slow")}
    shares = said(job, "reslot")[0].fields["shards"]
    assert shares["r2"] < shares["r0"]


def test_a_slow_gpu_gets_less_work_and_the_bits_stay(tmp_path, clean):
    def hit(job):
        job.order("r1", "slow", seconds=0.02)

    job = ran(tmp_path, Plan(steps=STEPS, replicas=3), hit)
    assert digests(job) == clean
    assert ("r1", "compute") in {(w.text("member"), w.text("why")) for w in said(job, "slow")}
    shares = said(job, "reslot")[0].fields["shards"]
    assert shares["r1"] < shares["r0"]
    assert not said(job, "lost")


def test_drop_batch_goes_on_with_what_is_left(tmp_path, clean):
    def hit(job):
        job.reach(6)
        job.kill("r0")

    job = ran(tmp_path, Plan(steps=STEPS, mode="drop-batch", auto=False), hit)
    steps = committed(job)
    assert steps[0].fields["shards"] == list(range(8))
    assert steps[-1].fields["shards"] == list(range(4, 8))
    assert digests(job)[STEPS] != clean[STEPS]


def test_a_run_that_is_told_waits_for_it(tmp_path, clean):
    placement = {"r0": "rack0/tray00/gpu0", "s1": "rack0/tray17/gpu0"}
    plan = Plan(steps=STEPS, spares=2, auto=False)
    with LayerA(plan, tmp_path, placement=placement) as job:
        job.gate(18)
        job.reach(6)
        job.kill("r0")
        job.reach(18)
        assert job.until(lambda what: what.kind in {"spare-active", "ended"}, 0.2) is None
        job.replace("r0", "rack0/tray17/gpu0")
        job.gate(None)
        assert job.finish(30)
    assert [what.text("member") for what in said(job, "spare-active")] == ["s1"]
    assert committed(job)[17].fields["participants"] == ["r1"]
    assert committed(job)[18].fields["participants"] == ["s1", "r1"]
    assert digests(job) == clean


def test_when_all_is_lost_the_job_goes_back_to_a_checkpoint(tmp_path, clean):
    def hit(job):
        job.reach(15)
        job.until(lambda what: what.kind == "ckpt" and what.text("phase") == "committed")
        for name in ("r0", "r1"):
            job.kill(name)

    job = ran(tmp_path, Plan(steps=STEPS, every=5, spares=2), hit)
    assert digests(job) == clean
    (back,) = said(job, "restarted")
    assert back.number("step") >= 5
    assert back.text("uri")


def test_a_job_that_died_as_a_whole_is_started_again(tmp_path, clean):
    def hit(job):
        job.reach(12)
        job.until(lambda what: what.kind == "ckpt" and what.text("phase") == "committed")
        for member in job.members():
            job.kill(member.name)
        job.start(resume=True)

    job = ran(tmp_path, Plan(steps=STEPS, every=5, spares=0), hit)
    assert digests(job) == clean
    assert len(said(job, "restarted")) == 1


def test_orders_and_members_that_there_are_none_of_are_refused(tmp_path):
    with LayerA(Plan(steps=400), tmp_path) as job:
        job.reach(1)
        for wrong in (
            lambda: job.kill("r9"),
            lambda: job.order("r0", "explode"),
            lambda: job.link("r0", delay=1.0),
        ):
            with pytest.raises(DrillError):
                wrong()
        assert {member.role for member in job.members()} == {"coordinator", "replica", "spare"}


def test_nothing_outlives_whoever_started_it(tmp_path):
    text = (
        "import os, pathlib, sys\n"
        "from rackproof.harness.training.plan import Plan\n"
        "from rackproof.harness.training.run import LayerA\n"
        "with LayerA(Plan(steps=100000), pathlib.Path(sys.argv[1])) as job:\n"
        "    job.reach(3)\n"
        "    job.freeze('r1')\n"
        "    print(*[member.pid for member in job.members()], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    pids = [int(word) for word in child.stdout.split()]
    assert len(pids) == 4, child.stderr
    for pid in pids:
        left = processes.look(pid)
        assert left is None or processes.gone(left, 10.0)
