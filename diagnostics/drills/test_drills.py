"""Every drill as a test: ``pytest --rack gb300-nvl72 --pyargs rackproof.diagnostics.drills``."""

from typing import Protocol

import pytest

from rackproof.diagnostics.drills.table import DRILLS


class TrainingRun(Protocol):
    """The fixture `training_run`, as far as these tests ask for it."""

    def hold(self) -> None:
        """Hold the drill of the marker; it is judged when the test's function is over."""
        ...


@pytest.mark.drill(*DRILLS)
def test_drill(training_run: TrainingRun) -> None:
    """Break a training run on purpose, and see what it recovers to."""
    training_run.hold()
