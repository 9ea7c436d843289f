"""nvidia-smi -q in all drivers' layouts, whole or as grep left it (``--`` between the parts).

Sections are told by indentation alone, so a new one needs no new code. A part without a GPU's line
belongs to ``gpuN`` by its place in the file. ``nvidia-smi -L`` tells names and UUIDs alone.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.places import ADDRESS, pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_fields import GpuFields, Report, address_of, slug
from rackproof.harness.readers.smi_report import identity, reading
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-q"
LIMIT = 64 << 20
LINE_LIMIT, VALUE_LIMIT = 512, 256
_GPU = re.compile(r"GPU (" + ADDRESS + r")\s*\Z")
_BANNER = re.compile(r"=+ ?NVSMI LOG ?=+")
_HEAD = frozenset("timestamp driver_version cuda_version attached_gpus kmd_version "
                  "cuda_umd_version".split())  # fmt: skip
_GONE = re.compile(
    r"Unable to determine the device handle for (?:GPU ?|gpu )?(" + ADDRESS + r"): (.{1,120})"
)
_LISTED = re.compile(r"GPU (\d{1,4}): (.{1,120}?) \(UUID: (GPU-[0-9a-fA-F-]{8,64})\)\s*\Z")
_SLICE = re.compile(r"\s+MIG .{1,60} Device +\d{1,3}: \(UUID: MIG-.{1,80}\)\s*\Z")
# Sections and fields that every layout has had; a grep of any of them is recognised by them.
_KNOWN = frozenset(
    "product_name product_brand product_architecture persistence_mode mig_mode accounting_mode "
    "driver_model serial_number gpu_uuid minor_number vbios_version inforom_version pci bus_id "
    "gpu_link_info pcie_generation link_width replays_since_reset performance_state "
    "clocks_throttle_reasons clocks_event_reasons hw_slowdown hw_thermal_slowdown "
    "hw_power_brake_slowdown sw_thermal_slowdown sw_power_cap fb_memory_usage bar1_memory_usage "
    "compute_mode ecc_mode ecc_errors volatile aggregate sram_correctable sram_uncorrectable "
    "dram_correctable dram_uncorrectable sram_uncorrectable_parity sram_uncorrectable_sec_ded "
    "retired_pages single_bit_ecc double_bit_ecc pending_page_blacklist remapped_rows "
    "correctable_error uncorrectable_error remapping_failure_occurred "
    "bank_remap_availability_histogram gpu_current_temp gpu_shutdown_temp gpu_slowdown_temp "
    "gpu_t_limit_temp gpu_power_readings power_readings fabric cliqueid clusteruuid health "
    "state status summary bandwidth gpu_recovery_action gpu_reset_status reset_required "
    "drain_and_reset_recommended attached_gpus sram_threshold_exceeded".split()
)
_FEW_KNOWN = 2


def _field(line: str) -> tuple[int, str, str | None] | None:
    """Return (indentation, name, value or None for a section), or None for a line of neither."""
    line = line.rstrip()[:LINE_LIMIT]
    bare = line.lstrip(" \t")
    if not bare:
        return None
    depth = len(line[: len(line) - len(bare)].expandtabs(8))
    name, colon, value = bare.partition(" :")
    if colon and (not value or value[0] in " \t"):
        return depth, name.strip(), value.strip()[:VALUE_LIMIT]
    return depth, bare, None


def _is_list(lines: Sequence[str]) -> bool:
    """Whether each line is one of ``nvidia-smi -L``; a report of links has others between them."""
    listed = any(_LISTED.match(line) for line in lines)
    return listed and all(
        _LISTED.match(line) or _SLICE.match(line) or _GONE.search(line) for line in lines
    )


def _list(source: Source, lines: Sequence[str]) -> Reading:
    """Read the list of ``nvidia-smi -L``: what each GPU is called, and no word of how it is."""
    found = [match for line in lines if (match := _LISTED.match(line))]
    names = tuple(
        Measurement(KIND, f"gpu{int(match[1])}", "gpu.name", plain(match[2], 80), "text")
        for match in found
    )
    gone = tuple(
        Event(subject, "smi.lost", plain(line), clock="none", detail={"line": number})
        for number, line in enumerate(lines, start=1)
        if (match := _GONE.search(line)) and (subject := pci(match[1]))
    )
    return Reading(
        source.path, KIND, len(found), tuple(source.problems), gone, names, cut=source.cut,
        uuids={f"gpu{int(m[1])}": uuid for m in found if (uuid := identity(m[3]))},
    )  # fmt: skip


def likeness(head: bytes) -> float:
    """Return in 0..1 how much of the head is in nvidia-smi -q's words."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:400] if line.strip()]
    if any(_BANNER.match(line) for line in lines[:40]):
        return 0.95
    if _is_list(lines):
        return 0.9
    lines = [line for line in lines if line.strip() != "--"]
    if len(lines) == 1 and _GONE.search(lines[0]):
        return 0.9
    known = [slug(f[1]) for f in map(_field, lines) if f and slug(f[1]) in _KNOWN]
    fields = sum(" :" in line for line in lines)
    if len(set(known)) < _FEW_KNOWN or fields < _FEW_KNOWN:
        return 0.0
    return min(0.9, len(known) / len(lines))


class _Text:
    """The walk over the lines: reports, the GPU that a line belongs to, the stack of sections."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.events: list[Event] = []
        self._stack: list[tuple[int, str]] = []
        self._gpu: GpuFields | None = None
        self._anonymous = False
        self.number = 0  # of the line

    def _report(self) -> Report:
        if not self.reports:
            self.reports.append(Report())
        return self.reports[-1]

    def _begin(self, address: str | None) -> GpuFields:
        self._gpu = GpuFields(address)
        self._anonymous = address is None
        self._stack.clear()
        self._report().gpus.append(self._gpu)
        return self._gpu

    def line(self, line: str) -> None:
        """Take one line."""
        if _BANNER.match(line.strip()):
            self.reports.append(Report())
            self._gpu = None
        elif match := _GPU.match(line.strip()):
            self._begin(pci(match[1]))
        elif match := _GONE.search(line[:LINE_LIMIT]):
            subject = pci(match[1])
            if subject:
                self.events.append(Event(subject, "smi.lost", plain(line), clock="none",
                                         detail={"line": self.number}))  # fmt: skip
        elif line.strip() == "--":
            self._gpu = None if self._anonymous else self._gpu
            self._stack.clear()
        elif found := _field(line):
            self._take(*found)

    def _take(self, depth: int, name: str, value: str | None) -> None:
        key = slug(name)
        if key in _HEAD and self._gpu is None:
            self._report().head[key] = value or ""
            return
        while self._stack and self._stack[-1][0] >= depth:
            self._stack.pop()
        path = "/".join((*(part for _, part in self._stack), key))
        self._stack.append((depth, key))
        if value is None:
            return
        gpu = self._gpu
        if gpu is None or (self._anonymous and path in gpu.values):
            stack = list(self._stack)
            gpu = self._begin(None)
            self._stack = stack
        gpu.values.setdefault(path, value)


def _whole(report: Report) -> bool:
    """Whether the last block of a full report (one with product names) reaches its last section."""
    last = report.gpus[-1].values if report.gpus else {}
    return "product_name" not in last or any(k.startswith("process") for k in last)


def read(source: Source) -> Reading:
    """Read the text reports in a file, whole or in parts."""
    walk, problems = _Text(), []
    lines = source.whole(LIMIT).decode("utf-8", "replace").splitlines()
    if _is_list([line for line in lines if line.strip()]):
        return _list(source, lines)
    for number, line in enumerate(lines, start=1):
        walk.number = number
        walk.line(line)
    for report in walk.reports:
        for gpu in report.gpus:
            gpu.address = gpu.address or address_of("", gpu.values)
        if not _whole(report):
            report.whole = False
            problems.append("the last GPU's block breaks off")
    found = reading(KIND, source, walk.reports, problems)
    if walk.events:
        found = replace(found, events=(*found.events, *walk.events), worked=True,
                        records=max(found.records, len(walk.events)))  # fmt: skip
    return found


READER = Reader(KIND, "nvidia-smi -q, whole or in parts, and -L", likeness, read)
