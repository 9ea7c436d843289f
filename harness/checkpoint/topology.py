"""Topology: what this machine is made of, as far as it bears on the bits of a training run.

In: how many replicas there are, and how many threads each was told to use. Out: plain facts. The
threads are asked of the BLAS that is loaded, not of who says so: two threads add up in another
order than one. GPUs and NVLink domains are those of CUDA_VISIBLE_DEVICES or of the caller.
"""

import contextlib
import ctypes
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

SYMBOLS = re.compile(r"openblas", re.ASCII)
ASK = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")
PACKAGES = ("numpy", "cupy-cuda12x", "cupy-cuda13x", "torch", "safetensors")


def here(
    replicas: int, threads: int, *, gpus: Sequence[str] = (), domains: Sequence[str] = ()
) -> dict[str, Any]:
    """Return replicas, threads, blas, isa, versions, gpus (UUIDs) and domains.

    `threads` are as measured, where BLAS says; else as given, and then `threads_by` says "told".
    """
    measured = _ask_blas("get_num_threads", ctypes.c_int)
    core = _ask_blas("get_corename", ctypes.c_char_p)
    library = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "replicas": replicas,
        "threads": measured if measured is not None else threads,
        "threads_by": "blas" if measured is not None else "told",
        "blas": " ".join(filter(None, (library.get("name"), library.get("version"), _text(core)))),
        "isa": _isa(),
        "versions": _versions(),
        "gpus": list(gpus) or _visible(),
        "domains": list(domains),
    }


def _isa() -> str:
    """Return the machine and the instruction sets that NumPy uses on it."""
    found = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    return " ".join([platform.machine(), *found])


def _versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _visible() -> list[str]:
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else ""


def _ask_blas(what: str, gives: Any) -> Any:
    """Return what the BLAS in this process answers, or None where none does."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            path = line.partition("/")[2]
            if not SYMBOLS.search(path):
                continue
            library = ctypes.CDLL("/" + path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            for name in ASK:
                call = getattr(library, name.format(what), None)
                if call is not None:
                    call.restype, call.argtypes = gives, ()
                    return call()
    return None
