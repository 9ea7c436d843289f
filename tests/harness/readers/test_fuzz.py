"""No input, however broken, raises, hangs or passes for something that was read.

The inputs are the samples of tests/samples (KIND.txt, and KIND.N.txt of odd mixtures), broken;
benchmarks/prove_readers.py does the same a million times.
"""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS
from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import READERS, UNRECOGNISED, read
from rackproof.harness.readers.source import Source
from rackproof.harness.readers.stamps import parse

SAMPLES = {p.stem: p.read_bytes() for p in Path(__file__).parents[2].glob("samples/*.txt")}
SEEDS = [SAMPLES[name] for name in sorted(SAMPLES)]
BITS = (
    "NVRM: Xid (|Xid|(PCI:|\0|\x1b[|<gpu>|--\n|: |AER: |{1}[Hardware Error]: |[  +|\r|\n|<!ENTITY|"
    'mlx5_core | UE |ſİ١٢٣²|+--+|ERR!|, |[N/A]|"|\\|{|}|[|]|(|Link 7: |GPU 9: a|NaN|1e999|-1|'
    "NV18\t|NV999|U D U|gpuId 3:|15e-255|00000000:00:00.0|[0-99999999]|null|State|Port 1:|"
    "Fail - GPU: 3|GPU9: Fail|proc'd: |errors: | (DIED!)|0 1 2 3|loss: |[rank7]: |iteration 9/ 9 |"
    "Device 9: |SUM x_y 1|host_to: |99999999999999999999"
).split("|")
STUFF = [
    *(bit.encode() for bit in BITS),
    *(b"\xff\xfe", b"\x1f\x8b", b"\xff", b"|", b"9" * 5000, b" " * 400, b"0x" + b"f" * 20),
    *(b"[" * 300, b'{"a":' * 300),
]
PACKINGS = st.sampled_from(
    [bytes, bytes, bytes, gzip.compress, lambda b: b.decode("utf-8", "replace").encode("utf-16")]
)


@st.composite
def broken(draw):
    """One of our own inputs: cut, spliced, flipped, stuffed, packed."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "splice"]))
        if how == "cut":
            del data[at : at + draw(st.integers(1, 120))]
        elif how == "flip" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "insert":
            data[at:at] = draw(st.sampled_from(STUFF) | st.binary(max_size=12))
        elif how == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 90))] * draw(st.integers(1, 9))
        else:
            data[at:] = draw(st.sampled_from(SEEDS))[draw(st.integers(0, 200)) :]
    packed = draw(PACKINGS)(bytes(data))
    return packed[: draw(st.integers(0, len(packed)))] if draw(st.booleans()) else packed


def refused(found):
    return found.cut or not found.worked or found.kind == UNRECOGNISED or not found.records


def judged(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = read(path)
        return found, judge_inputs([found])


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_each_kind_has_a_sample_that_it_alone_recognises(reader, tmp_path):
    path = tmp_path / "no-hint"
    path.write_bytes(SAMPLES[reader.kind])
    found = read(path)
    assert found.kind == reader.kind
    assert found.records
    sure = [r.kind for r in READERS if r.likeness(SAMPLES[reader.kind]) >= 0.5]
    assert sure in ([reader.kind], [])


@settings(max_examples=900, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken())
def test_broken_input_is_read_or_refused(data):
    found, judgement = judged(data)
    if refused(found):
        assert judgement.verdict is not Verdict.PASS
    assert judgement.as_json() == judged(data)[1].as_json() | {
        "inputs": judgement.as_json()["inputs"]
    }
    for said in (*found.problems, *(event.text for event in found.events)):
        assert len(said) <= 300
        assert said.isprintable() or "\N{REPLACEMENT CHARACTER}" in said
    for diagnosis in judgement.diagnoses:
        assert diagnosis.component in COMPONENTS
        assert diagnosis.action in ACTIONS
        assert 0 < len(diagnosis.subject) <= 400
        assert diagnosis.subject.isprintable()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(READERS), broken())
def test_a_reader_refuses_what_is_not_its_own(reader, data):
    """Also a file that was recognised by its head may be another's further on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        found = reader.read(Source(path))
    if refused(found):
        assert judge_inputs([found]).verdict is not Verdict.PASS


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
