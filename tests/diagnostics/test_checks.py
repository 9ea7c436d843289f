"""From readings to checks: what decides, what counts, and what is no reading."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.checks import outside
from rackproof.diagnostics.evidence import Planned
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.limits import Limit, Limits, from_record
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
    noted = Measurement("memory.march", GPU, "power.average", 9e9, "W", 1)
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


# --- layers -------------------------------------------------------------------------------------

USER = '[[limit]]\nmetric = "{}"\n{} = {}\nunit = "{}"\nsource = "our own"\n'


def test_the_users_limit_takes_the_place_of_the_specs(bed):
    key = ("health", GPU, "thermal.margin")
    text = USER.format("thermal.margin", "low", 40, "C")
    check = judged(bed, key, [30.0], limits=text)
    assert (check.verdict, check.decided_by, check.limit.source) == ("FAIL", "user", "our own")
    check = judged(bed, key, [2.0], limits=USER.format("thermal.margin", "low", 1, "C"))
    assert (check.verdict, check.decided_by) == ("PASS", "user")
    assert judged(bed, key, [2.0]).decided_by == "spec"


def test_the_platform_takes_the_place_of_the_spec_and_the_user_of_both(bed):
    key = ("health", GPU, "thermal.margin")
    layers = [Limit("thermal.margin", "platform's", "platform", low=1)]
    check = judged(bed, key, [2.0], layers=layers)
    assert (check.verdict, check.decided_by) == ("PASS", "platform")
    text = USER.format("thermal.margin", "low", 5, "C")
    check = judged(bed, key, [2.0], layers=layers, limits=text)
    assert (check.verdict, check.decided_by) == ("FAIL", "user")


def test_the_skus_achieved_value_stands_beside_the_median_and_goes_before_it(bed):
    layers = [Limit("gemm.fp32.rate", "0.9 x 65", "achieved", low=58.5, sku="b300")]
    check = judged(bed, RATE, [50.0], layers=layers)
    assert (check.verdict, check.decided_by) == ("FAIL", "achieved")
    check = judged(bed, RATE, [58.0], layers=layers)
    assert (check.verdict, check.decided_by) == ("FAIL", "achieved")
    other = [Limit("gemm.fp32.rate", "0.9 x 65", "achieved", low=58.5, sku="b200")]
    assert judged(bed, RATE, [58.0], layers=other).decided_by == "median"


def test_the_median_stays_beside_the_users_limit(bed):
    text = USER.format("gemm.fp32.rate", "low", 10, "TFLOP/s")
    check = judged(bed, RATE, [50.0] * 3, limits=text)
    assert (check.verdict, check.decided_by) == ("FAIL", "median")
    check = judged(bed, RATE, [60.0], limits=text)
    assert (check.verdict, check.decided_by) == ("PASS", "user")


def test_what_names_the_subject_or_the_sku_takes_the_place_of_what_does_not(bed):
    key = ("health", GPU, "thermal.margin")
    text = USER.format("thermal.margin", "low", 40, "C")
    text += USER.format("thermal.margin", "low", 20, "C") + f'subject = "{GPU}"\n'
    assert judged(bed, key, [30.0], limits=text, trays=1, gpus=2).verdict == "PASS"
    other = ("health", "rack0/tray00/gpu0", "thermal.margin")
    assert judged(bed, other, [30.0], limits=text).verdict == "FAIL"


def test_what_names_a_gpu_holds_for_its_links(bed):
    link = f"{GPU}/link01"
    for glob in (GPU, "rack0/tray00/gpu?", link):
        text = USER.format("nvlink.speed", "low", 51, "GB/s") + f'subject = "{glob}"\n'
        assert (
            judged(bed, ("inventory", link, "nvlink.speed"), [50.0], limits=text).verdict == "FAIL"
        )
    other = ("inventory", "rack0/tray01/gpu0/link01", "nvlink.speed")
    assert judged(bed, other, [50.0], limits=text).verdict == "PASS"


def test_without_any_layer_a_value_is_unknown_with_the_hint(bed):
    check = judged(bed, RATE, [60.0], trays=1)
    assert (check.verdict, check.limit, check.decided_by) == ("UNKNOWN", None, None)
    assert "--limits" in check.cure
    assert "8 like GPUs" in check.cure
    check = judged(bed, ("inventory", "rack0/tray00/host", "gpu.count"), [4])
    assert check.verdict == "UNKNOWN"
    assert "--expect" in check.cure


def test_gpus_of_another_sku_are_not_like(bed):
    skus = {f"rack0/tray01/gpu{n}": "b200" for n in range(4)}
    assert judged(bed, RATE, [60.0], skus=skus).verdict == "UNKNOWN"


def test_a_planned_gpu_alone_is_a_peer(bed, change):
    record = bed(trays=1, gpus=7).record()
    fake = [
        Measurement("gemm.fp32", f"rack7/tray00/gpu{n}", "gemm.fp32.rate", 60.0, "TFLOP/s")
        for n in range(9)
    ]
    judgement = judge(change(record, seen=[*record.seen, *fake]))
    assert check_of(judgement, RATE).verdict == "UNKNOWN"


# --- texts --------------------------------------------------------------------------------------

DRIVER = ("inventory", GPU, "driver.version")


def drivers(bed, *values, **more):
    gpus = [f"rack0/tray{n // 4:02d}/gpu{n % 4}" for n in range(len(values))]
    runs = {("inventory", g, "driver.version"): [v] for g, v in zip(gpus, values, strict=True)}
    judgement = bed(trays=-(-len(values) // 4), gpus=min(4, len(values)), runs=runs, **more).judge()
    return [c.verdict for c in judgement.checks if c.metric == "driver.version"]


def test_a_text_is_held_against_the_most_common_value(bed):
    assert drivers(bed, *"aaaaaaab") == ["PASS"] * 7 + ["FAIL"]
    assert drivers(bed, *"aaaaabbc") == ["PASS"] * 5 + ["FAIL"] * 3


def test_nobody_can_say_who_is_wrong_in_a_tie_or_among_few(bed):
    assert drivers(bed, *"aaaabbbb") == ["UNKNOWN"] * 8
    assert drivers(bed, *"aaab") == ["UNKNOWN"] * 4
    assert drivers(bed, "a") == ["UNKNOWN"]
    assert drivers(bed, *"aaaa") == ["PASS"] * 4


def test_a_golden_version_takes_the_place_of_the_most_common_one(bed):
    text = '[[golden]]\nitem = "driver"\nvalue = "b"\n'
    assert drivers(bed, *"aaaaaaab", limits=text) == ["FAIL"] * 7 + ["PASS"]
    assert drivers(bed, "b", limits=text) == ["PASS"]
    check = judged(bed, DRIVER, ["a"], limits=text)
    assert (check.decided_by, check.limit.source) == ("user", "golden driver")


def test_cliques_are_compared_within_a_domain_that_is_smaller_than_the_rack(bed, change):
    plan = [Planned("inventory", {"gpu": ["fabric.clique"]})]
    runs = {
        ("inventory", f"rack0/tray{t:02d}/gpu{g}", "fabric.clique"): [f"node{t}/0"]
        for t in range(2)
        for g in range(4)
    }
    record = bed(plan=plan, runs=runs).record()
    assert judge(record).verdict == "UNKNOWN"
    nodes = change(record, head=change(record.head, domain=4))
    assert judge(nodes).verdict == "PASS"


# --- waivers ------------------------------------------------------------------------------------

WAIVER = (
    '[[waiver]]\n{} = "{}"\ncheck = "{}"\nuntil = {}\nowner = "ops"\nreason = "part is on order"\n'
)


@pytest.mark.parametrize(
    ("key", "value", "check"),
    [
        ("subject", GPU, "memory.march"),
        ("subject", "rack0/tray00/*", "memory.*"),
        ("serial", "1650000001", "*"),
        ("subject", GPU, "ecc.corrected.delta"),
        ("subject", GPU, "memory.march.ecc.corrected.delta"),
    ],
)
def test_a_waived_fail_stays_marked_and_does_not_count(bed, accuse, key, value, check):
    text = WAIVER.format(key, value, check, "2026-07-30")
    judgement = bed(runs={MARCH: [3, 3, 3]}, limits=text).judge()
    found = check_of(judgement, MARCH)
    assert found.verdict == "FAIL"
    assert found.as_json()["waived"] == {
        "until": "2026-07-30",
        "owner": "ops",
        "reason": "part is on order",
    }
    assert judgement.verdict == "PASS"
    assert judgement.subjects[GPU] == "PASS"
    assert accuse(judgement) == set()
    assert [c["metric"] for c in judgement.as_json()["checks"]] == ["ecc.corrected.delta"]


@pytest.mark.parametrize(
    ("key", "value", "check", "until"),
    [
        ("subject", GPU, "memory.march", "2026-07-29"),
        ("subject", "rack0/tray00/gpu2", "memory.march", "2027-01-01"),
        ("subject", GPU, "gemm.*", "2027-01-01"),
        ("serial", "1650000002", "*", "2027-01-01"),
        ("serial", GPU, "*", "2027-01-01"),
    ],
)
def test_a_waiver_that_is_over_or_for_another_does_not_count(bed, key, value, check, until):
    text = WAIVER.format(key, value, check, until)
    judgement = bed(runs={MARCH: [3, 3, 3]}, limits=text).judge()
    assert judgement.verdict == "FAIL"
    assert "waived" not in check_of(judgement, MARCH).as_json()


def test_a_waiver_for_a_gpu_holds_for_its_links_and_only_for_fails(bed):
    key = ("inventory", f"{GPU}/link02", "nvlink.active")
    for pattern in (("subject", GPU), ("subject", "*/gpu1"), ("serial", "1650000001")):
        text = WAIVER.format(*pattern, "inventory", "2027-01-01")
        assert bed(runs={key: [0, 0, 0]}, limits=text).judge().verdict == "PASS"
        assert bed(gaps={key: [Why.NO_READING]}, limits=text).judge().verdict == "UNKNOWN"


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
