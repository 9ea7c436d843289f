"""Is what stands around the GPUs well."""

import pytest

from rackproof.diagnostics.suites import Burning, Judging


@pytest.mark.burn("platform")
def test_platform(burn: Burning, judge: Judging) -> None:
    """Read hosts and NICs over a window, shelves and cooling at once."""
    judge(burn())
