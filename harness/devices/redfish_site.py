"""Power shelves and cooling as their controllers describe them, by the DMTF Redfish schemas.

In: the controllers, and the subjects that are planned. Out: for each subject its readings by
metric, each a value or the DeviceError that came instead.

    shelf    PowerEquipment/PowerShelves, else a Chassis that says that it is a shelf; its
             PowerSupplies (PowerSubsystem), and each one's Metrics
    cooling  ThermalEquipment/CDUs, else HeatExchangers, else a Chassis whose ThermalSubsystem has
             coolant; its Pumps, coolant connectors and LeakDetection

Which is which: the controllers in the order in which they are named, within one by name, numbers
as numbers. Where there are more than are planned nobody can say, and none is read.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rackproof.harness.devices.redfish import Access, Object, Service
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.model import Value

ROOT = "/redfish/v1/"
MAX_MEMBERS = 256
PRESENT = ("Enabled", "StandbySpare")
"""Status.State of what works, or could at once."""
GONE = ("Absent", "Disabled", "UnavailableOffline", "StandbyOffline")
"""Status.State of what gives nothing."""
HEALTHS = ("OK", "Warning", "Critical")  # from good to bad

Readings = Mapping[str, Value | DeviceError]
Get = Callable[[], Value]


def shelves(found: Sequence[Access], planned: Sequence[str]) -> dict[str, Readings]:
    """Return the readings of the planned shelves: health, bad supplies, output in W."""
    return _walk(found, planned, _shelves)


def cooling(found: Sequence[Access], planned: Sequence[str]) -> dict[str, Readings]:
    """Return the readings of the planned racks' cooling: health, pumps, flow, leak, supply."""
    return _walk(found, planned, _units)


def _walk(
    found: Sequence[Access],
    planned: Sequence[str],
    read: Callable[[Service], Iterator[Readings]],
) -> dict[str, Readings]:
    """Read every controller, and say of each planned subject which readings are its own."""
    good: list[list[Readings]] = []
    failed: dict[int, DeviceError] = {}
    for number, access in enumerate(found):
        with contextlib.closing(Service(access)) as service:
            try:
                good.append(list(read(service)))
            except DeviceError as error:
                failed[number] = error
                good.append([])
    count = sum(map(len, good))
    if failed and count < len(planned):
        if count + len(failed) != len(planned):
            raise next(iter(failed.values()))  # nobody knows how many stand behind it
        for number, stopped in failed.items():
            good[number] = [_Broken(stopped)]
    every = [each for own in good for each in own]
    if len(every) > len(planned):
        msg = f"{len(every)} are found and {len(planned)} planned: name their controllers alone"
        raise DeviceError(msg)
    missing = NotPresent(f"{len(every)} are found and {len(planned)} planned")
    every += [_Broken(missing)] * (len(planned) - len(every))
    return dict(zip(planned, every, strict=True))


class _Broken(dict[str, Value | DeviceError]):
    """The readings of what cannot be asked: each is the same error."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__()
        self._error = error

    def __missing__(self, metric: str) -> DeviceError:
        """Return the error, whatever is asked for."""
        return self._error


def _try(get: Get) -> Value | DeviceError:
    try:
        return get()
    except DeviceError as error:
        return error


# --- shelves -------------------------------------------------------------------------------------
def _shelves(service: Service) -> Iterator[Readings]:
    root = service.get(ROOT)
    found = members(service, follow(service, root, "PowerEquipment"), "PowerShelves")
    if not found:
        found = [each for each in members(service, root, "Chassis") if _is_shelf(each)]
    yield from (_shelf(service, each) for each in found)


def _shelf(service: Service, shelf: Object) -> Readings:
    own = follow(service, shelf, "PowerSubsystem") or shelf
    supplies = members(service, own, "PowerSupplies")
    outputs = [_output(service, supply) for supply in supplies]
    return {
        "shelf.health": _try(lambda: _health(shelf, own)),
        "shelf.supplies.bad": _try(lambda: _bad_supplies(supplies, outputs)),
        "shelf.output": _try(lambda: sum(_all(outputs, "OutputPowerWatts"))),
    }


def _is_shelf(chassis: Object) -> bool:
    said = chassis.get("ChassisType")
    named = f"{chassis.get('Id')} {chassis.get('Name')}".lower()
    return said in ("Shelf", "PowerShelf") or "shelf" in named


def _output(service: Service, supply: Object) -> float | None:
    metrics = follow(service, supply, "Metrics")
    return None if metrics is None else reading(metrics.get("OutputPowerWatts"))


def _bad_supplies(supplies: Sequence[Object], outputs: Sequence[float | None]) -> int:
    if not supplies:
        msg = "Redfish: the shelf lists no power supplies"
        raise Unsupported(msg)
    idle = (
        output is not None and output <= 0.0 and _state(supply) == "Enabled"
        for supply, output in zip(supplies, outputs, strict=True)
    )
    return sum(_is_bad(supply) or none for supply, none in zip(supplies, idle, strict=True))


# --- cooling -------------------------------------------------------------------------------------
def _units(service: Service) -> Iterator[Readings]:
    root = service.get(ROOT)
    equipment = follow(service, root, "ThermalEquipment")
    found = members(service, equipment, "CDUs") or members(service, equipment, "HeatExchangers")
    yield from (_unit(service, unit, unit) for unit in found)
    for chassis in [] if found else members(service, root, "Chassis"):
        own = follow(service, chassis, "ThermalSubsystem")
        if own is not None and ("CoolantConnectors" in own or "Pumps" in own):
            yield _unit(service, chassis, own)


def _unit(service: Service, unit: Object, own: Object) -> Readings:
    """Return the readings of a cooling unit, or of a chassis and its own thermal subsystem."""
    pumps, ways = members(service, own, "Pumps"), _ways(service, own)
    flows = [reading(way.get("FlowLitersPerMinute")) for way in ways]
    supplied = [reading(way.get("SupplyTemperatureCelsius")) for way in ways]
    return {
        "cooling.health": _try(lambda: _health(unit, own)),
        "cooling.pumps.bad": _try(lambda: _bad_pumps(pumps)),
        "cooling.flow": _try(lambda: sum(_all(flows, "FlowLitersPerMinute"))),
        "cooling.supply": _try(lambda: max(_all(supplied, "SupplyTemperatureCelsius"))),
        "cooling.leak": _try(lambda: _leak(service, own)),
    }


def _ways(service: Service, unit: Object) -> list[Object]:
    """Return the connectors that lead to the rack; a return of its own is not counted again."""
    for name in ("SecondaryCoolantConnectors", "CoolantConnectors", "PrimaryCoolantConnectors"):
        found = members(service, unit, name)
        if found:
            return [way for way in found if way.get("CoolantConnectorType") != "Return"]
    return []


def _bad_pumps(pumps: Sequence[Object]) -> int:
    if not pumps:
        msg = "Redfish: the cooling lists no pumps"
        raise Unsupported(msg)
    still = (
        reading(pump.get("PumpSpeedPercent")) == 0.0 and _state(pump) == "Enabled" for pump in pumps
    )
    return sum(_is_bad(pump) or stands for pump, stands in zip(pumps, still, strict=True))


def _leak(service: Service, unit: Object) -> int:
    detection = follow(service, unit, "LeakDetection")
    states = [
        detector.get("DetectorState")
        for detector in members(service, detection, "LeakDetectors")
        if _state(detector) not in GONE
    ]
    if not states and detection is not None:
        states = [_status(detection).get("Health")]
    if not states or any(state not in HEALTHS for state in states):
        msg = "Redfish: no leak detector of the cooling states what it detects"
        raise DeviceError(msg)
    return int(any(state != "OK" for state in states))


# --- what all of them have -----------------------------------------------------------------------
def follow(service: Service, holder: Object | None, name: str) -> Object | None:
    """Return the object that a link of `holder` leads to, or None where there is no such link."""
    link = _link((holder or {}).get(name))
    if link is None:
        return None
    try:
        return service.get(link)
    except NotPresent:  # a link that leads nowhere: firmware names what it does not have
        return None


def members(service: Service, holder: Object | None, name: str) -> list[Object]:
    """Return the members of a collection that `holder` links to, in the order of their names."""
    paths: list[str] = []
    pages: set[str] = set()
    page = _link((holder or {}).get(name))
    while page is not None and page not in pages:
        pages.add(page)
        try:
            collection = service.get(page)
        except NotPresent:
            break
        listed = collection.get("Members")
        paths += [link for each in _list(listed) if (link := _link(each)) is not None]
        if len(paths) > MAX_MEMBERS:
            msg = f"Redfish {page[:200]}: has more than {MAX_MEMBERS} members"
            raise DeviceError(msg)
        following = collection.get("Members@odata.nextLink")
        page = following if isinstance(following, str) else None
    return [service.get(path) for path in sorted(dict.fromkeys(paths), key=_natural)]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _link(value: object) -> str | None:
    found = value.get("@odata.id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.findall(r"\d{1,18}|\D+|\d", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _status(thing: Object) -> Object:
    status = thing.get("Status")
    return status if isinstance(status, dict) else {}


def _state(thing: Object) -> object:
    return _status(thing).get("State")


def _health(*things: Object) -> str:
    """Return the worst health that the things state, in lower case."""
    said = [_status(t).get(key) for t in things for key in ("Health", "HealthRollup")]
    known = [HEALTHS.index(word) for word in said if word in HEALTHS]
    if not known:
        msg = "Redfish: Status.Health is not stated"
        raise DeviceError(msg)
    return HEALTHS[max(known)].lower()


def _is_bad(thing: Object) -> bool:
    """Say whether a supply or pump gives nothing or reports a fault; a DeviceError: it hides it."""
    state, health = _state(thing), _status(thing).get("Health")
    if state in GONE:
        return True
    if state not in PRESENT or health not in HEALTHS:
        msg = f"Redfish: {str(thing.get('Id'))[:40]!r} states no state and health that we know"
        raise DeviceError(msg)
    return bool(health != "OK")


def reading(sensor: object) -> float | None:
    """Return the number of a sensor excerpt, or None."""
    value = sensor.get("Reading") if isinstance(sensor, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _all(values: Sequence[float | None], name: str) -> list[float]:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        msg = f"Redfish: {name} is stated by {len(known)} of {len(values)}"
        raise DeviceError(msg)
    return known
