"""The verdict on a machine from what burn-in and diagnostic tools of others wrote."""

import json

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read_all


def burn(*columns, end="OK"):
    """Return gpu-burn's output; a column is (done, Gflop/s, errors, word)."""
    work = "- ".join(f"{done} ({rate} Gflop/s) " for done, rate, _, _ in columns)
    errors = "- ".join(f"{count} {word and f' ({word}!)'}" for _, _, count, word in columns)
    temps = "- ".join("55 C " for _ in columns)
    results = "".join(f"\tGPU {n}: {end}\n" for n in range(len(columns)))
    return (f"\r100.0%  proc'd: {work}  errors: {errors}  temps: {temps}\n"
            f"done\n\nTested {len(columns)} GPUs:\n{results}")  # fmt: skip


def diagnostic(*results, test="Memtest", category="Hardware"):
    """Return DCGM's JSON; a result is (status, error number or 0, severity), one for each GPU."""
    rows = []
    for gpu, (status, number, severity) in enumerate(results):
        warning = {"warning": "as numbered", "error_id": number, "error_severity": severity}
        rows.append({"gpu_id": gpu, "status": status, "warnings": [warning] if number else []})
    tests = [{"name": test, "results": rows}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [
        {"category": category, "tests": tests}]}})  # fmt: skip


def memory(*rows, allocated=79000):
    head = [f"Device name=X, global memory size={80 << 30}", f"Allocated {allocated} MB",
            "Test0 [Walking 1 bit]", "Test0 finished in 1.0 seconds"]  # fmt: skip
    lines = [f"[02/03/2026 04:05:06][n7][1]:{row}\n" for row in (*head, *rows)]
    return "".join(lines) + "main thread: Program exits\n"


def nodes(*rows):
    return "\n".join(json.dumps(row) for row in rows)


def slow(node, *gpus):
    details = ",".join(f"gemm-flops/FP16:{n}(VAR: -9% Rule:lambda x:x<-0.05)" for n in gpus)
    values = {f"gemm-flops/FP16:{n}": 0.0 for n in range(4)}
    return {"Category": "Gemm", "Defective Details": details, "index": node} | values


@pytest.fixture
def judged(tmp_path):
    def judged(*texts):
        paths = []
        for number, text in enumerate(texts):
            paths.append(tmp_path / f"{number}.out")
            paths[-1].write_text(text)
        return judge_inputs(read_all(paths))

    return judged


def roots(found):
    return [(d.subject, d.component, d.action) for d in found.diagnoses if d.role == "root"]


GOOD, BAD = (900, 41000, 0, ""), (900, 41000, 5, "WARNING")
DEAD, IDLE = (-1, 0, -77, "DIED"), (0, 0, 0, "")
ERRORS = "ERROR: (move_inv_read) 2 errors found in block 512"


@pytest.mark.parametrize(
    ("text", "verdict", "found"),
    [
        (burn(GOOD, GOOD), "PASS", []),
        (burn(IDLE, IDLE), "UNKNOWN", []),
        (burn(GOOD, BAD), "FAIL", [("gpu1", "unknown", "field-diag")]),
        (burn(BAD, BAD), "FAIL", [("host:unknown", "unknown", "field-diag")]),
        (burn(GOOD, DEAD), "UNKNOWN", [("gpu1", "unknown", "retest")]),
        (burn(DEAD, DEAD, DEAD, end="FAULTY"), "UNKNOWN", [("host:unknown", "unknown", "retest")]),
        (burn(GOOD, IDLE), "UNKNOWN", [("gpu1", "unknown", "retest")]),
        (memory(), "PASS", []),
        (memory(ERRORS), "FAIL", [("gpu1", "hbm", "field-diag")]),
        (memory(allocated=3000), "UNKNOWN", [("gpu1", "unknown", "retest")]),
    ],
    ids=["well", "no work", "one wrong", "all wrong", "one died", "all died", "one idle",
         "memory well", "memory wrong", "little of the memory"],
)  # fmt: skip
def test_burns(judged, text, verdict, found):
    judgement = judged(text)
    assert (judgement.verdict, roots(judgement)) == (verdict, found)


PASS = ("Pass", 0, 0)


@pytest.mark.parametrize(
    ("results", "verdict", "found"),
    [
        ([PASS, PASS], "PASS", []),
        ([("Skip", 0, 0), ("Skip", 0, 0)], "UNKNOWN", []),
        ([PASS, ("Fail", 80, 2)], "FAIL", [("gpu1", "hbm", "rma")]),
        ([PASS, ("Fail", 66, 4)], "UNKNOWN", [("gpu1", "driver", "retest")]),
        ([("Fail", 66, 4)] * 3, "UNKNOWN", [("host:unknown", "driver", "retest")]),
        ([("Fail", 40, 1)] * 3, "FAIL", [("host:unknown", "thermal", "check-cooling")]),
        ([PASS, ("Fail", 29, 5)], "UNKNOWN", [("gpu1", "host", "watch")]),
        ([PASS, ("Fail", 46, 5)], "UNKNOWN", [("gpu1", "host", "watch")]),
        ([PASS, ("Fail", 0, 0)], "FAIL", [("gpu1", "unknown", "reset-gpu")]),
        ([PASS, ("Warn", 25, 6)], "PASS", [("gpu1", "app", "watch")]),
        ([("Fail", 99, 4)] * 2, "FAIL", [("fabric", "nvlink", "reset-gpu")]),
        ([PASS, ("Skip", 0, 0)], "UNKNOWN", [("gpu1", "unknown", "retest")]),
    ],
    ids=["well", "skipped", "row remap failed", "no context", "no context anywhere", "all too hot",
         "persistence mode", "a narrow link by configuration", "no reason", "someone's process",
         "links missing everywhere", "one left out"],
)  # fmt: skip
def test_diagnostics(judged, results, verdict, found):
    judgement = judged(diagnostic(*results))
    assert (judgement.verdict, roots(judgement)) == (verdict, found)


def test_what_follows_a_hardware_fault_is_not_a_second_one(judged):
    text = diagnostic(PASS, ("Fail", 4, 2)), diagnostic(PASS, ("Fail", 51, 1), test="PCIe")
    assert len(roots(judged(*text))) <= 2
    both = json.loads(text[0])
    tests = both["DCGM GPU Diagnostic"]["test_categories"]
    tests += json.loads(text[1])["DCGM GPU Diagnostic"]["test_categories"]
    assert roots(judged(json.dumps(both))) == [("gpu1", "hbm", "reset-gpu")]


def test_nodes_with_different_defects(judged):
    missing = {"Category": "FailedTest", "Defective Details": "mem-bw/H2D:0_miss", "index": "k2",
               "mem-bw/H2D:0": "N/A"}  # fmt: skip
    found = judged(nodes(slow("k1", 2), missing))
    assert found.verdict == "FAIL"
    assert roots(found) == [("host:k1/gpu2", "sm", "field-diag"),
                            ("host:k2", "unknown", "retest")]  # fmt: skip


def test_all_gpus_of_a_node_slow_alike_is_the_nodes(judged):
    found = judged(nodes(slow("k1", 0, 1, 2, 3), slow("k2", 1)))
    assert roots(found) == [("host:k1", "sm", "field-diag"), ("host:k2/gpu1", "sm", "field-diag")]


@pytest.mark.parametrize(
    ("row", "verdict"),
    [({"node": "k1", "gemm-flops/return_code": 0, "gemm-flops/FP16:0": 9.0}, "PASS"),
     ({"node": "k1", "gemm-flops/return_code": 0, "mem-bw/return_code": 32}, "UNKNOWN"),
     ({"node": "k1", "gemm-flops/return_code": 0, "monitor/gpu_remap_none:3": 1}, "FAIL")],
    ids=["ran", "one did not run", "a bank without spare rows"],
)  # fmt: skip
def test_results_of_a_node(judged, row, verdict):
    assert judged(nodes(row)).verdict == verdict
