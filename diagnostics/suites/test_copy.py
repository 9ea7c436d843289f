"""Do data move at the rates that the SKU reaches, and arrive as they were."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("hbm.bandwidth", "copy.h2d", "copy.d2h", "copy.both")
def test_copy(burn: Burning, judge: Judging) -> None:
    """Stream through the memory, copy from and to the host, and watch the PCIe link meanwhile."""
    judge(burn())
