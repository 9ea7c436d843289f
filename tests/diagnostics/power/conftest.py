"""The scene of a power drill that holds all of the criteria."""

import pytest

from tests.diagnostics.power.scene import Scene


@pytest.fixture
def scene():
    """All sub-drills, and a control: everything is as it should be."""
    return Scene()
