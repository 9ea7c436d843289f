"""judge: the same record gives the same judgement, and nothing but the record counts."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.judge import judge
from rackproof.harness.errors import RackproofError, RecordError, SpecError
from rackproof.harness.model import Event, Measurement, Why
from rackproof.reports.read import read_run
from rackproof.reports.record import RecordWriter

GPU = "rack0/tray00/gpu1"
ECC = ("memory.march", GPU, "ecc.corrected.delta")


def write(folder, record, conclude=None):
    """Write a record as a run does; `conclude` writes what was judged."""
    with RecordWriter(folder) as writer:
        writer.run(record.head)
        for what in record.seen:
            writer.seen(what)
        for settled in sorted(record.settled):
            writer.settled(*settled)
        if conclude is not None:
            for check in conclude.checks:
                writer.conclusion("check", check.as_json())
            for diagnosis in conclude.diagnoses:
                writer.conclusion("diagnosis", diagnosis.as_json())
        if record.ended:
            writer.conclusion("end", {"verdict": str(conclude.verdict) if conclude else "PASS"})
    return folder


def text_of(judgement):
    return json.dumps(judgement.as_json(everything=True), allow_nan=False)


def rewrite(folder, change):
    """Replace the record's lines by those that `change` returns; it is given them as objects."""
    file = folder / "record.jsonl"
    lines = [json.loads(line) for line in file.read_text("ascii").splitlines()]
    kept = [x if isinstance(x, str) else json.dumps(x) for x in change(lines)]
    file.write_text("".join(line + "\n" for line in kept), "ascii")
    return folder


@pytest.fixture
def failing(bed):
    """A bed with a fault, a gap, a link and events in it."""
    return bed(
        runs={
            ECC: [63, 63, 64],
            ("inventory", "rack0/tray01/gpu2/link01", "nvlink.active"): [0, 1, 1],
            ("gemm.fp32", "rack0/tray01/gpu3", "gemm.fp32.rate"): [math.nan, 60.0, 60.0],
        },
        gaps={("health", "rack0/tray01/gpu0", "thermal.margin"): [Why.NO_READING]},
        events=[Event(GPU, "xid.94", "contained", 12.5, "virtual")],
    )


def test_the_record_gives_what_the_run_gave(failing, tmp_path):
    record = failing.record()
    first = judge(record)
    folder = write(tmp_path / "run", record, conclude=first)
    again = read_run(folder)
    assert (again.ended, again.problems) == (True, ())
    assert text_of(judge(again)) == text_of(first)
    assert text_of(judge(read_run(folder))) == text_of(first)


def test_what_was_concluded_is_never_copied(failing, bed, tmp_path):
    record = failing.record()
    folder = write(tmp_path / "run", record, conclude=judge(record))
    before = text_of(judge(read_run(folder)))
    concluded = {"check", "diagnosis"}
    rewrite(folder, lambda lines: [x for x in lines if x["kind"] not in concluded])
    assert text_of(judge(read_run(folder))) == before
    healthy = judge(bed().record())
    forged = [{"kind": "check", **c.as_json()} for c in healthy.checks]
    forged += [{"kind": "end", "verdict": "PASS"}, {"kind": "diagnosis", "subject": "nobody"}]
    rewrite(folder, lambda lines: [*forged, *lines, *forged])
    assert text_of(judge(read_run(folder))) == before
    assert judge(read_run(folder)).verdict == "FAIL"


def test_a_record_without_its_end_is_unknown_at_best(bed, failing, tmp_path):
    for which, verdict in ((bed(ended=False), "UNKNOWN"), (failing, "FAIL")):
        folder = write(tmp_path / verdict, which.record())
        rewrite(folder, lambda lines: [x for x in lines if x["kind"] != "end"])
        judgement = judge(read_run(folder))
        assert judgement.verdict == verdict
        assert "the run has no end" in judgement.problems


def test_a_forged_end_does_not_help_what_was_cut(bed, tmp_path):
    folder = write(tmp_path / "run", bed().record())
    rewrite(folder, lambda lines: [*lines[: len(lines) // 2], {"kind": "end", "verdict": "PASS"}])
    assert judge(read_run(folder)).verdict == "UNKNOWN"


def test_the_order_of_lines_does_not_matter(failing, tmp_path):
    record = failing.record()
    folder = write(tmp_path / "run", record)
    before = text_of(judge(read_run(folder)))

    def shuffled(lines):
        random.Random(3).shuffle(lines)
        return lines

    rewrite(folder, shuffled)
    assert text_of(judge(read_run(folder))) == before


def test_a_record_in_several_files_is_one(failing, tmp_path):
    folder = write(tmp_path / "run", failing.record())
    before = text_of(judge(read_run(folder)))
    file = folder / "record.jsonl"
    first, *lines = file.read_text("ascii").splitlines(keepends=True)
    file.write_text(first + lines[-1], "ascii")
    for number in range(3):
        part = "".join(lines[number:-1:3])
        (folder / f"record.gw{number}.jsonl").write_text(part, "ascii")
    assert text_of(judge(read_run(folder))) == before


# --- lines that were spoilt ---------------------------------------------------------------------

GOOD = {"kind": "measurement", "check": "health", "subject": GPU, "metric": "temperature",
        "value": 50, "unit": "C", "attempt": 1}  # fmt: skip
SPOILT = {
    "not JSON": '{"kind":"meas',
    "binary": "\udcff\udcfe\x00",
    "no object": "[1, 2, 3]",
    "no kind": '{"at": 1}',
    "a kind that is no text": '{"kind": 3}',
    "no such kind": '{"kind": "mesurement"}',
    "deep": '{"kind": ' + "[" * 100_000,
    "deep and whole": '{"kind": "event", "detail": ' + "[" * 900 + "]" * 900 + "}",
    "unknown metric": json.dumps({**GOOD, "metric": "temperatur"}),
    "metric of another type": json.dumps({**GOOD, "metric": ["temperature"]}),
    "no value": json.dumps({k: v for k, v in GOOD.items() if k != "value"}),
    "null": json.dumps({**GOOD, "value": None}),
    "a flag": json.dumps({**GOOD, "value": True}),
    "a list": json.dumps({**GOOD, "value": [50]}),
    "a word": json.dumps({**GOOD, "value": "warm"}),
    "a number for a text": json.dumps({**GOOD, "metric": "gpu.name", "unit": "text"}),
    "huge": json.dumps(GOOD).replace("50", "5" + "0" * 400),
    "too huge": json.dumps(GOOD).replace("50", "5" + "0" * 5000),
    "another unit": json.dumps({**GOOD, "unit": "W"}),
    "attempt zero": json.dumps({**GOOD, "attempt": 0}),
    "half an attempt": json.dumps({**GOOD, "attempt": 1.5}),
    "an endless attempt": json.dumps(GOOD).replace('"attempt": 1', '"attempt": 1e999'),
    "subject of another type": json.dumps({**GOOD, "subject": {"a": 1}}),
    "window": json.dumps({**GOOD, "window": [1, "x"]}),
    "window of three": json.dumps({**GOOD, "window": [1, 2, 3]}),
    "missing without a reason": json.dumps({**GOOD, "kind": "missing"}),
    "missing with an unknown why": json.dumps(
        {**GOOD, "kind": "missing", "why": "bored", "reason": "", "cure": ""}
    ),
    "event without a subject": json.dumps({"kind": "event", "code": "xid.79"}),
    "event at no time": json.dumps(
        {"kind": "event", "subject": GPU, "code": "x", "text": "", "when": "noon", "clock": "epoch"}
    ),
    "settled by nobody": json.dumps({"kind": "settled", "check": "health"}),
    "a second plan": '{"kind": "run", "schema": "rackproof.record/1"}',
}


@pytest.mark.parametrize("line", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("verdict", ["UNKNOWN", "FAIL"])
def test_a_spoilt_line_is_named_and_makes_it_unknown_at_best(bed, failing, tmp_path, line, verdict):
    record = (failing if verdict == "FAIL" else bed()).record()
    folder = write(tmp_path / "run", record)
    file = folder / "record.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines.insert(5, line.encode("utf-8", "surrogateescape") + b"\n")
    file.write_bytes(b"".join(lines))
    judgement = judge(read_run(folder))
    assert judgement.verdict == verdict
    assert len(judgement.problems) == 1
    assert judgement.problems[0].startswith("record.jsonl line 6: ")
    assert len(judgement.problems[0]) < 200
    text_of(judgement)


def test_a_cut_last_line_is_dropped_and_said(bed, tmp_path):
    folder = write(tmp_path / "run", bed().record())
    file = folder / "record.jsonl"
    whole = file.read_bytes()
    count = whole.count(b"\n")
    file.write_bytes(whole + b'{"kind":"measurement","check":"hea')
    judgement = judge(read_run(folder))
    assert judgement.verdict == "UNKNOWN"
    assert list(judgement.problems) == [f"record.jsonl line {count + 1}: cut short"]


def test_many_problems_are_counted(bed, tmp_path):
    folder = write(tmp_path / "run", bed().record())
    with (folder / "record.jsonl").open("ab") as file:
        file.write(b"x\n" * 50_000)
    problems = read_run(folder).problems
    assert len(problems) < 50
    assert problems[-1] == "record.jsonl: and 49980 more lines"


def test_a_line_without_end_is_not_held(bed, tmp_path, monkeypatch):
    monkeypatch.setattr("rackproof.reports.linewise.LINE", 1 << 16)
    folder = write(tmp_path / "run", bed().record())
    with (folder / "record.jsonl").open("ab") as file:
        file.write(b"x" * (1 << 20) + b'\n{"kind":"end"}\n')
    record = read_run(folder)
    assert len(record.problems) == 1
    assert "longer than" in record.problems[0]


# --- first lines that were forged ---------------------------------------------------------------

FORGED = {
    "schema": {"schema": "rackproof.record/2"},
    "no schema": {"schema": None},
    "no plan": {"plan": None},
    "plan of another type": {"plan": {"a": 1}},
    "plan of texts": {"plan": ["health"]},
    "sort": {"plan": [{"burn": "x", "owes": {"planet": ["temperature"]}, "seconds": 1}]},
    "metric": {"plan": [{"burn": "x", "owes": {"gpu": ["temperatur"]}, "seconds": 1}]},
    "metrics as a text": {"plan": [{"burn": "x", "owes": {"gpu": "temperature"}, "seconds": 1}]},
    "seconds": {"plan": [{"burn": "x", "owes": {"gpu": []}, "seconds": "long"}]},
    "gpus as a list": {"gpus": ["rack0/tray00/gpu0"]},
    "SKU": {"gpus": {"rack0/tray00/gpu0": 3}},
    "hosts as a text": {"hosts": "rack0"},
    "links": {"links": 10**12},
    "negative links": {"links": -1},
    "links as a text": {"links": "18"},
    "today": {"today": "tomorrow"},
    "no date": {"today": 20260730},
    "seed": {"seed": "7"},
    "limits": {"limits": [1]},
    "absent": {"absent": "temperature"},
    "versions": {"versions": {"rackproof": 1}},
    "a plan beyond all racks": {
        "links": 1000,
        "plan": [{"burn": "x", "owes": {"link": ["nvlink.active"] * 9000}, "seconds": 1}],
    },
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_a_forged_first_line_is_a_record_error(bed, tmp_path, change):
    folder = write(tmp_path / "run", bed().record())
    rewrite(folder, lambda lines: [{**lines[0], **change}, *lines[1:]])
    with pytest.raises(RecordError, match=r"schema|no readable run line"):
        read_run(folder)


@pytest.mark.parametrize(
    "limits",
    [
        {"limit": [{"metric": "temperatur", "source": "x", "layer": "user", "high": 1}]},
        {"limit": [{"metric": "temperature", "source": "x", "layer": "user", "low": "x"}]},
        {"limit": [{"metric": "temperature", "source": "x", "layer": "user", "low": math.nan}]},
        {"limit": [{"metric": "temperature", "source": "x", "layer": "user"}]},
        {"limit": 3},
        {"waiver": [{"check": "*"}]},
    ],
)
def test_forged_limits_are_a_spec_error(bed, tmp_path, limits):
    folder = write(tmp_path / "run", bed().record())
    rewrite(folder, lambda lines: [{**lines[0], "limits": limits}, *lines[1:]])
    with pytest.raises(SpecError, match="the record's limits cannot be read"):
        judge(read_run(folder))


def test_limits_that_were_taken_away_do_not_make_a_pass(bed, tmp_path):
    folder = write(tmp_path / "run", bed().record())
    rewrite(folder, lambda lines: [{**lines[0], "limits": {}}, *lines[1:]])
    assert judge(read_run(folder)).verdict == "UNKNOWN"


@pytest.mark.parametrize("keep", ["no lines", "no run line"])
def test_a_record_without_a_first_line_is_a_record_error(bed, tmp_path, keep):
    folder = write(tmp_path / "run", bed().record())
    rewrite(folder, lambda lines: [] if keep == "no lines" else lines[1:])
    with pytest.raises(RecordError, match="no readable run line"):
        read_run(folder)
    with pytest.raises(RecordError, match="no readable run line"):
        read_run(tmp_path)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bytes_flipped_anywhere_never_raise_anything_else(bed, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    write(folder, bed(trays=1, gpus=2, links=1).record())
    file = folder / "record.jsonl"
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content))
    try:
        text_of(judge(read_run(folder)))
    except RackproofError:
        return


# --- counts -------------------------------------------------------------------------------------


def test_subjects_count_gpus_with_their_links(bed):
    judgement = bed(
        runs={ECC: [1, 1, 1], ("inventory", "rack0/tray01/gpu2/link01", "nvlink.active"): [0]},
        gaps={("health", "rack0/tray01/gpu0", "thermal.margin"): [Why.LOST]},
    ).judge()
    assert judgement.counts == {"PASS": 5, "FAIL": 2, "UNKNOWN": 1}
    assert judgement.verdict == "FAIL"


def test_the_json_holds_what_is_not_pass_and_with_everything_all(bed):
    judgement = bed(runs={ECC: [1, 1, 1]}).judge()
    body = judgement.as_json()
    assert [c["verdict"] for c in body["checks"]] == ["FAIL"]
    assert body["coverage"] == {"planned": judgement.planned, "judged": judgement.planned}
    assert len(judgement.as_json(everything=True)["checks"]) == len(judgement.checks)
    assert set(body) >= {"verdict", "coverage", "subjects", "checks", "diagnoses"}


def test_a_check_names_value_limit_layer_and_runs(bed):
    (check,) = bed(runs={ECC: [63, 63, 64]}).judge().as_json()["checks"]
    assert check["id"] == "memory.march"
    assert check["subject"] == GPU
    assert check["metric"] == "ecc.corrected.delta"
    assert (check["value"], check["unit"], check["runs"]) == (63, "errors", [63, 63, 64])
    assert check["decided_by"] == "spec"
    assert check["limit"]["high"] == 0
    assert check["limit"]["unit"] == "errors"
    assert check["limit"]["source"]


def test_a_large_rack_is_judged_in_one_pass(bed):
    """The work per check does not grow with the rack: calls are counted, not seconds."""

    def calls(trays):
        import cProfile  # noqa: PLC0415 - only here

        record = bed(trays=trays).record()
        profile = cProfile.Profile()
        profile.runcall(judge, record)
        checks = len(record.seen)
        return sum(entry.callcount for entry in profile.getstats()) / checks

    assert calls(32) < 1.2 * calls(8)


def test_judging_changes_nothing(bed):
    record = bed(runs={ECC: [1, 0, 0]}).record()
    assert text_of(judge(record)) == text_of(judge(record))
    more = Measurement(*ECC, 1, "errors", 2)
    assert isinstance(record.seen, list)
    assert more not in record.seen
