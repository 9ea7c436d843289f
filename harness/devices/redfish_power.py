"""Power and power limits of GPUs as their board's controller has them, by the DMTF schemas.

In: a controller. Out: its GPUs, each with the place where its limit is read and set:

    EnvironmentMetrics of a Processor: PowerWatts.Reading, PowerLimitWatts with SetPoint,
                                       AllowableMin, AllowableMax, DefaultSetPoint, ControlMode
    Control of a Chassis               ControlType Power, RelatedItem the processor, SetPointUnits
                                       W, the same properties, Sensor.Reading

A number that cannot be W of one GPU is no number: firmware that counts in mW, or has the bounds
the wrong way round, is not to be trusted with a limit.
"""

import math
from dataclasses import dataclass
from typing import NoReturn

from rackproof.harness.devices.redfish import Object, Service
from rackproof.harness.devices.redfish_site import ROOT, follow, members, reading
from rackproof.harness.errors import DeviceError, Unsupported

LIMIT = "PowerLimitWatts"
LEAST_W, MOST_W = 10.0, 10_000.0
"""Between them lies every limit of one GPU, and neither a thousandth nor a thousandfold of it."""
OFF = "Disabled"
"""ControlMode of a limit that is not in force."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One GPU: who it is, and the path of what is read and set. `metrics`: EnvironmentMetrics."""

    uuid: str
    path: str
    metrics: bool


@dataclass(frozen=True, slots=True)
class Set:
    """What a knob says, W: its bounds, its default, what is in force. `power` may be NaN."""

    power: float
    current: float
    low: float
    high: float
    default: float


def knobs(service: Service) -> list[Knob]:
    """Return the controller's GPUs in the order of their names; raises a DeviceError.

    A GPU that has no power limit there is a DeviceError too: a cap must reach all of them.
    """
    root = service.get(ROOT)
    systems = members(service, root, "Systems")
    processors = [p for system in systems for p in members(service, system, "Processors")]
    gpus = [p for p in processors if p.get("ProcessorType") == "GPU"]
    found = [_by_metrics(service, gpu) for gpu in gpus]
    if None in found:
        related = _controls(service, root)
        paths = [str(gpu.get("@odata.id")) for gpu in gpus]
        found = [own or related.get(path) for own, path in zip(found, paths, strict=True)]
    if missing := [gpu for gpu, own in zip(gpus, found, strict=True) if own is None]:
        msg = f"Redfish: {str(missing[0].get('Id'))[:40]!r} has no power limit that could be set"
        raise Unsupported(msg)
    return [
        Knob(str(gpu.get("UUID") or ""), *own)
        for gpu, own in zip(gpus, found, strict=True)
        if own is not None
    ]


def _by_metrics(service: Service, gpu: Object) -> tuple[str, bool] | None:
    metrics = follow(service, gpu, "EnvironmentMetrics")
    if metrics is None or not isinstance(metrics.get(LIMIT), dict):
        return None
    return str(gpu["EnvironmentMetrics"]["@odata.id"]), True


def _controls(service: Service, root: Object) -> dict[str, tuple[str, bool]]:
    """Return the controls of power by the path of what they belong to."""
    found = {}
    for chassis in members(service, root, "Chassis"):
        for control in members(service, chassis, "Controls"):
            if control.get("ControlType") != "Power":
                continue
            items = control.get("RelatedItem")
            for item in items if isinstance(items, list) else []:
                if isinstance(item, dict) and isinstance(control.get("@odata.id"), str):
                    found[str(item.get("@odata.id"))] = (str(control["@odata.id"]), False)
    return found


def read(service: Service, knob: Knob) -> Set:
    """Return what a knob says now. Raises a DeviceError, also for what is no W of a GPU."""
    found = service.look(knob.path)
    own = found.get(LIMIT) if knob.metrics else found
    if not isinstance(own, dict):
        _fail(knob, f"{LIMIT} is not stated")
    units = own.get("SetPointUnits", "W")
    if units != "W":
        _fail(knob, f"its limit is in {str(units)[:20]!r}, not in W")
    low, high = _number(own, "AllowableMin"), _number(own, "AllowableMax")
    if not LEAST_W <= low <= high <= MOST_W:
        _fail(knob, f"its limits from {low:g} to {high:g} are no W of a GPU")
    current = _number(own, "SetPoint")
    if math.isnan(current) or own.get("ControlMode") == OFF:
        current = high  # no cap is in force
    if not LEAST_W <= current <= MOST_W:
        _fail(knob, f"its limit of {current:g} is no W of a GPU")
    default = _number(own, "DefaultSetPoint")
    power = reading(found.get("PowerWatts") if knob.metrics else found.get("Sensor"))
    if power is None or not 0.0 <= power <= MOST_W:
        power = math.nan
    return Set(power, current, low, high, high if math.isnan(default) else default)


def write(service: Service, knob: Knob, watts: float) -> None:
    """Ask for a limit in whole W. Raises a DeviceError; whether it holds is to be read back."""
    point = {"SetPoint": round(watts)}
    service.patch(knob.path, {LIMIT: point} if knob.metrics else point)


def _number(own: Object, name: str) -> float:
    """Return a property, NaN where it is absent or null, or what makes no sense."""
    value = own.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _fail(knob: Knob, what: str) -> NoReturn:
    msg = f"Redfish {knob.path[:200]}: {what}"
    raise DeviceError(msg)
