"""What a rack's own description says its readings must be, and which of them cannot exist there.

In: a RackSpec. Out: plain limits in each metric's unit, each with the source that it rests on; the
limits that are wanted and missing, with the reason; and the metrics that the platform lacks. A
limit rests on a constant that was seen or is confirmed (skus.py), never on an announced one and
never on the [emulation] table. Nothing is judged here.
"""

import math
from dataclasses import dataclass, replace

from rackproof.harness.model import Tray
from rackproof.harness.skus import Constant
from rackproof.harness.spec import RackSpec

# A driver reserves a little memory, and how much differs between versions; SKUs differ by over 3 %.
MEMORY_TOLERANCE = 0.01
# A link runs at its rate or at a lower one; 1 % is for the digits that a driver leaves out.
SPEED_TOLERANCE = 0.01
# A full load reaches this share of the target power, from which on DCGM's own test of it passes.
TARGET_SHARE = 0.75
# NVLink 5 counts bit errors by link; the generations before it count replays and CRC errors.
BER_SINCE_NVLINK = 5
# What is published of copies and all-reduces reaches 0.69 of the links' stated rate or more (GB200,
# four GPUs: 663 of 956 GB/s). Below this share something is wrong with the whole rack, which the
# median of its GPUs cannot show.
LEAST_OF_LINKS = 0.6
_OVER_LINKS = ("link.pair.rate", "link.all.rate", "link.collective.rate")
# What a kernel counts only where the machine lets it: a virtual machine has none of it.
HOST_COUNTERS = ("host.memory.uncorrected", "host.aer.fatal", "host.aer.nonfatal")
# Of a square wave from nothing to P the largest line is 2/pi x P, that of half duty.
SQUARE = 2.0 / math.pi
# For so long supplies give full load without their mains: no swing needs to be faster than that.
HOLD_UP_S = 0.020
LOCAL = "local"  # the file of a RackSpec of which nobody said what it ought to be


@dataclass(frozen=True, slots=True)
class PlatformLimit:
    """Bounds of one metric in `unit`, the metric's own: `equal`, or `low`, `high`, or both.

    `subject` is a glob; ``*`` where the limit holds for every subject of the metric.
    """

    metric: str
    unit: str
    source: str
    low: float | None = None
    high: float | None = None
    equal: float | str | None = None
    subject: str = "*"


@dataclass(frozen=True, slots=True)
class MissingLimit:
    """A limit that this platform ought to give and does not, and why."""

    metric: str
    reason: str


# metric, its unit, the constant that bounds it, and how: equal, low, high, or within a share of it
_RULES: tuple[tuple[str, str, str, str], ...] = (
    ("gpu.name", "text", "name", "equal"),
    ("gpu.pci_id", "text", "pci_id", "equal"),
    ("memory.total", "MiB", "memory_total", "about"),
    ("pcie.gen.max", "gen", "pcie_gen", "low"),
    ("pcie.width.max", "lanes", "pcie_width", "low"),
    ("pcie.gen.loaded", "gen", "pcie_gen", "low"),
    ("pcie.width.loaded", "lanes", "pcie_width", "low"),
    ("nvlink.links", "links", "nvlink_links", "equal"),
    ("nvlink.speed", "GB/s", "nvlink_speed", "nearly"),
    ("temperature", "C", "temperature_slowdown", "high"),
    ("power.steady", "W", "power_default", "target"),
)
# Limits that narrow one that holds everywhere, so that there is nothing missing without them.
_OPTIONAL = frozenset({"temperature"})


def platform_limits(spec: RackSpec) -> tuple[PlatformLimit, ...]:
    """Return the limits that the rack's description gives, in the order of the inventory."""
    found = [_gpu_count(spec), *_constants(spec), _nic_speed(spec), _over_links(spec)]
    found.append(_waves(spec))
    per_serial = spec.sku.known("gpus_per_serial")
    if per_serial and per_serial.firm and per_serial.value != 1:
        found.append([_shared_serial(per_serial)])
    return tuple(limit for group in found for limit in group)


def missing_limits(spec: RackSpec) -> tuple[MissingLimit, ...]:
    """Return the limits that the platform ought to give and does not, each with the reason."""
    given = {limit.metric for limit in platform_limits(spec)}
    missing = []
    for metric, _, name, _ in _RULES:
        if metric in given or metric in _OPTIONAL:
            continue
        constant = spec.sku.known(name)
        if constant is None:
            reason = f"{name} of {spec.sku.key} is not known"
        else:
            reason = f"{name} of {spec.sku.key} is known as {constant.tag} alone"
        missing.append(MissingLimit(metric, reason))
    if spec.of_sort("nic") and "nic.speed" not in given:
        reason = f"nic_rate of {spec.sku.key} is not firmly known, and no [[tray]] says it"
        missing.append(MissingLimit("nic.speed", reason))
    return tuple(missing)


def absent(spec: RackSpec) -> tuple[str, ...]:
    """Return the metrics that do not exist there, so that NOT_SUPPORTED is what a driver ought say.

    Of `local`, where nobody said what ought to be there, the kernel says what it can count.
    Page retirement ended with Ampere, which remaps rows. A driver of Hopper states no health of
    the fabric (nvidia-smi -q of an H100 node reads N/A there, of B200 and later Healthy). A rack
    without capacitors has no store.
    """
    gone = ["retired.pending", "retired.pages"]
    if spec.file == LOCAL:
        gone += HOST_COUNTERS
    if (spec.sku.number("nvlink_generation") or BER_SINCE_NVLINK) < BER_SINCE_NVLINK:
        gone += ["nvlink.ber", "fabric.health"]
    if spec.of_sort("power") and not spec.power.cbu:
        gone += ["power.store.charge", "power.step.mains.left"]
    if not spec.switches:
        gone += ["fabric.state", "fabric.status", "fabric.health", "fabric.clique"]
    return tuple(dict.fromkeys(gone))


def _gpu_count(spec: RackSpec) -> list[PlatformLimit]:
    source = f"{spec.file}: [[tray]] gpus"
    return [
        PlatformLimit("gpu.count", "gpus", source, equal=len(tray.gpus), subject=tray.host)
        for tray in spec.trays
    ]


def _nic_speed(spec: RackSpec) -> list[PlatformLimit]:
    """Bound the rate of each port: as the tray says, else a GPU's NICs share its SKU's rate."""
    found: list[PlatformLimit] = []
    for tray in spec.trays:
        rate, source = _port_rate(spec, tray)
        if rate is not None:
            nics = tray.host.removesuffix("host") + "nic*"
            found.append(PlatformLimit("nic.speed", "Gb/s", source, low=rate, subject=nics))
    if len(found) == len(spec.trays) and len({(each.low, each.source) for each in found}) == 1:
        return [replace(found[0], subject="*")]
    return found


def _port_rate(spec: RackSpec, tray: Tray) -> tuple[float | None, str]:
    constant = spec.sku.known("nic_rate")
    if not tray.nics:
        return None, ""
    if tray.nic_rate is not None:
        return tray.nic_rate, f"{spec.file}: [[tray]] nic_rate"
    if constant is None or not constant.firm:
        return None, ""
    rate = float(constant.value) * len(tray.gpus) / tray.nics
    return rate, f"{len(tray.gpus)} GPUs' rate over {tray.nics} NICs: {_source(constant)}"


def _constants(spec: RackSpec) -> list[list[PlatformLimit]]:
    found = []
    for metric, unit, name, how in _RULES:
        constant = spec.sku.known(name)
        if constant is not None and constant.firm:
            found.append([_limit(metric, unit, constant, how)])
        elif metric == "nvlink.links" and spec.links_per_gpu is not None:
            source = f"{spec.file}: [fabric] links_per_gpu"
            found.append([PlatformLimit(metric, unit, source, equal=spec.links_per_gpu)])
    return found


def _source(constant: Constant) -> str:
    source = f"{constant.tag}: {constant.source}"
    return f"{source}; confirmed by {constant.confirmed}" if constant.confirmed else source


def _limit(metric: str, unit: str, constant: Constant, how: str) -> PlatformLimit:
    source, value = _source(constant), constant.value
    if isinstance(value, str) or how == "equal":
        return PlatformLimit(metric, unit, source, equal=value)
    if how == "high":
        return PlatformLimit(metric, unit, source, high=value)
    if how == "about":
        low, high = value * (1 - MEMORY_TOLERANCE), value * (1 + MEMORY_TOLERANCE)
        return PlatformLimit(metric, unit, f"{value:g} within 1 %: {source}", low=low, high=high)
    if how == "target":
        low = TARGET_SHARE * value
        return PlatformLimit(metric, unit, f"{TARGET_SHARE} x {value:g}: {source}", low=low)
    if how == "nearly":
        low = value * (1 - SPEED_TOLERANCE)
        return PlatformLimit(metric, unit, f"0.99 x {value:g}: {source}", low=low)
    return PlatformLimit(metric, unit, source, low=value)


def _over_links(spec: RackSpec) -> list[PlatformLimit]:
    """Bound what crosses a GPU's NVLinks by their number and their speed, where both are firm."""
    links, speed = (spec.sku.known(name) for name in ("nvlink_links", "nvlink_speed"))
    if links is None or speed is None or not (links.firm and speed.firm):
        return []
    low = LEAST_OF_LINKS * float(links.value) * float(speed.value)
    share = f"{LEAST_OF_LINKS:g} x {links.value} links x {speed.value} GB/s"
    source = f"rackproof: {share}; {speed.tag}: {speed.source}"
    if speed.confirmed:
        source += f"; confirmed by {speed.confirmed}"
    return [PlatformLimit(metric, "GB/s", source, low=low) for metric in _OVER_LINKS]


def _waves(spec: RackSpec) -> list[PlatformLimit]:
    """Bound the lines and ramps of each rack's power by what all its GPUs may draw, where known."""
    limit = spec.sku.known("power_default")
    if limit is None or not limit.firm:
        return []
    found = []
    for subject in spec.of_sort("power"):
        gpus = sum(f"rack{gpu.rack}/power" == subject for gpu in spec.gpus)
        watts = gpus * float(limit.value)
        all_of_them = f"{gpus} GPUs x {limit.value:g} W"
        line = f"rackproof's proposal, a site's limits file takes its place: 2/pi x {all_of_them}"
        ramp = f"rackproof's proposal, a site's limits file takes its place: {all_of_them} in the"
        ramp += f" {HOLD_UP_S * 1e3:g} ms that supplies hold up"
        for part in ("power.step", "power.step.mains"):
            found += [
                PlatformLimit(f"{part}.line", "W", line, high=SQUARE * watts, subject=subject),
                PlatformLimit(
                    f"{part}.ramp", "kW/s", ramp, high=watts / HOLD_UP_S / 1e3, subject=subject
                ),
            ]
    return found


def _shared_serial(constant: Constant) -> PlatformLimit:
    """Bound how many GPUs carry one serial number where a module of several GPUs has only one."""
    source = f"{constant.tag}: {constant.source}"
    return PlatformLimit("serial.unique", "gpus", source, low=1, high=float(constant.value))
