"""A Reading from the reports of nvidia-smi, text or XML: counts compared, names given.

What the head promises is held against what follows: eight attached GPUs and one block means that
nothing may be said of the other seven.
"""

import re
from collections.abc import Sequence

from rackproof.harness.model import Event, Measurement, Missing
from rackproof.harness.readers.reading import Reading
from rackproof.harness.readers.smi_fields import Report, measure, number, subjects, why_absent
from rackproof.harness.readers.source import Source

_ZEROS = re.compile(r"[0\-]*\Z")


def identity(value: str) -> str | None:
    """Return a serial number or UUID, or None where the field holds a stand-in."""
    bare = value.strip().removeprefix("GPU-")
    if why_absent(value) or _ZEROS.match(bare) or not re.fullmatch(r"[\w\-]{4,64}", bare):
        return None
    return value.strip() if any(c.isdigit() for c in bare) else None


def promised(report: Report) -> int | None:
    """Return how many GPUs the head says are attached, or None."""
    value = number(report.head.get("attached_gpus", ""), "gpus")
    return int(value) if isinstance(value, float) else None


def reading(kind: str, source: Source, reports: Sequence[Report], problems: list[str]) -> Reading:
    """Return the Reading of all reports in one file."""
    measurements: list[Measurement] = []
    missing: list[Missing] = []
    events: list[Event] = []
    aliases: dict[str, str] = {}
    serials: dict[str, str] = {}
    uuids: dict[str, str] = {}
    records, cut = 0, source.cut
    for report in reports:
        wanted, here = promised(report), len(report.gpus)
        if wanted is not None and wanted != here:
            problems.append(f"the head says {wanted} attached GPUs, and {here} follow")
            cut = True
        cut |= not report.whole
        records += here
        pairs = zip(subjects(report.gpus), report.gpus, strict=True)
        for index, (subject, gpu) in enumerate(pairs):
            out = measure(kind, subject, gpu)
            measurements += out.measurements
            missing += out.missing
            events += out.events
            if gpu.address and wanted == here:
                aliases[f"gpu{index}"] = gpu.address
            for field, found in (("serial", serials), ("serial_number", serials),
                                 ("uuid", uuids), ("gpu_uuid", uuids)):  # fmt: skip
                if known := identity(gpu.values.get(field, "")):
                    found[subject] = known
        version = report.head.get("driver_version", "")
        if version and not why_absent(version.split(" [")[0]):
            name = version.split(" [")[0][:40]
            measurements.append(Measurement(kind, "host", "driver.version", name, "text"))
    if not records and not problems:
        problems.append("no GPU in it")
    return Reading(
        source.path, kind, records, (*source.problems, *problems), tuple(events),
        tuple(measurements), tuple(missing), cut, bool(records), aliases, serials, uuids,
    )  # fmt: skip
