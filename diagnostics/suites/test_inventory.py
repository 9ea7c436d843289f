"""Is everything there that ought to be."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("inventory")
def test_inventory(burn: Burning, judge: Judging) -> None:
    """Read each GPU's identity and links, and count what nobody expects."""
    judge(burn())
