"""How many threads a child's linear algebra may use: part of what its bits depend on.

A BLAS splits a product among its threads, and the cut decides in which order is added up. The
number is read when the library is loaded, so it is handed to a process before it begins.
"""

from collections.abc import Mapping

NAMES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pinned(environment: Mapping[str, str], count: int) -> dict[str, str]:
    """Return `environment` with `count` threads for OpenMP, OpenBLAS and MKL."""
    return {**environment, **dict.fromkeys(NAMES, str(count))}
