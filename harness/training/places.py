"""The members of a run as the coordinator has them: who sits in which slot, who waits, who is gone.

In: hellos and ends of connections. Out: participants in the order of slots, spares that wait. A
slot is a place in the run that outlives who sits in it; a process that was put out is never let in
again (`fenced`), a new process of the same name is.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.training import wire
from rackproof.harness.training.roster import Roster, Seat

OUT, WAITING, JOINING, ACTIVE = "out", "waiting", "joining", "active"


@dataclass(slots=True)
class Place:
    """One member: its connection, its state, and what it said when it came."""

    seat: Seat
    state: str = OUT
    line: wire.Line | None = None
    last: float = 0.0
    pid: int = 0
    hello: Mapping[str, Any] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    sent: float = 0.0
    spent: float = 0.0
    count: int = 0

    @property
    def name(self) -> str:
        """The member's name."""
        return self.seat.name

    @property
    def step(self) -> int:
        """The step that its state was at when it came, -1 for none."""
        value = self.hello.get("step")
        return value if isinstance(value, int) else -1


class Places:
    """All members by name, and the slots of the run."""

    def __init__(self, roster: Roster, absent: Sequence[str] = ()) -> None:
        """Begin with replicas in the slots; `absent` are members that are known to be gone."""
        self.all = {seat.name: Place(seat) for seat in roster.seats}
        names = [seat.name for seat in roster.seats if seat.role == "replica"]
        self.slots: list[str] = names
        self.absent = set(absent)

    def greet(self, hello: Mapping[str, Any], line: wire.Line, now: float) -> Place | None:
        """Seat who says hello; None for a stranger, or for a process that was put out."""
        place = self.all.get(str(hello.get("name")))
        pid = hello.get("pid")
        if place is None or not isinstance(pid, int) or pid in place.fenced:
            return None
        place.line, place.last, place.pid, place.hello = line, now, pid, hello
        place.state = WAITING
        self.absent.discard(place.name)
        return place

    def named(self, *states: str) -> list[Place]:
        """Return the members in some states: in the order of slots, then of the roster."""
        order = [*self.slots, *(name for name in self.all if name not in self.slots)]
        return [self.all[name] for name in order if self.all[name].state in states]

    @property
    def active(self) -> list[Place]:
        """Who takes part, in the order of slots."""
        return self.named(ACTIVE)

    @property
    def awaited(self) -> list[str]:
        """Who has not come yet and is not known to be gone."""
        return [n for n, p in self.all.items() if p.state == OUT and n not in self.absent]

    def vacant(self) -> list[str]:
        """Return who sits in a slot and is out, in order."""
        return [name for name in self.slots if self.all[name].state == OUT]

    def seat(self, spare: str, instead: str) -> None:
        """Put a spare in a slot; who sat there loses it."""
        if spare in self.slots:
            return
        self.slots[self.slots.index(instead)] = spare

    def drop(self, place: Place, *, fence: bool) -> None:
        """A member is out; `fence`: its process is not let in again."""
        if place.line is not None:
            place.line.socket.close()
        if fence and place.pid:
            place.fenced.add(place.pid)
        place.line, place.state = None, OUT
        self.absent.add(place.name)


def of_socket(places: Places, connection: socket.socket) -> Place | None:
    """Return whose connection it is."""
    for place in places.all.values():
        if place.line is not None and place.line.socket is connection:
            return place
    return None
