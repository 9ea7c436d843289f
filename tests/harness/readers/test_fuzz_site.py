"""What stands around the GPUs, cut, spliced and stuffed: nothing raises, or passes unread."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import (
    UNRECOGNISED,
    ib,
    ipmi,
    kubernetes,
    read,
    redfish,
    slurm,
)
from rackproof.harness.readers.source import Source

IB = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 40
\t\tLink layer: InfiniBand
# Port counters: Lid 7 port 2 (CapMask: 0x00)
SymbolErrorCounter:.............65535
/sys/class/infiniband/mlx5_1/ports/1/counters/link_downed:44
Temperature [C]                 : 80,-9 [-5..75]
                    RDMA_Write BW Test
#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             196.80            196.70           0.35
"""
SEL = """  4f | 07/08/25 | 11:12:13 CEST | Power Supply #0x31 | Failure detected () | Asserted
004f 07/08/25 11:12:13 MIN BIOS  Memory #31  Correctable ECC, DIMM(7) 6f [a0 00 11]
PS2 Status       | C9h | ok  | 10.2 | Presence detected, Failure detected
P12V             | 10.2 | Volts | lcr | na | 10.8 | 11.1 | 12.9 | 13.2 | na
"""
TREE = json.dumps({
    "@odata.id": "/redfish/v1/Chassis/1", "@odata.type": "#Chassis.v1_2_0.Chassis", "Members": [
        {"@odata.id": "/redfish/v1/Chassis/1/Sensors/T", "@odata.type": "#Sensor.v1_1_0.Sensor",
         "Reading": 95.0, "ReadingType": "Temperature",
         "Thresholds": {"UpperCritical": {"Reading": 90}},
         "Status": {"State": "Enabled", "Health": "Critical"}},
        {"@odata.type": "#LogEntry.v1_1_0.LogEntry", "Severity": "Critical",
         "Message": "PSU failed", "Created": "2026-03-04T05:06:07Z",
         "Links": {"OriginOfCondition": {"@odata.id": "/x"}}}],
    "Status": {"State": "Enabled", "Health": "Critical"}}, indent=1)  # fmt: skip
QUEUE = """REASON               USER      TIMESTAMP           NODELIST
Not responding       slurm     2026-03-04T05:06:07 n[001-004,7]
JobID|State|Comment|NodeList|Elapsed
7|NODE_FAIL|a
b|n[1-2]|1
NodeName=n1 Arch=x86_64
   State=DOWN*+DRAIN
   Reason=gres/gpu count reported lower than configured (7 < 8) [slurm@2026-03-04T05:06:07]
"""
NODE = """Name:               n1
Taints:             a/gpu-unhealthy:NoSchedule
Conditions:
  Ready   False   2019-01-02T03:04:05Z  2019-01-02T03:04:05Z  R  GPU 3 Xid 79
Capacity:
  nvidia.com/gpu:  8
  - lastTransitionTime: "2019-01-02T03:04:05Z"
    status: "True"
    type: GpuWatch
"""
SEEDS = [text.encode() for text in (IB, SEL, TREE, QUEUE, NODE)]
BITS = [b"[", b"]", b"{", b"}", b'"', b"|", b"\n", b"\0", b"\xff", b": ", b"[0-99999999]", b"..",
        b"1e999", b"-1", b"null", b"99999999999999999999", b"State", b"NaN", b"[[" * 200,
        b'{"a":' * 200,
        b"Xid 99999", b"Port 1:", b" " * 300, "٣".encode(), b"9" * 300]  # fmt: skip
READERS = [module.READER for module in (ib, ipmi, redfish, slurm, kubernetes)]


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
            data[at:at] = data[at : at + draw(st.integers(1, 60))] * draw(st.integers(1, 9))
        else:
            data[at:] = draw(st.sampled_from(SEEDS))[draw(st.integers(0, 120)) :]
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_broken_output_is_read_or_refused(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = read(path)
        readings = [found, *(reader.read(Source(path)) for reader in READERS)]
    for one in readings:
        verdict = judge_inputs([one]).verdict
        if one.cut or one.kind == UNRECOGNISED or not one.records or not one.worked:
            assert verdict is not Verdict.PASS
        for event in one.events:
            assert len(event.text) <= 300


LINES = ["CA 'a'\n" * 20_000, "n[" + "1-9," * 50_000 + "1]", '{"a":[' * 30_000, "[" * 100_000,
         " | " * 60_000, "Temperature [C] : " + "9," * 60_000, "Reason=" + " [" * 60_000,
         "JobID|State|Elapsed\n" + "a|" * 100_000, "  type: a\n" * 20_000, "x " * 100_000,
         "{" + '"@odata.type": "#A.B", ' * 10_000, "Xid (" * 40_000, "GPU" * 60_000]  # fmt: skip


@pytest.mark.parametrize("text", LINES, ids=range(len(LINES)))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_no_input_takes_long(tmp_path, reader, text):
    """More than linear time in the length would not end: a square of 100,000 is minutes."""
    path = tmp_path / "x"
    path.write_text(f"REASON USER TIMESTAMP NODELIST\nName:   n1\n{text}\n{text}")
    assert 0 <= reader.likeness(text.encode()) <= 1
    found = reader.read(Source(path))
    assert judge_inputs([found]).verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)
