"""Does memory keep what is written to it."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn(
    "memory.address",
    "memory.inversions",
    "memory.inversions8",
    "memory.march",
    "memory.random",
    "memory.walking",
    "memory.modulo20",
    "memory.fade",
    "memory.block",
)
def test_memory(burn: Burning, judge: Judging) -> None:
    """Fill all free memory, read it back, and watch the ECC counters."""
    judge(burn())
