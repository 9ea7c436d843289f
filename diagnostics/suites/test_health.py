"""What the driver says of each GPU's past and present."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("health")
def test_health(burn: Burning, judge: Judging) -> None:
    """Read counters, flags and margins without load."""
    judge(burn())
