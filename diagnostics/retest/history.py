"""What a serial number's past holds: earlier cases of the same part, wherever it sat.

In: when cases came, by serial number, from files and from earlier runs. Out: for a case how many
came before it and in what time, as Signs wants it. A part with no serial number has no known past.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rackproof.diagnostics.diagnosis import Diagnosis

HOUR = 3600.0
MONTH = 720.0
"""Hours that are taken to have been looked at, at the least: logs and runs are kept for a month."""
Told = tuple[str | None, float | None, str]
"""A case: the part's serial number, seconds since 1970, who told of it (a run, a file's case)."""
_Past = tuple[int, float]


def told_by(diagnoses: Iterable[Diagnosis], today: str, teller: str) -> list[Told]:
    """Return what the roots of a run, which began on the ISO date `today`, tell of their parts."""
    at = datetime.fromisoformat(today).replace(tzinfo=UTC).timestamp()
    serials = {each.serial for each in diagnoses if each.role == "root" and each.serial}
    return [(serial, at, teller) for serial in sorted(serials)]


@dataclass(frozen=True, slots=True)
class Ledger:
    """When cases of each serial number came, and who told of them."""

    times: Mapping[str, tuple[tuple[float, str], ...]]

    @classmethod
    def of(cls, told: Iterable[Told]) -> "Ledger":
        """Note each case; one without a serial number or a time cannot be placed."""
        times: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for serial, at, teller in told:
            if serial and at is not None:
                times[serial].append((at, teller))
        return cls({serial: tuple(sorted(row)) for serial, row in times.items()})

    def before(self, one: Told) -> _Past | None:
        """Return (earlier cases, hours) that others told, more than an hour before; None: none."""
        serial, at, teller = one
        if not serial or at is None:
            return None
        earlier = [
            when for when, who in self.times.get(serial, ()) if who != teller and when < at - HOUR
        ]
        return (len(earlier), max(MONTH, (at - earlier[0]) / HOUR)) if earlier else None

    def pasts(self, own: Iterable[Told]) -> dict[str, _Past]:
        """Return the past of each serial number of `own` that has one."""
        found = {one[0]: past for one in own if one[0] and (past := self.before(one))}
        return dict(sorted(found.items()))
