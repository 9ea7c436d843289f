"""Which limit decides: layers, texts against the most common one, and waivers."""

import pytest

from rackproof.diagnostics.evidence import Planned
from rackproof.diagnostics.judge import judge
from rackproof.diagnostics.limits import Limit
from rackproof.harness.model import Measurement, Why

GPU = "rack0/tray00/gpu1"
MARCH = ("memory.march", GPU, "ecc.corrected.delta")
RATE = ("gemm.fp32", GPU, "gemm.fp32.rate")


def check_of(judgement, key):
    (found,) = [c for c in judgement.checks if (c.id, c.subject, c.metric) == key]
    return found


def judged(bed, key, values, **more):
    return check_of(bed(runs={key: values}, **more).judge(), key)


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
