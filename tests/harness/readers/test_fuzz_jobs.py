"""Bandwidth tools, jobs, fabric managers, cut and stuffed: nothing raises or passes unread."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import (
    fabricmanager,
    nccl_tests,
    nvbandwidth,
    read,
    training_log,
)
from rackproof.harness.readers.source import Source

COPIES = """nvbandwidth Version: v0.9
Device 0: NVIDIA X (00000000:1B:00)
Process 1 (n1): device 3: NVIDIA X (00000008:01:00)

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2         3
 0       N/A    390.10    391.20     90.00
 1    390.00       N/A    390.00    390.00
 2    390.00    390.00       N/A     80.00
 3     70.00     70.00     70.00       N/A

SUM device_to_device_memcpy_read_ce 3500.00
Running host_to_device_memcpy_ce.
Invalid value when checking the pattern at 0x7f00
"""
CASES = json.dumps({"nvbandwidth": {"git_version": "v0.9", "testcases": [
    {"bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
     "bandwidth_matrix": [["55.1", "55.2", "20.1", "N/A"]], "name": "host_to_device_memcpy_ce",
     "status": "Passed"}]}}, indent=1)  # fmt: skip
TABLE = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) validation: 1 graph: 0
#  Rank  0 Group  0 Pid   4001 on      gpu-a device  0 [0000:1a:00] NVIDIA X
#  Rank  1 Group  0 Pid   4002 on      gpu-b device  1 [0x1b] NVIDIA X
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw
     1048576        262144     float     sum      -1     10.0   50.00  100.00      0     10.0   50.00  100.00    N/A
     2097152        524288     float                     10.0   50.00  100.00      3     10.0   50.00  100.00      0
gpu-a:4001:4100 [0] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 100
"""  # noqa: E501
JOB = """n1:500:9 [2] NCCL INFO comm 0x5 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId 1a000 - Init COMPLETE
 iteration        1/     9 | lm loss: 2.5E+00 | grad norm: 1.0 | number of skipped iterations:   0 |
 iteration        2/     9 |
 lm loss: nan | grad norm: 1.0 | number of nan iterations:   3 |
[rank1]:[E1130 08:10:01 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: SeqNum=4,
n1:500:9 [2] NCCL WARN NET/IB : mlx5_2:1 Got completion from peer 192.0.2.1<5> with status=12 opcode=0
[1,3]<stdout>:RuntimeError: CUDA error: an illegal memory access was encountered
  host      : n2
  rank      : 3 (local_rank: 1)
"""  # noqa: E501
FABRIC = """[Mar 03 2026 10:15:00] [ERROR] [tid 9] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:C3:00.0 physical id 2 port 41
[Mar 03 2026 10:16:01] [ERROR] [tid 7] Fabric Manager detected GPU NVL Fatal error on :
gpuGuid : 0xAB
portNum : 9
4月 07 03:04:05 n3 nv-fabricmanager[2]: NVLink training failed for GPU pci bus id 00000000:4E:00.0 port 7
"""  # noqa: E501
READERS = {"copies": (nvbandwidth, COPIES), "cases": (nvbandwidth, CASES),
           "table": (nccl_tests, TABLE), "job": (training_log, JOB),
           "fabric": (fabricmanager, FABRIC)}  # fmt: skip
BITS = [b"\r", b"\n", b"\0", b"\xff", b"nan", b"-1", b"1e999", b"99999999999999999999", b"N/A",
        b"0 1 2 3", b"[" * 300, b"(", b" | ", b"loss: ", b"[rank7]: ", b"iteration 9/ 9 |",
        b"\x1b[0m", b"Device 9: ", b"SUM x_y 1", "٣".encode(), b" " * 300, b"9" * 5000, b"...",
        b"host_to: "]  # fmt: skip


@st.composite
def broken(draw):
    name = draw(st.sampled_from(sorted(READERS)))
    data = bytearray(READERS[name][1].encode())
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "end", "flip", "insert", "repeat"]))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 120))]
        elif how == "end":
            del data[at:]
        elif how == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.sampled_from(BITS) | st.binary(max_size=8))
        else:
            data[at:at] = data[at : at + draw(st.integers(1, 80))] * draw(st.integers(1, 9))
    return READERS[name][0], bytes(data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_broken_output(made):
    module, data = made
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = module.read(Source(path))
        read(path)
        judgement = judge_inputs([found])
    if found.cut or not found.worked or not found.records:
        assert judgement.verdict is not Verdict.PASS
    for said in (*found.problems, *(event.text for event in found.events)):
        assert len(said) <= 300
        assert said.isprintable() or "\N{REPLACEMENT CHARACTER}" in said


@pytest.mark.parametrize("name", sorted(READERS))
def test_each_seed_is_its_own_readers(tmp_path, name):
    module, text = READERS[name]
    path = tmp_path / "x"
    path.write_text(text)
    assert read(path).kind == module.KIND
    assert judge_inputs([read(path)]).verdict is Verdict.FAIL
