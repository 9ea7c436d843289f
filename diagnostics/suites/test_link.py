"""Does data cross the NVLinks whole, as fast as it does at the other GPUs, and over every link."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("link.pair", "link.all", "link.collective")
def test_link(burn: Burning, judge: Judging) -> None:
    """Copy between GPUs and sum over them, and read what each link counted meanwhile."""
    judge(burn())
