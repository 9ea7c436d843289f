"""From trials to the table: confusion, rates with intervals, losses against the baselines.

In: the trials of one world, or of several as one. Out: plain JSON. Of each baseline the variant
with the least mean loss on these very trials is taken, which favours it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rackproof.diagnostics.evaluation.baselines import BASELINES
from rackproof.diagnostics.evaluation.statistics import brier, paired, reliability, wilson
from rackproof.diagnostics.evaluation.trials import CLASSIFIER, Outcome, Trial
from rackproof.diagnostics.evaluation.worlds import OF_GPU
from rackproof.diagnostics.retest.model import Cause

Key = tuple[str, str]


def share(hits: int, of: int) -> dict[str, Any]:
    """Return a share with its Wilson interval of 95 %; the share is None of nothing."""
    low, high = wilson(hits, of)
    part = hits / of if of else None
    return {"count": hits, "of": of, "share": _short(part), "low": _short(low),
            "high": _short(high)}  # fmt: skip


def _interval(hits: int, of: int) -> dict[str, float | None]:
    low, high = wilson(hits, of)
    return {"from": _short(low), "to": _short(high)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _losses(trials: Sequence[Trial], key: Key) -> Any:
    return np.array([trial.outcomes[key].loss for trial in trials])


def _best(trials: Sequence[Trial], name: str) -> Key:
    """Return the variant of a baseline that lost least here."""
    keys = [(name, variant) for variant in BASELINES[name]]
    return min(keys, key=lambda key: float(_losses(trials, key).mean()))


def _confusion(trials: Sequence[Trial], key: Key) -> dict[str, dict[str, int]]:
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        table[str(trial.truth.cause)][trial.outcomes[key].label] += 1
    return {str(cause): dict(table[str(cause)].most_common()) for cause in Cause}


def _components(trials: Sequence[Trial], key: Key) -> dict[str, dict[str, Any]]:
    """Return by the true component (the first word that is right) how often it was named so."""
    right: Counter[str] = Counter()
    of: Counter[str] = Counter()
    wrong: dict[str, Counter[str]] = defaultdict(Counter)
    for trial in trials:
        true, outcome = trial.truth.components[0], trial.outcomes[key]
        of[true] += 1
        right[true] += outcome.right
        if not outcome.right:
            wrong[true][outcome.component] += 1
    return {
        true: {**share(right[true], of[true]), "instead": dict(wrong[true].most_common(3))}
        for true in sorted(of)
    }


def _recalls(trials: Sequence[Trial], key: Key) -> dict[str, dict[str, Any]]:
    """Return for each cause how often it was named."""
    found = {}
    for cause in Cause:
        own = [trial.outcomes[key] for trial in trials if trial.truth.cause is cause]
        found[str(cause)] = share(sum(o.label == cause for o in own), len(own))
    return found


def _policy(trials: Sequence[Trial], key: Key) -> dict[str, Any]:
    outcomes = [trial.outcomes[key] for trial in trials]
    of_cause = {cause: [t.outcomes[key] for t in trials if t.truth.cause is cause]
                for cause in OF_GPU}  # fmt: skip
    lasting, sometimes = of_cause[Cause.PERSISTENT], of_cause[Cause.INTERMITTENT]
    healthy = [t.outcomes[key] for t in trials if t.truth.cause not in OF_GPU]
    return {
        "name": key[0],
        "variant": key[1],
        "loss": _short(float(np.mean([o.loss for o in outcomes]))),
        "tests": _short(float(np.mean([o.tests for o in outcomes]))),
        "asked": _short(float(np.mean([o.asked for o in outcomes]))),
        "cause": share(sum(_named(t, key) for t in trials), len(trials)),
        "component": share(sum(o.right for o in outcomes), len(outcomes)),
        "false_rma": share(sum(o.healthy > 0 for o in healthy), len(healthy)),
        "replaced": sum(o.replaced for o in outcomes),
        "replaced_healthy": sum(o.healthy for o in outcomes),
        "missed_persistent": share(sum(o.missed for o in lasting), len(lasting)),
        "missed_intermittent": share(sum(o.missed for o in sometimes), len(sometimes)),
        "intermittent_watched": share(sum(o.watched for o in sometimes), len(sometimes)),
        "recall": _recalls(trials, key),
    }


def _named(trial: Trial, key: Key) -> bool:
    return trial.outcomes[key].label == trial.truth.cause


def _calibration(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return Brier score and reliability of the classifier's beliefs, where it had one there."""
    order = list(Cause)
    pairs = [(_belief(t.outcomes[CLASSIFIER, ""]), order.index(t.truth.cause)) for t in trials]
    held = [(belief, cause) for belief, cause in pairs if belief is not None]
    if not held:
        return {"of": 0}
    beliefs = np.array([[belief.get(cause, 0.0) for cause in order] for belief, _ in held])
    truths = np.array([cause for _, cause in held])
    sure, named = beliefs.max(axis=1), beliefs.argmax(axis=1)
    bins = reliability(sure, named == truths)
    base = np.bincount(truths, minlength=len(order)) / len(truths)
    return {
        "of": len(held),
        "brier": _short(brier(beliefs, truths)),
        "brier_of_base_rates": _short(brier(np.tile(base, (len(truths), 1)), truths)),
        "bins": [
            {"low": b.low, "high": b.high, "sure": _short(b.sure), "right": b.hits, "of": b.count,
             "share": _short(b.hits / b.count), **_interval(b.hits, b.count)}
            for b in bins
        ],
    }  # fmt: skip


def _belief(outcome: Outcome) -> Mapping[Cause, float] | None:
    return outcome.belief


def scored(trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """Return the scores of one world. `seed` draws the bootstrap's resamples."""
    own: Key = (CLASSIFIER, "")
    keys = [own, *(_best(trials, name) for name in BASELINES)]
    mine = _losses(trials, own)
    against = []
    for key in keys[1:]:
        found = paired(mine, _losses(trials, key), seed)
        against.append({
            "baseline": key[0], "variant": key[1], "difference": _short(found.mean),
            "low": _short(found.low), "high": _short(found.high),
            "better": found.high < 0, "worse": found.low > 0,
        })  # fmt: skip
    return {
        "cases": len(trials),
        "policies": [_policy(trials, key) for key in keys],
        "against": against,
        "confusion": _confusion(trials, own),
        "components": _components(trials, own),
        "calibration": _calibration(trials),
    }
