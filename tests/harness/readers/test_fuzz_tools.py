"""Tools' output cut, spliced and stuffed: no reader raises, and what was not read never passes."""

import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import UNRECOGNISED, read

JSON = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [
    {"name": "memory", "results": [
        {"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [
            {"warning": "Detected XID 79 for GPU 1", "error_id": 101, "error_severity": 4}]},
        {"gpu_ids": "0,2", "status": "Pass"}]}]}]},
    "entity_groups": [{"entity_group": "GPU", "entities": [{"entity_id": 1, "serial_num": "165"}]}],
}, indent=1)  # fmt: skip
TABLE = f"""+{"-" * 27}+{"-" * 48}+
| {"Diagnostic":<25} | {"Result":<46} |
+{"=" * 27}+{"=" * 48}+
+-----  Hardware  ----------+{"-" * 48}+
| {"GPU Memory":<25} | {"Fail - GPU: 3":<46} |
| {"Warning":<25} | {"Found 3 faulty memory elements on GPU 3":<46} |
| {"":<25} | {"GPU4: Pass":<46} |
+{"-" * 27}+{"-" * 48}+
"""
BURN = """GPU 0: NVIDIA X (UUID: GPU-00000001-aaaa-bbbb-cccc-0123456789ab)
\r50.0%  proc'd: 9 (41000 Gflop/s) - -1 (0 Gflop/s)   errors: 3  (WARNING!)- -5  (DIED!)  temps: 5 C
Tested 2 GPUs:
\tGPU 0: FAULTY
\tGPU 1: OK
"""
MEMORY = """[02/03/2026 04:05:06][n7][1]:Device name=X, global memory size=99999999, serial=1
[02/03/2026 04:05:06][n7][1]:Allocated 90 MB
[02/03/2026 04:05:06][n7][1]:Test0 finished in 1.0 seconds
[02/03/2026 04:05:06][n7][1]:ERROR: (x) 2 errors found in block 512
Test iteration 1 (GPU 0, 512 MiB): 0 errors so far
\tRandom blocks: 4294967295 errors (0 ms)
main thread: Program exits
"""
NODES = json.dumps({
    "index": "k1", "Defective Details": "a/b:0(VAL: 1 Rule:lambda x:f(x,1)),c/d_miss",
    "gemm-flops/return_code": 0, "monitor/gpu_remap_none:1": 2, "a/b:0": "N/A",
}) + "\n"  # fmt: skip
SEEDS = [text.encode() for text in (JSON, TABLE, BURN, MEMORY, NODES)]
BITS = [b"{", b"}", b'"', b"[", b"(", b",", b"|", b"\r", b"\n", b"\0", b"\xff", b"NaN", b"-1",
        b"1e999", b"null", b"99999999999999999999", b"Fail - GPU: 3", b"GPU9: Fail", b"proc'd: ",
        b"errors: ", b" (DIED!)", b"[" * 300, b'{"a":' * 300, "٣".encode()]  # fmt: skip


@st.composite
def broken(draw):
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "splice"]))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 120))]
        elif how == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.sampled_from(BITS) | st.binary(max_size=8))
        elif how == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 80))] * draw(st.integers(1, 9))
        else:
            data[at:] = draw(st.sampled_from(SEEDS))[draw(st.integers(0, 200)) :]
    return bytes(data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_broken_output_of_tools(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = read(path)
        judgement = judge_inputs([found])
    if found.kind == UNRECOGNISED or found.cut or not found.worked or not found.records:
        assert judgement.verdict is not Verdict.PASS
    for said in (*found.problems, *(event.text for event in found.events)):
        assert len(said) <= 300
        assert said.isprintable() or "\N{REPLACEMENT CHARACTER}" in said
