"""Are matrix products right, and as fast as those of the other GPUs."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("gemm.fp32")
def test_gemm(burn: Burning, judge: Judging) -> None:
    """Multiply back to back and hold each train of products against the oracle."""
    judge(burn())
