"""Burns: load a GPU, then measure. Comes in: a Device. Goes out: Measurement, Missing, Event.

A burn judges nothing. What it owes is declared, so that a burn that never ran is missed.
"""

from rackproof.harness.burns.base import Burn, Run, Settings
from rackproof.harness.burns.run import execute, execute_host
from rackproof.harness.burns.table import BURNS, LEVELS, plan

__all__ = ["BURNS", "LEVELS", "Burn", "Run", "Settings", "execute", "execute_host", "plan"]
