"""The lines of an incident before they are lost or late: what each machine would write.

A Script is filled by sorts.py in the words of the driver and of the kernel, and read by log.py. A
line carries its message and what a reader of kernel logs makes of it; the tests hold both together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rackproof.diagnostics.evaluation.truth import Place, Site, subject

Detail = Mapping[str, str | int | float]
NOBODY = "pid='<unknown>', name=<unknown>"


@dataclass(frozen=True, slots=True)
class Line:
    """One message: seconds after the incident's begin, host, subject, code, detail."""

    after: float
    host: str
    subject: str
    code: str
    message: str
    detail: Detail = field(default_factory=dict)


@dataclass(slots=True)
class Script:
    """What is written, in no order. `start` moves what is added next.

    `tools` holds what no log of the machine says: (place, code) of a burn or of the job itself.
    """

    site: Site
    rng: np.random.Generator
    start: float = 0.0
    lines: list[Line] = field(default_factory=list)
    tools: list[tuple[Place, str]] = field(default_factory=list)

    def add(self, place: Place, code: str, message: str, detail: Detail | None = None) -> None:
        """Write a line within two seconds of `start`, after what was written before."""
        self.start += float(self.rng.uniform(0.0, 0.1))
        host, subject = place
        self.lines.append(Line(self.start, host, subject, code, message, detail or {}))

    def xid(self, place: Place, code: int, said: str, detail: Detail | None = None) -> None:
        """Write one Xid of a GPU."""
        address = place[1].removeprefix("pci:").removesuffix(".0")
        self.add(place, f"xid.{code}", f"NVRM: Xid (PCI:{address}): {code}, {said}", detail)

    def process(self) -> tuple[str, dict[str, int]]:
        """Return a process of a job as the driver writes it, and its detail."""
        pid = int(self.rng.integers(2000, 400000))
        return f"pid={pid}, name=python3", {"pid": pid}

    def removed(self, place: Place, cause: int | None = None) -> None:
        """Write the channels that are taken down with a fault: one to three Xid 45."""
        for _ in range(int(self.rng.integers(1, 4))):
            who, detail = self.process()
            said = f"{who}, Ch {int(self.rng.integers(1, 64)):08x}"
            if cause is not None:
                said += f", caused by previous Xid {cause}"
                detail["cause"] = cause
            self.xid(place, 45, said, detail)

    def directive(self, place: Place, action: int, share: float = 0.6) -> None:
        """Write Xid 154, as newer drivers do: 1 asks for a reset, 2 for a reboot."""
        if self.rng.random() < share:
            words = {1: "GPU Reset Required", 2: "Node Reboot Required"}[action]
            said = f"GPU recovery action changed from 0x0 (None) to 0x{action:x} ({words})"
            self.xid(place, 154, said, {"action": action})

    def unit(self, place: Place, code: int, name: str, figures: tuple[str, int, int, int]) -> None:
        """Write an NVLink 5 Xid; `figures` are severity, link, first register and status."""
        severity, link, register, status = figures
        said = f"{name} {severity} XC0 i0 Link {link:02d} (0x{register:08x} 0x{status:08x})"
        level = "non-fatal" if severity == "Nonfatal" else "fatal"
        detail: Detail = {"unit": name, "severity": level, "register": register, "status": status}
        self.xid(place, code, said, {**detail, "link": link})

    def peers(self, home: Place, many: int) -> list[Place]:
        """Return up to `many` other GPUs of the NVLink domain, drawn."""
        everyone = [(h, subject(gpu)) for h in self.site.hosts for gpu in self.site.gpus]
        others = [place for place in everyone if place != home]
        order = self.rng.permutation(len(others))[:many]
        return [others[int(i)] for i in order]
