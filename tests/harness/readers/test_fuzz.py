"""No input, however broken, raises, hangs or passes for something that was read."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import UNRECOGNISED, read
from rackproof.harness.readers.stamps import parse

LOG = """\
[  100.000000] Linux version 6.8.0
[  101.000001] NVRM: GPU at PCI:0000:5a:00: GPU-12345678-1234-1234-1234-123456789abc
[  101.000002] NVRM: Xid (PCI:0000:5a:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0xa001c6 0x0)
[  101.000003] NVRM: Xid (PCI:0000:5a:00): 154, GPU recovery action changed from 0x0 (x) to 0x1 (x)
Feb 23 16:24:18 n17 kernel: pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=x
<4>1 2025-02-23T16:24:18.0Z n kernel - - - nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal
{"__REALTIME_TIMESTAMP":"1740327858000000","SYSLOG_IDENTIFIER":"kernel","MESSAGE":[78,86,82,77]}
[  102.000000] {1}[Hardware Error]: event severity: fatal
[  102.000000] {1}[Hardware Error]:   section_type: memory error
4,777,1843308145,-;NVRM: Xid (PCI:0000:5a:00): 79, pid=1, GPU has fallen off the bus.
"""
XML = """<?xml version="1.0"?><!DOCTYPE nvidia_smi_log SYSTEM "v12.dtd"><nvidia_smi_log>
<attached_gpus>1</attached_gpus><gpu id="00000000:3B:00.0"><product_name>X</product_name>
<gpu_recovery_action>None</gpu_recovery_action><processes></processes></gpu></nvidia_smi_log>"""
TEXT = """==============NVSMI LOG==============
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : X
    GPU Recovery Action                   : None
    Remapped Rows
        Pending                           : No
    Processes                             : None
"""
SEEDS = [LOG.encode(), XML.encode(), TEXT.encode()]
BITS = [
    *(
        b"NVRM: Xid (",
        b"Xid",
        b"(PCI:",
        b"\0",
        b"\xff\xfe",
        b"\x1f\x8b",
        b"\x1b[",
        b"<gpu>",
        b"--\n",
    ),
    *(b": ", b"AER: ", b"{1}[Hardware Error]: ", b"99999999999999999999", b"[  +", b"\r"),
    *(b"<!ENTITY", b"mlx5_core ", b" UE ", "ſİ١٢٣".encode(), b"9" * 400, b" " * 400),
]
PACKINGS = st.sampled_from(
    [bytes, gzip.compress, lambda b: b.decode("utf-8", "replace").encode("utf-16")]
)


@st.composite
def broken(draw):
    """One of our own inputs: cut, spliced, flipped, stuffed, packed."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "splice"]))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 80))]
        elif how == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.sampled_from(BITS) | st.binary(max_size=12))
        elif how == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 60))] * draw(st.integers(1, 9))
        else:
            data[at:] = draw(st.sampled_from(SEEDS))[draw(st.integers(0, 200)) :]
    packed = draw(PACKINGS)(bytes(data))
    return packed[: draw(st.integers(0, len(packed)))] if draw(st.booleans()) else packed


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
    if found.cut or found.kind == UNRECOGNISED or not found.records:
        assert judgement.verdict is not Verdict.PASS
    assert judgement.as_json() == judged(data)[1].as_json() | {
        "inputs": judgement.as_json()["inputs"]
    }
    for event in found.events:
        assert len(event.text) <= 300


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_judged(data):
    found, judgement = judged(data)
    if found.kind == UNRECOGNISED:
        assert judgement.verdict is Verdict.UNKNOWN


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_line_is_taken_apart(line):
    assert parse(line).message is not None


@pytest.mark.parametrize(
    "line",
    ["[" + " " * 60_000, "a" * 60_000 + ": ", "NVRM: " * 10_000, "{" * 60_000, "Xid (" * 12_000,
     " \t" * 30_000 + ":", "<4>" * 20_000, "mlx5_core 0000:00:00.0" + " a" * 30_000,
     "pcieport 0000:00:00.0: " + "AER: " * 10_000, "Feb 23 16:24:18 " + "a." * 30_000],
)  # fmt: skip
def test_no_line_takes_long(tmp_path, line):
    """Backtracking that is more than linear in the line would not end at this length."""
    path = tmp_path / "x"
    path.write_text(f"[    1.000001] NVRM: Xid (PCI:0000:5a:00): 79, x\n{line}\n" * 4)
    assert judge_inputs([read(path)]).verdict in (Verdict.FAIL, Verdict.UNKNOWN)
