"""The drills by name. In: nothing. Out: DRILLS, and the names that this version does not have."""

from collections.abc import Mapping

from rackproof.diagnostics.drills import gpu_loss
from rackproof.diagnostics.drills.base import Drill

DRILLS: Mapping[str, Drill] = {each.name: each for each in (gpu_loss.DRILL,)}
"""Every drill that can be held, in the order of the contract."""

POWER = frozenset("power-dim ac-loss utility-ramp sensor-loss coolant-loss".split())
"""Drills of the power zone, which this version does not have."""
