"""skus.toml as objects: what is known of each GPU, and how well.

In: a SKU's key (h100, h200, b200, gb200, gb300, vr). Out: its constants, each with unit, tag and
source. What is not known is absent, so that nobody mistakes a guess for a fact.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Any

from rackproof.harness.errors import SpecError, nearest

# Every constant that a SKU can have, with its unit. Also the words of a rack's [emulation] table.
CONSTANTS: Mapping[str, str] = MappingProxyType(
    {
        "form_factor": "text",
        "name": "text",
        "pci_id": "text",
        "pci_subsystem_ids": "text",
        "memory_total": "MiB",
        "hbm_type": "text",
        "hbm_rate": "TB/s",
        "hbm_clock": "MHz",
        "nvlink_generation": "gen",
        "nvlink_links": "links",
        "nvlink_speed": "GB/s",
        "nvlink_rate": "GB/s",
        "pcie_gen": "gen",
        "pcie_width": "lanes",
        "c2c_rate": "GB/s",
        "nic_rate": "Gb/s",
        "fp64": "TFLOP/s",
        "fp32": "TFLOP/s",
        "tf32": "TFLOP/s",
        "bf16": "TFLOP/s",
        "fp8": "TFLOP/s",
        "fp4": "TFLOP/s",
        "power_idle": "W",
        "power_min": "W",
        "power_default": "W",
        "power_max": "W",
        "sm_clock_max": "MHz",
        "sm_count": "SMs",
        "compute_capability": "text",
        "architecture": "text",
        "temperature_max_operating": "C",
        "temperature_slowdown": "C",
        "temperature_shutdown": "C",
        "memory_temperature_max": "C",
        "tlimit_max_operating": "C",
        "tlimit_slowdown": "C",
        "tlimit_shutdown": "C",
        "remap_banks": "banks",
        "gpus_per_serial": "gpus",
    }
)

TAGS = ("seen", "measured", "announced", "derived", "inferred", "memory")


@dataclass(frozen=True, slots=True)
class Constant:
    """One known value: `value` in `unit`, how well it is known (`tag`, of TAGS), and from where.

    `confirmed` is second, independent evidence for a value whose tag is weak, or empty.
    """

    value: float | str
    unit: str
    tag: str
    source: str
    confirmed: str = ""

    @property
    def firm(self) -> bool:
        """Whether a limit may rest on it: it was seen, or is confirmed; never when announced."""
        if self.tag == "announced":
            return False
        return self.tag in {"seen", "measured"} or bool(self.confirmed)


@dataclass(frozen=True, slots=True)
class Sku:
    """One kind of GPU and what is known of it."""

    key: str
    constants: Mapping[str, Constant] = field(hash=False)

    def known(self, name: str) -> Constant | None:
        """Return the constant `name` of CONSTANTS, or None where it is not known."""
        if name not in CONSTANTS:
            msg = f"unknown constant {name!r}{nearest(name, CONSTANTS)}"
            raise KeyError(msg)
        return self.constants.get(name)

    def number(self, name: str) -> float | None:
        """Return the value of a numeric constant, or None where it is not known."""
        constant = self.known(name)
        return None if constant is None or isinstance(constant.value, str) else constant.value

    def text(self, name: str) -> str | None:
        """Return the value of a textual constant, or None where it is not known."""
        constant = self.known(name)
        return constant.value if constant and isinstance(constant.value, str) else None


def _sku(key: str, table: Mapping[str, Mapping[str, Any]], sources: Mapping[str, str]) -> Sku:
    constants = {}
    for name, entry in table.items():
        source, confirmed = entry["source"], entry.get("confirmed", "")
        constants[name] = Constant(
            value=entry["value"],
            unit=entry["unit"],
            tag=entry["tag"],
            source=sources.get(source, source),
            confirmed=sources.get(confirmed, confirmed),
        )
    return Sku(key, constants)


@functools.cache
def skus() -> Mapping[str, Sku]:
    """Return all SKUs by key, in the file's order."""
    text = resources.files("rackproof.harness").joinpath("skus.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    sources = tables.pop("sources")
    return MappingProxyType({key: _sku(key, table, sources) for key, table in tables.items()})


def sku(key: str) -> Sku:
    """Return one SKU; a SpecError that names the nearest one when there is no such key."""
    known = skus()
    if key not in known:
        msg = f"unknown sku {key[:60]!r}{nearest(key, known)}; known: {', '.join(known)}"
        raise SpecError(msg)
    return known[key]
