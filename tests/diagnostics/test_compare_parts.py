"""compare: GPUs that state no serial number are told by their UUID, or nothing is said of them."""

import pytest

from rackproof.diagnostics.compare import compare
from rackproof.diagnostics.evidence import Planned
from rackproof.harness.model import Measurement

GPU, OTHER = "rack0/tray00/gpu1", "rack0/tray01/gpu3"
PLAN = (Planned("gemm.fp32", {"gpu": ["gemm.fp32.wrong", "gemm.fp32.rate"]}),)
LACKS = "lacks the serial number that tells a part"


@pytest.fixture
def run(bed, change):
    """Make a run with the UUIDs given by GPU, and with no serial number where `dumb` says."""

    def made(uuids=None, dumb=(), runs=None):
        record = bed(plan=PLAN, runs=runs or {}).record()
        seen = [s for s in record.seen if s.metric != "gpu.serial" or s.subject not in dumb]
        for gpu, uuid in (uuids or {}).items():
            seen.append(Measurement("inventory", gpu, "gpu.uuid", uuid, "text"))
        return change(record, seen=seen)

    return made


@pytest.fixture
def gpus(bed):
    return list(bed().head().gpus)


@pytest.fixture
def uuids(gpus):
    return {gpu: f"GPU-{number}" for number, gpu in enumerate(gpus)}


def test_with_neither_serial_nor_uuid_nothing_can_be_said(run, gpus, uuids):
    old = run(uuids)
    for new in (run(dumb=gpus), run(dumb=[GPU])):
        found = compare(old, new)
        assert (found.verdict, found.worse) == ("UNKNOWN", [])
        (reason,) = found.reasons
        assert reason.startswith(f"the new run {LACKS}: ")
        assert GPU in reason
    both = compare(run(dumb=gpus), run(dumb=gpus))
    assert (both.verdict, len(both.reasons)) == ("UNKNOWN", 2)


def test_the_uuid_tells_a_part_where_the_serial_is_gone(run, gpus, uuids):
    for old, new in (
        (run(uuids), run(uuids, gpus)),
        (run(uuids, gpus), run(uuids)),
        (run(uuids, gpus), run(uuids, gpus)),
    ):
        found = compare(old, new)
        assert (found.verdict, found.reasons) == ("PASS", [])
        assert found.count == 2 * len(gpus)


def test_the_uuid_finds_a_part_in_another_slot(run, gpus, uuids):
    moved = {**uuids, GPU: uuids[OTHER], OTHER: uuids[GPU]}
    slow = {("gemm.fp32", OTHER, "gemm.fp32.rate"): [50.0]}
    found = compare(run(uuids), run(moved, gpus, slow))
    assert [(c.subject, c.serial) for c in found.worse] == [(OTHER, "1650000001")]
    assert found.only_old == found.only_new == []


def test_another_uuid_is_another_part_that_nobody_can_name(run, gpus, uuids):
    slow = {("gemm.fp32", GPU, "gemm.fp32.rate"): [50.0]}
    other = run({**uuids, GPU: "GPU-other"}, gpus, slow)
    for old in (run(uuids), run(uuids, gpus)):
        found = compare(old, other)
        assert (found.verdict, found.worse) == ("UNKNOWN", [])
        assert [entry["subject"] for entry in found.only_new] == [GPU]
        assert f"the new run {LACKS}: {GPU} (burn inventory too)" in found.reasons


def test_one_uuid_on_two_gpus_tells_neither(run, gpus, uuids):
    twice = {**uuids, OTHER: uuids[GPU]}
    found = compare(run(uuids), run(twice, gpus))
    assert found.verdict == "UNKNOWN"
    assert GPU in found.reasons[0]
    assert OTHER in found.reasons[0]


def test_a_gpu_that_was_dead_and_is_back_is_better(run, change):
    present = ("gemm.fp32", GPU, "gpu.present")
    dead = run(dumb=[GPU], runs={present: [0]})
    dead = change(
        dead, seen=[s for s in dead.seen if s.subject != GPU or s.metric == "gpu.present"]
    )
    found = compare(dead, run(runs={present: [1]}))
    assert (found.verdict, [c.metric for c in found.better]) == ("PASS", ["gpu.present"])
