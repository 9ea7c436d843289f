"""From a belief to a decision: the least expected loss, in the contract's words, with reasons.

In: a Belief. Out: a Decision. The decision is a row of losses.toml; what the contract forbids is no
choice: silent corruption is never kept on one clean run, and a part is sent back only on terminal
evidence or when a swap has shown that it is the part. Where the loss that is left is above its
bound, the cause is undetermined; what to do meanwhile is still the least loss.
"""

from collections.abc import Collection, Mapping, Sequence

from rackproof.diagnostics.retest.belief import Belief
from rackproof.diagnostics.retest.choose import WORDS, best, gains, spent, worded
from rackproof.diagnostics.retest.model import Cause, Decision, Outcome, Test
from rackproof.diagnostics.retest.priors import silent
from rackproof.diagnostics.retest.tables import losses, value

ACTIONS: Mapping[str, str] = {
    "keep": "none",
    "watch": "watch",
    "restart-app": "restart-app",
    "reset": "reset-gpu",
    "diagnose": "field-diag",
    "swap": "swap-to-spare",
    "rma": "rma",
    "link": "check-cabling",
    "switch": "field-diag",
    "host": "field-diag",
    "nic": "check-cabling",
}
_HOST = {"power": "check-power", "thermal": "check-cooling"}
_GPU = ("hbm", "sram", "sm", "nvlink", "pcie", "thermal", "power", "data", "unknown")
_HOSTS = ("host", "power", "thermal", "storage")
# The components that a decision can be for, the first where the signs point at another.
_OF: Mapping[str, tuple[str, ...]] = {
    "restart-app": ("app",),
    "diagnose": ("unknown", *_GPU),
    "swap": ("unknown", *_GPU),
    "rma": ("unknown", *_GPU),
    "link": ("pcie", "nvlink", "fabric", "nvswitch"),  # of a GPU that is well in another slot
    "switch": ("nvswitch", "fabric"),
    "host": _HOSTS,
    "nic": ("nic",),
}
MORE = "what would tell more: "
"""Begins the last reason of a diagnosis, where a retest would pay."""
EVERY = frozenset(Test)
OF_NO_GPU = frozenset((Test.AGAIN, Test.SOAK))
"""What can be done again of a rack's power or cooling: nothing of it is exchanged or reset."""
_SURE, _HALF = 0.9, 0.5
FEWEST_FAILS = 2


def _component(belief: Belief, choice: str, leading: tuple[Cause, float]) -> str:
    """Return the component: the signs' own, unless the decision is for another one."""
    own = belief.signs.component
    if choice == "reset" and leading[0] is Cause.DRIVER and leading[1] >= _SURE:
        return "driver"
    if choice == "diagnose" and own == "app" and belief.signs.family == "sm":
        return "sm"
    allowed = _OF.get(choice, (own,))
    return own if own in allowed else allowed[0]


def _sent_back(belief: Belief) -> bool:
    """Whether the evidence allows an RMA: terminal signs, or a swap that shows the part."""
    if belief.signs.kind == "terminal":
        return True
    swapped = any(outcome.test is Test.SWAP and outcome.runs for outcome in belief.outcomes)
    return swapped and belief.posterior[Cause.PERSISTENT] > value("losses.toml", "bound", "rma")


def _chosen(belief: Belief) -> tuple[str, float]:
    """Return the decision with the least expected loss of those allowed, and that loss."""
    names, loss = losses(belief.state)
    expected = belief.weights @ loss
    barred = set() if _sent_back(belief) else {"rma"}
    if silent(belief.signs):
        barred |= {"keep", "restart-app", "reset"}
    allowed = [(float(expected[i]), i, name) for i, name in enumerate(names) if name not in barred]
    risk, _, name = min(allowed)
    return name, risk


def _leading(belief: Belief) -> list[tuple[Cause, float]]:
    """Return the causes, the likeliest first."""
    order = list(Cause)
    return sorted(belief.posterior.items(), key=lambda pair: (-pair[1], order.index(pair[0])))


def _shown(belief: Belief) -> str | None:
    """Return the persistence that the runs themselves show, where they do.

    What passed after it failed is not persistent, and what failed in all of several runs is, unless
    a reset let it pass. One failed run alone says nothing.
    """
    if not belief.signs.failed:
        return None
    (failed, passed), (again, clean) = belief.before, belief.after
    if failed + passed == 1 and not belief.outcomes:
        return "undetermined"
    if passed or (again and clean):
        return "transient" if failed + again < FEWEST_FAILS else "intermittent"
    return "persistent" if failed + again >= FEWEST_FAILS and not clean else None


def _persistence(belief: Belief, risk: float) -> tuple[str, float]:
    """Name how lasting the fault is, and how sure that is: what the runs show, else the belief."""
    shown = _shown(belief)
    if shown == "undetermined":
        return shown, _HALF
    if shown is not None:
        return shown, max(_HALF, belief.word(shown))
    chances = [(belief.word(word), word) for word in ("transient", "intermittent", "persistent")]
    chance, word = max(chances)
    if risk > value("losses.toml", "bound", "risk") or chance < _HALF:
        return "undetermined", chance
    return word, chance


def _action(belief: Belief, name: str) -> str:
    if name == "host":
        return _HOST.get(belief.signs.component, ACTIONS[name])
    return ACTIONS[name]


def _ran(outcome: Outcome) -> str:
    word = WORDS[outcome.test].format(runs=outcome.runs)
    if outcome.test is Test.SWAP:
        return (
            f"{word}: struck in {outcome.struck} of {outcome.runs} runs in the new place, "
            f"in {outcome.stayed} of {outcome.runs} at the old one"
        )
    return f"{word}: struck in {outcome.struck} of {outcome.runs} runs"


def _because(belief: Belief, leading: Sequence[tuple[Cause, float]], risk: float) -> list[str]:
    signs = belief.signs
    lines = [_ran(outcome) for outcome in belief.outcomes]
    if signs.incidents > 1:
        lines.append(f"{signs.incidents} incidents, more than an hour apart")
    if signs.alike:
        lines.append(f"{signs.alike} others show the same at the same time")
    if signs.earlier is not None:
        lines.append(f"{signs.earlier} earlier cases of this serial number in {signs.hours:.4g} h")
    likely = ", ".join(f"{cause} {chance:.2f}" for cause, chance in leading[:2])
    lines.append(f"belief: {likely}; {risk:.2g} GPU-hours of expected loss are left")
    return lines


def advice(belief: Belief, tests: Collection[Test] = EVERY) -> str | None:
    """Return in words which retest of `tests` would tell more, or None where none pays."""
    if belief.signs.kind == "terminal":
        return None
    next_one = best(gains(belief, float("inf"), frozenset(tests) - spent(belief), ahead=False))
    return f"{MORE}{worded(next_one)}" if next_one else None


def decide(belief: Belief, tests: Collection[Test] = EVERY) -> Decision:
    """Return the decision of the least expected loss, with its reasons in words.

    `tests` are those that can be made of such a subject.
    """
    name, risk = _chosen(belief)
    leading = _leading(belief)
    lines = _because(belief, leading, risk)
    more = advice(belief, tests)
    lasting, sure = _persistence(belief, risk)
    return Decision(
        persistence=lasting,
        component=_component(belief, name, leading[0]),
        action=_action(belief, name),
        confidence=leading[0][1],
        risk=risk,
        posterior=belief.posterior,
        because=(*lines, more) if more else tuple(lines),
        sure=sure,
        choice=name,
    )
