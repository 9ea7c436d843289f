"""What `make prove` calls right: it has to be able to say no."""

import importlib.util
import sys
from pathlib import Path

import pytest

from rackproof.harness.faults import kinds

PLACE = Path(__file__).resolve().parent.parent / "benchmarks" / "prove.py"
SUBJECT = "rack0/tray03/gpu1"


@pytest.fixture(scope="module")
def prove():
    spec = importlib.util.spec_from_file_location("prove", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["prove"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["prove"]


def answer(**changed):
    healthy = {
        "verdict": "PASS",
        "coverage": {"planned": 9, "judged": 9},
        "checks": [],
        "diagnoses": [],
        "planted": [],
    }
    return healthy | changed


def diagnosis(**changed):
    root = {
        "subject": SUBJECT,
        "component": "hbm",
        "persistence": "persistent",
        "role": "root",
        "action": "swap-to-spare",
    }
    return root | changed


def check(subject, verdict="FAIL"):
    return {"id": "memory.march", "subject": subject, "verdict": verdict}


def found(**changed):
    planted = [{"kind": "hbm-stuck-bit", "subject": SUBJECT, "parameters": {}, "fired": 1}]
    usual = {"verdict": "FAIL", "planted": planted, "diagnoses": [diagnosis()]}
    return answer(**(usual | changed))


def test_a_healthy_rack_that_passes_is_right(prove):
    assert prove.complaints_healthy(answer()) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"verdict": "UNKNOWN"},
        {"coverage": {"planned": 9, "judged": 8}},
        {"coverage": {"planned": 0, "judged": 0}},
        {"diagnoses": [diagnosis()]},
        {"checks": [check(SUBJECT)]},
    ],
)
def test_a_healthy_rack_that_is_not_clean_is_wrong(prove, changed):
    assert prove.complaints_healthy(answer(**changed))


def test_a_fault_that_is_found_is_right(prove):
    kind = kinds()["hbm-stuck-bit"]
    assert prove.complaints_planted(found(checks=[check(SUBJECT)]), kind) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verdict": "PASS"}, "verdict PASS"),
        ({"planted": [{"subject": SUBJECT, "fired": 0}]}, "did not fire"),
        ({"diagnoses": []}, "accused []"),
        ({"checks": [check("rack0/tray04/gpu0")]}, "accused ['rack0/tray03/gpu1', 'rack0/tray04"),
        ({"diagnoses": [diagnosis(component="sm")]}, "component sm"),
        ({"diagnoses": [diagnosis(persistence="transient")]}, "persistence transient"),
    ],
)
def test_a_fault_that_is_mistaken_is_wrong(prove, changed, said):
    (complaint, *_) = prove.complaints_planted(found(**changed), kinds()["hbm-stuck-bit"])
    assert said in complaint


def test_nobody_may_be_accused_of_a_missing_sensor(prove):
    planted = [{"kind": "sensor-missing", "subject": SUBJECT, "parameters": {}, "fired": 1}]
    silent = answer(verdict="UNKNOWN", planted=planted)
    assert prove.complaints_planted(silent, kinds()["sensor-missing"]) == []
    loud = answer(verdict="UNKNOWN", planted=planted, diagnoses=[diagnosis()])
    assert prove.complaints_planted(loud, kinds()["sensor-missing"])


def test_a_victim_is_not_accused(prove):
    victim = diagnosis(subject="rack0/tray04/gpu0", role="victim", action="none")
    failed = [check(SUBJECT), check("rack0/tray04/gpu0"), check("rack0/tray04/gpu0/link03")]
    assert prove.accused(found(diagnoses=[diagnosis(), victim], checks=failed)) == {SUBJECT}


def test_the_page_counts_and_lists_what_was_wrong(prove):
    kind = kinds()["hbm-stuck-bit"]
    outcomes = [
        prove.Outcome(prove.Case("hgx-h100", 1), 2.0, "PASS", ()),
        prove.Outcome(prove.Case("hgx-h100", 2), 4.0, "FAIL", ("verdict FAIL",)),
        prove.Outcome(prove.Case("gb300-nvl72", 1, kind), 5.0, "FAIL", ()),
    ]
    page = prove.report(outcomes)
    assert "| hgx-h100 | 2 | 1 | 3.0 |" in page
    assert "| hbm-stuck-bit | 1 | 1 | 5.0 |" in page
    assert "- `rackproof burn hgx-h100 --seed 2 --json`: verdict FAIL" in page
    assert "Nothing." in prove.report(outcomes[:1])
