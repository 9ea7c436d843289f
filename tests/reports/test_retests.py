"""Retests in the record and in reports: what is written is read back, and nothing is believed."""

import json
from dataclasses import replace

import pytest

from rackproof.diagnostics.evidence import Head, Planned, Retested
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.limits import Limit, Limits
from rackproof.diagnostics.retest.retold import Retold
from rackproof.harness.model import Event, Measurement
from rackproof.reports.read import read_run
from rackproof.reports.record import RecordWriter
from rackproof.reports.retests import Retesting, retesting, showed, what

GPU, OTHER = "rack0/tray00/gpu0", "rack0/tray00/gpu1"
METRIC = "ecc.corrected.delta"
HEAD = Head(
    rack="test", source="emulated", seed=7, level="quick", verb="burn",
    gpus=dict.fromkeys((GPU, OTHER), "h100"), hosts=["rack0/tray00/host"], links=0,
    plan=[Planned("memory.march", {"gpu": [METRIC]}, 3.0)], today="2026-07-30",
    limits=Limits((Limit(METRIC, "test", "spec", high=0),)).as_json(), retest_budget=3600.0,
)  # fmt: skip
SWAP = Retested(
    "swap", GPU, "hbm", "memory.march", [(OTHER, 2)], [(GPU, 4)], 3606.0, OTHER, "worth it"
)


def reading(subject, value, attempt):
    return Measurement("memory.march", subject, METRIC, value, "errors", attempt)


@pytest.fixture
def written(tmp_path):
    """A run whose plan failed in three of three, and a swap that shows the GPU; `done` or cut."""

    def write(*, done=True, budget=3600.0):
        with RecordWriter(tmp_path) as writer:
            writer.run(replace(HEAD, retest_budget=budget))
            for subject, value, runs in ((GPU, 2, 3), (OTHER, 0, 1)):
                for attempt in range(1, runs + 1):
                    writer.seen(reading(subject, value, attempt))
                    writer.settled("memory.march", subject, attempt)
            writer.seen(Event(GPU, "xid.63", "of the plan"))
            writer.retest(SWAP, done=False)
            for subject, value, attempt in ((OTHER, 2, 2), (GPU, 0, 4)):
                writer.seen(reading(subject, value, attempt), aside=True)
                writer.seen(Event(subject, "xid.64", "of the retest"), aside=True)
                writer.settled("memory.march", subject, attempt)
            if done:
                writer.retest(SWAP, done=True)
            writer.conclusion("end", {"verdict": "FAIL"})
        return tmp_path

    return write


def test_a_retest_is_read_back_and_weighs_nothing_in_the_verdict(written):
    record = read_run(written())
    assert record.retests == (SWAP,)
    assert not record.begun
    assert [event.code for event in record.seen if isinstance(event, Event)] == ["xid.63"]
    assert [event.code for event in record.aside] == ["xid.64", "xid.64"]
    judged = judge(record)
    runs = {check.subject: check.runs for check in judged.checks if check.metric == METRIC}
    assert runs == {GPU: (2, 2, 2), OTHER: (0,)}
    assert judged.counts == {"PASS": 1, "FAIL": 1, "UNKNOWN": 0}
    (row,) = retesting(record, judged).rows
    assert (row.runs, row.struck, row.stayed, row.other) == (1, 1, 0, OTHER)
    plan = record.planned()
    assert plan.planned() == plan
    assert ("memory.march", OTHER, 2) not in plan.settled


def test_a_retest_without_its_second_line_proves_nothing(written):
    record = read_run(written(done=False))
    assert (record.retests, record.begun) == ((), (SWAP,))
    judged = judge(record)
    assert judged.counts == {"PASS": 1, "FAIL": 1, "UNKNOWN": 0}
    (row,) = retesting(record, judged).rows
    assert not row.finished
    assert "proves nothing" in showed(row)
    assert row.as_json()["finished"] is False


def test_a_run_without_a_budget_says_nothing_of_it(written):
    run = written(budget=None)
    first = json.loads((run / "record.jsonl").read_text().splitlines()[0])
    assert "retest_budget" not in first
    record = read_run(run)
    assert retesting(record, judge(record)) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"test": "pray"}, "'pray' is not a valid Test"),
        ({"ran": [[GPU]]}, "ran is"),
        ({"ran": [[GPU, 0]]}, "ran is"),
        ({"ran": "all"}, "ran is"),
        ({"seconds": -1}, "seconds is -1"),
        ({"seconds": "nan"}, "seconds is"),
        ({"ran": [[GPU, 1]], "stayed": []}, "names runs that were before it"),
        ({"state": "done", "ran": [[GPU, 9]]}, "never begun"),
        ({"state": "hoped"}, "never begun"),
        ({"burn": 3}, "burn is 3"),
    ],
    ids=lambda each: json.dumps(each)[:40] if isinstance(each, dict) else "",
)
def test_a_forged_line_is_a_problem_and_hides_no_run(written, change, says):
    run = written()
    path = run / "record.jsonl"
    line = next(x for x in path.read_text().splitlines() if '"state":"begun"' in x)
    body = {**json.loads(line), "ran": [[GPU, 7]], "stayed": [], **change}
    with path.open("a") as file:
        file.write(json.dumps(body) + "\n")
    record = read_run(run)
    assert any(says in problem for problem in record.problems), record.problems
    runs = {check.subject: check.runs for check in judge(record).checks if check.metric == METRIC}
    assert runs[GPU] == (2, 2, 2)


@pytest.mark.parametrize(
    ("row", "done", "seen"),
    [
        (Retold("again", GPU, "b", 1, 1, 0, 3.0, ""), "burnt again (b, 3 s)", "in 1 of 1 run"),
        (Retold("soak", GPU, "b", 44, 9, 0, 132.0, ""), "many times (b, 2 min)", "in 9 of 44 runs"),
        (Retold("reset", GPU, "b", 1, 0, 0, 63.0, ""), "reset, then burnt", "in 0 of 1 run"),
        (Retold("reboot", GPU, "b", 0, 0, 0, 603.0, ""), "host rebooted", "no reading came"),
        (Retold("elsewhere", GPU, "b", 1, 0, 0, 33.0, "", OTHER), OTHER, "showed there in 0 of 1"),
        (Retold("swap", GPU, "b", 1, 1, 0, 3606.0, "", OTHER), OTHER,
         "in 1 of 1 run in the new place and in 0 of 1 at the old one"),
    ],
    ids=lambda each: each.test if isinstance(each, Retold) else "",
)  # fmt: skip
def test_each_retest_is_said_in_a_line(row, done, seen):
    assert done in what(row)
    assert seen in showed(row)


def test_the_total_is_of_the_budget():
    rows = [Retold("again", GPU, "b", 1, 1, 0, seconds, "") for seconds in (3.25, 6.5)]
    assert Retesting(rows, 7200.0).total == "2 retests, 9.8 s of 2 h"
    assert Retesting([], 7200.0).total == "no retest, 0 s of 2 h"


FORGED = {
    "claims failed runs": ({"ran": [[GPU, 1], [GPU, 2]]}, "claims run"),
    "claims all runs": ({"ran": [[GPU, 1], [GPU, 2], [GPU, 3]]}, "claims run"),
    "claims the last run": ({"ran": [[GPU, 3]]}, "claims run"),
    "claims them as stayed": ({"ran": [[OTHER, 2]], "stayed": [[GPU, 1]]}, "claims run"),
    "a burn that is none": ({"burn": "nope"}, "no burn of the plan"),
    "an item that is none": ({"ran": [["rack0/tray07/gpu0", 4]]}, "is not run on"),
    "a root that is none": ({"root": "<script>"}, "no such part"),
}


@pytest.mark.parametrize("done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("what", FORGED)
def test_a_forged_retest_takes_no_failure_away(written, what, done):
    change, said = FORGED[what]
    path = written() / "record.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    body = {"kind": "retest", "state": "begun", "test": "soak", "root": GPU, "cause": "hbm",
            "burn": "memory.march", "ran": [[GPU, 5]], "stayed": [], "seconds": 9.0, "other": "",
            "why": "", "at": json.loads(lines[0])["at"], **change}  # fmt: skip
    extra = [json.dumps(body | {"state": s}) + "\n" for s in ("begun", "done")[: 1 + done]]
    path.write_text("".join([lines[0], *extra, *lines[1:]]))
    record = read_run(path.parent)
    assert any(said in problem for problem in record.problems)
    judgement = judge(record)
    assert judgement.verdict == "FAIL"
    (check,) = [c for c in judgement.checks if c.verdict == "FAIL"]
    assert check.runs == (2, 2, 2)
