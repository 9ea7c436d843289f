"""Every line of evidence names its file, by as much of its path as tells it from the others."""

from pathlib import Path

import pytest

from rackproof.diagnostics.because import names
from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Event
from rackproof.harness.readers import Reading


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["/a/x", "/b/y"], ["x", "y"]),
        (["/a/x", "/b/x", "/b/y"], ["a/x", "b/x", "y"]),
        (["/a/v/x", "/b/v/x"], ["a/v/x", "b/v/x"]),
        (["x", "/x"], ["x", "//x"]),
        (["/a/\udcff"], ["\\udcff"]),
    ],
    ids=["names", "folders", "deeper", "one in the root", "no text"],
)
def test_a_file_is_called_by_what_no_other_is(files, expected):
    found = names(files)
    assert [found[file] for file in files] == expected


def test_a_line_names_file_and_line():
    def node(folder, **detail):
        gone = Event("gpu1", "smi.lost", "GPU is lost", clock="none", detail=detail)
        return Reading(Path(f"/t/{folder}/smi.txt"), "nvidia-smi-q", 2, events=(gone,), host=folder)

    found = judge_inputs([node("n1", line=7), node("n2")])
    first, second = (d.because[0] for d in found.diagnoses)
    assert "(n1/smi.txt line 7)" in first
    assert "(n2/smi.txt)" in second
