"""The large counts of `make prove`: what is drawn, and that their pages can say no."""

import importlib.util
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.fixtures.trial import Outcome, Trial
from rackproof.harness.faults import kinds, lacking
from rackproof.harness.spec import load

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def script(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def alarms():
    yield script("prove_alarms")
    del sys.modules["prove_alarms"]


@pytest.fixture(scope="module")
def forty():
    yield script("prove_forty")
    del sys.modules["prove_forty"]


@pytest.fixture(scope="module")
def drills():
    yield script("prove_drills")
    del sys.modules["prove_drills"]


CLEAN = Outcome("PASS", "PASS", 2.0, coverage=(9, 9))
FINDING = {"fault": "sm-sdc", "subject": "x", "by": ["gemm.fp32"], "wrong": []}
FOUND = Outcome("FAIL", "PASS", 3.0, [FINDING])


class TestFalseAlarms:
    """A thousand healthy runs."""

    def test_a_thousand_are_shared_out_with_a_seed_each(self, alarms, tmp_path):
        found = alarms.cases(1000, 5, tmp_path)
        assert len(found) == 1000
        assert len({case.trial.seed for case in found}) == 1000
        assert {case.like for case in found} == set(alarms.SHARES)
        assert sum(case.other for case in found) == 249  # a quarter of each rack's
        assert any(case.trial.level == "acceptance" for case in found)
        assert all(not case.trial.plants for case in found)

    def test_another_identity_is_another_rack_of_the_same_kind(self, alarms, tmp_path):
        case = next(case for case in alarms.cases(100, 5, tmp_path) if case.other)
        shipped, other = load(case.like), load(case.trial.rack)
        assert other.identity != shipped.identity
        assert replace(other, identity="", file="", digest="") == replace(
            shipped, identity="", file="", digest=""
        )

    @pytest.mark.parametrize(
        "changed",
        [
            {"verdict": "FAIL"},
            {"verdict": "UNKNOWN"},
            {"innocents": ["rack0/tray00/gpu1"]},
            {"coverage": (9, 8)},
            {"coverage": (0, 0)},
        ],
    )
    def test_what_is_not_clean_stands_in_the_page(self, alarms, changed):
        case = alarms.Case("hgx-h100", Trial("hgx-h100", 7, "quick"), other=False)
        good, bad = (case, CLEAN), (case, replace(CLEAN, **changed))
        assert alarms.clean(CLEAN)
        assert not alarms.clean(bad[1])
        page = alarms.report([good, bad], 7)
        assert "**1 of 2 runs were not right.**" in page
        assert "- `rackproof burn hgx-h100 --level quick --seed 7`" in page
        assert "No false alarm in 2 runs" in alarms.report([good, good], 7)

    def test_the_bound_is_the_exact_one(self, alarms):
        assert (1 - alarms.bound(1000)) ** 1000 == pytest.approx(0.05)
        assert alarms.bound(0) == 1.0


class TestForty:
    """Faults at places and seeds that are drawn."""

    @pytest.mark.parametrize("seed", range(4))
    def test_forty_hold_every_kind_and_all_sizes(self, forty, seed):
        found = forty.draw(random.Random(seed), 40, 20, 10)
        assert [len(case.faults) for case in found] == [1] * 40 + [2] * 20 + [3] * 10
        single = {case.faults[0].kind for case in found[:40]}
        assert single == {kind.name for kind in kinds().values() if kind.available}
        assert len({case.trial.seed for case in found}) == 70
        assert {case.trial.rack for case in found} == set(forty.RACKS)

    @pytest.mark.parametrize("seed", range(8))
    def test_faults_of_one_case_do_not_hide_each_other(self, forty, seed):
        for case in forty.draw(random.Random(seed), 0, 20, 20):
            names = [fault.kind for fault in case.faults]
            spec = load(case.trial.rack)
            assert len(set(names)) == len(names)
            assert not any(lacking(spec, kinds()[name]) for name in names)
            for name in names:
                assert not forty.HIDES.get(name, frozenset()) & set(names)
            places = [forty._place(fault.subject, spec) for fault in case.faults]
            assert len(set(places)) == len(places)

    def test_the_same_draw_gives_the_same_cases(self, forty):
        one, again, other = (forty.draw(random.Random(n), 5, 2, 1) for n in (1, 1, 2))
        assert one == again != other

    def test_a_case_that_is_wrong_stands_in_the_page(self, forty):
        case = forty.draw(random.Random(1), 1, 0, 0)[0]
        lost = [{**FINDING, "wrong": ["no burn saw it"], "by": []}]
        bad = replace(FOUND, right="FAIL", findings=lost, innocents=["y"])
        page = forty.report([(case, FOUND), (case, bad)], 1)
        assert "| 1 | 2 | 1 |" in page
        assert "sm-sdc@x: no burn saw it; accused y" in page
        assert "NO: FAIL" in page
        assert "Nothing." in forty.report([(case, FOUND)], 1)


class TestDrills:
    """A GPU that is lost a thousand times."""

    @pytest.mark.parametrize("changed", [{"verdict": "FAIL"}, {"proof": "L3"}, {"proof": "none"}])
    def test_a_drill_that_is_not_l4_stands_in_the_page(self, drills, changed):
        right = [drills.Outcome(n, "PASS", "L4", "r0", n, 0.1) for n in range(5)]
        wrong = replace(right[2], **changed, problem="other bits")
        page = drills.page([*right[:2], wrong, *right[3:]])
        assert "**1 of 5 were not right.**" in page
        assert "turn 2" in page
        assert "other bits" in page
        assert "None of 5 differed" in drills.page(right)

    def test_two_real_ones_are_held_at_moments_of_their_own(self, drills):
        found = [drills.Outcome(**fields) for fields in drills.told(drills.__file__, 2, 2)]
        assert [each.right for each in found] == [True, True], found
        assert len({(each.step, each.resumed) for each in found}) == 2
        assert all(each.step >= 1 and each.member in ("r0", "r1") for each in found)
