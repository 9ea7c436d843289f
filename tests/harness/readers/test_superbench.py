"""SuperBench: nodes with their defects, values that are none, and a benchmark that did not run."""

import json

import pytest

from rackproof.harness.readers import read
from rackproof.harness.readers.superbench import items


@pytest.fixture
def bench(tmp_path):
    def bench(*rows):
        path = tmp_path / "out"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return read(path)

    return bench


def events(found):
    return {(e.subject, e.code) for e in found.events}


def node(name="rk1-n03", **more):
    codes = {"gemm-flops/return_code": 0, "mem-bw/return_code": 0}
    return {"node": name, **codes, **{k.replace("__", "/"): v for k, v in more.items()}}


def defect(details, **more):
    return {"Category": "X", "Defective Details": details, "index": "rk1-n03",
            "gemm-flops/FP32:0": 0.01, "gemm-flops/FP32:1": "N/A"} | more  # fmt: skip


RULE = "(B/L: 1.0000 VAL: 0.5000 VAR: -50.00% Rule:lambda x:x<-0.05)"


def test_brackets_of_the_small_language():
    details = ("a/b:0(VAL: 1.0 Rule:lambda x:min(x, 3)>f(2,(1))),c/d_miss,e/f(B/L: 1 VAL: 2)"
               ", g/return_code(VAL: 1.0000 Rule:lambda x:x>0)")  # fmt: skip
    assert list(items(details)) == [
        ("a/b:0", "VAL: 1.0 Rule:lambda x:min(x, 3)>f(2,(1))"), ("c/d_miss", ""),
        ("e/f", "B/L: 1 VAL: 2"), ("g/return_code", "VAL: 1.0000 Rule:lambda x:x>0"),
    ]  # fmt: skip
    assert list(items("")) == []
    assert list(items("a(b,c")) == [("a", "b,c")]


@pytest.mark.parametrize(
    ("metric", "subject", "code"),
    [
        ("gemm-flops/FP32:2", "/gpu2", "superbench.defect.sm"),
        ("gemm-flops/FP32", "", "superbench.defect.sm"),
        ("mem-bw/D2H_Mem_BW:5", "/gpu5", "superbench.defect.pcie"),
        ("gpu-copy-bw:perf/cpu_to_gpu3_by_sm_under_numa1_bw", "/gpu3", "superbench.defect.pcie"),
        ("gpu-copy-bw:perf/gpu0_to_gpu3_by_sm_bw", "", "superbench.defect.unknown"),
        ("nccl-bw:default/allreduce_8G_busbw:0", "/gpu0", "superbench.defect.nvlink"),
        ("ib-loopback/IB_write_8M_Avg_3:0", "/gpu0", "superbench.defect.nic"),
        ("disk-benchmark/nvme0n1_rand_read_iops", "", "superbench.defect.storage"),
        ("kernel-launch/wall_overhead:40", "", "superbench.defect.unknown"),
    ],
)
def test_which_part_a_defect_names(bench, metric, subject, code):
    metric = metric.replace(":perf", "").replace(":default", "")
    found = bench(defect(metric + RULE))
    assert events(found) == {("host:rk1-n03" + subject, code)}
    assert (found.kind, found.records, found.worked) == ("superbench", 1, True)


def test_a_rank_is_no_gpu_where_there_are_more_ranks_than_gpus(bench):
    many = {f"gpu-sm-copy-bw/dtoh:{n}": 0.0 for n in range(32)}
    found = bench(defect("gpu-sm-copy-bw/dtoh:3" + RULE, **many))
    assert events(found) == {("host:rk1-n03", "superbench.defect.pcie")}


def test_no_value_is_not_a_bad_value(bench):
    found = bench(defect("mem-bw/H2D:0_miss,mem-bw/H2D:1_miss,"
                         "mem-bw/return_code(VAL: 1.0 Rule:lambda x:x>0)"))  # fmt: skip
    assert events(found) == {("host:rk1-n03", "superbench.miss"),
                             ("host:rk1-n03", "superbench.failed")}  # fmt: skip
    assert next(e for e in found.events if e.code == "superbench.miss").detail["count"] == 2


def test_two_nodes_with_two_defects(bench):
    found = bench(defect("gemm-flops/FP64:1" + RULE),
                  defect("mem-bw/H2D:0_miss", index="rk1-n04"))  # fmt: skip
    assert events(found) == {("host:rk1-n03/gpu1", "superbench.defect.sm"),
                             ("host:rk1-n04", "superbench.miss")}  # fmt: skip
    assert found.records == 2


def test_the_newer_diagnosis_lists_the_good_ones_too(bench):
    good = {"index": "rk1-n01", "diagnosis/accept": True, "diagnosis/issue_num": 0,
            "diagnosis/issue_details": ""}  # fmt: skip
    bad = {"index": "rk1-n02", "diagnosis/accept": False,
           "diagnosis/issue_details": "gemm-flops/FP16:7" + RULE}  # fmt: skip
    odd = {"index": "rk1-n03", "diagnosis/accept": False, "diagnosis/issue_details": "N/A"}
    found = bench(json.dumps([good, bad, odd]))
    assert events(found) == {("host:rk1-n02/gpu7", "superbench.defect.sm"),
                             ("host:rk1-n03", "superbench.rejected")}  # fmt: skip
    assert (found.records, found.worked) == (3, True)


@pytest.mark.parametrize(
    ("row", "codes", "worked"),
    [
        (node(), set(), True),
        (node(ib__return_code=4), {("host:rk1-n03", "superbench.failed")}, True),
        ({"node": "n", "ib/return_code": 34}, {("host:n", "superbench.failed")}, False),
        ({"node": "n", "ib/return_code": "N/A", "ib/x": None}, set(), False),
        ({"node": "n", "gpu-burn/return_code": 0, "gpu-burn/gpu_2_pass": 0},
         {("host:n/gpu2", "gpu-burn.faulty")}, True),
        ({"node": "n", "gpu-burn/return_code": 0, "gpu-burn/abort": 1},
         {("host:n", "superbench.failed")}, True),
    ],
    ids=["all ran", "one did not", "none did", "no number", "faulty", "aborted"],
)  # fmt: skip
def test_results_without_a_baseline(bench, row, codes, worked):
    found = bench(row)
    assert (events(found), found.worked, found.kind) == (codes, worked, "superbench")


def test_what_its_monitor_saw(bench):
    found = bench(node(monitor__gpu_uncorrected_ecc=0) | {"monitor/gpu_remap_none:1": 2})
    seen = {(m.subject, m.metric): m.value for m in found.measurements}
    assert seen["host:rk1-n03/gpu1", "remap.banks.none"] == 2


def test_a_line_that_breaks_off(bench):
    whole = json.dumps(node())
    assert bench(whole, whole[:40]).cut


TABLE = (
    "Network Load Tests v1.3\n  Test with 64 MPI ranks (8 nodes)\n+----+\n"
    "|          RR Two-sided Lat (8 B) |          3.1 |          9.4 |         usec |\n"
)
REFUSED = (
    "ERROR: this application must be run on at least 4 nodes\n----\n"
    "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
)


@pytest.mark.parametrize(
    ("text", "records", "worked", "cut"),
    [
        (TABLE + "+----+\n", 1, True, False),
        (TABLE, 1, True, True),
        (REFUSED, 0, False, False),
    ],
    ids=["a result", "a part of one", "too few nodes"],
)  # fmt: skip
def test_gpcnet(bench, text, records, worked, cut):
    found = bench(text)
    assert (found.kind, found.records, found.worked, found.cut) == (
        "superbench", records, worked, cut)  # fmt: skip
    assert not found.events


@pytest.mark.parametrize(
    "text",
    ['{"node": "n", "value": 1}', '{"index": "x"}', "import superbench\n",
     "mpirun detected that one or more processes exited with non-zero status\n"],
)  # fmt: skip
def test_what_is_none_of_it(bench, text):
    assert bench(text).kind != "superbench"
