"""Sensor tables of ipmitool: ``sdr``, ``sdr elist`` and ``sensor``, a row at a time.

A row has the controller's own verdict on its reading, by the thresholds set there: that is what
goes out. ``na``, ``ns`` and ``no reading`` are no readings, and never zero.
"""

import re

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.bmc import code_of
from rackproof.harness.readers.places import plain

KIND = "ipmi"
_STATES = frozenset("ok ns nc cr nr lnc lcr lnr unc ucr unr na".split())
_SILENT = frozenset(("ns", "na", "no reading", "not readable", "disabled", "n/a", "unavailable"))
_UNITS = (("degrees", "thermal"), ("rpm", "thermal"), ("cfm", "thermal"), ("volts", "power"),
          ("amps", "power"), ("watts", "power"))  # fmt: skip
_NAMES = (
    ("leak", re.compile(r"leak", re.IGNORECASE)),
    ("thermal", re.compile(r"temp|fan|therm|pump|coolant|inlet|outlet", re.IGNORECASE)),
    ("power", re.compile(r"^ps\d|psu|power|pwr|volt|vcore|vdd|\d+v\b|\bp\dv", re.IGNORECASE)),
    ("host", re.compile(r"dimm|mem|cpu|proc", re.IGNORECASE)),
    ("storage", re.compile(r"hdd|ssd|drive|disk|nvme", re.IGNORECASE)),
    ("gpu", re.compile(r"gpu|sxm", re.IGNORECASE)),
)
_BITS = (
    (re.compile(r"redundan", re.IGNORECASE), 0,
     ((1, "bmc.power.redundancy", "redundancy lost"),
      (2, "bmc.power.redundancy", "redundancy degraded"),
      (5, "bmc.power.redundancy", "non-redundant, insufficient resources"))),
    (re.compile(r"^(?:ps|psu|pws|pwr ?supply|power ?supply)[ _]?#?\d{0,2}"
                r"(?:[ _]?(?:status|state))?\Z", re.IGNORECASE), 1,
     ((1, "bmc.power.supply", "power supply failure detected"),
      (3, "bmc.power.input", "power supply input lost"),
      (4, "bmc.power.input", "power supply input lost or out of range"),
      (5, "bmc.power.input", "power supply input out of range, but present"),
      (6, "bmc.power.warning", "power supply configuration error"),
      (2, "bmc.power.warning", "power supply predictive failure"))),
    (re.compile(r"^(?:cpu|p|proc\w{0,6})[ _]?\d{1,2}[ _]?status\Z", re.IGNORECASE), 1 << 7,
     ((0, "bmc.cpu", "processor IERR"), (1, "bmc.thermal.critical", "processor thermal trip"))),
    (re.compile(r"^(?:drive|hdd|ssd|nvme|disk)[ _]?\d{1,3}(?:[ _]?(?:status|state))?\Z",
                re.IGNORECASE), 1,
     ((1, "bmc.storage.drive", "drive fault"),
      (2, "bmc.storage.predicted", "drive predictive failure"))),
)  # fmt: skip
_GRAVE = frozenset(("cr", "nr", "lcr", "lnr", "ucr", "unr"))
_MILD = frozenset(("nc", "lnc", "unc"))
_VALUE = re.compile(r"(-?\d{1,9}(?:\.\d{1,6})?) ?(degrees C|RPM|Volts|Amps|Watts)?\b", re.ASCII)
_SENSOR_COLUMNS, _ELIST_COLUMNS, _SDR_COLUMNS = 10, 5, 3
_HEX = re.compile(r"0x[0-9a-fA-F]{1,8}\Z")


def _area(name: str, unit: str) -> str:
    """Return the area of a sensor: by its unit where it has one, else by its name."""
    unit = unit.lower()
    by_unit = next((area for word, area in _UNITS if word in unit), "")
    return by_unit or next((area for area, words in _NAMES if words.search(name)), "unknown")


def discrete(name: str, bits: int) -> tuple[str, str] | None:
    """Return (code, words) of the gravest state bit that a discrete sensor has set, or None.

    The lower eight bits are those of the sensor's type, IPMI 2.0, table 42-3, and of redundancy,
    table 42-2. A part without its bit of presence does not tell of itself: another sort of sensor
    may bear its name.
    """
    for names, presence, states in _BITS:
        if names.search(name):
            if presence and not bits & presence:
                return None
            return next(((code, said) for bit, code, said in states if bits & 1 << bit), None)
    return None


class Sensors:
    """The rows met so far. `silent` are those without a reading."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.measured: list[Measurement] = []
        self.silent: list[str] = []
        self.records = 0

    def take(self, line: str, number: int) -> bool:
        """Look at one line; whether it is a row of a sensor table."""
        parts = [part.strip() for part in line.split("|")]
        if len(parts) == _SENSOR_COLUMNS and (parts[3].lower() in _STATES or _HEX.match(parts[3])):
            name, value, state = parts[0], f"{parts[1]} {parts[2]}", parts[3].lower()
        elif len(parts) == _ELIST_COLUMNS and re.fullmatch(r"[0-9A-Fa-f]{2}h", parts[1]):
            name, state, value = parts[0], parts[2].lower(), parts[4]
        elif len(parts) == _SDR_COLUMNS and parts[2].lower() in _STATES:
            name, value, state = parts[0], parts[1], parts[2].lower()
        else:
            return False
        self.records += 1
        if len(parts) == _SENSOR_COLUMNS and _HEX.match(parts[3]):
            state, value = "discrete", f"0x{parts[3][2:].zfill(4)[:2]}"
        self._judged(plain(name, 60), plain(value, 120), state, number)
        return True

    def _judged(self, name: str, value: str, state: str, number: int) -> None:
        bare = value.lower().removesuffix(" discrete").strip()
        if state in ("ns", "na") or bare in _SILENT or bare.startswith("na "):
            if len(self.silent) < 500:  # noqa: PLR2004
                self.silent.append(name)
            return
        code = ""
        if state in _GRAVE or state in _MILD:
            area = _area(name, value)
            code = f"bmc.{area}.{'critical' if state in _GRAVE else 'warning'}"
            code = "bmc.thermal.leak" if area == "leak" else code
        elif _HEX.match(bare) and (found := discrete(name, int(bare, 16))):
            code, words = found
            value = f"{value}, {words}"
        elif not _VALUE.match(value) and not _HEX.match(bare):
            code = code_of(f"{name} {value}")  # a discrete sensor says what it sees in words
        if code and len(self.events) < 1000:  # noqa: PLR2004
            text = f"{name}: {value} ({state})"
            self.events.append(Event("host", code, text, None, "none", {"line": number}))
