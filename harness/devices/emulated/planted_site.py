"""The faults of what stands around the GPUs: supplies of a shelf, NICs, and the coolant.

In: a Fault and the part of the facility that it is on. Out: a changed part, and a count of how
often that was felt. A kind that GPUs feel as well (coolant-loss) has its other half among theirs.
"""

from collections.abc import Mapping
from typing import TypeVar

from rackproof.harness.devices.emulated.facility import Cooling, Nic, Part, Shelf
from rackproof.harness.devices.emulated.strikes import AnyStrike, Plan, SiteKind
from rackproof.harness.faults import Fault

P = TypeVar("P", bound=Part)


def _as(sort: type[P], part: Part) -> P:
    """Return the part as one of its sort; the grammar of faults lets no other come here."""
    if not isinstance(part, sort):
        msg = f"{part.subject} is no {sort.__name__}"
        raise TypeError(msg)
    return part


class PsuLoss(AnyStrike):
    """psu-loss: one supply gives nothing; the others of the rack carry its load."""

    def __init__(self, part: Part, fault: Fault, plan: Plan) -> None:
        super().__init__(part, fault, plan)
        self._shelf = _as(Shelf, part)

    def on(self) -> None:
        """Take a supply away."""
        self._shelf.bad += 1

    def off(self) -> None:
        """Give it back."""
        self._shelf.bad -= 1

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that looks at the shelf: all that it says has changed."""
        del metric, link
        self.count_run()


class NicFlap(AnyStrike):
    """nic-flap: once in each run that it strikes in, the carrier drops and comes back."""

    def __init__(self, part: Part, fault: Fault, plan: Plan) -> None:
        super().__init__(part, fault, plan)
        self._nic = _as(Nic, part)
        self._in_run = False
        self._dropped = False

    def begin(self, check: str, attempt: int) -> None:
        """Be ready to strike once."""
        self._in_run, self._dropped = True, False
        super().begin(check, attempt)

    def end(self) -> None:
        """Strike no more until the next run."""
        self._in_run = False
        super().end()

    def worked(self, seconds: float, utilisation: float) -> None:
        """Drop the carrier while time passes in a run."""
        del utilisation
        if seconds > 0.0 and self._in_run and not self._dropped:
            self._dropped = True
            self._nic.flaps += 1

    def read(self, metric: str, link: int | None) -> None:
        """Count a run that reads the counter after the drop, also where the fault is over."""
        del link
        if self._dropped and metric == "nic.flaps":
            self.count_run()


class CoolantLoss(AnyStrike):
    """coolant-loss, as the cooling's own controller sees it: no flow, and pumps that stand."""

    def __init__(self, part: Part, fault: Fault, plan: Plan) -> None:
        super().__init__(part, fault, plan)
        self._cooling = _as(Cooling, part)

    def on(self) -> None:
        """Stop the coolant."""
        self._cooling.stop()

    def off(self) -> None:
        """Let it flow."""
        self._cooling.start()

    def asked(self, metric: str, link: int | None) -> None:
        """Count a run that reads of it."""
        del link
        if metric in {"cooling.health", "cooling.pumps.bad", "cooling.flow"}:
            self.count_run()


KINDS: Mapping[str, SiteKind] = {
    "psu-loss": PsuLoss,
    "nic-flap": NicFlap,
    "coolant-loss": CoolantLoss,
}
