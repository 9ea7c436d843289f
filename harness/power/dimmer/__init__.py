"""The Dimmer: keeps every feed under its limit by power caps on GPUs, job by job.

controller.py is the loop; settings.toml holds its constants. trust.py says what of a look is
believed, past.py what is to come, bands.py who must shed and who may rise, sharing.py which jobs,
ramp.py how fast, asks.py what each GPU is asked for and whether it did it. demand.py is the model
of what a cap does, shape.py the index arrays that make a decision a matter of NumPy alone.
"""

from rackproof.harness.power.dimmer.controller import Dimmer
from rackproof.harness.power.dimmer.settings import Bridge, Settings, upper_cycle
from rackproof.harness.power.dimmer.words import ACTS, Act, Job, Orders

__all__ = ["ACTS", "Act", "Bridge", "Dimmer", "Job", "Orders", "Settings", "upper_cycle"]
