"""Are matrix products right, and as fast as those of the other GPUs."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("gemm.fp32", "gemm.tf32", "gemm.bf16", "gemm.fp16", "gemm.fp8")
def test_gemm(burn: Burning, judge: Judging) -> None:
    """Multiply back to back and hold each train of products against the oracle."""
    judge(burn())
