"""What a policy works with: the cases of an incident, a bench that answers retests, conclusions.

A Scene holds what the product's own path made of the Readings; a Bench runs retests and adds up
what they cost. Neither shows the truth or the seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.evaluation.answers import Answers
from rackproof.diagnostics.evaluation.losses import loss
from rackproof.diagnostics.evaluation.truth import Place, Site
from rackproof.diagnostics.retest.model import Cause, Outcome, Test


@dataclass(frozen=True, slots=True)
class Scene:
    """One incident as a policy sees it: cases, the site, and earlier cases by place in `hours`."""

    cases: Sequence[Case]
    site: Site
    earlier: Mapping[Place, int]
    hours: float

    def place(self, case: Case) -> Place:
        """Return where a case has its root; a lone machine gets its name back."""
        if case.subject == "fabric":
            return "", "fabric"
        return case.machine or self.site.hosts[0], case.subject


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a policy makes of one case, in the contract's words; `belief` where it has one."""

    place: Place
    component: str
    persistence: str
    action: str
    belief: Mapping[Cause, float] | None = None


class Bench:
    """Runs retests, within a budget of device seconds, and charges each in GPU-hours."""

    def __init__(self, answers: Answers, site: Site) -> None:
        self._answers, self._gpus = answers, len(site.gpus)
        self.hours, self.asked = 0.0, 0
        self.left = loss("test", "budget_hours") * 3600.0

    def run(self, place: Place, test: Test, runs: int) -> Outcome:
        """Run a retest at a place."""
        self.asked += 1
        self.hours += self._cost(test, runs)
        return self._answers(place, test, runs)

    def _cost(self, test: Test, runs: int) -> float:
        """Return GPU-hours: of the GPU alone, of its node for a reboot, of two for a swap."""
        burn = runs * loss("test", "burn_hours")
        if test is Test.RESET:
            return burn + loss("test", "reset_hours")
        if test is Test.REBOOT:
            return burn + self._gpus * loss("test", "reboot_hours")
        if test is Test.SWAP:
            return 2 * burn + 2 * self._gpus * loss("test", "swap_hours")
        return burn

    @property
    def stuck(self) -> bool:
        """Whether the incident still waits for a reset: read by the score alone."""
        return self._answers.stuck

    @property
    def cured(self) -> bool:
        """Whether a retest has cured it on the way: read by the score alone."""
        return self._answers.cured
