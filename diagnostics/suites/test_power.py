"""Do all GPUs draw what they ought to, together and in step, and keep their power limits."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("power.steady", "power.step", "power.cap", "power.smoothing")
def test_power(burn: Burning, judge: Judging) -> None:
    """Load the whole rack at once and hold power, throttle counters and limits against theirs."""
    judge(burn())
