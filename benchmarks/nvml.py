"""How much a sweep over a rack costs: 72 GPUs × 8 readings through unmodified nvidia-ml-py.

In: an emulated driver with empty rows. Out: the time of a sweep (2 ms is the aim), and its ratio to
as many calls of an empty C function through ctypes in the same run, which is what the interpreter
alone costs on this machine.
"""

import ctypes
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pynvml

from rackproof.harness.devices.emulated.driver import EmulatedDriver, matching_library
from rackproof.harness.devices.nvml import Driver, NvmlTelemetry

GPUS, REPEATS, AIM_MS, LINKS = 72, 50, 2.0, 18
READINGS: tuple[Callable[[object], object], ...] = (
    lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    pynvml.nvmlDeviceGetPowerUsage,
    pynvml.nvmlDeviceGetMemoryInfo,
    pynvml.nvmlDeviceGetUtilizationRates,
    lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    lambda gpu: pynvml.nvmlDeviceGetTotalEccErrors(gpu, 0, pynvml.NVML_VOLATILE_ECC),
    lambda gpu: pynvml.nvmlDeviceGetTotalEccErrors(gpu, 1, pynvml.NVML_VOLATILE_ECC),
    pynvml.nvmlDeviceGetTotalEnergyConsumption,
)


def best(sweep: Callable[[], None]) -> float:
    """Return the milliseconds of the fastest of REPEATS sweeps: the others met other programs."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        sweep()
        times.append(time.perf_counter() - begun)
    return min(times) * 1000


def empty(count: int) -> float:
    """Return the milliseconds of `count` calls of a C function that does nothing."""
    nothing = ctypes.CDLL(None).getpagesize

    def sweep() -> None:
        for _ in range(count):
            nothing()

    return best(sweep)


def report(what: str, milliseconds: float, calls: int) -> None:
    """Print one line."""
    print(f"{what:<32} {milliseconds:8.3f} ms  {milliseconds / empty(calls):6.2f} x empty calls")


def measure(driver: Driver) -> None:
    """Sweep over the readings, then over the links, and print both."""
    gpus = driver.handles()
    rack = [NvmlTelemetry(driver, gpu, "gpu") for gpu in gpus]

    def readings() -> None:
        for gpu in gpus:
            for reading in READINGS:
                reading(gpu)

    def links() -> None:
        for gpu in rack:
            for link in range(LINKS):
                gpu.read_link("nvlink.errors", link)

    milliseconds = best(readings)
    report(f"{GPUS} GPUs x {len(READINGS)} readings", milliseconds, GPUS * len(READINGS))
    report(f"{GPUS} GPUs x {LINKS} links, errors", best(links), GPUS * LINKS)
    print(f"a sweep takes {milliseconds / AIM_MS:.2f} of the {AIM_MS:g} ms that it may")
    for telemetry in rack:
        telemetry.close()


def main() -> None:
    """Make a rack of healthy rows and measure it."""
    version = "580.105.08-rackproof-emulated"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rack"
        state = EmulatedDriver.create(path, GPUS, driver_version=version, cuda_version=13000)
        state.rows["ecc_enabled"], state.rows["nvlink_count"] = 1, LINKS
        state.rows["links"]["speed_mbps"], state.rows["nvlink_version"] = 53125, 7
        driver = Driver.open(matching_library(), path)
        measure(driver)
        driver.close()
        state.close()


if __name__ == "__main__":
    main()
