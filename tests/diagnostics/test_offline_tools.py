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


ECC = "ERROR: CUDA error: uncorrectable ECC error encountered, line 9, file x.cu"


@pytest.mark.parametrize(
    "text",
    [memory(ECC), f"CUDA error: {ECC}\n" + burn(GOOD, GOOD),
     "Running host_to_device_memcpy_ce.\nnvbandwidth Version: v0.8\n" + ECC + "\n"],
    ids=["memtest", "gpu-burn", "nvbandwidth"],
)  # fmt: skip
def test_cudas_words_mean_the_same_in_every_tool(judged, text):
    found = judged(text)
    assert found.verdict == "FAIL"
    assert [rest for _, *rest in roots(found)] == [["hbm", "reset-gpu"]]


@pytest.mark.parametrize(
    "text", [memory("ERROR: nobody knows this"), "Fatal Error in stage 3\n" + burn(GOOD, GOOD)]
)
def test_an_error_that_nobody_knows_never_passes(judged, text):
    found = judged(text)
    assert (found.verdict, roots(found)) == ("UNKNOWN", [])
    assert "not understood" in " ".join(found.inputs[0].problems)


def test_one_gpu_far_slower_than_seven_is_named_and_one_of_four_is_said(judged):
    slow = (300, 16000, 0, "")
    found = judged(burn(*[GOOD] * 5, slow, *[GOOD] * 2))
    assert (found.verdict, roots(found)) == ("UNKNOWN", [("gpu5", "unknown", "watch")])
    assert found.diagnoses[0].because[0].startswith("gpuburn.rate 16000 GFLOP/s, 61% under")
    few = judged(burn(GOOD, slow, GOOD, GOOD))
    assert (few.verdict, roots(few)) == ("PASS", [])
    assert "gpu1: gpuburn.rate 16000 GFLOP/s" in few.inputs[0].problems[0]
    assert judged(burn(*[GOOD] * 8)).inputs[0].problems == ()


def test_one_slow_gpu_in_superbenchs_raw_results(judged):
    rates = {f"gemm-flops/bf16_flops:{n}": 500_000.0 if n == 6 else 700_000.0 for n in range(8)}
    found = judged(nodes({"node": "k1", "gemm-flops/return_code": 0} | rates))
    assert roots(found) == [("gpu6", "sm", "watch")]


def test_a_list_of_names_joins_a_number_and_an_address(judged):
    uuids = [f"GPU-0a0b0c0d-1111-2222-3333-44445555660{n}" for n in range(2)]
    names = "".join(f"GPU {n}: NVIDIA Y9 (UUID: {uuid})\n" for n, uuid in enumerate(uuids))
    query = "pci.bus_id, uuid, remapped_rows.pending\n" + "".join(
        f"00000000:{bus}:00.0, {uuid}, No\n" for bus, uuid in zip(("2B", "1A"), uuids, strict=True)
    )
    found = judged(names, query, burn(GOOD, BAD))
    assert [reading.kind for reading in found.inputs[:2]] == ["nvidia-smi-q", "nvidia-smi-csv"]
    assert roots(found) == [("pci:0000:1a:00.0", "unknown", "field-diag")]


def reduced(rate, name="NVIDIA H200", ranks=8, size=8 << 30, redop="sum"):
    """Return the output of a collective over `ranks` GPUs of one host."""
    table = "".join(f"#  Rank {r:2} Pid 77 on  n5 device {r:2} [0x1{r}] {name}\n"
                    for r in range(ranks))  # fmt: skip
    cells = f"100.0 20.0 {rate} 0 101.0 20.0 {rate} 0"
    row = f"{size} {size // 4} float {redop} -1 {cells}"
    return (f"# nThread 1 nGpus {ranks} minBytes 8 maxBytes {size} step: 2(factor)\n{table}"
            "#       size  count  type  redop  root  time  algbw  busbw #wrong\n"
            f"{row}\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {rate}\n")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        (reduced(61.0), "UNKNOWN", ""),
        (reduced(300.0), "PASS", ""),
        (reduced(300.0, name="NVIDIA Y9"), "PASS", "no limit for 8 ranks on NVIDIA Y9"),
        (reduced(61.0, ranks=4), "PASS", "no limit for 4 ranks"),
        (reduced(61.0, size=4096), "PASS", "no limit for 8 ranks"),
        (reduced(61.0, redop="none"), "PASS", "no limit for 8 ranks"),
    ],
    ids=["far below", "somewhat below", "unknown GPU", "few ranks", "small", "no reduction"],
)
def test_a_collective_is_held_against_what_is_published(judged, text, verdict, said):
    found = judged(text)
    assert found.verdict == verdict
    if verdict == "UNKNOWN":
        assert roots(found) == [("host:n5", "fabric", "watch")]
        for part in ("61 GB/s", "8192 MiB", "480", "Azure", "0.out"):
            assert part in found.diagnoses[0].because[0]
    assert said in " ".join(found.inputs[0].problems)
    assert bool(said) is bool(found.inputs[0].problems)


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
