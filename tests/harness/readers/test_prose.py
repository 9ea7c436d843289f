"""Texts and programs that quote a tool's output accuse nobody; a tool's output alone is read."""

import pytest

from rackproof.harness.readers import read

LINES = """[ 501.000001] NVRM: Xid (PCI:0000:7c:00): 79, pid=5, name=a, GPU has fallen off the bus.
[ 501.000002] NVRM: GPU 0000:7c:00.0: GPU has fallen off the bus.
"""
INDENTED = "".join(f"    {line}\n" for line in LINES.splitlines())
DOCUMENTS = {
    "markdown": f"# Lost GPUs\n\nThe kernel says so:\n\n```\n{LINES}```\n\nReseat the board.\n",
    "markdown-tilde": f"The kernel of the node writes this:\n\n~~~ text\n{LINES}~~~\n",
    "restructured": f"Lost\n====\n\nThe kernel says so::\n\n{INDENTED}\nDrain the hall.\n",
    "indented-table": (
        "What a sick board looks like\n\nThe last column is not zero:\n\n"
        "    | NVIDIA-SMI 550.1   Driver Version: 550.1   CUDA Version: 12.4 |\n"
        "    | GPU  Name    Persistence-M | Bus-Id  Disp.A | Volatile Uncorr. ECC |\n"
        "    |   0  H200    On  | 00000000:7C:00.0 Off |   9 |\n\nIt has to be reset then.\n"
    ),
    "page": f"<!doctype html>\n<title>Xid</title>\n<pre>\n{LINES}</pre>\n",
    "part-of-page": f"<p>See:</p>\n<pre>\n{LINES}</pre>\n<p>Then reboot.</p>\n",
    "python": f'import sys\n\nSAID = """\n{LINES}"""\n\ndef test_it():\n    assert SAID\n',
    "go": f"package gpu\n\nconst said = `\n{LINES}`\n\nfunc Lost() bool {{ return true }}\n",
    "c": f'#include "x.h"\n/*\n{LINES}*/\nint main(void) {{\n  return 0;\n}}\n',
    "shell": f"#!/bin/sh\ncat <<END\n{LINES}END\n",
    "essay": "The board is lost when it says so.\n" * 3 + LINES,
}
LOGS = {
    "bare": LINES,
    "prompt": f"ops@n1:~$ dmesg | tail -2\n{LINES}",
    "root": f"# dmesg\n{LINES}",
    "fence-alone": f"```\n{LINES}```\n",
    "mail": f"Hi,\nthis is from n1 tonight:\n{LINES}",
    "cut-first-line": f"5.456789] mlx5_core 0000:18:00.0: Po\n{LINES.splitlines()[0]}\n",
}


@pytest.fixture
def kind(tmp_path):
    def kind(text):
        path = tmp_path / "x"
        path.write_text(text)
        return read(path).kind

    return kind


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_text_about_logs_is_none(kind, name):
    assert kind(DOCUMENTS[name]) == "unrecognised"


@pytest.mark.parametrize("name", LOGS)
def test_a_paste_is_a_log(kind, name):
    assert kind(LOGS[name]) == "kernel-log"
