"""Burns: load a GPU, then measure. Comes in: a Device. Goes out: Measurement, Missing, Event.

A burn judges nothing. What it owes is declared, so that a burn that never ran is missed.
"""

from rackproof.harness.burns.base import LEVELS, Burn, Crew, Run, Settings
from rackproof.harness.burns.run import execute
from rackproof.harness.burns.table import BURNS, plan

__all__ = ["BURNS", "LEVELS", "Burn", "Crew", "Run", "Settings", "execute", "plan"]
