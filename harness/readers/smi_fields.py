"""From the fields of one GPU in nvidia-smi's words to metrics; the same for text and XML.

A path is the field's sections and name in lower case, joined by ``/``: both outputs come to nearly
the same paths, and the table below names the others. A value that is no value (``N/A``, a
deprecation note, all bits set, a negative count) becomes a Missing, never a number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement, Missing, Value, Why
from rackproof.harness.readers.places import pci, plain

UINT32, UINT64 = float(1 << 32), float(1 << 64)
SMALL = 1024  # a negative count that was taken as unsigned lies this near to the top
_NUMBER = re.compile(r"(-?\d{1,20}(?:\.\d{1,9})?)(?: ?x\Z| ([%\w/().]{1,16}))?\s*\Z")
_FACTORS = {"MIB": 1.0, "MB": 1e6 / 2**20, "KIB": 1 / 1024, "GIB": 1024.0}
_LOST = ("gpu is lost", "unknown error", "err!", "gpu access blocked")
_CLEAR, _MANY_LOST = "gpu is lost", 3
_RESET = "requires reset"
_ABSENT = ("n/a", "not supported", "not available", "function not found", "deprecated", "none", "")
_DENIED = "permission"


@dataclass(slots=True)
class GpuFields:
    """One GPU's fields as they were read. `address` is its ``pci:`` subject, or None."""

    address: str | None = None
    values: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """One run of the tool: the head's fields and a list of GPUs. `whole`: nothing broke off."""

    head: dict[str, str] = field(default_factory=dict)
    gpus: list[GpuFields] = field(default_factory=list)
    whole: bool = True


def slug(name: str) -> str:
    """Return a field's name in lower case with ``_`` for all else."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


_REASONS = r"clocks_(?:event|throttle)_reasons/(?:.*[/_])?"
_COUNTS = (
    ("ecc.uncorrected.volatile", "errors",
     r"ecc_errors/volatile/(?:[sd]ram_uncorrectable\w*|double_bit/total)"),
    ("ecc.corrected.volatile", "errors",
     r"ecc_errors/volatile/(?:[sd]ram_correctable|single_bit/total)"),
    ("ecc.uncorrected.aggregate", "errors",
     r"ecc_errors/aggregate/(?:[sd]ram_uncorrectable\w*|double_bit/total)"),
    ("ecc.corrected.aggregate", "errors",
     r"ecc_errors/aggregate/(?:[sd]ram_correctable|single_bit/total)"),
    ("remap.rows.corrected", "rows", r"remapped_rows/(?:remapped_row_corr|correctable_error)"),
    ("remap.rows.uncorrected", "rows", r"remapped_rows/(?:remapped_row_unc|uncorrectable_error)"),
    ("remap.banks.low", "banks", r"remapped_rows/\w*histogram/\w*low"),
    ("remap.banks.none", "banks", r"remapped_rows/\w*histogram/\w*none"),
    ("retired.pages", "pages",
     r"retired_pages/(?:\w+_retirement/retired_count|(?:single|double)_bit_ecc)"),
    ("pcie.replays", "errors", r"pci/(?:replay_counter|replays_since_reset)"),
    ("pcie.gen.max", "gen", r"pci/\w*gpu_link_info/pcie_gen(?:eration)?/(?:max_link_gen|max)"),
    ("pcie.width", "lanes", r"pci/\w*gpu_link_info/link_widths?/current(?:_link_width)?"),
    ("pcie.width.max", "lanes", r"pci/\w*gpu_link_info/link_widths?/max(?:_link_width)?"),
    ("memory.total", "MiB", r"fb_memory_usage/total"),
    ("temperature", "C", r"temperature/gpu_(?:current_)?temp"),
)  # fmt: skip
_FLAGS = (
    ("throttle.thermal", _REASONS + r"(?:hw|sw)_thermal_slowdown"),
    ("throttle.power_brake", _REASONS + r"hw_power_brake_slowdown"),
    ("throttle.hw_slowdown", _REASONS + r"hw_slowdown"),
    ("sram.threshold", r"ecc_errors/aggregate/sram_threshold_exceeded"),
    ("remap.pending", r"remapped_rows/(?:remapped_row_)?pending"),
    ("remap.failure", r"remapped_rows/(?:remapped_row_failure|remapping_failure_occurred)"),
    ("retired.pending", r"retired_pages/(?:pending_\w+)"),
    ("ecc.enabled", r"ecc_mode/current(?:_ecc)?"),
)
_TEXTS = (
    ("gpu.name", r"product_name"),
    ("vbios.version", r"vbios_version"),
    ("fabric.state", r"fabric/state"),
    ("fabric.status", r"fabric/status"),
    ("fabric.health", r"fabric/health/summary|fabric/health"),
)
# What no metric holds, told as events when set.
_SIGNS = (
    ("smi.repair.channel", r"ecc_errors/channel_repair_pending"),
    ("smi.repair.tpc", r"ecc_errors/tpc_repair_pending"),
    ("smi.unrepairable", r"ecc_errors/unrepairable_memory"),
    ("smi.fabric.route", r"fabric/health/route_unhealthy"),
    ("smi.fabric.recovery", r"fabric/health/(?:route_recovery_in_progress|access_timeout_\w+)"),
)
_ECC_KINDS = (
    ("smi.ecc.sram", r"ecc_errors/volatile/sram_uncorrectable\w*"),
    ("smi.ecc.dram", r"ecc_errors/volatile/(?:dram_uncorrectable|double_bit/device_memory)"),
)
_ACTIONS = {"none": "none", "reset": "reset", "gpu reset": "reset", "reboot": "reboot",
            "node reboot": "reboot", "drain p2p": "drain-p2p", "drain and reset": "drain-and-reset",
            "gpu reset required": "reset", "node reboot required": "reboot"}  # fmt: skip
_YES = frozenset(("yes", "active", "true", "enabled", "1"))
_NO = frozenset(("no", "not active", "false", "disabled", "0"))


def why_absent(text: str) -> Why | None:
    """Return why `text` is no value, or None where it may be one."""
    word = text.strip(" []").lower()
    if any(lost in word for lost in _LOST):
        return Why.LOST
    if _DENIED in word:
        return Why.NOT_PERMITTED
    absent = word in _ABSENT or "deprecated" in word or _RESET in word
    return Why.NOT_SUPPORTED if absent else None


def number(text: str, unit: str) -> float | Why:
    """Return a count or a size in `unit`; why not, where the text holds none.

    All bits set is how a driver says "unknown"; only a temperature may be negative.
    """
    if (why := why_absent(text)) is not None:
        return why
    match = _NUMBER.match(text.strip())
    if match is None:
        return Why.NO_READING
    value = float(match[1])
    wrapped = UINT32 - SMALL <= value < UINT32 or value >= UINT64 - SMALL
    if wrapped or (value < 0 and unit != "C"):
        return Why.NO_READING
    if unit == "MiB":
        value *= _FACTORS.get((match[2] or "MiB").upper(), 1.0)
    return value


class _Out:
    """Measurements, missing values and events of one GPU."""

    def __init__(self, kind: str, subject: str, values: Mapping[str, str]) -> None:
        self.kind, self.subject = kind, subject
        # What is said of MIG devices is not said of the GPU.
        self.values = {k: v for k, v in values.items() if not k.startswith(("mig_dev", "process"))}
        self.measurements: list[Measurement] = []
        self.missing: list[Missing] = []
        self.events: list[Event] = []

    def found(self, pattern: str) -> list[tuple[str, str]]:
        whole = re.compile(f"(?:{pattern})\\Z")
        return [(path, value) for path, value in self.values.items() if whole.match(path)]

    def add(self, metric: str, value: Value, unit: str) -> None:
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        self.measurements.append(Measurement(self.kind, self.subject, metric, value, unit))

    def lack(self, metric: str, why: Why, said: str) -> None:
        reason = f"nvidia-smi says {plain(said, 60)!r}"
        self.missing.append(Missing(self.kind, self.subject, metric, why, reason))

    def counts(self) -> None:
        for metric, unit, pattern in _COUNTS:
            found = [(number(value, unit), value) for _, value in self.found(pattern)]
            numbers = [n for n, _ in found if not isinstance(n, Why)]
            if numbers:
                self.add(metric, sum(numbers), unit)
            elif found and isinstance(why := found[0][0], Why):
                self.lack(metric, why, found[0][1])

    def flags(self) -> None:
        for metric, pattern in _FLAGS:
            words = [value.strip().lower() for _, value in self.found(pattern)]
            if any(word in _YES for word in words):
                self.add(metric, 1, "flag")
            elif any(word in _NO for word in words):
                self.add(metric, 0, "flag")
            elif words:
                self.lack(metric, why_absent(words[0]) or Why.NO_READING, words[0])
        for code, pattern in _SIGNS:
            for _, value in self.found(pattern):
                if value.strip().lower() in _YES:
                    self.events.append(Event(self.subject, code, plain(value), clock="none"))

    def texts(self) -> None:
        for metric, pattern in _TEXTS:
            for _, value in self.found(pattern)[:1]:
                if (why := why_absent(value)) is not None:
                    self.lack(metric, why, value)
                else:
                    self.add(metric, plain(value, 80), "text")

    def recovery(self) -> None:
        """The driver's directive, in the newer layout by name and in the older by two flags."""
        for _, value in self.found(r"gpu_recovery_action"):
            word = value.strip().lower()
            if word in _ACTIONS:
                self.add("recovery.action", _ACTIONS[word], "text")
            elif (why := why_absent(value)) is not None:
                self.lack("recovery.action", why, value)
            else:
                self.add("recovery.action", plain(word, 40), "text")
        for pattern, action in ((r"gpu_reset_status/reset_required", "reset"),
                                (r"gpu_reset_status/drain_and_reset_recommended",
                                 "drain-and-reset")):  # fmt: skip
            if any(value.strip().lower() in _YES for _, value in self.found(pattern)):
                self.add("recovery.action", action, "text")

    def thermal(self) -> None:
        """The distance to the slowdown: below its offset with T.Limit, else by subtraction."""

        def one(pattern: str) -> float | None:
            numbers = [number(value, "C") for _, value in self.found(pattern)]
            return next((n for n in numbers if not isinstance(n, Why)), None)

        limit = one(r"temperature/gpu_(?:temp_tlimit|t_limit_temp)")
        offset = one(r"temperature/gpu_(?:temp_slow_tlimit_threshold|slowdown_t_limit_temp)")
        slow = one(r"temperature/gpu_(?:temp_slow_threshold|slowdown_temp)")
        now = one(r"temperature/gpu_(?:current_)?temp")
        if limit is not None and offset is not None:
            self.add("thermal.margin", limit - offset, "C")
        elif now is not None and slow is not None:
            self.add("thermal.margin", slow - now, "C")

    def pcie(self) -> None:
        """The PCIe generation counts only under load: an idle link rests at Gen 1."""
        current = self.found(r"pci/\w*gpu_link_info/pcie_gen(?:eration)?/current(?:_link_gen)?")
        state = " ".join(value for _, value in self.found("performance_state"))
        resting = self.found(_REASONS + r"(?:gpu_)?idle")
        idle = any(value.strip().lower() == "active" for _, value in resting)
        busy = [number(value, "%") for _, value in self.found(r"utilization/gpu(?:_util)?")]
        loaded = any(not isinstance(b, Why) and b > 0 for b in busy)
        if current and loaded and not idle and state.strip() == "P0":
            value = number(current[0][1], "gen")
            if not isinstance(value, Why):
                self.add("pcie.gen", value, "gen")

    def signs(self) -> None:
        for code, pattern in _ECC_KINDS:
            counts = [number(value, "errors") for _, value in self.found(pattern)]
            total = sum(int(c) for c in counts if not isinstance(c, Why))
            if total:
                text = f"{total} uncorrected since the driver was loaded"
                self.events.append(
                    Event(self.subject, code, text, clock="none", detail={"count": total})
                )
        lost = [k for k, v in self.values.items() if why_absent(v) is Why.LOST]
        if lost:
            # One cell that cannot be read is a sensor's; a lost GPU says so, or answers nothing.
            clear = next((k for k in lost if _CLEAR in self.values[k].lower()), None)
            code = "smi.lost" if clear or len(lost) >= _MANY_LOST else "smi.unread"
            name = clear or lost[0]
            text = f"{name}: {plain(self.values[name], 80)}"
            detail = {"count": len(lost), "fields": len(self.values)}
            self.events.append(Event(self.subject, code, text, clock="none", detail=detail))
        if any(_RESET in v.lower() for v in self.values.values()):
            text = "the driver says that the GPU requires reset"
            self.events.append(Event(self.subject, "smi.needs-reset", text, clock="none"))


def _fabric(out: _Out) -> None:
    cluster, clique = out.found(r"fabric/cluster_?uuid"), out.found(r"fabric/clique_?id")
    if cluster and why_absent(cluster[0][1]) is None:
        number_of = f" clique {clique[0][1]}" if clique else ""
        out.add("fabric.clique", plain(cluster[0][1] + number_of, 80), "text")
    for _, value in out.found(r"fabric/health/bandwidth"):
        if value.strip().lower() == "degraded":
            out.events.append(Event(out.subject, "smi.fabric.bandwidth", "degraded", clock="none"))
    for _, value in out.found(r"fabric/health/incorrect_configuration"):
        if why_absent(value) is None and value.strip().lower() not in _NO:
            text = plain(value, 80)
            out.events.append(Event(out.subject, "smi.fabric.configuration", text, clock="none"))


def measure(kind: str, subject: str, gpu: GpuFields) -> _Out:
    """Return what one GPU's fields say, as metrics and events of `subject`."""
    out = _Out(kind, subject, gpu.values)
    out.counts()
    out.flags()
    out.texts()
    out.recovery()
    out.thermal()
    out.pcie()
    out.signs()
    _fabric(out)
    return out


def subjects(gpus: Sequence[GpuFields]) -> list[str]:
    """Return each GPU's subject: its address, else ``gpuN`` by its place in the file."""
    return [gpu.address or f"gpu{index}" for index, gpu in enumerate(gpus)]


def address_of(text: str, values: Mapping[str, str]) -> str | None:
    """Return the ``pci:`` subject that a block's title or its PCI section gives, else None."""
    for candidate in (text, values.get("pci/bus_id", ""), values.get("pci/pci_bus_id", "")):
        if found := pci(candidate):
            return found
    return None
