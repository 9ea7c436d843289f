"""How fast the emulated driver answers: 72 GPUs, 8 readings each, as a share of 2 ms.

In: `rackproof emulate gb300-nvl72`, which runs this file again as a program that knows nothing of
us but nvidia-ml-py. Out: one ratio; above 1 is too much, and ends with 1.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml

EMULATE = [
    *(sys.executable, "-c", "from rackproof.cli import main; main()"),
    *("emulate", "gb300-nvl72", "--", sys.executable, __file__, "--inside"),
]
MILLISECONDS = 2.0
ROUNDS = 50

READINGS: tuple[Callable[[Any], object], ...] = (
    lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    pynvml.nvmlDeviceGetPowerUsage,
    pynvml.nvmlDeviceGetTotalEnergyConsumption,
    pynvml.nvmlDeviceGetMemoryInfo,
    pynvml.nvmlDeviceGetUtilizationRates,
    lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    pynvml.nvmlDeviceGetCurrentClocksEventReasons,
    lambda gpu: pynvml.nvmlDeviceGetTotalEccErrors(
        gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC
    ),
)


def read_all() -> int:
    """Read everything ROUNDS times, print the best round's share, and return 1 above 1."""
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for gpu in gpus:
            for reading in READINGS:
                reading(gpu)
        rounds.append((time.perf_counter() - begun) * 1000)
    ratio = min(rounds) / MILLISECONDS
    print(f"{ratio:6.2f}  {len(gpus)} GPUs × {len(READINGS)} readings, of {MILLISECONDS:g} ms")
    return int(ratio > 1)


if __name__ == "__main__":
    if "--inside" in sys.argv:
        sys.exit(read_all())
    sys.exit(subprocess.run(EMULATE, check=False).returncode)
