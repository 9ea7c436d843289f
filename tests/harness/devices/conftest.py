"""An emulated driver of 72 healthy GPUs in 18 trays, filled by hand: no rack is involved."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from rackproof.harness.devices import cupy_call
from rackproof.harness.devices.emulated.driver import EmulatedDriver, matching_library
from rackproof.harness.devices.nvml import Driver, NvmlTelemetry

GPUS, PER_TRAY, LINKS = 72, 4, 18
VERSION = "580.105.08-rackproof-emulated"


def fill(driver: EmulatedDriver) -> None:
    """Write a healthy GPU into every row."""
    rows = driver.rows
    text = {"name": b"NVIDIA GB300", "vbios": b"97.00.A1.00.01", "part_number": b"699-2G548",
            "inforom": b"G548.0200.00.04", "chassis_serial": b"1821325190125"}  # fmt: skip
    number = {
        "memory_total": 284208 << 20, "memory_used": 1 << 30, "memory_reserved": 1 << 29,
        "energy_mj": 5_000_000, "pci_bus": 1, "pci_id": 0x31C2_10DE, "pci_subsystem": 0x21F1_10DE,
        "brand": 14, "architecture": 10, "capability_major": 10, "capability_minor": 3,
        "power_average_mw": 234_000, "power_instant_mw": 235_000, "limit_min_mw": 500_000,
        "limit_max_mw": 1_400_000, "limit_default_mw": 1_400_000, "limit_requested_mw": 1_400_000,
        "temperature_c": 41, "memory_temperature_c": 38, "margin_c": 46, "shutdown_c": 95,
        "slowdown_c": 89, "shutdown_offset_c": -8, "slowdown_offset_c": -2, "ecc_enabled": 1,
        "persistence": 1, "pcie_gen": 6, "pcie_gen_max": 6, "pcie_width": 16, "pcie_width_max": 16,
        "nvlink_count": LINKS, "nvlink_version": 7, "fabric_state": 3, "fabric_clique": 1,
        "fabric_health_summary": 1, "util_gpu": 3, "smoothing_supported": 1,
        "smoothing_lifetime": 99, "smoothing_floor_min": 20, "smoothing_floor_max": 90,
    }  # fmt: skip
    for name, value in (text | number).items():
        rows[name] = value
    rows["clock_mhz"] = rows["clock_max_mhz"] = [1920, 1920, 3996, 1600]
    rows["remap_histogram"] = [2560, 0, 0, 0, 0]
    rows["fabric_uuid"] = list(range(16))
    links = rows["links"]
    links["state"], links["speed_mbps"], links["remote_type"] = 1, 53125, 2
    links["ber_mantissa"], links["ber_exponent"] = 15, 255
    for n in range(len(rows)):
        rows["tray"][n], rows["index"][n] = divmod(n, PER_TRAY)
        rows["module_id"][n] = n % PER_TRAY + 1
        rows["pci_domain"][n] = n
        rows["uuid"][n] = f"GPU-00000000-0000-0000-0000-{n:012x}".encode()
        rows["serial"][n] = f"165{n:010d}".encode()


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., EmulatedDriver]:
    """Make a filled driver: ``make(gpus=2, version="570.86")``."""

    def made(name: str = "rack", gpus: int = GPUS, version: str = VERSION) -> EmulatedDriver:
        driver = EmulatedDriver.create(
            tmp_path / name, gpus, driver_version=version, cuda_version=13000
        )
        fill(driver)
        return driver

    return made


@pytest.fixture
def emulated(make: Callable[..., EmulatedDriver]) -> EmulatedDriver:
    """The state behind `nvml`."""
    return make()


@pytest.fixture
def driver(emulated: EmulatedDriver) -> Iterator[Driver]:
    """An open driver over `emulated`."""
    opened = Driver.open(matching_library(), emulated.path)
    yield opened
    opened.close()


@pytest.fixture
def nvml(driver: Driver) -> Iterator[object]:
    """Unmodified nvidia-ml-py over `emulated`."""
    assert driver.version == VERSION
    return pynvml


@pytest.fixture
def gpu(driver: Driver) -> Iterator[NvmlTelemetry]:
    """The telemetry of rack0/tray01/gpu1, which is in row 5."""
    telemetry = NvmlTelemetry(driver, driver.handles()[5], "rack0/tray01/gpu1")
    yield telemetry
    telemetry.close()


@pytest.fixture(scope="session")
def stand_in() -> Any:
    """CuPy's stand-in, the module beside this file."""
    path = Path(__file__).with_name("cupy_stand_in.py")
    spec = importlib.util.spec_from_file_location("cupy_stand_in", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machine(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two cards of 300 MiB behind a stand-in for CuPy that importlib finds."""
    cards = [stand_in.Card(300 * stand_in.MIB, 128 * stand_in.MIB) for _ in range(2)]
    machine = stand_in.Machine(cards)
    modules, real = machine.modules(), importlib.import_module
    found = lambda name: modules[name] if name in modules else real(name)  # noqa: E731
    monkeypatch.setattr(cupy_call.importlib, "import_module", found)
    return machine


@pytest.fixture
def card(machine: Any) -> Any:
    """The first of its cards."""
    return machine.cards[0]
