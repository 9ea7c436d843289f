"""Three simpler policies, with the same cases, the same history and the same bench.

Each has a few variants; the report takes the one that did best in a world, with hindsight, which
favours them. Codes only: the code table's action at once. Three burns: what fails each time is
persistent. Lemons: a GPU is swapped at its k-th case in the window.
"""

from collections.abc import Mapping
from functools import partial

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.evaluation.bench import Bench, Conclusion, Scene
from rackproof.diagnostics.evaluation.losses import HOSTS, LINKS, SWITCHES
from rackproof.diagnostics.evaluation.policies import Policy
from rackproof.diagnostics.repeats import persistence
from rackproof.diagnostics.retest.model import Test
from rackproof.diagnostics.retest.signs import incidents

_MILD = {"field-diag": "reset-gpu", "swap-to-spare": "reset-gpu", "rma": "reset-gpu"}
_NEVER = 2.0


def _gpus(component: str) -> bool:
    """Whether a component is inside a GPU, or may be."""
    outside = LINKS | SWITCHES | HOSTS | {"app", "driver", "nic"}
    return component not in outside


def _prior(case: Case) -> float:
    """Return the persistence prior of the codes of a case."""
    return max((s.rule.prior for e in case.root for s in e.said), default=case.rule.prior)


def _codes(scene: Scene, _: Bench, *, above: float) -> list[Conclusion]:
    """Do what the table says; swap the GPU where the code's own prior is `above` that."""
    told = []
    for case in scene.cases:
        component, action = case.rule.component, case.rule.action
        lasting = persistence(case)
        if _gpus(component) and _prior(case) >= above:
            action, lasting = "swap-to-spare", "persistent"
        told.append(Conclusion(scene.place(case), component, lasting, action))
    return told


def _repair(component: str, links: str) -> str:
    """Return what is done to a component that fails each time."""
    if component in LINKS:
        return links
    fixed = {"app": "restart-app", "driver": "update-software", "nic": "check-cabling",
             "power": "check-power", "thermal": "check-cooling"}  # fmt: skip
    if component in SWITCHES | HOSTS and component not in fixed:
        return "field-diag"
    return fixed.get(component, "swap-to-spare")


def _burns(
    scene: Scene, bench: Bench, *, runs: int, first: Test | None, links: str
) -> list[Conclusion]:
    """Burn again `runs` times, after a reset where `first` says so; all, some or none fail."""
    told = []
    for case in scene.cases:
        place, component = scene.place(case), case.rule.component
        if component == "app":  # the table is right of most of these, and burning them costs more
            told.append(Conclusion(place, component, "transient", "restart-app"))
            continue
        if first:
            bench.run(place, first, 1)
        struck = bench.run(place, Test.AGAIN, runs).struck
        if struck == runs:
            told.append(Conclusion(place, component, "persistent", _repair(component, links)))
        elif struck:
            told.append(Conclusion(place, component, "intermittent", "watch"))
        else:
            told.append(Conclusion(place, component, "transient", "none"))
    return told


def _lemons(scene: Scene, _: Bench, *, cases: int) -> list[Conclusion]:
    """Swap a GPU at its `cases`-th case; until then nothing graver than a reset or a reboot."""
    told = []
    for case in scene.cases:
        place, component = scene.place(case), case.rule.component
        count = scene.earlier.get(place, 0) + incidents(case)
        action, lasting = case.rule.action, "undetermined"
        if case.rule.kind == "terminal":
            lasting = "persistent"
        elif (_gpus(component) or component in LINKS) and count >= cases:
            action, lasting = "swap-to-spare", "persistent"
        elif _gpus(component):
            action = _MILD.get(action, action)
        told.append(Conclusion(place, component, lasting, action))
    return told


_CABLES, _SWAP = "check-cabling", "swap-to-spare"
BASELINES: Mapping[str, Mapping[str, Policy]] = {
    "codes only": {
        "as the table says": partial(_codes, above=_NEVER),
        "swap from prior 0.5": partial(_codes, above=0.5),
        "swap from prior 0.35": partial(_codes, above=0.35),
        "swap from prior 0.2": partial(_codes, above=0.2),
    },
    "three burns": {
        "three": partial(_burns, runs=3, first=None, links=_CABLES),
        "reset, then three": partial(_burns, runs=3, first=Test.RESET, links=_CABLES),
        "reboot, then three": partial(_burns, runs=3, first=Test.REBOOT, links=_CABLES),
        "reset, then three; links swap": partial(_burns, runs=3, first=Test.RESET, links=_SWAP),
        "reset, then five": partial(_burns, runs=5, first=Test.RESET, links=_CABLES),
    },
    "lemons": {
        f"{cases} cases": partial(_lemons, cases=cases) for cases in (2, 3, 4, 5)
    },
}  # fmt: skip
"""Each baseline with its variants."""
