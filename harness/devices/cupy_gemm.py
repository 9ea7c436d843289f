"""Products on a GPU through cuBLAS, as cublasGemmEx takes them.

In: row-major A (m, n) and B (n, p) in fp32, and a precision. Out: C (m, p) in fp32 for every input:
fp32 under CUBLAS_DEFAULT_MATH, which never uses TF32; tf32 as CUBLAS_COMPUTE_32F_FAST_TF32; fp16
and bf16 as inputs of those types. fp8 needs cublasLt, which CuPy does not have: Unsupported.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.precisions import precision as precision_of
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.errors import Unsupported

ORDER = 8192  # near the peak rate in every precision, and A, B, C fit everywhere
# The type of A and B (cudaDataType) and the compute type, both from library_types.h and
# cublas_api.h; CUBLAS_GEMM_DEFAULT, CUBLAS_DEFAULT_MATH.
CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF = 0, 2, 14
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
GEMM_DEFAULT, DEFAULT_MATH = -1, 0
PATHS = {
    "fp32": (CUDA_R_32F, COMPUTE_32F),
    "tf32": (CUDA_R_32F, COMPUTE_32F_FAST_TF32),
    "bf16": (CUDA_R_16BF, COMPUTE_32F),
    "fp16": (CUDA_R_16F, COMPUTE_32F),
}


def path_of(precision: str) -> tuple[int, int]:
    """Return cuBLAS's input and compute types; Unsupported for a precision without any."""
    precision_of(precision)
    if precision not in PATHS:
        msg = f"no {precision} products: they need cublasLt, which CuPy does not have"
        raise Unsupported(msg)
    return PATHS[precision]


def as_type(cupy: Any, x: Any, precision: str) -> Any:
    """Return fp32 `x` in the input type; bf16 is the upper half of an fp32, as uint16."""
    x = cupy.ascontiguousarray(rounded(cupy, cupy.asarray(x), precision))
    if precision == "fp16":
        return x.astype(np.float16)
    if precision == "bf16":
        return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return x


def _scalar(value: float) -> npt.NDArray[np.float32]:
    return np.full(1, value, np.float32)


@dataclass(frozen=True, slots=True)
class Gemm:
    """Row-major C = A B for cuBLAS, which is column-major: C' = B' A'. `dims` are m, n, p."""

    handle: int
    arrays: tuple[Any, Any, Any]
    dims: tuple[int, int, int]
    path: tuple[int, int]
    one: npt.NDArray[np.float32] = field(default_factory=lambda: _scalar(1.0))
    zero: npt.NDArray[np.float32] = field(default_factory=lambda: _scalar(0.0))

    def run(self, cublas: Any) -> None:
        """Enqueue one product on the thread's current stream."""
        a, b, c = self.arrays
        m, n, p = self.dims
        kind, compute = self.path
        cublas.gemmEx(
            self.handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, p, m, n, self.one.ctypes.data,
            b.data.ptr, kind, p, a.data.ptr, kind, n, self.zero.ctypes.data,
            c.data.ptr, CUDA_R_32F, p, compute, GEMM_DEFAULT,
        )  # fmt: skip
