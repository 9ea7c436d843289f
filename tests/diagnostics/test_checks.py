"""From readings to checks: what decides, what counts, and what is no reading."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.checks import outside
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.limits import Limit, Limits, from_record
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Measurement, Missing, Why

GPU = "rack0/tray00/gpu1"
MARCH = ("memory.march", GPU, "ecc.corrected.delta")
RATE = ("gemm.fp32", GPU, "gemm.fp32.rate")


def check_of(judgement, key):
    (found,) = [c for c in judgement.checks if (c.id, c.subject, c.metric) == key]
    return found


def judged(bed, key, values, **more):
    return check_of(bed(runs={key: values}, **more).judge(), key)


def test_a_healthy_rack_passes_and_every_planned_check_is_judged(bed):
    judgement = bed().judge()
    assert judgement.verdict == "PASS"
    assert judgement.diagnoses == []
    assert judgement.planned == judgement.judged > 0
    assert judgement.counts == {"PASS": 8, "FAIL": 0, "UNKNOWN": 0}
    assert {c.verdict for c in judgement.checks} == {"PASS", "SKIP"}


# --- what was not read --------------------------------------------------------------------------


def test_what_was_not_read_is_unknown_and_no_number(bed):
    for values in ([], [None]):
        check = judged(bed, MARCH, values)
        assert (check.verdict, check.value) == ("UNKNOWN", None)
        assert check.as_json()["value"] is None
        assert check.cure


@pytest.mark.parametrize("why", [w for w in Why if w is not Why.NOT_SUPPORTED])
def test_a_missing_reading_is_unknown_with_its_reason_and_cure(bed, why):
    judgement = bed(gaps={MARCH: [why]}).judge()
    check = check_of(judgement, MARCH)
    assert (check.verdict, check.value) == ("UNKNOWN", None)
    assert (check.message, check.cure) == (f"because {why}", "look there")
    assert judgement.verdict == "UNKNOWN"
    assert judgement.subjects[GPU] == "UNKNOWN"
    assert judgement.diagnoses == []
    assert judgement.judged == judgement.planned - 1


def test_not_supported_is_skip_only_where_the_platform_agrees(bed):
    key = ("health", GPU, "throttle.thermal")
    gaps = {key: [Why.NOT_SUPPORTED]}
    assert check_of(bed(gaps=gaps).judge(), key).verdict == "UNKNOWN"
    agreed = bed(gaps=gaps, absent=("retired.pages", "throttle.thermal")).judge()
    assert check_of(agreed, key).verdict == "SKIP"
    assert agreed.verdict == "PASS"


def test_absent_on_the_platform_is_no_skip_for_another_reason(bed):
    key = ("health", GPU, "retired.pages")
    for gaps in ([Why.LOST], [Why.NOT_SUPPORTED, Why.LOST], [Why.LOST, Why.NOT_SUPPORTED]):
        check = check_of(bed(gaps={key: gaps}).judge(), key)
        assert check.verdict == "UNKNOWN"
        assert check.message == "because lost"


def test_skip_is_not_planned_and_is_shown_only_on_request(bed):
    one, all_ = bed().judge(), bed(absent=()).judge()
    assert all_.planned == one.planned + 8
    assert one.as_json()["checks"] == []
    words = [c["verdict"] for c in one.as_json(everything=True)["checks"]]
    assert words.count("SKIP") == 8


def test_a_burn_that_was_never_run_is_unknown(bed, change):
    record = bed().record()
    seen = [s for s in record.seen if getattr(s, "check", "") != "memory.march"]
    settled = frozenset(s for s in record.settled if s[0] != "memory.march")
    judgement = judge(change(record, seen=seen, settled=settled))
    check = check_of(judgement, MARCH)
    assert (check.verdict, check.message) == ("UNKNOWN", "not run")
    assert judgement.verdict == "UNKNOWN"
    assert judgement.counts == {"PASS": 0, "FAIL": 0, "UNKNOWN": 8}


def test_a_record_of_nothing_is_unknown(bed, change):
    record = change(bed().record(), seen=[], settled=frozenset())
    assert judge(record).verdict == "UNKNOWN"
    assert judge(record).judged == 0
    empty = change(record, head=change(record.head, plan=[]))
    assert judge(empty).verdict == "UNKNOWN"


@pytest.mark.parametrize("value", [-1, -0.5, float("-inf")])
def test_a_reading_that_cannot_be_makes_no_pass(bed, value):
    """Fewer than no wrong words are within the limit of none at all."""
    check = judged(bed, MARCH, [0, value])
    assert check.verdict == "UNKNOWN"
    assert check.message.startswith("run 2 read -")
    assert check.message.endswith("which cannot be")
    assert judged(bed, MARCH, [3, value]).verdict == "FAIL"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory.coverage", 1.01),  # more than all of it: within the limit of 0.9 at least
        ("memory.coverage", 1e30),
        ("thermal.margin", 1e30),
        ("gemm.fp32.rate", 1e30),
        ("gemm.fp32.wrong", -1),
        ("throttle.thermal", -1),
        ("throttle.thermal", float("-inf")),
    ],
)
def test_a_judged_figure_that_cannot_be_is_unknown(bed, name, value):
    burn = next(p.burn for p in bed().record().head.plan if name in p.owes.get("gpu", ()))
    judgement = bed(runs={(burn, GPU, name): [value]}).judge()
    assert check_of(judgement, (burn, GPU, name)).verdict == "UNKNOWN"
    assert (judgement.verdict, judgement.diagnoses) == ("UNKNOWN", [])
    assert judgement.counts == {"PASS": 7, "FAIL": 0, "UNKNOWN": 1}


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("power.average", -1.0, 1e4),
        ("power.average", float("nan"), 0),
        ("clock.sm", float("inf"), 1),
        ("cooling.supply", -300.0, -40),
        ("ecc.corrected.aggregate", 0.5, 1e6),
        ("throttled.cap.share", -0.1, 1),
        ("power.step.ramp", 1e30, -1e3),  # optional: nobody limits it here
        ("power.breaker.strain", -0.5, 0.1),
    ],
)
def test_what_is_only_noted_and_cannot_be_makes_no_pass(bed, name, value, possible):
    record = bed().record()
    noted = Measurement("health", GPU, name, value, metrics()[name].unit)
    judgement = judge(replace(record, seen=[*record.seen, noted]))
    (check,) = [c for c in judgement.checks if c.metric == name]
    assert (check.verdict, judgement.verdict) == ("UNKNOWN", "UNKNOWN")
    assert "which cannot be" in check.message
    assert judgement.diagnoses == []
    real = replace(noted, value=possible)
    assert judge(replace(record, seen=[*record.seen, real])).verdict == "PASS"


def test_a_real_fault_beside_a_figure_that_cannot_be_still_fails(bed):
    noted = Measurement("health", GPU, "power.average", -1.0, "W")
    record = bed(runs={MARCH: [3, 3, 3]}).record()
    judgement = judge(replace(record, seen=[*record.seen, noted]))
    assert judgement.verdict == "FAIL"
    assert {d.subject for d in judgement.diagnoses} == {GPU}


# --- runs ---------------------------------------------------------------------------------------


def test_a_pass_after_a_fail_stays_fail_and_all_runs_are_kept(bed):
    check = judged(bed, MARCH, [3, 0, 0])
    assert check.verdict == "FAIL"
    assert check.runs == (3, 0, 0)
    assert check.failed == (True, False, False)
    assert check.value == 3
    assert "1 of 3 runs" in check.message


def test_the_value_of_a_fail_is_one_that_failed(bed):
    check = judged(bed, MARCH, [0, 5, 0])
    assert (check.verdict, check.value) == ("FAIL", 5)


def test_an_unsettled_run_counts_when_it_fails_and_never_makes_a_pass(bed):
    cut = frozenset({("memory.march", GPU, 1)})
    assert judged(bed, MARCH, [4], unsettled=cut).verdict == "FAIL"
    check = judged(bed, MARCH, [0], unsettled=cut)
    assert (check.verdict, check.message) == ("UNKNOWN", "cut short")
    assert judged(bed, MARCH, [0, 0], unsettled=cut).verdict == "PASS"
    assert judged(bed, MARCH, [4, 0], unsettled=cut).verdict == "FAIL"


def test_a_gap_in_an_unsettled_run_does_not_count_and_in_a_settled_one_it_does(bed):
    gaps = {MARCH: [Why.TIMED_OUT]}
    cut = frozenset({("memory.march", GPU, 1)})
    assert (
        check_of(bed(runs={MARCH: [None, 0]}, gaps=gaps, unsettled=cut).judge(), MARCH).verdict
        == "PASS"
    )
    check = check_of(bed(runs={MARCH: [None, 0]}, gaps=gaps).judge(), MARCH)
    assert (check.verdict, check.message) == ("UNKNOWN", "because timed-out")


def test_a_settled_run_that_read_nothing_is_no_pass(bed):
    check = judged(bed, MARCH, [0, None, 0])
    assert check.verdict == "UNKNOWN"
    assert "run 2" in check.message


def test_a_missing_reading_beside_a_fail_is_fail(bed):
    check = check_of(bed(runs={MARCH: [7]}, gaps={MARCH: [Why.LOST]}).judge(), MARCH)
    assert check.verdict == "FAIL"
    check = check_of(bed(runs={MARCH: [7, None]}, gaps={MARCH: [Why.LOST] * 2}).judge(), MARCH)
    assert (check.verdict, check.runs, check.failed) == ("FAIL", (7, None), (True, False))


def test_a_second_reading_in_one_run_erases_nothing(bed, change):
    record = bed().record()
    bad = Measurement(*MARCH, 9, "errors", 1)
    for seen in ([bad, *record.seen], [*record.seen, bad]):
        check = check_of(judge(change(record, seen=seen)), MARCH)
        assert (check.verdict, check.value) == ("FAIL", 9)


def test_links_settle_with_their_gpu(bed):
    key = ("inventory", f"{GPU}/link01", "nvlink.active")
    cut = frozenset({("inventory", GPU, 1)})
    assert judged(bed, key, [1], unsettled=cut).verdict == "UNKNOWN"
    assert judged(bed, key, [0], unsettled=cut).verdict == "FAIL"


def test_a_failing_reading_that_nobody_planned_counts(bed, change):
    record = bed().record()
    for burn, subject in (("memory.march", "rack0/tray09/gpu0"), ("site.burn", GPU)):
        bad = Measurement(burn, subject, "ecc.corrected.delta", 9, "errors", 1)
        judgement = judge(change(record, seen=[*record.seen, bad]))
        assert judgement.verdict == "FAIL"
    noted = Measurement("memory.march", GPU, "power.average", 9e5, "W", 1)
    assert judge(change(record, seen=[*record.seen, noted])).verdict == "PASS"


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_outside_and_still_json(bed, value):
    for key in (MARCH, ("health", GPU, "thermal.margin")):
        if value == math.inf and key[2] == "thermal.margin":
            continue
        check = judged(bed, key, [value])
        assert check.verdict == "FAIL"
        assert json.loads(json.dumps(check.as_json(), allow_nan=False))["value"] in ("nan", "inf")


def test_nan_breaks_every_bound():
    for limit in (
        Limit("temperature", "x", "spec", low=-1e300),
        Limit("temperature", "x", "spec", high=1e300),
        Limit("ecc.enabled", "x", "spec", equal=1),
    ):
        assert not limit.allows(math.nan)


def test_bounds_themselves_are_inside():
    limit = Limit("temperature", "x", "spec", low=10, high=90)
    assert [limit.allows(v) for v in (9.99, 10, 90, 90.01)] == [False, True, True, False]


# --- alone --------------------------------------------------------------------------------------


def test_outside_looks_at_no_other_subject(bed):
    head = bed().head()
    limits = from_record(head.limits)
    slow = Measurement(*RATE, 1.0, "TFLOP/s")
    bad = Measurement(*MARCH, 1, "errors")
    noted = Measurement("gemm.fp32", GPU, "power.average", 1e9, "W")
    assert outside(head, limits, [slow, bad, noted]) == [bad]
    assert outside(head, Limits(), [slow, bad, noted]) == []


# --- properties ---------------------------------------------------------------------------------

ORDER = ["PASS", "UNKNOWN", "FAIL"]
readings = st.one_of(
    st.integers(0, 3), st.floats(allow_nan=True, allow_infinity=True, width=32), st.none()
)


@settings(max_examples=60, deadline=None)
@given(
    runs=st.dictionaries(
        st.sampled_from([MARCH, RATE, ("health", GPU, "thermal.margin")]),
        st.lists(readings, min_size=1, max_size=3),
    ),
    cut=st.frozensets(st.tuples(st.just("memory.march"), st.just(GPU), st.integers(1, 3))),
    attempt=st.integers(1, 5),
    settled=st.booleans(),
)
def test_a_failing_reading_never_improves_a_verdict(bed, change, runs, cut, attempt, settled):
    record = bed(runs=runs, unsettled=cut).record()
    before = judge(record)
    bad = Measurement("health", GPU, "throttle.thermal", 1, "flag", attempt)
    more = frozenset({("health", GPU, attempt)}) if settled else frozenset()
    after = judge(change(record, seen=[*record.seen, bad], settled=record.settled | more))
    assert after.verdict == "FAIL"
    verdicts = [{(c.id, c.subject, c.metric): c.verdict for c in j.checks} for j in (before, after)]
    for key, verdict in verdicts[0].items():
        assert verdict == "SKIP" or ORDER.index(verdicts[1][key]) >= ORDER.index(verdict)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_judge_takes_any_well_formed_record(bed, change, data):
    record = bed().record()
    gpus = st.sampled_from([*record.head.gpus, f"{GPU}/link00", "rack0/tray00/host", "x"])
    burns = st.sampled_from(["inventory", "memory.march", "gemm.fp32", "other"])
    numeric = st.sampled_from(["gpu.present", "temperature", "gemm.fp32.rate", "nvlink.active"])
    text = st.sampled_from(["gpu.name", "driver.version", "recovery.action", "gpu.serial"])
    seen = st.one_of(
        st.builds(
            Measurement,
            burns,
            gpus,
            numeric,
            st.floats() | st.integers(-9, 9),
            st.just("C"),
            st.integers(1, 4),
        ),
        st.builds(
            Measurement, burns, gpus, text, st.text(max_size=4), st.just("text"), st.integers(1, 4)
        ),
        st.builds(
            Missing,
            burns,
            gpus,
            numeric | text,
            st.sampled_from(Why),
            st.text(max_size=3),
            st.just(""),
            st.integers(1, 4),
        ),
    )
    kept = data.draw(st.integers(0, len(record.seen)))
    more = data.draw(st.lists(seen, max_size=40))
    settled = data.draw(st.frozensets(st.tuples(burns, gpus, st.integers(1, 4)), max_size=30))
    random = change(record, seen=[*record.seen[:kept], *more], settled=settled)
    judgement = judge(random)
    json.dumps(judgement.as_json(everything=True), allow_nan=False)
    assert judgement.verdict in ORDER
    assert judgement.judged <= judgement.planned
    reordered = change(random, seen=[*reversed(more), *record.seen[:kept]])
    assert judge(reordered).verdict == judgement.verdict
