"""Retests are asked for where a burn can tell of the root: a GPU, a link or a switch."""

from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Event
from rackproof.harness.readers.reading import Reading

GPU = "pci:0000:5a:00.0"


@pytest.mark.parametrize(
    ("subject", "code", "asked"),
    [
        (GPU, "xid.79", True),
        (GPU, "xid.48", True),
        ("host", "bmc.thermal.leak", False),
        ("host", "bmc.power.supply", False),
        ("host", "bmc.memory.uncorrected", False),
        ("host", "bmc.storage.drive", False),
        ("host", "slurm.silent", False),
        ("nic:mlx5_1", "ib.module.signal", False),
        ("host", "fm.trunk", True),
    ],
)
def test_a_part_that_is_no_gpu_asks_for_no_burn(subject, code, asked):
    event = Event(subject, code, f"{code} was said", clock="none")
    (root,) = judge_inputs([Reading(Path("x"), "kernel-log", 1, events=(event,))]).diagnoses
    assert any(line.startswith("belief: ") for line in root.because) == asked
    assert code in root.because[0]
