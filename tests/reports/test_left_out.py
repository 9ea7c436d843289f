"""What was not looked at stands beside the verdict in every report; so does what is waived."""

import io
import re
from dataclasses import replace

import pytest
from junitparser import JUnitXml

from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.verdict import Verdict
from rackproof.fixtures.offline import diagnose
from rackproof.harness.model import Missing, Why
from rackproof.reports import terminal
from rackproof.reports.html.render import render
from rackproof.reports.junit import junit
from rackproof.reports.record import RecordWriter
from rackproof.reports.sentence import sentence
from rackproof.reports.words import headline

OUT = {"gemm.fp16": "takes 9 s, and 1 s of the budget were left", "copy.h2d": "<not> asked for"}
SKIPPED = {"nic.pair": "this rack has one NIC"}
SAID = "2 of 7 burns of level quick were left out"
SHELF = "rack0/power/shelf2"


def partial(run_of, case, **head):
    record, _ = run_of(case)
    record = replace(record, head=replace(record.head, left_out=OUT, skipped=SKIPPED, **head))
    return record, judge(record)


@pytest.fixture
def written(tmp_path):
    """`written(record)` writes a record and gives its run directory."""

    def build(record, name="run"):
        with RecordWriter(tmp_path / name) as out:
            out.run(record.head)
            for what in record.seen:
                out.seen(what)
            for burn, item, attempt in sorted(record.settled):
                out.settled(burn, item, attempt)
            if record.ended:
                out.conclusion("end", {})
        return tmp_path / name

    return build


def told(body) -> str:
    file = io.StringIO()
    terminal.diagnosis_conclusion(body, file)
    return file.getvalue()


def test_the_verdict_line_ends_with_what_was_left_out(run_of, case, failing) -> None:
    _, judgement = partial(run_of, case())
    assert (judgement.verdict, headline(judgement)) == ("PASS", f"8 of 8 GPUs pass; {SAID}")
    _, judgement = partial(run_of, failing())
    assert headline(judgement).endswith(f"; 1 waived; {SAID}")
    one = replace(judgement, left_out={"gemm.fp16": "x"})
    assert headline(one).endswith("; 1 of 6 burns of level quick was left out")
    _, probed = partial(run_of, case(), verb="probe")
    assert headline(probed).endswith("; 2 of 7 burns of probe were left out")
    assert "left out" not in headline(run_of(case())[1])


def test_the_page_says_it_under_the_verdict_and_lists_it(run_of, case) -> None:
    text = render(*partial(run_of, case()), fingerprint="ab" * 32, name="a-run")
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))
    top = plain.partition("Conclusions")[0]
    assert f"8 of 8 GPUs pass; {SAID}" in top
    assert "Not looked at gemm.fp16, copy.h2d." in top
    table = plain.partition("Burns that were not run: 3")[2].partition("Limits in force")[0]
    assert f"left out {OUT['gemm.fp16']}" in table
    assert "left out &lt;not&gt; asked for" in table
    assert "not on this rack this rack has one NIC" in table
    whole = render(*run_of(case()), fingerprint="ab" * 32, name="a-run")
    assert "Not looked at" not in whole
    assert "Burns that were not run" not in whole


def test_junit_has_it_as_properties_and_text(run_of, case) -> None:
    text = junit(*partial(run_of, case()), "a-run")
    (suite,) = JUnitXml.fromstring(text.encode())
    found = {p.name: p.value for p in suite.properties()}
    assert found["headline"] == f"8 of 8 GPUs pass; {SAID}"
    assert found["left out copy.h2d"] == OUT["copy.h2d"]
    assert found["not on this rack nic.pair"] == SKIPPED["nic.pair"]
    assert suite._elem.findtext("system-out") == f"PASS  8 of 8 GPUs pass; {SAID}"
    (whole,) = JUnitXml.fromstring(junit(*run_of(case()), "a-run").encode())
    assert whole._elem.find("system-out") is None


def test_diagnose_says_it_in_its_last_line(run_of, case, written) -> None:
    body, code = diagnose([written(partial(run_of, case())[0])])
    assert code == 0
    assert body["inputs"][0]["left_out"] == OUT
    assert body["inputs"][0]["skipped"] == SKIPPED
    end = f"PASS  1 input: no sign of a fault; {SAID}\n"
    assert told(body).endswith(end)


def test_diagnose_says_how_many_are_waived(run_of, failing, written) -> None:
    hot = ("health", "rack0/tray01/gpu0", "temperature")
    case = failing()
    record, judgement = run_of(replace(case, runs={hot: case.runs[hot]}, missing=[], events=[]))
    assert judgement.verdict == "PASS"
    body, code = diagnose([written(record)])
    assert code == 0
    end = "PASS  1 input: no sign of a fault that is not waived; 1 waived\n"
    assert told(body).endswith(end)
    runs = [*body["inputs"], *body["inputs"], {**body["inputs"][0], "left_out": OUT,
                                               "remarks": ["1 waived", SAID]}]  # fmt: skip
    assert sentence({**body, "inputs": runs}).endswith(
        "; some FAILs of 3 runs are waived; burns of 1 run were left out"
    )


@pytest.mark.parametrize("ended", [True, False])
def test_diagnose_gives_reasons_and_cures_of_what_it_could_not_judge(
    run_of, case, written, ended
) -> None:
    gap = Missing("health", "rack0/tray00/gpu0", "temperature", Why.NO_READING,
                  "the sensor gave no reading", "read it with another tool")  # fmt: skip
    record, _ = run_of(case(missing=[gap], ended=ended))
    body, code = diagnose([written(record)])
    text = told(body)
    assert code == 3
    assert "health: temperature: the sensor gave no reading" in text
    assert "cure: read it with another tool" in text
    assert ("the run has no end" in text) is not ended
    assert text.endswith("UNKNOWN  1 input: 1 check could not be judged; see above\n")


def accusing(judgement, *subjects):
    root = Diagnosis(
        subject=SHELF, serial=None, component="power", persistence="persistent", role="root",
        case=1, action="check-power", confidence=0.9, because=(),
    )  # fmt: skip
    roots = [replace(root, subject=subject) for subject in subjects]
    return replace(judgement, verdict=Verdict.FAIL, diagnoses=roots)


def test_a_fault_of_no_gpu_is_no_contradiction(run_of, case) -> None:
    _, judgement = run_of(case())
    assert headline(accusing(judgement, SHELF)) == f"{SHELF} (power) fails; all 8 GPUs pass"
    two = accusing(judgement, SHELF, "rack0/tray01/host")
    assert headline(two) == f"{SHELF} (power), rack0/tray01/host (power) fail; all 8 GPUs pass"
    gpu = "rack0/tray00/gpu0"
    one = replace(judgement, subjects={gpu: Verdict.PASS})
    assert headline(accusing(one, SHELF)) == f"{SHELF} (power) fails; the one GPU passes"
    dim = replace(judgement, subjects={**judgement.subjects, gpu: Verdict.UNKNOWN})
    assert headline(accusing(dim, SHELF)) == (
        f"{SHELF} (power) fails; 7 of 8 GPUs pass, 1 is unknown"
    )
    assert headline(accusing(judgement, gpu)) == f"8 of 8 GPUs pass: {gpu} (power)"


def test_a_run_that_judged_no_gpu_says_so(run_of, case) -> None:
    _, whole = run_of(case(only=["inventory"]))
    hosts = [c for c in whole.checks if c.subject.endswith("/host")]
    assert len(hosts) == 2
    unread = dict.fromkeys(whole.subjects, Verdict.UNKNOWN)
    judgement = replace(whole, checks=hosts, subjects=unread, judged=2, planned=2)
    assert headline(judgement) == "2 checks judged; no GPU was looked at"
    assert judgement.counts == {"PASS": 0, "FAIL": 0, "UNKNOWN": 8}
    assert headline(accusing(judgement, SHELF)) == (f"{SHELF} (power) fails; no GPU was looked at")
    blind = [replace(c, verdict=Verdict.UNKNOWN) for c in hosts]
    dark = replace(judgement, verdict=Verdict.UNKNOWN, checks=blind, judged=0)
    assert headline(dark) == "no GPU was looked at; 2 checks could not be judged"


def test_diagnose_of_a_cut_run_shows_what_its_line_points_to(run_of, case, written) -> None:
    text = told(diagnose([written(run_of(case(ended=False))[0])])[0])
    assert "\n    the run has no end\n" in text
    assert text.endswith("UNKNOWN  1 input: not all could be judged; see above\n")
