"""What is known of each node of a Slurm cluster: its last state, and the reason given for it.

Lines of tables and logs come in, events at ``host:NAME`` go out, one a node and code.
"""

from dataclasses import dataclass

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.hostlist import hosts
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.slurm_notes import code_of

KIND = "slurm"
MOST = 20_000
# What a state's ending means: sinfo(1), NODE STATE CODES.
_SUFFIXES = "*~#!%$@^-+"


@dataclass(slots=True)
class _Node:
    state: str = ""
    reason: str = ""
    at: float | None = None
    line: int = 0
    silent: bool = False
    said: bool = False


class Nodes:
    """The nodes met so far."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._nodes: dict[str, _Node] = {}
        self._told: dict[tuple[str, str], Event] = {}
        self._more = 0
        self._homes: set[str] = set()

    def count(self) -> int:
        """Return how many nodes were told of, those of too long a list with them."""
        return len(self._nodes) + self._more

    def _of(self, listed: str) -> list[tuple[str, _Node]]:
        names, more = hosts(listed)
        if more and not self._more:
            self.problems.append(f"a list names {more} nodes more than are looked at")
        self._more += more
        kept = [name for name in names if name in self._nodes or len(self._nodes) < MOST]
        return [(name, self._nodes.setdefault(name, _Node())) for name in kept]

    def note(self, listed: str, reason: str, at: float | None, line: int) -> None:
        """Take in a reason for some nodes."""
        for _, node in self._of(listed):
            if reason:
                node.reason, node.at, node.line = reason, at, line

    def state(self, listed: str, state: str, line: int) -> None:
        """Take in a state of some nodes, such as ``DOWN*+DRAIN`` or ``drain*``."""
        for _, node in self._of(listed):
            node.silent = "*" in state or "NOT_RESPONDING" in state.upper()
            node.state = state.lower().rstrip(_SUFFIXES)
            node.line = node.line or line

    def speaks(self, listed: str) -> None:
        """Take in that nodes answer again."""
        for _, node in self._of(listed):
            node.silent = False
            if code_of(node.reason) == "slurm.silent":
                node.reason = ""

    def lives(self, name: str) -> None:
        """Take in on which node a daemon's own log was written."""
        self._homes.add(name)

    def home(self) -> str | None:
        """Return the only node that is told of, or on which the log was written."""
        names = self._homes or set(self._nodes)
        return next(iter(names)) if len(names) == 1 and not self._more else None

    def own(self, event: Event) -> None:
        """Take in what a node's own log says, which names no node; the same again is counted."""
        key = (event.subject, event.code)
        first = self._told.get(key, event)
        if not event.code or (first is event and len(self._told) >= MOST):
            return
        count = 1 + (int(first.detail.get("count", 1)) if first is not event else 0)
        detail = dict(first.detail) | {"count": count}
        if event.at is not None:
            detail["last"] = event.at
        self._told[key] = Event(
            first.subject, first.code, first.text, first.at, first.clock, detail
        )

    def measured(self) -> list[Measurement]:
        """Return each node's state: so that it is known that there are several nodes."""
        return [
            Measurement(
                KIND, f"host:{name}", "node.state", plain(node.state or "not told", 60), "text"
            )
            for name, node in self._nodes.items()
        ]

    def _code(self, node: _Node) -> str:
        words = set(node.state.replace("*", "").split("+"))
        code = code_of(node.reason)
        if not code and node.reason.strip().lower() not in ("", "none"):
            return ""  # planned
        if code:
            return code
        if node.silent:
            return "slurm.silent"
        if words & {"down", "error"}:
            return "slurm.down"
        if words & {"fail", "failing", "failg"}:
            return "slurm.note.unknown"
        drained = words & {"drain", "drained", "draining", "drng"}
        return (
            "slurm.note.unknown" if drained and not words & {"maint", "planned", "reserved"} else ""
        )

    def events(self) -> list[Event]:
        """Return what stands at the end, node by node, and what a log said on the way."""
        found = []
        for name, node in self._nodes.items():
            if code := self._code(node):
                words = plain(node.reason or f"state {node.state}")
                clock = "epoch" if node.at is not None else "none"
                detail = {"line": node.line}
                found.append(Event(f"host:{name}", code, words, node.at, clock, detail))
        return [*found, *self._told.values()]
