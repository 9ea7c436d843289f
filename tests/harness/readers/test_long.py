"""No input takes long: backtracking that is more than linear would not end at these lengths."""

from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import READERS, read
from rackproof.harness.readers.source import Source

SAMPLES = sorted(Path(__file__).parents[2].glob("samples/*.txt"))
KERNEL = (
    "[" + " " * 60_000, "a" * 60_000 + ": ", "NVRM: " * 10_000, "{" * 60_000, "Xid (" * 12_000,
    " \t" * 30_000 + ":", "<4>" * 20_000, "mlx5_core 0000:00:00.0" + " a" * 30_000,
    "pcieport 0000:00:00.0: " + "AER: " * 10_000, "Feb 23 16:24:18 " + "a." * 30_000,
)  # fmt: skip
FILLERS = ("|", "ERR! ", ", ", '\\"', "GPU0 ", 'a="', "Link 1: ", "{", "[N/A], ", "U ", "-> ", " ",
           "9,", "a|", "[ ", "x ", "Xid (", '{"a":[', "1-9,")  # fmt: skip
LENGTH = 150_000


@pytest.mark.parametrize("line", KERNEL, ids=range(len(KERNEL)))
def test_no_line_of_a_kernel_log(tmp_path, line):
    path = tmp_path / "x"
    path.write_text(f"[    1.000001] NVRM: Xid (PCI:0000:5a:00): 79, x\n{line}\n" * 4)
    assert judge_inputs([read(path)]).verdict in (Verdict.FAIL, Verdict.UNKNOWN)


WORDS = ("A 'm", "A b'", "It's `a`*", "The _a_-b", "A a.b/c+", "A (a)", "A a,", '"A "b"', "A *a*_")


@pytest.mark.parametrize("words", WORDS)
def test_no_line_that_is_nearly_a_sentence(tmp_path, words):
    path = tmp_path / "x"
    for joint in ("", " "):
        path.write_text(f"{joint.join([words] * 400)}=\n{joint.join([words] * 30)} =\n" * 20)
        assert judge_inputs([read(path)]).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("filler", FILLERS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_no_end_of_a_sample(tmp_path, sample, filler):
    path = tmp_path / "x"
    text = sample.read_bytes()
    path.write_bytes(text + text[:30] + (filler * (LENGTH // len(filler))).encode())
    found = read(path)
    assert judge_inputs([found]).verdict in tuple(Verdict)
    assert len(found.problems) < 100


LINES = ("CA 'a'\n" * 20_000, "n[" + "1-9," * 50_000 + "1]", '{"a":[' * 30_000, "[" * 100_000,
         " | " * 60_000, "Temperature [C] : " + "9," * 60_000, "Reason=" + " [" * 60_000,
         "JobID|State|Elapsed\n" + "a|" * 100_000, "  type: a\n" * 20_000, "x " * 100_000,
         "{" + '"@odata.type": "#A.B", ' * 10_000, "Xid (" * 40_000, "GPU" * 60_000)  # fmt: skip


@pytest.mark.parametrize("text", LINES, ids=range(len(LINES)))
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_no_reader_of_what_is_not_its_own(tmp_path, reader, text):
    path = tmp_path / "x"
    path.write_text(f"REASON USER TIMESTAMP NODELIST\nName:   n1\n{text}\n{text}")
    assert 0 <= reader.likeness(text.encode()) <= 1
    found = reader.read(Source(path))
    assert judge_inputs([found]).verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)
