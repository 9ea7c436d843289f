"""What CUDA, NCCL, PyTorch and the operating system say when a job dies: a line in, a code out.

Codes: ``cuda.*`` the GPU's driver refused, ``nccl.*`` the collectives, ``net.peer`` the other end
is gone, ``job.*`` the process, its memory, its files and its numbers. Words of a cause stand before
words of a messenger, so that a watchdog that quotes an ECC error says the ECC error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

Detail = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing said: its code, and what the text gave beside it."""

    code: str
    detail: Detail = field(default_factory=dict)


# In order: the first that a line holds is what it says. Wordings of cudaGetErrorString and of the
# names of cuda.h, of NCCL's transport/net_ib.cc, of PyTorch's ProcessGroupNCCL.cpp and elastic
# launcher, of DeepSpeed's launcher, of mpirun and srun, and of strerror.
WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cuda.ecc", ("uncorrectable ECC error encountered", "CUDA_ERROR_ECC_UNCORRECTABLE",
                  "cudaErrorECCUncorrectable")),
    ("cuda.nvlink", ("uncorrectable NVLink error detected", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
                     "cudaErrorNvlinkUncorrectable")),
    ("cuda.contained", ("Invalid access of peer GPU memory", "CUDA_ERROR_CONTAINED",
                        "cudaErrorContained")),
    ("cuda.notready", ("system not yet initialized", "CUDA_ERROR_SYSTEM_NOT_READY",
                       "cudaErrorSystemNotReady")),
    ("cuda.driver", ("CUDA driver version is insufficient", "unsupported display driver / cuda",
                     "forward compatibility was attempted", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
    ("cuda.device", ("no CUDA-capable device", "CUDA-capable devices are busy",
                     "CUDA-capable device(s) is/are busy", "CUDA_ERROR_NO_DEVICE")),
    ("cuda.access", ("illegal memory access was", "CUDA_ERROR_ILLEGAL_ADDRESS")),
    ("cuda.assert", ("device-side assert triggered", "CUDA_ERROR_ASSERT")),
    ("cuda.launch", ("unspecified launch failure", "CUDA_ERROR_LAUNCH_FAILED")),
    ("cuda.timeout", ("the launch timed out and was terminated", "CUDA_ERROR_LAUNCH_TIMEOUT")),
    ("cuda.program", ("CUDA error: misaligned address", "an illegal instruction was encountered",
                      "no kernel image is available", "CUDA error: invalid ",
                      "CUDA_ERROR_INVALID_")),
    ("job.gpu_memory", ("CUDA out of memory", "CUDA error: out of memory", "OutOfMemoryError",
                        "failure 'out of memory'", "failure 2 'out of memory'",
                        "CUDA_ERROR_OUT_OF_MEMORY")),
    ("cuda.library", ("CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR",
                      "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_INTERNAL_ERROR")),
    ("nccl.ib", ("Got completion ",)),
    ("nccl.async", ("Got async event", "Got async fatal event")),
    ("cuda.other", ("CUDA error: ", "NCCL WARN Cuda failure", "Test CUDA failure",
                    "CUDA_ERROR_")),
    ("job.wrong.persistent", ("Possible persistent error!",)),
    ("job.wrong.transient", ("Possible transient error!",)),
    ("job.nan", ("found NaN", "Found NaN", "NaN or Inf found", "Unexpected result tensor(nan",
                 "Unexpected result nan", "Loss is nan", "loss is nan", "loss is NaN")),
    ("nccl.timeout", ("Watchdog caught collective operation timeout",)),
    ("job.host_memory", ("oom-kill", "Out of memory: Kill", "oom_kill event", "OOMKilled",
                         "OOM Killed", "Cannot allocate memory", "std::bad_alloc")),
    ("job.shared_memory", ("killed by signal: Bus error", "insufficient shared memory")),
    ("job.killed", ("killed by signal: Killed", "Signal 9 (SIGKILL)", "exitcode: -9)",
                    "return code = -9", "signal 9 (Killed)")),
    ("job.disk_full", ("No space left on device", "Disk quota exceeded")),
    ("job.storage", ("Input/output error", "Stale file handle", "Read-only file system")),
    ("job.crash", ("Segmentation fault", "Signal 11 (SIGSEGV)", "exitcode: -11)",
                   "return code = -11", "killed by signal: Segmentation")),
    ("nccl.watchdog", ("watchdog thread terminated with exception", "Heartbeat monitor timed out",
                       "NCCL operations have failed or timed out", "failure detected by watchdog")),
    ("net.peer", ("NCCL communicator was aborted", "remote process exited", "ncclRemoteError",
                  "Connection closed by remote peer", "Connection closed by peer",
                  "Connection reset by peer", "Connection refused", "Broken pipe",
                  "failed to recv, got 0 bytes", "Software caused connection abort")),
    ("nccl.error", ("unhandled cuda error", "unhandled system error", "Test NCCL failure",
                    "ncclInternalError", "ncclSystemError", "ncclUnhandledCudaError",
                    "NCCL WARN Error")),
    ("job.exit", ("failed (exitcode: ", "exits with return code = ", "xited with exit code ",
                  "MPI_ABORT was invoked", "process returned", "exited on signal ",
                  "a non-zero exit code")),
)  # fmt: skip
EXCEPTIONS = ("Error: ", "Exception: ", "Error\n", "Error\r", "MemoryError", "AssertionError")
_NO_CODE = re.compile(r"(?:exitcode: |return code = |exit code )0\b")
_COMPLETION = re.compile(
    r"Got completion (?:from peer (\S{1,120}) )?with (?:status=(\d{1,3})|error (\d{1,3})|"
    r"status=[A-Z_]{3,40}\((\d{1,3})\))"
)
_DEVICE = re.compile(r"\b(mlx\d_\d{1,3}|bnxt_re\d{1,3}|irdma\d{1,3}|rdmap\w{1,16})\b")
_PORT = re.compile(r"\bport error\b|\bPORT_ERR\b|\bdevice fatal\b|\bfatal event\b", re.IGNORECASE)
_SEQUENCE = re.compile(r"SeqNum=(\d{1,12})")
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,90}?(?:Error|Exception|Exit))(?::|\Z)")
# What only a program's own mistake, or its installation, raises.
_PROGRAM = frozenset(
    "AssertionError AttributeError FileNotFoundError ImportError IndexError KeyError "
    "ModuleNotFoundError NameError NotImplementedError SyntaxError TypeError UnboundLocalError "
    "UnicodeDecodeError ValidationError ValueError ZeroDivisionError IndentationError".split()
)


def _completion(text: str) -> Sign | None:
    match = _COMPLETION.search(text)
    if match is None:
        return None
    status = int(match[2] or match[3] or match[4])
    detail: Detail = {"status": status}
    if match[1]:
        detail["peer"] = match[1].partition("<")[0]
    return Sign(f"nccl.ib.{status}", detail) if status else None


def _port(text: str) -> Sign | None:
    return Sign("nccl.port") if _PORT.search(text) else None


def _with_device(sign: Sign | None, text: str) -> Sign | None:
    if sign is not None and (found := _DEVICE.search(text)):
        return Sign(sign.code, {**sign.detail, "nic": found[1]})
    return sign


def _timeout(text: str) -> Sign:
    found = _SEQUENCE.search(text)
    return Sign("nccl.timeout", {"sequence": int(found[1])} if found else {})


def _exception(text: str) -> Sign | None:
    """Return what an uncaught exception says: the line begins with its name."""
    match = _EXCEPTION.match(text)
    if match is None:
        return Sign("job.killed") if text == "Killed" else None
    name = match[1].rpartition(".")[2]
    if name == "MemoryError":
        return Sign("job.host_memory")
    if name in ("ChildFailedError", "DistBackendError", "CalledProcessError"):
        return Sign("job.exit")
    return Sign("job.mistake" if name in _PROGRAM else "job.exception", {"name": name})


_SHARPER: dict[str, Callable[[str], Sign | None]] = {
    "nccl.ib": lambda text: _with_device(_completion(text), text),
    "nccl.async": lambda text: _with_device(_port(text), text),
    "nccl.timeout": _timeout,
    "job.exit": lambda text: None if _NO_CODE.search(text) else Sign("job.exit"),
}


def sign_of(text: str) -> Sign | None:
    """Return what a line of a job's output says went wrong, or None."""
    for code, words in WORDS:
        if any(word in text for word in words):
            sharper = _SHARPER.get(code)
            return sharper(text) if sharper else Sign(code)
    return _exception(text)


# What a program did, not the device: of a tool's own program it says only that the tool failed.
_OF_PROGRAM = frozenset(
    "cuda.access cuda.assert cuda.launch cuda.timeout cuda.program cuda.library cuda.other".split()
)


def of_device(text: str) -> str:
    """Return the code of what a line says of the GPU, its links or its driver; "" for nothing.

    The same words mean the same whichever tool prints them. What only a program can have done is
    left out: a tool's own failure is the tool's.
    """
    sign = sign_of(text)
    told = sign is not None and sign.code.startswith("cuda.") and sign.code not in _OF_PROGRAM
    return sign.code if sign is not None and told else ""


def literals() -> list[bytes]:
    """Return what any line with a sign holds."""
    words = [word for _, group in WORDS for word in group]
    return [word.encode() for word in (*words, *EXCEPTIONS, "Killed")]
