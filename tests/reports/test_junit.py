"""JUnit says of every burn on every subject what the judgement says."""

import re

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

from rackproof.harness.model import Missing, Why
from rackproof.reports.junit import junit


@pytest.fixture
def suite_of(run_of):
    """`suite_of(case)` gives the one suite of the document, as a foreign program reads it."""

    def build(case) -> TestSuite:
        record, judgement = run_of(case)
        text = junit(record, judgement, "a-run", "ab" * 32)
        (suite,) = JUnitXml.fromstring(text.encode())
        return suite

    return build


def cases(suite) -> dict[tuple[str, str], object]:
    return {(c.classname, c.name): c for c in suite}


def test_a_healthy_run_has_a_case_for_each_burn_and_subject(suite_of, case) -> None:
    suite = suite_of(case())
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (42, 0, 0, 0)
    assert len(cases(suite)) == 42
    assert all(c.is_passed for c in suite)


def test_fail_is_failure_unknown_is_error_and_a_waiver_passes_in_sight(suite_of, failing) -> None:
    suite = suite_of(failing())
    assert (suite.failures, suite.errors, suite.skipped) == (2, 1, 0)
    found = cases(suite)
    (failure,) = found["memory.march", "rack0/tray00/gpu1"].result
    assert isinstance(failure, Failure)
    assert failure.message == "2 checks FAIL: ecc.corrected.delta, xid.count"
    assert "ecc.corrected.delta: 63, 63, 64 errors; limit ≤ 0 errors (spec:" in failure.text
    (link,) = found["inventory", "rack0/tray00/gpu3"].result
    assert "rack0/tray00/gpu3/link07 nvlink.active" in link.text
    (error,) = found["health", "rack0/tray01/gpu2"].result
    assert isinstance(error, Error)
    assert "cure: read it with another tool" in error.text
    held = found["health", "rack0/tray01/gpu0"]
    assert held.is_passed
    assert "waived by ops@example.org until 2099-01-31" in held.system_out
    named = [p.get("name") for p in held._elem.iterfind("properties/property")]
    assert named == ["waived temperature"]


def test_properties_name_run_and_record(suite_of, failing) -> None:
    found = {p.name: p.value for p in suite_of(failing()).properties()}
    assert found["verdict"] == "FAIL"
    assert found["source"] == "emulated"
    assert found["rack"] == "gb300-nvl72"
    assert found["seed"] == "7"
    assert found["level"] == "quick"
    assert found["record sha256"] == "ab" * 32


def test_what_a_platform_lacks_is_skipped_where_nothing_else_was_asked(suite_of, case) -> None:
    suite = suite_of(case(rack="hgx-h100", only=["health"]))
    assert suite.skipped == 0  # the other readings of the GPU passed
    assert suite.errors == suite.failures == 0


def test_a_run_without_end_has_an_error(suite_of, case) -> None:
    suite = suite_of(case(ended=False))
    (error,) = cases(suite)["record", "whole"].result
    assert isinstance(error, Error)
    assert "the run has no end" in error.text


def test_characters_that_xml_cannot_hold_are_written_out(suite_of, case) -> None:
    bad = "\x00\x1b\x0b\ufffe\ud800</testcase>]]>"
    gap = Missing("health", "rack0/tray00/gpu0", "temperature", Why.NO_READING, bad, "")
    (error,) = cases(suite_of(case(missing=[gap])))["health", "rack0/tray00/gpu0"].result
    assert "⟨U+0000⟩⟨U+001B⟩⟨U+000B⟩⟨U+FFFE⟩⟨U+D800⟩</testcase>]]>" in error.text
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", error.text)


def test_skipped_is_skipped(run_of, case) -> None:
    record, judgement = run_of(case(rack="hgx-h100", only=["health"]))
    from dataclasses import replace  # noqa: PLC0415

    only = [c for c in judgement.checks if str(c.verdict) == "SKIP"]
    assert only
    text = junit(record, replace(judgement, checks=only), "a-run")
    (suite,) = JUnitXml.fromstring(text.encode())
    assert suite.skipped == suite.tests == 8
    assert all(isinstance(result, Skipped) for c in suite for result in c.result)
