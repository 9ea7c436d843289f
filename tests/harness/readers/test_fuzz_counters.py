"""Broken tables, CSV, NVLink counters, topologies, exporters: read or refused, never raised."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS
from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import UNRECOGNISED, read

TABLE = """\
| NVIDIA-SMI 575.51.02              Driver Version: 575.51.02      CUDA Version: 12.9     |
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:5A:00.0 Off |                    0 |
|ERR!  ERR!   ERR!          ERR! /  700W  |       1MiB /  81559MiB |      3%      Default |
+-----------------------------------------+------------------------+----------------------+
|  0    2   0   1  |              10MiB / 20000MiB    | 32      4 |  2   0    2    0    2 |
+------------------+----------------------------------+-----------+-----------------------+
"""
CSV = """\
timestamp, index, pci.bus_id, remapped_rows.pending, ecc.errors.uncorrected.volatile.total
2026/11/03 01:02:03.004, 0, 00000000:2B:00.0, No, 0
2026/11/03 01:02:08.004, 0, 00000000:2B:00.0, [GPU is lost], 4294967295
"""
BARE = "Tesla T4, [N/A], 33, P8\nTesla T4, [GPU is lost], 35, P8\n"
NVLINK = """\
GPU 0: NVIDIA B200 (UUID: GPU-0a0b0c0d-1111-2222-3333-444455556660)
\t Link 0: Link recovery successful events: 505
\t Link 0: Effective BER: 15e-255
\t Link 1: <inactive>
\t Link 2: 53.125 GB/s
"""
DCGMI = """\
| NVLINK Error Counts                                                          |
| GPU 0                                                                        |
| Link 0                      |                                                |
| -> Replay Error             | 7                                              |
GPUs:
    gpuId 0:
        U U D X
"""
TOPO = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\t0-31\t0
GPU1\tNV18\t X \tPIX\t0-31\t0
NIC0\tPIX\tPIX\t X
NIC Legend:
  NIC0: mlx5_0
"""
EXPORTER = """\
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",pci_bus_id="00000000:1B:00.0",err_msg="a \\"b\\", c",Hostname="n"} 79
DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER{gpu="0",nvlink="3"} 4095 1700000000000
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0"} 128
DCGM_EXP_GPU_HEALTH_STATUS{gpu="0",health_watch="MEM"} 20
"""
SEEDS = [text.encode() for text in (TABLE, CSV, BARE, NVLINK, DCGMI, TOPO, EXPORTER)]
BITS = [
    *(
        b"|",
        b"+--+",
        b"ERR!",
        b", ",
        b"[N/A]",
        b"\n",
        b'"',
        b"\\",
        b"{",
        b"}",
        b"Link 7: ",
        b"GPU 9: a",
    ),
    *(b"NaN", b"1e999", b"-1", b"9" * 30, b"NV18\t", b"NV999", b"\0", b"\xff\xfe", b"\x1b[4m"),
    *("١٢٣²ſİ".encode(), b"U D U", b"gpuId 3:", b"15e-255", b"0x" + b"f" * 20, b"00000000:00:00.0"),
]


@st.composite
def broken(draw):
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "splice"]))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 60))]
        elif how == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.sampled_from(BITS) | st.binary(max_size=12))
        elif how == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 90))] * draw(st.integers(1, 9))
        else:
            data[at:] = draw(st.sampled_from(SEEDS))[draw(st.integers(0, 200)) :]
    return bytes(data)


def judged(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = read(path)
        return found, judge_inputs([found])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_broken_input_is_read_or_refused(data):
    found, judgement = judged(data)
    if found.cut or found.kind == UNRECOGNISED or not found.records or not found.worked:
        assert judgement.verdict is not Verdict.PASS
    for diagnosis in judgement.diagnoses:
        assert diagnosis.component in COMPONENTS
        assert diagnosis.action in ACTIONS
        assert re.fullmatch(r"(?:host:[^/]{1,63}/?)?(?:(?:pci:[0-9a-f:.]{12,16}|gpu\d{1,4})"
                            r"(?:/link\d\d)?|fabric|host)?", diagnosis.subject)  # fmt: skip
    assert all("\n" not in event.text and len(event.text) <= 300 for event in found.events)


@pytest.mark.parametrize(
    "filler",
    ["|", "ERR! ", ", ", '\\"', "GPU0 ", 'a="', "Link 1: ", "{", "[N/A], ", "U ", "-> ", " "],
)
@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_no_line_takes_long(seed, filler):
    """Backtracking that is more than linear in the line would not end at this length."""
    text = SEEDS[seed].decode()
    found, judgement = judged((text + text[:30] + filler * (200_000 // len(filler))).encode())
    assert judgement.verdict in tuple(Verdict)
    assert len(found.problems) < 100
