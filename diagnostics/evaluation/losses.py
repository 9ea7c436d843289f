"""What a policy's conclusions cost, in GPU-hours, once the truth is known: loss.toml as a function.

In: a truth, conclusions, what the tests cost and left behind. Out: GPU-hours beyond what the best
possible answer would have cost. The same for every policy.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from rackproof.diagnostics.evaluation.worlds import World
from rackproof.diagnostics.retest.model import Cause

if TYPE_CHECKING:
    from rackproof.diagnostics.evaluation.bench import Conclusion
    from rackproof.diagnostics.evaluation.truth import Truth

REPLACING = frozenset(("swap-to-spare", "move-to-spare-rack", "rma"))
LINKS = frozenset(("nvlink", "pcie"))
SWITCHES = frozenset(("nvswitch", "fabric"))
HOSTS = frozenset(("host", "power", "thermal", "storage"))
_PLAIN = {
    "none": "leave", "retest": "leave", "watch": "watch", "restart-app": "app",
    "reset-gpu": "reset", "reboot-node": "reboot", "update-software": "software",
    "check-power": "host", "check-cooling": "host",
}  # fmt: skip
_REPAIRS = frozenset(("link", "switch", "host", "nic"))
_RIGHT = {
    Cause.PERSISTENT: "replace", Cause.INTERMITTENT: "replace", Cause.LINK: "link",
    Cause.SWITCH: "switch", Cause.HOST: "host", Cause.NIC: "nic", Cause.DRIVER: "reset",
    Cause.TRANSIENT: "reset", Cause.APP: "app",
}  # fmt: skip
_BY_HAND = frozenset(("software", "diagnose", "replace")) | _REPAIRS  # the GPU is reset on the way


@functools.cache
def _table() -> Mapping[str, Any]:
    file = resources.files("rackproof.diagnostics.evaluation").joinpath("loss.toml")
    return tomllib.loads(file.read_text("utf-8"))


def loss(group: str, name: str) -> float:
    """Return one number of loss.toml."""
    return float(_table()[group][name])


def deed(conclusion: "Conclusion") -> str:
    """Return what is done: leave, watch, app, reset, reboot, software, replace or diagnose.

    A repair is named by what it looks at: link, switch, host, nic.
    """
    if conclusion.action in _PLAIN:
        return _PLAIN[conclusion.action]
    if conclusion.action in REPLACING:
        return "replace"
    component = conclusion.component
    for sort, words in (("switch", SWITCHES), ("host", HOSTS), ("nic", ("nic",))):
        if component in words:
            return sort
    if conclusion.action == "check-cabling" or component in LINKS:
        return "link"
    return "diagnose"


def waste(done: str, action: str = "") -> float:
    """Return what a deed costs where it was not called for."""
    if done in _REPAIRS:
        return loss("waste", "diagnose" if action == "field-diag" else "repair")
    return loss("waste", done)


def _cures(cause: Cause, done: str, world: World) -> float:
    """Return the chance that a deed at the right place puts an end to it."""
    if cause in (Cause.TRANSIENT, Cause.DRIVER):
        driver = cause is Cause.DRIVER
        resets = {
            "reset": world.driver_reset_clears if driver else world.reset_clears,
            "reboot": world.reboot_clears,
        }
        return resets.get(done, 1.0 if done in _BY_HAND else 0.0)
    if done == _RIGHT[cause]:
        return 1.0
    if done == "diagnose" and cause in (Cause.PERSISTENT, Cause.INTERMITTENT):
        return loss("found", str(cause))
    return world.host_reboot_cures if (cause, done) == (Cause.HOST, "reboot") else 0.0


def _strikes(cause: Cause, *, watched: bool, stuck: bool) -> float:
    """Return how many more jobs it interrupts where nothing puts an end to it."""
    if cause is Cause.TRANSIENT:
        return loss("strike", "stuck") if stuck else 0.0
    if cause is Cause.DRIVER:
        return loss("strike", "driver") if stuck else 0.0
    if cause is Cause.APP:
        return loss("strike", "app")
    if cause is Cause.INTERMITTENT:
        return loss("strike", "watched_intermittent" if watched else "intermittent")
    return loss("strike", "watched" if watched else "persistent")


def lost(
    truth: "Truth", world: World, told: Sequence["Conclusion"], *, stuck: bool, cured: bool
) -> float:
    """Return the GPU-hours that `told` loses, its tests not counted.

    `stuck` and `cured` are what the tests left behind.
    """
    cause = Cause.TRANSIENT if cured else truth.cause
    there = [c for c in told if c.place in truth.places]
    total = sum(waste(deed(c), c.action) for c in told if c.place not in truth.places)
    here = [(deed(c), waste(deed(c), c.action)) for c in there]
    chances = [_cures(cause, done, world) for done, _ in here]
    spent = sum(cost for _, cost in here)
    called_for = cause not in (Cause.TRANSIENT, Cause.DRIVER) or stuck
    if called_for and any(chances):
        spent = max(0.0, spent - waste(_RIGHT[cause]))
    left = 1.0
    for chance in chances:
        left *= 1.0 - chance
    watched = any(done == "watch" for done, _ in here)
    strikes = _strikes(cause, watched=watched, stuck=stuck)
    return total + spent + left * strikes * loss("strike", "hours")
