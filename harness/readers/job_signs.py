"""What CUDA, NCCL, PyTorch and the operating system say when a job dies: a line in, a code out.

Codes: ``cuda.*`` the GPU's driver refused, ``nccl.*`` the collectives, ``net.peer`` the other end
is gone, ``rdma.*`` a completion's status in other words than NCCL's, ``job.*`` the process, its
memory, its files, its node and its numbers. Words of a cause stand before words of a messenger, so
that a watchdog that quotes an ECC error says the ECC error. What another tool says in a job's log
has that tool's code (``smi.*``, ``nvml.*``).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rackproof.harness.readers.nvml_words import nvml_code
from rackproof.harness.readers.smi_messages import handle

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
    ("rdma.12", ("Transport retry count exceeded", "transport retry counter exceeded",
                 "RETRY EXCEEDED ERROR", "IBV_WC_RETRY_EXC_ERR")),
    ("rdma.13", ("Receiver-not-ready retry count exceeded", "RNR retry counter exceeded",
                 "IBV_WC_RNR_RETRY_EXC_ERR")),
    ("rdma.5", ("Work Request Flushed", "Work request flushed", "IBV_WC_WR_FLUSH_ERR")),
    ("nccl.async", ("Got async event", "Got async fatal event")),
    ("smi.handle", ("Unable to determine the device handle",)),
    ("nvml", ("NCCL WARN nvml", "NVMLError")),
    ("job.node", ("Node failure on ", "DUE TO NODE FAILURE", "has been marked dead because")),
    ("job.cancelled", ("DUE TO TIME LIMIT", "DUE TO PREEMPTION", "DUE TO TIMELIMIT")),
    # somebody asked it to end, and it did: what made them ask is not in these words
    ("job.stopped", ("got signal: 15", "SIGTERM death signal")),
    ("cuda.other", ("CUDA error: ", "NCCL WARN Cuda failure", "Test CUDA failure",
                    "CUDA_ERROR_")),
    ("job.wrong.persistent", ("Possible persistent error!",)),
    ("job.wrong.transient", ("Possible transient error!",)),
    ("job.nan", ("found NaN", "Found NaN", "NaN or Inf found", "Unexpected result tensor(nan",
                 "Unexpected result nan", "Loss is nan", "loss is nan", "loss is NaN")),
    ("nccl.timeout", ("Watchdog caught collective operation timeout",)),
    ("job.host_memory", ("oom-kill", "Out of memory: Kill", "oom_kill event", "OOMKilled",
                         "OOM Killed", ": Out Of Memory", "Cannot allocate memory",
                         "std::bad_alloc")),
    ("job.shared_memory", ("killed by signal: Bus error", "insufficient shared memory")),
    ("job.killed", ("killed by signal: Killed", "Signal 9 (SIGKILL)", "exitcode: -9)",
                    "return code = -9", "signal 9 (Killed)", ": Killed")),
    ("job.disk_full", ("No space left on device", "Disk quota exceeded")),
    ("job.storage", ("Input/output error", "Stale file handle", "Read-only file system")),
    ("job.crash", ("Segmentation fault", "Signal 11 (SIGSEGV)", "exitcode: -11)",
                   "return code = -11", "killed by signal: Segmentation")),
    ("nccl.watchdog", ("watchdog thread terminated with exception", "Heartbeat monitor timed out",
                       "NCCL operations have failed or timed out", "failure detected by watchdog")),
    ("net.peer", ("NCCL communicator was aborted", "remote process exited", "ncclRemoteError",
                  "Connection closed by remote peer", "Connection closed by peer",
                  "Connection reset by peer", "Connection refused", "Broken pipe",
                  "failed to recv, got 0 bytes", "Software caused connection abort",
                  "lost communication with a remote daemon")),
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
_ON_NODE = re.compile(r"\bNode failure on ([A-Za-z][\w.\-]{0,252})")
_NVML_INDEX = re.compile(r"nvmlDeviceGetHandleByIndex\w{0,8}\( ?(\d{1,3}) ?\)")
_PID = re.compile(r"\b(?:pid:? |PID |process )(\d{1,10})\b")
# PyTorch's ProcessGroupNCCL: what it waited for, and how long before it said so
_WAITED = re.compile(r"\bran for (\d{1,12}) milliseconds|\bTimeout\(ms\)=(\d{1,12})")
_WAITED_LONG = re.compile(r"\b(?:[Tt]imed out after|timeout after|after waiting for) (\d{1,9})"
                          r" ?(ms|milliseconds|seconds|s)\b")  # fmt: skip
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


def _waited(sign: Sign, text: str) -> Sign:
    """Add the seconds that passed before it was said: what it waited for failed that long ago."""
    if match := _WAITED.search(text):
        waited = int(match[1] or match[2]) / 1000
    elif match := _WAITED_LONG.search(text):
        waited = int(match[1]) / (1000 if match[2].startswith("m") else 1)
    else:
        return sign
    return Sign(sign.code, {**sign.detail, "waited": waited})


def _handle(text: str) -> Sign | None:
    """Return what nvidia-smi says of a GPU in a job's log, as its own reader has it."""
    event = handle(text)
    return Sign(event.code, {"place": event.subject}) if event else None


def _nvml(text: str) -> Sign | None:
    """Return NVML's refusal that NCCL or a program hands on, at the GPU that it names."""
    code = nvml_code(text) or ("nvml.handle" if "nknown" in text else "")
    if not code:
        return None
    index = _NVML_INDEX.search(text)
    return Sign(code, {"place": f"gpu{int(index[1])}"} if index else {})


def _node(text: str) -> Sign:
    found = _ON_NODE.search(text)
    return Sign("job.node", {"node": found[1]} if found else {})


def _killed(text: str) -> Sign:
    found = _PID.search(text)
    return Sign("job.killed", {"pid": int(found[1])} if found else {})


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
    "rdma.5": lambda text: _with_device(Sign("rdma.5"), text),
    "rdma.12": lambda text: _with_device(Sign("rdma.12"), text),
    "rdma.13": lambda text: _with_device(Sign("rdma.13"), text),
    "smi.handle": _handle,
    "nvml": _nvml,
    "job.node": _node,
    "job.killed": _killed,
    "job.stopped": lambda _: None,
    "nccl.timeout": _timeout,
    "job.exit": lambda text: None if _NO_CODE.search(text) else Sign("job.exit"),
}


def sign_of(text: str) -> Sign | None:
    """Return what a line of a job's output says went wrong, or None."""
    for code, words in WORDS:
        if any(word in text for word in words):
            sharper = _SHARPER.get(code)
            sign = sharper(text) if sharper else Sign(code)
            return _waited(sign, text) if sign and code.startswith("nccl.") else sign
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
