"""Layer B: the same drill on torchft, gloo and real torch tensors (extra `torch`).

`train` is one replica, a process of its own; `lighthouse` is torchft's place of meeting; `replay`
repeats a logged membership in one process; `job` starts and supervises all of them, and needs no
torch itself. Everything listens on the loopback (`loopback`), and nothing is pickled.

torchft drops the batch of a lost replica, so the best proof is L3: the bits of a replay of the
membership that the run logged.
"""

import time
from importlib.util import find_spec

from rackproof.harness.errors import DrillError

BEGAN = time.monotonic()
"""When a replica's process began, as good as: this is read before torch is."""
MISSING = (
    "the layer torchft needs torch and torchft, which are not installed: "
    "pip install 'rackproof[torch]'"
)


def require_torch() -> None:
    """Raise DrillError, which says what to install, where torch or torchft is missing."""
    if find_spec("torch") is None or find_spec("torchft") is None:
        raise DrillError(MISSING)
