"""A power record to judge: a drill in which all is as it should be, but for what a test changes."""

import functools
from dataclasses import dataclass, field

from rackproof.diagnostics.power import judge
from rackproof.diagnostics.power.record import read
from rackproof.diagnostics.recovery.claims import holds
from rackproof.diagnostics.recovery.record import Fact
from tests.diagnostics.power.plant import PARTS, drilled

ALL = (*(f"DD{number}" for number in range(1, 14)), "cooling")
RUN = ("reached", "restarts", "lost-steps", "fault-free", "final-state")


@functools.cache
def _held(parts):
    return drilled(*parts)


@dataclass
class Scene:
    """The facts of a power drill; `judge` judges the record that they make."""

    parts: tuple = tuple(PARTS)
    due: tuple = ALL
    bodies: list = field(default_factory=list)
    training: list = field(default_factory=lambda: [holds(name, "it holds") for name in RUN])
    steps: int = 0

    def __post_init__(self):
        bodies, self.steps = _held(self.parts)
        self.bodies = [copied(body) for body in bodies]

    def of(self, sort, **where):
        """Return the bodies of a sort that have some values, to be changed in place."""
        return [b for b in self.bodies if b["sort"] == sort and has(b, where)]

    def one(self, sort, **where):
        return self.of(sort, **where)[0]

    def drop(self, sort, **where):
        gone = self.of(sort, **where)
        assert gone, (sort, where)
        self.bodies = [b for b in self.bodies if not any(b is each for each in gone)]
        return self

    def change(self, sort, new, **where):
        found = self.of(sort, **where)
        assert found, (sort, where)
        for body in found:
            body.update(new)
        return self

    def add(self, sort, **fields):
        self.bodies.append({"sort": sort, **fields})
        return self

    def at(self, what, name=None):
        """Return when a drill did something first."""
        where = {"what": what, "run": "dimmed"} | ({"id": name} if name else {})
        return self.one("event", **where)["at"]

    def trace(self, feed, column, make, *, begin=0.0, end=1e9, run="dimmed"):
        """Put `make(value, at)` in place of each value of a column of a trace, within a time."""
        changed = 0
        for body in self.of("trace", feed=feed, run=run):
            which, _, store = column.partition(".")
            values = body[which][store] if store else body[which]
            for place, value in enumerate(values):
                at = body["from"] + body["every"] * (place + 1)
                if begin < at <= end + 1e-9:
                    values[place] = make(value, at)
                    changed += 1
        assert changed, (feed, column)
        return self

    @property
    def facts(self):
        return [Fact("power", body) for body in self.bodies]

    def judge(self):
        return judge.judge(read(self.facts), self.due, self.training, self.steps)

    def claims(self):
        return {claim.id.split()[0]: claim for claim in self.judge().claims}

    def verdicts(self):
        return {name: str(claim.verdict) for name, claim in self.claims().items()}

    def others(self, *fine):
        """Return the claims that are not PASS, beside some."""
        bad = {name: verdict for name, verdict in self.verdicts().items() if verdict != "PASS"}
        return {name: verdict for name, verdict in bad.items() if name not in fine}


def copied(value):
    """Return a copy all the way down; lists of plain numbers at once."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return value[:] if value and isinstance(value[0], float) else [copied(e) for e in value]
    return value


def has(body, where):
    return all(body.get(key) == value for key, value in where.items())
