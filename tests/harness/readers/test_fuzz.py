"""No input, however broken, raises, hangs or passes for something that was read."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import READERS, UNRECOGNISED, read
from rackproof.harness.readers.stamps import parse

SAMPLES = {p.stem: p.read_bytes() for p in Path(__file__).parents[2].glob("samples/*.txt")}
SEEDS = list(SAMPLES.values())
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


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_each_kind_has_a_sample_that_it_alone_recognises(reader, tmp_path):
    path = tmp_path / "no-hint"
    path.write_bytes(SAMPLES[reader.kind])
    found = read(path)
    assert found.kind == reader.kind
    assert found.records
    sure = [r.kind for r in READERS if r.likeness(SAMPLES[reader.kind]) >= 0.5]
    assert sure in ([reader.kind], [])


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
    if found.cut or not found.worked or found.kind == UNRECOGNISED or not found.records:
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
