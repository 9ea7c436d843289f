"""compare: parts by serial number, changes against the noise of both runs, the verdict."""

import json
import random

import pytest

from rackproof.diagnostics.change import change_of, noise, value_of
from rackproof.diagnostics.compare import compare
from rackproof.diagnostics.evidence import Planned, Record
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Measurement

GPU = "rack0/tray00/gpu1"
RATE = ("gemm.fp32", "gemm.fp32.rate")
PLAN = (
    Planned("inventory", {"gpu": ["gpu.name", "driver.version", "fabric.state"],
                          "link": ["nvlink.active", "nvlink.speed"]}),
    Planned("health", {"gpu": ["thermal.margin", "temperature", "xid.count", "recovery.action"]}),
    Planned("gemm.fp32", {"gpu": ["gemm.fp32.wrong", "gemm.fp32.rate", "gemm.fp32.digest"]}),
)  # fmt: skip


def noisy(bed, seed, **changes):
    """A run whose rates and temperatures differ from another seed's as readings do."""
    draw = random.Random(seed)
    head = bed(plan=PLAN).head()
    runs = {}
    for number, gpu in enumerate(head.gpus):
        die = 60.0 * (1 + 0.004 * number)  # the die's own: the same in every run
        runs["gemm.fp32", gpu, "gemm.fp32.rate"] = [die * draw.gauss(1.0, 0.003)]
        runs["gemm.fp32", gpu, "gemm.fp32.digest"] = [f"of seed {seed}"]
        runs["health", gpu, "temperature"] = [draw.gauss(50.0, 0.5)]
        runs["health", gpu, "thermal.margin"] = [draw.gauss(30.0, 0.5)]
    return bed(plan=PLAN, runs=runs | changes.pop("runs", {}), **changes).record()


def changed(record, change):
    """The record with `change(measurement)` in the place of each measurement; None drops it."""
    seen = [change(s) if isinstance(s, Measurement) else s for s in record.seen]
    return Record(record.head, [s for s in seen if s], record.settled, record.ended)


def body(old, new):
    return json.loads(json.dumps(compare(old, new).as_json()))


def named(found):
    return {entry["subject"] for entry in found["worse"]}


# --- noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_two_healthy_runs_differ_in_nothing(bed, seed):
    found = body(noisy(bed, seed), noisy(bed, seed + 1000))
    assert found["verdict"] == "PASS"
    assert [found[k] for k in ("worse", "better", "only_old", "only_new", "changed")] == [[]] * 5


@pytest.mark.parametrize("seed", range(10))
def test_a_gpu_that_lost_six_percent_is_the_only_one_named(bed, seed):
    slow = {("gemm.fp32", GPU, "gemm.fp32.rate"): [60.24 * 0.94]}
    found = body(noisy(bed, seed), noisy(bed, seed + 1000, runs=slow))
    (entry,) = found["worse"]
    assert (found["verdict"], entry["subject"]) == ("FAIL", GPU)
    assert (entry["metric"], entry["serial"]) == ("gemm.fp32.rate", "1650000001")
    assert entry["change"] == pytest.approx(-0.06, abs=0.02)
    assert 0.03 <= entry["limit"] <= 0.07
    back = body(noisy(bed, seed + 1000, runs=slow), noisy(bed, seed))
    assert (back["verdict"], named({"worse": back["better"]})) == ("PASS", {GPU})


def test_the_noise_of_many_is_theirs_and_of_few_is_fixed():
    rate = metrics()["gemm.fp32.rate"]
    assert noise(rate, [0.0] * 8) == 0.03
    assert noise(rate, [-0.006, 0.006] * 8) == pytest.approx(6 * 1.4826 * 0.006)
    assert noise(rate, [-0.2, 0.2] * 8) == 0.07
    assert noise(rate, [0.0] * 7) == 0.05
    assert noise(metrics()["xid.count"], [0.0] * 72) == 0.0


def test_a_whole_rack_that_slowed_is_named(bed):
    slow = {("gemm.fp32", g, "gemm.fp32.rate"): [54.0] for g in bed().head().gpus}
    found = body(noisy(bed, 1), noisy(bed, 2, runs=slow))
    assert named(found) == set(bed().head().gpus)


def test_bit_error_rates_are_compared_by_decades():
    ber = metrics()["nvlink.ber"]
    assert change_of(ber, 1e-15, 1e-12) == pytest.approx(3.0)
    assert change_of(ber, 0.0, 0.0) == 0.0
    assert change_of(metrics()["temperature"], 50.0, 57.0) == 7.0


def test_several_runs_stand_for_their_median_and_counts_for_the_worst():
    assert value_of(metrics()["gemm.fp32.rate"], [60.0, 50.0, 61.0]) == 60.0
    assert value_of(metrics()["xid.count"], [0, 3, 0]) == 3


# --- which way is worse -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        (("health", "temperature"), 50.0, 65.0),
        (("health", "thermal.margin"), 30.0, 15.0),
        (("health", "xid.count"), 0, 1),
        (("gemm.fp32", "gemm.fp32.wrong"), 0, 2),
        (("inventory", "fabric.state"), "completed", "in-progress"),
        (("health", "recovery.action"), "none", "reset"),
        (("gemm.fp32", "gpu.present"), 1, 0),
        (("inventory", "driver.version"), "580.1", "570.9"),
    ],
)
def test_each_metric_has_a_side_that_is_worse(bed, what, old, new):
    key = (what[0], GPU, what[1])
    before, after = noisy(bed, 1, runs={key: [old]}), noisy(bed, 2, runs={key: [new]})
    found = body(before, after)
    assert [(e["subject"], e["metric"], e["old"], e["new"]) for e in found["worse"]] == [
        (GPU, what[1], old, new)
    ]
    assert found["better"] == []
    back = body(after, before)
    assert (back["worse"], [e["metric"] for e in back["better"]]) == ([], [what[1]])


def test_a_link_that_went_dark_has_its_gpus_serial(bed):
    link = f"{GPU}/link02"
    found = body(noisy(bed, 1), noisy(bed, 2, runs={("inventory", link, "nvlink.active"): [0]}))
    assert [(e["subject"], e["serial"]) for e in found["worse"]] == [(link, "1650000001")]


def test_a_driver_that_changed_everywhere_is_told_and_is_no_fault(bed):
    gpus = bed().head().gpus
    newer = {("inventory", gpu, "driver.version"): ["590.2"] for gpu in gpus}
    found = body(noisy(bed, 1), noisy(bed, 2, runs=newer))
    assert (found["verdict"], found["worse"]) == ("PASS", [])
    assert found["changed"] == [
        {"metric": "driver.version", "old": "580.1", "new": "590.2", "parts": 8}
    ]


def test_a_count_that_was_outside_already_is_worse_only_beyond_its_own_noise(bed):
    key = ("gemm.fp32", GPU, "gemm.fp32.wrong")
    same = body(noisy(bed, 1, runs={key: [100]}), noisy(bed, 2, runs={key: [130]}))
    assert same["worse"] == []
    more = body(noisy(bed, 1, runs={key: [100]}), noisy(bed, 2, runs={key: [400]}))
    assert named(more) == {GPU}


# --- who is who ---------------------------------------------------------------------------------


def reserial(change, record, serials, uuids=None):
    """The record with the serial numbers (and UUIDs) of some GPUs replaced."""
    found = changed(
        record,
        lambda m: (
            change(m, value=serials[m.subject])
            if m.metric == "gpu.serial" and m.subject in serials
            else m
        ),
    )
    extra = [Measurement("inventory", g, "gpu.uuid", u, "text") for g, u in (uuids or {}).items()]
    return change(found, seen=[*found.seen, *extra])


def test_a_swapped_gpu_is_told_by_its_serial_and_not_as_a_change(bed, change):
    slow = {("gemm.fp32", GPU, "gemm.fp32.rate"): [50.0]}
    new = reserial(change, noisy(bed, 2, runs=slow), {GPU: "1659999999"})
    found = body(noisy(bed, 1), new)
    assert (found["verdict"], found["worse"]) == ("PASS", [])
    assert found["only_old"] == [{"subject": GPU, "serial": "1650000001"}]
    assert found["only_new"] == [{"subject": GPU, "serial": "1659999999"}]


def test_history_follows_the_serial_and_not_the_slot(bed, change):
    other = "rack0/tray01/gpu3"
    old = noisy(bed, 1)
    swapped = {GPU: "1650000007", other: "1650000001"}
    slow = {("gemm.fp32", other, "gemm.fp32.rate"): [60.24 * 0.9],
            ("gemm.fp32", GPU, "gemm.fp32.rate"): [61.68]}  # fmt: skip
    found = body(old, reserial(change, noisy(bed, 2, runs=slow), swapped))
    assert [(e["subject"], e["serial"]) for e in found["worse"]] == [(other, "1650000001")]
    assert found["only_old"] == found["only_new"] == []


@pytest.mark.parametrize("with_uuids", [True, False])
def test_two_gpus_of_one_serial_are_kept_apart(bed, change, with_uuids):
    gpus = list(bed().head().gpus)
    serials = {gpu: f"16500000{n // 2:02d}" for n, gpu in enumerate(gpus)}
    uuids = {gpu: f"GPU-{n}" for n, gpu in enumerate(gpus)} if with_uuids else {}
    slow = {("gemm.fp32", GPU, "gemm.fp32.rate"): [55.0]}
    old = reserial(change, noisy(bed, 1), serials, uuids)
    new = reserial(change, noisy(bed, 2, runs=slow), serials, uuids)
    found = body(old, new)
    assert [(e["subject"], e["serial"]) for e in found["worse"]] == [(GPU, "1650000000")]
    assert found["only_old"] == found["only_new"] == []


def test_a_slot_that_is_silent_now_is_the_gpu_that_was_there(bed):
    gone = {("gemm.fp32", GPU, "gpu.present"): [0]}
    before = {("gemm.fp32", GPU, "gpu.present"): [1]}
    new = changed(
        noisy(bed, 2, runs=gone),
        lambda m: None if m.subject == GPU and m.metric != "gpu.present" else m,
    )
    found = body(noisy(bed, 1, runs=before), new)
    assert [(e["subject"], e["metric"]) for e in found["worse"]] == [(GPU, "gpu.present")]
    assert all("metrics" in entry for entry in found["only_old"])


# --- what cannot be compared --------------------------------------------------------------------


def test_another_rack_or_source_is_unknown(bed, change):
    old, new = noisy(bed, 1), noisy(bed, 2)
    for fields in ({"rack": "other"}, {"source": "real"}):
        found = body(old, change(new, head=change(new.head, **fields)))
        assert (found["verdict"], found["worse"]) == ("UNKNOWN", [])
        assert found["reasons"]


def test_nothing_in_common_is_unknown(bed, change):
    new = noisy(bed, 2)
    serials = {gpu: f"99{n}" for n, gpu in enumerate(new.head.gpus)}
    assert body(noisy(bed, 1), reserial(change, new, serials))["verdict"] == "UNKNOWN"
    empty = changed(new, lambda m: m if m.metric == "gpu.serial" else None)
    assert body(noisy(bed, 1), empty)["verdict"] == "UNKNOWN"


def test_a_run_that_was_cut_short_is_no_pass_and_may_fail(bed, change):
    old, new = noisy(bed, 1), change(noisy(bed, 2), ended=False)
    assert body(old, new)["verdict"] == "UNKNOWN"
    slow = {("gemm.fp32", GPU, "gemm.fp32.rate"): [50.0]}
    assert body(old, change(noisy(bed, 2, runs=slow), ended=False))["verdict"] == "FAIL"


def test_what_the_new_run_did_not_read_is_told_and_no_pass(bed):
    new = changed(
        noisy(bed, 2), lambda m: None if (m.subject, m.metric) == (GPU, "temperature") else m
    )
    found = body(noisy(bed, 1), new)
    assert found["verdict"] == "UNKNOWN"
    assert found["only_old"] == [
        {"subject": GPU, "serial": "1650000001", "check": "health", "metrics": ["temperature"]}
    ]


def test_a_burn_that_the_new_plan_lacks_is_named_and_no_pass(bed):
    short = bed(plan=PLAN[:1]).record()
    found = body(noisy(bed, 1), short)
    assert (found["verdict"], found["only_old"]) == ("UNKNOWN", [])
    assert found["reasons"] == [
        "the new run did not plan health, gemm.fp32 (compare runs of one plan)"
    ]
    more = body(short, noisy(bed, 2))
    assert (more["verdict"], more["reasons"]) == ("PASS", [])


def test_a_burn_that_the_new_run_lacks_hides_no_fault(bed):
    dark = {("inventory", f"{GPU}/link02", "nvlink.active"): [0]}
    found = body(noisy(bed, 1), bed(plan=PLAN[:1], runs=dark).record())
    assert (found["verdict"], len(found["reasons"])) == ("FAIL", 1)


def test_a_burn_of_which_nothing_was_settled_is_named_and_no_pass(bed, change):
    new = noisy(bed, 2)
    settled = frozenset(s for s in new.settled if s[0] != "health")
    found = body(noisy(bed, 1), change(new, settled=settled))
    assert (found["verdict"], found["worse"]) == ("UNKNOWN", [])
    assert found["reasons"] == ["the new run settled nothing of health (compare runs of one plan)"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("metric", ["gemm.fp32.rate", "gemm.fp32.wrong"])
def test_what_is_not_finite_is_no_reading(bed, metric, value):
    key = ("gemm.fp32", GPU, metric)
    odd, even = noisy(bed, 1, runs={key: [value]}), noisy(bed, 2)
    for word, pair in (("old", (odd, even)), ("new", (even, odd)), ("new", (odd, odd))):
        found = body(*pair)
        assert (found["verdict"], found["worse"], found["better"]) == ("UNKNOWN", [], [])
        assert found["only_old"] == found["only_new"] == []
        assert found["reasons"][-1] == (
            f"not a finite number in the {word} run: {GPU} {metric} in gemm.fp32 (burn it again)"
        )
    slow = {key: [value], ("gemm.fp32", "rack0/tray00/gpu2", "gemm.fp32.rate"): [40.0]}
    assert body(even, noisy(bed, 1, runs=slow))["verdict"] == "FAIL"


def test_odd_numbers_break_nothing(bed):
    for value in (0.0, -1.0):
        odd = {("gemm.fp32", GPU, "gemm.fp32.rate"): [value]}
        found = body(noisy(bed, 1), noisy(bed, 2, runs=odd))
        assert (found["verdict"], named(found)) in (("FAIL", {GPU}), ("PASS", set()))
        body(noisy(bed, 1, runs=odd), noisy(bed, 2))
        same = body(noisy(bed, 1, runs=odd), noisy(bed, 2, runs=odd))
        assert same["worse"] == []
