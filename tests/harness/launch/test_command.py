"""The main path: a command is started, followed, hit, started again, finished, and gone."""

import os
import shlex
import textwrap
from collections.abc import Callable

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.launch.command import CommandJob

Make = Callable[..., CommandJob]
Trainer = Callable[..., list[str]]

# Half of it, then whoever was not hit waits until the test has done what it does.
LOOP = "first = newest() + 1\nsteps(first, 20)\ngate()\nsteps(max(first, 21), 40)\n"
WELL = f"say('hello', pid=os.getpid(), rank=0, world=1)\n{LOOP}"
AFTER = "resume = os.path.exists(place)\nattempt += resume\n"  # a restart of which nobody is told


def go(job: CommandJob) -> None:
    (job.folder / "go").touch()


def kinds(job: CommandJob) -> list[str]:
    return [happening.kind for happening in job.happenings]


def seen(job: CommandJob, what: str) -> list[dict[str, object]]:
    return [dict(fact.fields) for fact in job.seen if fact.what == what]


def test_a_run_that_nobody_disturbs(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40) as run:
        go(run)
        assert run.finish(), run.problems
    assert run.committed() == 40
    assert run.problems == []
    steps = [happening.number("step") for happening in run.happenings if happening.kind == "step"]
    assert steps == list(range(1, 41))
    assert "restarted" not in kinds(run)


def test_the_environment_is_the_contracts(job: Make, trainer: Trainer) -> None:
    body = "say('fault', **{n: v for n, v in os.environ.items() if n.startswith('RP_')})"
    with job(trainer(body), seed=7, replicas=2) as run:
        go(run)
        assert run.finish(), run.problems
    said = {happening.who: happening for happening in run.happenings if happening.kind == "fault"}
    assert sorted(said) == ["replica0", "replica1"]
    assert said["replica1"].fields == {
        "RP_RUN_DIR": str(run.folder),
        "RP_EVENTS": str(run.folder / "events" / "replica1.1.jsonl"),
        "RP_REPLICA": "1",
        "RP_ATTEMPT": "1",
        "RP_CKPT_URL": f"file://{run.folder}/checkpoints",
        "RP_RESUME": "0",
        "RP_SEED": "7",
    }


def test_a_killed_command_goes_on_from_its_checkpoint(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40) as run:
        run.reach(5)
        (member,) = run.members()
        assert member.name == "replica0"
        run.kill("replica0")
        go(run)
        assert run.finish(), run.problems
    died = seen(run, "died")
    assert died[0] == {"member": "replica0", "pid": member.pid, "code": -9}
    assert next(f for f in run.happenings if f.kind == "restore").attempt == 2
    order = [kind for kind in kinds(run) if kind not in {"step", "ckpt"}]
    assert order == (
        "hello injected exited lost isolated spare-active restarted hello restore exited".split()
    )
    restarted = next(found for found in run.happenings if found.kind == "restarted")
    assert restarted.fields["step"] >= 5
    assert run.committed() == 40
    assert run.problems == []


def test_a_command_that_waits_to_be_told(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40, auto=False) as run:
        run.reach(5)
        run.kill("replica0")
        assert run.members() == []
        assert not run.finish(within=0.2)
        run.replace("replica0", "rack0/tray17/gpu0")
        go(run)
        assert run.finish(), run.problems
    told = [found for found in run.happenings if found.kind in {"told", "spare-active"}]
    assert [found.fields["subject"] for found in told] == ["rack0/tray17/gpu0"] * 2


def test_a_replacement_that_was_made_already_is_not_made_twice(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40) as run:
        run.reach(5)
        run.kill("replica0")
        run.reach(10)
        run.replace("replica0", "rack0/tray17/gpu0")
        assert run.members()[0].subject == "rack0/tray17/gpu0"
        go(run)
        assert run.finish(), run.problems
    assert kinds(run).count("restarted") == 1


def test_a_healthy_member_is_replaced_when_told(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40) as run:
        run.reach(5)
        before = run.members()[0].pid
        run.replace("replica0", "rack0/tray17/gpu0")
        found = run.until(lambda each: each.kind == "hello" and each.attempt == 2)
        assert found is not None
        assert found.fields["pid"] != before
        go(run)
        assert run.finish(), run.problems


def test_one_of_two_copies_is_started_again_alone(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40, replicas=2) as run:
        run.reach(5)
        run.until(lambda each: each.who == "replica0" and each.number("step") == 20)
        other = next(member.pid for member in run.members() if member.name == "replica0")
        run.kill("replica1")
        run.until(lambda each: each.kind == "hello" and each.attempt == 2)
        assert run.members()[0].pid == other
        go(run)
        assert run.finish(), run.problems
    assert "restarted" not in kinds(run)  # the job as a whole went on
    assert kinds(run).count("spare-active") == 1


def test_all_lost_and_started_again(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40, replicas=2, auto=False) as run:
        for name in ("replica0", "replica1"):
            run.until(lambda each, name=name: each.who == name and each.number("step") == 5)
        for member in run.members():
            run.kill(member.name)
        run.start(resume=True)
        go(run)
        assert run.finish(), run.problems
    assert kinds(run).count("restarted") == 1


def test_a_frozen_member_goes_on(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40) as run:
        run.reach(5)
        run.freeze("replica0")
        assert run.members()[0].pid == seen(run, "stopped")[0]["pid"]
        run.thaw("replica0")
        run.reach(20)
        go(run)
        assert run.finish(), run.problems
    assert [fact.what for fact in run.seen if fact.what in {"stopped", "thawed", "died"}] == [
        "stopped", "thawed", "died",
    ]  # fmt: skip
    assert "restarted" not in kinds(run)


def test_a_member_that_stays_frozen_is_started_again(job: Make, trainer: Trainer) -> None:
    with job(trainer(WELL), steps=40, patience=3.0, grace=0.2) as run:
        run.reach(5)
        run.freeze("replica0")
        go(run)
        assert run.finish(), run.problems
    assert "restarted" in kinds(run)
    assert next(each.text("why") for each in run.acts if each.kind == "lost") == (
        "made no step for 3 s"
    )
    assert run.problems == []


def test_ranks_are_who_said_hello_and_descends_from_us(job: Make, trainer: Trainer) -> None:
    body = f"""
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    say("hello", pid=child.pid, rank=0, world=3)
    say("hello", pid=os.getpid(), rank=1, world=3)
    say("hello", pid={os.getpid()}, rank=2, world=3)
    say("hello", pid=10**12, rank=3, world=3)
    say("hello", pid="x", rank=3, world=3)
    steps(1, 1)
    child.wait()
    say("step", step=2)
    """
    with job(trainer(body), steps=2) as run:
        run.reach(1)
        members = run.members()
        assert [member.name for member in members] == ["replica0.rank0", "replica0.rank1"]
        with pytest.raises(DrillError, match=r"replica0\.rank2 has no process that runs"):
            run.kill("replica0.rank2")
        run.kill("replica0.rank0")
        go(run)
        assert run.finish(), run.problems
    ours = {str(fact["pid"]): fact["ours"] for fact in seen(run, "alive")}
    assert ours[str(os.getpid())] is False
    assert [member.pid for member in members] == [
        int(pid) for pid, is_ours in ours.items() if is_ours
    ]
    assert seen(run, "died")[0]["pid"] == members[0].pid


def test_a_launcher_that_heals_itself_is_left_alone(job: Make, trainer: Trainer) -> None:
    inner = trainer(AFTER + WELL, "inner.py")
    script = 'until "$@"; do :; done'
    with job(["bash", "-c", script, "bash", *inner], steps=40) as run:
        run.reach(5)
        run.kill("replica0")
        run.reach(7)
        run.replace("replica0", "rack0/tray17/gpu0")
        go(run)
        assert run.finish(), run.problems
    assert {happening.attempt for happening in run.happenings} == {1}
    assert kinds(run).count("restarted") == 1
    assert run.problems == []


def test_ranks_that_a_launcher_starts_again_are_one_restart(job: Make, trainer: Trainer) -> None:
    body = """
    import subprocess
    for turn in range(3):
        script = "import sys; sys.stdin.read()"
        ranks = [subprocess.Popen([sys.executable, "-c", script], stdin=-1) for _ in range(2)]
        for rank in (1, 0):
            say("hello", pid=ranks[rank].pid, rank=rank, world=2)
        if turn < 2:
            ranks[1].wait()
            ranks[0].kill()
            ranks[0].wait()
    steps(1, 3)
    for child in ranks:
        child.communicate()
    """
    with job(trainer(body), steps=3) as run:
        for turn in (1, 2):
            run.until(lambda each: kinds(run).count("hello") == 2 * turn)  # noqa: B023
            run.members()
            run.kill("replica0.rank1")
        assert run.finish(), run.problems
    assert kinds(run).count("restarted") == 2
    assert kinds(run).count("hello") == 6


def test_without_a_hello_the_process_that_works_is_hit(job: Make, trainer: Trainer) -> None:
    inner = trainer(LOOP, "inner.py")
    with job(["bash", "-c", '"$@"; exit $?', "bash", *inner], steps=40) as run:
        run.reach(5)
        (member,) = run.members()
        main = run._crew.copies[0].kept
        assert main is not None
        assert main.process is not None
        assert member.pid != main.process.pid
        run.kill("replica0")
        go(run)
        assert run.finish(), run.problems
    assert "restarted" in kinds(run)


def test_a_command_holds_at_no_step(job: Make, trainer: Trainer) -> None:
    run = job(trainer(WELL))
    run.gate(None)
    with pytest.raises(DrillError, match="nothing holds this run at step 7"):
        run.gate(7)


@pytest.mark.parametrize("what", ["order", "link"])
def test_only_layer_a_takes_orders(job: Make, trainer: Trainer, what: str) -> None:
    run = job(trainer(WELL))
    with pytest.raises(DrillError, match="layer A"):
        run.order("replica0", "nan") if what == "order" else run.link("replica0", cut=True)


def test_who_listens_is_told_at_once(job: Make, trainer: Trainer) -> None:
    told: list[str] = []
    facts: list[str] = []
    terms = {"note": lambda kind, _: told.append(kind), "fact": lambda what, _: facts.append(what)}
    with job(trainer(WELL), steps=40, **terms) as run:
        run.reach(5)
        run.kill("replica0")
        go(run)
        assert run.finish(), run.problems
    assert told == [found.kind for found in run.happenings if found.who == "drill"]
    assert told == ["injected", *(found.kind for found in run.acts)]
    assert facts == [fact.what for fact in run.seen]
    assert all(isinstance(found, Happening) for found in run.happenings)


def test_helpers_that_say_hello_as_the_rank_do_not_take_its_place(
    job: Make, trainer: Trainer
) -> None:
    body = """
    say("hello", pid=os.getpid(), rank=0, world=1)
    read, write = os.pipe()
    if os.fork() == 0:  # a loader that imports who says hello, and ends with the trainer
        say("hello", pid=os.getpid(), rank=0, world=1)
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    while len(open(os.environ["RP_EVENTS"]).readlines()) < 2:
        time.sleep(0.005)
    """
    with job(trainer(textwrap.dedent(body) + LOOP), steps=40) as run:
        found = run.until(lambda each: each.kind == "hello")
        run.reach(5)
        assert found is not None
        assert [member.pid for member in run.members()] == [found.fields["pid"]]
        run.kill("replica0")
        go(run)
        assert run.finish(), run.problems
    first, helper = (h.fields["pid"] for h in run.happenings if h.kind == "hello" and h.attempt < 2)
    assert seen(run, "doubled")[0] == {"member": "replica0", "pids": [first, helper]}
    assert kinds(run).count("lost") == kinds(run).count("restarted") == 1
    assert helper in [fact["pid"] for fact in seen(run, "gone")]


def test_who_was_reaped_by_another_is_seen_to_be_gone(job: Make, trainer: Trainer) -> None:
    words = trainer(f"say('hello', pid=os.getpid(), rank=0, world=1)\n{LOOP}")
    with job(["sh", "-c", f"{shlex.join(words)}; exit 0"], steps=40) as run:
        go(run)
        assert run.finish(), run.problems
    met = {each.fields["pid"] for each in run.happenings if each.kind == "hello"}
    assert met <= {fact["pid"] for fact in (*seen(run, "died"), *seen(run, "gone"))}
