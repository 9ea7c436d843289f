"""Names of folders and files taken as names of machines."""

import re
from collections.abc import Iterable
from pathlib import PurePath

MOST_PARTS = 12  # of a name between hyphens
_PARTS = re.compile(r"[A-Za-z0-9-]+")


def words(name: str) -> set[str]:
    """Return what may be a host's name in a file's or folder's name, in lower case."""
    whole = [name, name.partition(".")[0], *re.split(r"[_.]", name)]
    for part in _PARTS.findall(name):
        runs = part.split("-")[:MOST_PARTS]
        whole += [
            "-".join(runs[i:j]) for i in range(len(runs)) for j in range(i + 1, len(runs) + 1)
        ]
    return {word.lower() for word in whole if word}


def label(folder: PurePath, named: Iterable[PurePath]) -> str:
    """Return the shortest end of `folder`'s path that no other folder of `named` has."""
    others = [PurePath(other).parts for other in named if PurePath(other) != PurePath(folder)]
    parts = PurePath(folder).parts
    lengths = (n for n in range(1, len(parts)) if all(o[-n:] != parts[-n:] for o in others))
    kept = parts[-next(lengths, len(parts)) :]
    return "-".join(part.strip("/\\") for part in kept).strip("-") or "unknown"
