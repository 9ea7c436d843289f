"""The door: the one name that is ever imported.

In a checkout the four rooms stand beside this folder (``harness/`` is ``rackproof.harness``);
in a wheel they lie inside it. Nothing else is decided here.
"""

from pathlib import Path

__version__ = "0.1.0"

_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "harness").is_dir():
    __path__.append(str(_checkout))
del _checkout, Path
