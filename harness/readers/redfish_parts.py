"""Parts of a machine as Redfish has them: health, state, readings against their own thresholds.

Resources come in; Events of the codes ``bmc.AREA.critical`` and ``.warning`` go out, at the part
itself. A parent's health includes that of its parts, so a parent is told of only where none of its
parts in the file explains it. An absent part is an empty place; null is no reading.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.clues import xids
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.redfish_tree import Resource, text

KIND = "redfish"
_TOP = frozenset("Chassis ComputerSystem Manager ServiceRoot Fabric ThermalEquipment CDU".split())
_ROLLS = {"PowerSubsystem": "power", "Power": "power", "PowerShelf": "power",
          "ThermalSubsystem": "thermal", "Thermal": "thermal", "Redundancy": "",
          "LeakDetection": "thermal",
          "Storage": "storage", "MemorySummary": "host", "ProcessorSummary": "host",
          "ThermalMetrics": "thermal", "Battery": "power",
          "PowerDistribution": "power"}  # fmt: skip
_AREAS = {"PowerSupply": "power", "Voltage": "power", "PowerControl": "power", "Outlet": "power",
          "Circuit": "power", "Temperature": "thermal", "Fan": "thermal", "Pump": "thermal",
          "LeakDetector": "thermal", "CoolingUnit": "thermal", "CoolingLoop": "thermal",
          "Heater": "thermal", "Filter": "thermal", "Memory": "host", "Drive": "storage",
          "Volume": "storage", "StorageController": "storage", "NetworkAdapter": "nic",
          "NetworkInterface": "nic", "NetworkDeviceFunction": "nic", "EthernetInterface": "nic",
          "PCIeDevice": "pcie", "PCIeFunction": "pcie", "PCIeSlots": "pcie", "Switch": "nvswitch",
          "Processor": "host"}  # fmt: skip
_READS = {"Temperature": "thermal", "Rotational": "thermal", "LiquidFlow": "thermal",
          "LiquidFlowLPM": "thermal", "PressurekPa": "thermal", "LiquidLevel": "thermal",
          "Voltage": "power", "Current": "power", "Power": "power"}  # fmt: skip
_GPU = re.compile(r"\bGPU(?:_(SXM))?[ _]?(\d{1,2})\b|(?<![A-Za-z0-9])GPU_(SXM)?_?(\d{1,2})(?=_|\b)")
_UNCORRECTABLE = re.compile(
    r"uncorrect\w{0,5}[ _]?.{0,24}\b(?:ecc|dram|sram|hbm|memory)"
    r"|(?:ecc|dram|sram|hbm).{0,24}uncorrect"
    r"|double.?bit|\bDBE\b",
    re.IGNORECASE,
)
_HOT = 200.0  # C; a byte of all ones reads as 255 or 127, and nothing here is so hot
_ROWS = {
    "RowRemappingFailed": ("remap.failure", "flag"),
    "RowRemappingPending": ("remap.pending", "flag"),
    "UncorrectableRowRemappingCount": ("remap.rows.uncorrected", "rows"),
    "CorrectableRowRemappingCount": ("remap.rows.corrected", "rows"),
}
_UPPER = ("UpperCritical", "UpperFatal", "UpperCriticalUser")
_LOWER = ("LowerCritical", "LowerFatal")
_GIVES_NOTHING = frozenset(("Disabled", "UnavailableOffline", "StandbyOffline"))
MOST = 5000


@dataclass(frozen=True, slots=True)
class _Sick:
    """A resource that is not well. `area` "" for a parent of all areas."""

    resource: Resource
    area: str
    grade: str
    words: str


def subject_of(resource: Resource) -> str:
    """Return ``gpuN`` for a part of a numbered GPU, ``gpu-sxmN`` for a socket's, else ``host``.

    A socket's number is the baseboard's own, and not the driver's index.
    """
    return gpu_in(resource.path, resource.name) or "host"


def gpu_in(*texts: str) -> str:
    """Return the GPU that the first text with one names, as subject_of does, or ""."""
    match = next(filter(None, map(_GPU.search, texts)), None)
    if match is None:
        return ""
    number = int(match[2] or match[4])
    return f"gpu-sxm{number}" if match[1] or match[3] else f"gpu{number}"


def memory_code(words: str, grade: str) -> str:
    """Return the code of a GPU's memory error, or "" where the words tell of none.

    Which memory it was is said by few; the far larger one is HBM.
    """
    if not _UNCORRECTABLE.search(words):
        return ""
    return f"bmc.{'sram' if 'sram' in words.lower() else 'hbm'}.{grade}"


def _number(value: object) -> float | None:
    if isinstance(value, dict):
        value = value.get("Reading")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e12 else None  # noqa: PLR2004 - and so no NaN


def _area(resource: Resource) -> str:
    """Return which area a resource belongs to: by its type, what it reads, or where it stands."""
    fields, path = resource.fields, resource.path
    gpu = subject_of(resource) != "host"
    found = _AREAS.get(resource.sort) or _READS.get(text(fields.get("ReadingType"))) or ""
    if resource.sort == "Processor" and (gpu or text(fields.get("ProcessorType")) == "GPU"):
        found = "gpu"
    elif resource.sort == "Memory" and gpu:
        found = "hbm"
    elif resource.sort == "Port":
        found = "nvlink" if "nvlink" in (path + resource.name).lower() else "nic"
    elif resource.sort == "Redundancy":
        heat = "thermal" in path.lower() or "fan" in resource.name.lower()
        found = "thermal" if heat else "power"
    return found or _ROLLS.get(resource.sort, "gpu" if gpu else "unknown")


def _conditions(status: Mapping[str, Any]) -> str:
    said = status.get("Conditions")
    messages = (
        [text(c.get("Message")) for c in said if isinstance(c, dict)]
        if isinstance(said, list)
        else []
    )
    return "; ".join(filter(None, messages[:3]))


def _beyond(fields: Mapping[str, Any]) -> str:
    """Return in words how a reading lies beyond its own critical thresholds, or ""."""
    reading = _number(fields.get("Reading"))
    reading = _number(fields.get("ReadingCelsius")) if reading is None else reading
    reading = _number(fields.get("ReadingVolts")) if reading is None else reading
    limits = fields.get("Thresholds")
    limits = limits if isinstance(limits, dict) else {
        "UpperCritical": fields.get("UpperThresholdCritical"),
        "UpperFatal": fields.get("UpperThresholdFatal"),
        "LowerCritical": fields.get("LowerThresholdCritical"),
        "LowerFatal": fields.get("LowerThresholdFatal"),
    }  # fmt: skip
    if reading is None:
        return ""
    upper = [v for k in _UPPER if (v := _number(limits.get(k))) is not None and v > 0]
    lower = [v for k in _LOWER if (v := _number(limits.get(k))) is not None]
    if upper and lower and max(lower) >= min(upper):
        return ""  # thresholds that nobody has set
    if upper and reading >= min(upper):
        return f"reading {reading:g}, critical from {min(upper):g} up"
    if lower and reading <= max(lower) and max(lower) > 0:
        return f"reading {reading:g}, critical from {max(lower):g} down"
    return ""


def _label(resource: Resource) -> str:
    """Return which part it is: its name, or its place where the name has no number."""
    place = resource.path.rpartition("/")[2]
    numbered = any(c.isdigit() for c in resource.name)
    return resource.name if numbered or place.startswith("#") or not place else place


class Parts:
    """All resources but log entries. `empty` counts those that say neither health nor reading."""

    def __init__(self) -> None:
        self.records = self.empty = self.mute = 0
        self.silent: list[str] = []
        self.measured: list[Measurement] = []
        self.serials: dict[str, str] = {}
        self.uuids: dict[str, str] = {}
        self.host: str | None = None
        self._sick: list[_Sick] = []
        self._hidden: list[_Sick] = []
        self._seen: set[str] = set()

    def take(self, resource: Resource) -> None:
        """Look at one resource; the same one met again adds nothing."""
        fields = resource.fields
        if resource.sort in ("MemoryMetrics", "ProcessorMetrics"):
            self._counts(resource)
            return
        status = fields.get("Status")
        status = status if isinstance(status, dict) else {}
        state = text(status.get("State"))
        told = any(text(status.get(k)) for k in ("State", "Health", "HealthRollup"))
        told |= any(
            k in fields for k in ("Reading", "ReadingCelsius", "DetectorState", "ReadingVolts")
        )
        if not told or (resource.path in self._seen and resource.path.startswith("/")):
            return
        self._seen.add(resource.path)
        self.records += 1
        self._identity(resource)
        if state != "Absent":
            self._health(resource, status, state)

    def _counts(self, resource: Resource) -> None:
        """Take in what a GPU's memory says of its rows, in NVIDIA's part of the metrics."""
        oem = resource.fields.get("Oem")
        told = oem.get("Nvidia") if isinstance(oem, dict) else None
        subject = subject_of(resource)
        if not isinstance(told, dict) or subject == "host" or resource.path in self._seen:
            return
        self._seen.add(resource.path)
        rows = told.get("RowRemapping")
        rows = told | (rows if isinstance(rows, dict) else {})
        found = [
            Measurement(KIND, subject, metric, int(value), unit)
            for key, (metric, unit) in _ROWS.items()
            if isinstance(value := rows.get(key), bool | int) and value >= 0
        ]
        self.records += bool(found)
        self.measured += found

    def _identity(self, resource: Resource) -> None:
        host = text(resource.fields.get("HostName"))
        if resource.sort == "ComputerSystem" and re.fullmatch(r"[\w.\-]{1,253}", host):
            self.host = self.host or host
        subject, serial = subject_of(resource), text(resource.fields.get("SerialNumber"))
        if resource.sort == "Processor" and subject != "host":
            if re.fullmatch(r"[\w\-]{4,64}", serial):
                self.serials[subject] = serial
            uuid = text(resource.fields.get("UUID"))
            if re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", uuid):
                self.uuids[subject] = f"GPU-{uuid.lower()}"

    def _health(self, resource: Resource, status: Mapping[str, Any], state: str) -> None:
        health = text(status.get("Health")).lower()
        area = "" if resource.sort in _TOP else _area(resource)
        words = _conditions(status) or f"Health {health}, State {state or 'not told'}"
        grade = health if health in ("warning", "critical") else ""
        if leak := text(resource.fields.get("DetectorState")).lower():
            grade = "leak" if leak in ("warning", "critical") else grade
            words = f"DetectorState {leak}" if grade == "leak" else words
        if not grade and (beyond := _beyond(resource.fields)) and state in ("", "Enabled"):
            grade, words = "critical", beyond
        if not grade and text(resource.fields.get("LineInputStatus")) in (
            "LossOfInput",
            "OutOfRange",
        ):
            grade, words = "input", f"LineInputStatus {text(resource.fields['LineInputStatus'])}"
        if not grade and state in _GIVES_NOTHING:
            idle = resource.sort == "PowerSupply" or area == "gpu"
            grade, words = ("disabled" if idle else "", f"State {state}")
        if grade:
            self._sick.append(_Sick(resource, area, grade, words))
        elif text(status.get("HealthRollup")).lower() in ("warning", "critical"):
            rollup = text(status.get("HealthRollup")).lower()
            self._hidden.append(_Sick(resource, area, "hidden", f"HealthRollup {rollup}"))
        self._silence(resource, state)

    def _silence(self, resource: Resource, state: str) -> None:
        """Note a sensor that is there and reads nothing, or a byte of all ones."""
        before = len(self.silent)
        for key in ("Reading", "ReadingCelsius"):
            if key not in resource.fields or state not in ("", "Enabled"):
                continue
            value = _number(resource.fields[key])
            hot = value is not None and _area(resource) == "thermal" and value >= _HOT
            celsius = (
                key == "ReadingCelsius" or text(resource.fields.get("ReadingType")) == "Temperature"
            )
            if (value is None or (hot and celsius)) and len(self.silent) < MOST:
                self.silent.append(plain(resource.name, 60))
        self.mute += len(self.silent) > before

    def _explained(self, parent: _Sick) -> bool:
        """Whether a part in this file explains what `parent` says of itself."""
        path = parent.resource.path + "/"
        leaf = parent.resource.sort not in _TOP and parent.resource.sort not in _ROLLS
        for other in self._sick:
            if other is parent:
                continue
            below = (
                other.resource.path.startswith(path)
                or parent.resource.path in other.resource.inside
            )
            upper = other.resource.sort in _TOP or other.resource.sort in _ROLLS
            if below or (not leaf and not upper and parent.area in ("", other.area)):
                return True
        return False

    def events(self) -> list[Event]:
        """Return the signs, each at the lowest part that shows it."""
        found = []
        for sick in (*self._sick, *self._hidden)[:MOST]:
            if self._explained(sick) or (sick.grade == "hidden" and self._sick):
                continue
            resource = sick.resource
            spoken = sick.grade in ("warning", "critical")
            told = xids(sick.words) if spoken else []
            if spoken and sick.area in ("gpu", "hbm") and not told:
                told = list(filter(None, [memory_code(sick.words, sick.grade)]))
            code = (
                told[0]
                if told
                else {
                    "leak": "bmc.thermal.leak",
                    "input": "bmc.power.input",
                    "hidden": "bmc.rollup.hidden",
                    "disabled": f"bmc.{sick.area}.disabled",
                }.get(sick.grade, f"bmc.{sick.area or 'rollup'}.{sick.grade}")
            )
            words = plain(f"{resource.sort or 'part'} {_label(resource)}: {sick.words}")
            detail = {"device": plain(resource.name, 60)}
            found.append(Event(subject_of(resource), code, words, None, "none", detail))
        return found
