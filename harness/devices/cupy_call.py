"""How CuPy is reached: imported late, and what it and CUDA raise said as our errors.

In: nothing but the machine. Out: the module, whether it finds a GPU, and a block in which an error
of CUDA, cuBLAS, NCCL or nvrtc becomes a DeviceError, or Lost for the codes that a GPU gives which
has fallen off the bus. CuPy imports well without a GPU and fails at the first call.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rackproof.harness.errors import DeviceError, Lost

# cudaErrorDevicesUnavailable, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorUnknown: what a
# GPU that was there before answers after it is lost.
LOST = frozenset({46, 100, 101, 999})
MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation
PEER_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


def module(name: str = "cupy") -> Any:
    """Import CuPy or a part of it, without its warnings; raises ImportError or OSError.

    CuPy warns where a library that a part needs is missing, and then fails at the first use, which
    is said; a warning may be an error to whoever called.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def available() -> bool:
    """Say whether CuPy is installed and finds a GPU."""
    try:
        return bool(module().cuda.is_available())
    except (ImportError, OSError, RuntimeError):  # no CuPy, no CUDA library, no driver
        return False


@contextmanager
def said(cupy: Any, doing: str) -> Iterator[None]:
    """Turn what CuPy raises within into our errors, saying what was being done."""
    try:
        yield
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.compiler.CompileException) as error:
        msg = f"{doing}: {error}"
        raise DeviceError(msg) from error
    except RuntimeError as error:  # CUDARuntimeError, CUDADriverError, CUBLASError, NcclError, …
        lost = getattr(error, "status", None) in LOST
        msg = f"{doing}: {error}"
        raise (Lost if lost else DeviceError)(msg) from error


def allocated(cupy: Any, size: int) -> Any | None:
    """Return `size` bytes on the current GPU, outside CuPy's pool; None where they are not free."""
    try:
        return cupy.cuda.Memory(size)
    except cupy.cuda.memory.OutOfMemoryError:
        return None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status == MEMORY_ALLOCATION:
            return None
        raise
