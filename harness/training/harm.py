"""What storage does to checkpoints that are there: rot, a lost tier, a LATEST of yesterday.

In: a tier's directory, as the reference run lays it down. Out: the damage, and in words what was
done. Nothing but checkpoints of ours is touched.
"""

import shutil
from pathlib import Path
from random import Random

from rackproof.harness.checkpoint import manifest, store
from rackproof.harness.errors import DrillError

STEADY = 0.8  # a rotten bit lies in the last part of a file, past the header, which says itself


def checkpoints(root: Path) -> list[Path]:
    """Return the directories of steps in a tier, oldest first; DrillError where it is not ours."""
    if not (root / store.MARK).is_file():
        msg = f"{root}: holds no checkpoints of ours, and is left alone"
        raise DrillError(msg)
    return sorted(path for path in root.iterdir() if manifest.place(path.name) is not None)


def newest(root: Path) -> Path:
    """Return the newest checkpoint of a tier; a DrillError where there is none."""
    found = checkpoints(root)
    if not found:
        msg = f"{root}: there is no checkpoint yet that could be damaged"
        raise DrillError(msg)
    return found[-1]


def rot(checkpoint: Path, draw: Random, name: str) -> str:
    """Turn one bit of a file of a checkpoint; return which."""
    path = checkpoint / name
    data = bytearray(path.read_bytes())
    place = draw.randrange(int(len(data) * (1 - STEADY)), len(data))
    bit = draw.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"{checkpoint.name}/{name}: bit {bit} of byte {place}"


def lose(root: Path) -> str:
    """Remove all of a tier, as a node does that is gone with its disk."""
    found = checkpoints(root)
    shutil.rmtree(root)
    return f"{root.name}: {len(found)} checkpoints"


def point_back(root: Path) -> str:
    """Have LATEST name the oldest checkpoint; a DrillError where there are not two of them."""
    found = checkpoints(root)
    if len(found) < 2:  # noqa: PLR2004 - an older one and a newer one
        msg = f"{root}: there are not two checkpoints yet of which the older could be named"
        raise DrillError(msg)
    (root / manifest.LATEST).write_text(f"{found[0].name}\n", "ascii")
    return f"LATEST names {found[0].name}, and {found[-1].name} is there"
