"""Does the heat of a whole rack at full load get away."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("thermal.soak")
def test_thermal(burn: Burning, judge: Judging) -> None:
    """Load the whole rack until its temperatures rise no more."""
    judge(burn())
