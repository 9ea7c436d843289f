"""The tester of the tester has to say yes, no, and that it cannot say."""

from dataclasses import dataclass, field
from datetime import date

import pytest

from rackproof.diagnostics.attribution import Planted, accused, attribute, in_reach
from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Waiver
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.faults import Fault

GPU, OTHER = "rack0/tray03/gpu1", "rack0/tray04/gpu0"
LINK = f"{GPU}/link07"


def check(subject=GPU, verdict=Verdict.FAIL, burn="memory.march", waiver=None):
    failed = (verdict is Verdict.FAIL,)
    return Check(
        burn, subject, "memory.miscompares", verdict, "said", "words", waiver=waiver,
        value=1, runs=(1,), failed=failed, attempts=(1,),
    )  # fmt: skip


def root(subject=GPU, component="hbm", lasting="persistent", **more):
    usual = {"action": "swap-to-spare", "case": 1, "because": ("memory.march: words 1",)}
    return Diagnosis(subject, component, lasting, **(usual | more))


@dataclass
class Case:
    """What was planted and what was said; by default a stuck bit that was found."""

    faults: tuple[Fault, ...] = (Fault("hbm-stuck-bit", GPU),)
    checks: tuple[Check, ...] = field(default_factory=lambda: (check(),))
    diagnoses: tuple[Diagnosis, ...] = field(default_factory=lambda: (root(),))
    fired: int = 3
    struck: int = 3
    passed: int = 0

    @property
    def judgement(self):
        healthy = check("rack0/tray09/gpu3", Verdict.PASS)
        near = check(GPU, Verdict.PASS, "inventory")
        checks = [*self.checks, healthy, near]
        verdict = roll_up(c.verdict for c in checks if c.waiver is None)
        return Judgement(verdict, checks, self.diagnoses, {}, len(checks), len(checks))

    def found(self):
        planted = [Planted(fault, self.fired, self.struck, self.passed) for fault in self.faults]
        return attribute(planted, self.judgement)

    def only(self):
        (finding,) = self.found().findings
        return finding


def marks(finding):
    return (
        finding.detected, finding.attributed, finding.component_right, finding.persistence_right,
    )  # fmt: skip


def test_a_fault_that_is_found_for_what_it_is_is_right():
    found = Case().found()
    (finding,) = found.findings
    assert marks(finding) == (True, True, True, True)
    assert (found.verdict, found.innocents, finding.by) == ("PASS", [], ("memory.march",))
    assert finding.as_json()["detected"] == 1


def test_a_miss_is_fail():
    finding = Case(checks=(), diagnoses=()).only()
    assert marks(finding) == (False, False, False, False)
    assert (finding.verdict, finding.wrong) == ("FAIL", ("no burn saw it",))


def test_a_fault_that_did_not_fire_says_nothing():
    finding = Case(checks=(), diagnoses=(), fired=0).only()
    assert (finding.verdict, finding.wrong) == ("UNKNOWN", ("the fault did not fire",))


def test_a_fail_of_a_fault_that_did_not_fire_is_no_detection():
    found = Case(fired=0).found()
    assert not found.findings[0].detected
    assert found.verdict == "UNKNOWN"


@pytest.mark.parametrize("where", [GPU, LINK])
def test_what_could_not_be_judged_is_unknown(where):
    finding = Case(checks=(check(where, Verdict.UNKNOWN),), diagnoses=()).only()
    assert finding.verdict == "UNKNOWN"
    assert "could not be judged" in finding.wrong[0]


def test_an_unknown_elsewhere_excuses_no_miss():
    finding = Case(checks=(check(OTHER, Verdict.UNKNOWN),), diagnoses=()).only()
    assert finding.verdict == "FAIL"


@pytest.mark.parametrize(
    ("diagnoses", "expected", "said"),
    [
        ((), (True, False, False, False), "is no root; roots: none"),
        ((root(component="sm"),), (True, True, False, False), "component sm"),
        ((root(lasting="transient"),), (True, True, True, False), "persistence transient"),
        ((root(), root(component="sm")), (True, True, False, False), "component sm"),
    ],
)
def test_a_wrong_diagnosis_is_fail(diagnoses, expected, said):
    finding = Case(diagnoses=diagnoses).only()
    assert marks(finding) == expected
    assert (finding.verdict, finding.wrong) == ("FAIL", (said,))


def test_a_wrong_action_is_fail_where_the_table_has_one():
    case = Case((Fault("row-remap-pending", GPU),), diagnoses=(root(action="watch"),))
    assert case.only().wrong == ("action watch",)
    right = Case((Fault("row-remap-pending", GPU),), diagnoses=(root(action="reset-gpu"),))
    assert right.only().verdict == "PASS"


def test_an_innocent_who_is_accused_is_fail():
    found = Case(diagnoses=(root(), root(OTHER, case=2))).found()
    assert found.findings[0].verdict == "PASS"
    assert (found.verdict, found.innocents) == ("FAIL", [OTHER])


def test_a_failed_check_accuses_unless_its_subject_is_a_victim():
    checks = (check(), check(OTHER), check(f"{OTHER}/link03"))
    assert Case(checks=checks).found().innocents == [OTHER, f"{OTHER}/link03"]
    victim = root(OTHER, role="victim", action="none")
    assert Case(checks=checks, diagnoses=(root(), victim)).found().innocents == []


def test_the_gpu_of_a_broken_link_is_innocent():
    case = Case(
        (Fault("nvlink-down", LINK),),
        (check(LINK, burn="inventory"), check(GPU)),
        (root(LINK, "nvlink"),),
    )
    assert case.found().innocents == [GPU]


def test_a_waived_check_accuses_nobody():
    waiver = Waiver("*", date(2030, 1, 1), "x", "y", subject=OTHER)
    assert accused(Case(checks=(check(OTHER, waiver=waiver),), diagnoses=()).judgement) == []


def test_two_faults_are_told_apart():
    faults = (Fault("hbm-stuck-bit", GPU), Fault("sm-sdc", OTHER, {"rate": 1.0}))
    checks = (check(), check(OTHER, burn="gemm.fp32"))
    both = (root(), root(OTHER, "sm", case=2, because=("gemm.fp32: wrong 1",)))
    found = Case(faults, checks, both).found()
    assert found.verdict == "PASS"
    assert [f.by for f in found.findings] == [("memory.march",), ("gemm.fp32",)]
    swapped = (root(component="sm"), root(OTHER, "hbm", case=2))
    assert [f.component_right for f in Case(faults, checks, swapped).found().findings] == [
        False, False,
    ]  # fmt: skip


def test_two_faults_on_one_gpu_both_have_to_be_named():
    faults = (Fault("hbm-stuck-bit", GPU), Fault("sm-sdc", GPU, {"rate": 1.0}))
    both = (root(), root(component="sm", case=2))
    assert Case(faults, diagnoses=both).found().verdict == "PASS"
    one = Case(faults, diagnoses=(root(),)).found()
    assert [f.component_right for f in one.findings] == [True, False]


@pytest.mark.parametrize(
    ("kind", "parameters", "struck", "passed", "right"),
    [
        ("sm-sdc", {"rate": 1.0}, 3, 0, {"persistent"}),
        ("sm-sdc", {"rate": 0.3}, 2, 1, {"intermittent"}),
        ("sm-sdc", {"rate": 0.3}, 1, 2, {"intermittent", "transient", "undetermined"}),
        ("sm-sdc", {"rate": 0.3}, 3, 0, {"intermittent", "transient", "undetermined"}),
        ("hbm-bit-flip", {"lasts": "once"}, 1, 2, {"transient"}),
        ("hbm-stuck-bit", {"rate": 0.5}, 2, 1, {"intermittent"}),
        ("nic-flap", {"rate": 1.0}, 3, 0, {"persistent"}),
    ],
)
def test_what_lasts_depends_on_how_often_it_struck(kind, parameters, struck, passed, right):
    planted = Planted(Fault(kind, GPU, parameters), 1, struck, passed)
    assert planted.persistences == right


class TestAMissingSensor:
    """It is to be UNKNOWN, and nobody's fault."""

    faults = (Fault("sensor-missing", GPU, {"metric": "temperature"}),)

    def case(self, *checks, diagnoses=()):
        return Case(self.faults, checks, diagnoses)

    def test_unknown_with_nobody_accused_is_right(self):
        found = self.case(check(GPU, Verdict.UNKNOWN)).found()
        assert (marks(found.findings[0]), found.verdict) == ((True,) * 4, "PASS")

    def test_a_pass_is_a_miss(self):
        assert self.case().only().wrong == ("no reading was missed",)
        assert self.case().found().verdict == "FAIL"

    def test_accusing_its_gpu_is_wrong(self):
        found = self.case(check(GPU, Verdict.UNKNOWN), diagnoses=(root(),)).found()
        assert (found.verdict, found.innocents) == ("FAIL", [GPU])

    def test_what_is_unknown_elsewhere_is_not_it(self):
        found = self.case(check(GPU, Verdict.UNKNOWN), check(OTHER, Verdict.UNKNOWN))
        assert found.only().wrong == (f"UNKNOWN also on {OTHER}",)


@pytest.mark.parametrize(
    ("fault", "subject", "reaches"),
    [
        (GPU, GPU, True),
        (GPU, LINK, True),
        (LINK, GPU, True),
        (GPU, OTHER, False),
        ("rack0/tray03/gpu1", "rack0/tray03/gpu10", False),
        ("rack0/tray03/host", GPU, True),
        ("rack0/tray03/host", OTHER, False),
        ("rack0/tray03/nic0", "rack0/tray03/host", True),
        ("rack0/tray03/nic0", "rack0/tray03/nic1", False),
        ("rack0/power/shelf2", "rack0/power", True),
        ("rack0/switch00", OTHER, True),
        ("rack1/cooling", GPU, False),
        (GPU, "fabric", True),
    ],
)
def test_how_far_a_fault_reaches(fault, subject, reaches):
    assert in_reach(fault, subject) is reaches
