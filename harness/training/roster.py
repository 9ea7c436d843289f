"""What the processes of a training run share: a folder, and in it the file run.json.

In: a Plan, and who takes part. Out: paths, and the tiers of each member. A member's own node is
``{node}`` in a tier's URL, its peer's (in another failure domain) ``{peer}``, the run's folder
``{run}``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.training.plan import Plan

FILE, ADDRESS = "run.json", "coordinator.json"
DEFAULT_TIERS = ("T1={run}/checkpoints",)


@dataclass(frozen=True, slots=True)
class Seat:
    """A member of the run: a replica, or a hot spare; `subject` is its GPU in the rack."""

    name: str
    role: str
    region: str = "region0"
    subject: str = ""
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Roster:
    """A run: its folder, plan and seats. `resume` says that the job goes on from a checkpoint."""

    folder: Path
    plan: Plan
    seats: tuple[Seat, ...]
    resume: bool = False
    commit: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, plan: Plan, placement: Mapping[str, str]) -> "Roster":
        """Return the roster of a plan: r0, r1, … and the spares s0, s1, …, dealt to the regions."""
        names = [(f"r{n}", "replica") for n in range(plan.replicas)]
        names += [(f"s{n}", "spare") for n in range(plan.spares)]
        seats = []
        for number, (name, role) in enumerate(names):
            turn = number if role == "replica" else number - plan.replicas
            region = plan.regions[turn % len(plan.regions)]
            subject = placement.get(name, "")
            domain = "/".join(subject.split("/")[:2]) or name
            seats.append(Seat(name, role, region, subject, domain))
        return cls(folder, plan, tuple(seats))

    def seat(self, name: str) -> Seat:
        """Return a seat by its name; a DrillError for none."""
        for seat in self.seats:
            if seat.name == name:
                return seat
        msg = f"{name} takes no part in this run: {', '.join(s.name for s in self.seats)} do"
        raise DrillError(msg)

    def peer(self, name: str) -> str:
        """Return the next member in another failure domain, or the member itself."""
        names = [seat.name for seat in self.seats]
        start, own = names.index(name), self.seat(name).domain
        turned = self.seats[start + 1 :] + self.seats[:start]
        return next((seat.name for seat in turned if seat.domain != own), name)

    def tiers(self, name: str) -> list[str]:
        """Return the checkpoint tiers, as ``NAME=URL``, to which a member writes."""
        words = {"run": str(self.folder), "node": name, "peer": self.peer(name)}
        return [_filled(text, words) for text in self.plan.tiers or DEFAULT_TIERS]

    def all_tiers(self) -> list[str]:
        """Return every member's tiers, once each: where a restore looks."""
        return list(dict.fromkeys(text for seat in self.seats for text in self.tiers(seat.name)))

    def save(self) -> None:
        """Write run.json."""
        body = {
            "plan": self.plan.as_json(),
            "seats": [
                {name: getattr(seat, name) for name in Seat.__dataclass_fields__}
                for seat in self.seats
            ],
            "resume": self.resume,
            "commit": dict(self.commit),
        }
        write_whole(self.folder / FILE, body)

    @classmethod
    def load(cls, folder: Path) -> "Roster":
        """Read run.json; a DrillError where it is none."""
        try:
            body = json.loads((folder / FILE).read_text("utf-8"))
            seats = tuple(Seat(**seat) for seat in body["seats"])
            plan = Plan.read(body["plan"])
            return cls(folder, plan, seats, bool(body["resume"]), body["commit"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{folder / FILE}: is no training run ({error})"
            raise DrillError(msg) from error


def _filled(text: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def write_whole(path: Path, body: Mapping[str, Any]) -> None:
    """Write JSON so that no reader ever sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(body, indent=1), "utf-8")
    temporary.replace(path)
