"""Is every sample accounted for? Each id of the committed steps once, or counts that add up.

In: a View. Out: the claims `samples` and `quarantine`. Ids come from the lines `step`, and stand
beside those of the intent that was written before the reduction. A data set that is gone through
several times may hold an id as often as that, and no oftener.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.telling import ids_of, listed, whole
from rackproof.diagnostics.recovery.trajectory import Commit, Trajectory
from rackproof.diagnostics.recovery.untold import states
from rackproof.diagnostics.recovery.view import View, plan_value
from rackproof.diagnostics.verdict import Verdict

CURE = "emit `samples` (ids, or their number) in step events, or ask for less: --require L1"
ONE = "say sample ids, or have one process tell their number"
KEEP = "keep-batch"


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one step: ids where they were told, else how many each process told."""

    step: int
    ids: tuple[int, ...] | None = None
    counts: tuple[int, ...] = field(default=())


def batch(commit: Commit) -> Batch | str:
    """Return the samples of a step, or what is contradictory in them.

    Processes that tell equal lists tell of the whole batch, others each of its own part.
    """
    lists = [told.ids for told in commit.told if told.ids is not None]
    counts = [told.count for told in commit.told if told.count is not None]
    if not lists:
        return Batch(commit.step, None, tuple(sorted(counts)))
    if len(lists) < len(counts):
        return f"step {commit.step}: some tell sample ids, others only their number"
    first = lists[0]
    ids = first if all(each == first for each in lists) else tuple(sorted(chain(*lists)))
    return Batch(commit.step, ids)


def samples(view: View) -> Claim:
    """Was every sample used as often as it should be, whoever was there to use it?

    A step that was saved and not told used those of the fault-free run where its state is the same.
    """
    found = _samples(view)
    if found.verdict is not Verdict.PASS:
        return found
    unlike = [
        step
        for step, one in sorted(view.untold.items())
        if not one.digest
        or not any(one.digest in states(t.path, view.record.facts, step) for t in view.clean)
    ]
    if unlike:
        return unknown("samples", f"no samples were told of step {listed(unlike)}", CURE, "L2")
    same = f"; step {listed(sorted(view.untold))} by its state" if view.untold else ""
    return holds("samples", f"{found.message}{same}", "L2")


def _samples(view: View) -> Claim:
    if not view.path.steps:
        return unknown("samples", "no step was told", "see the claim steps", "L2")
    found = {step: batch(commit) for step, commit in view.path.steps.items()}
    wrong = [each for each in found.values() if isinstance(each, str)]
    if wrong:
        return broken("samples", some(wrong), "L2")
    told = {step: each for step, each in found.items() if isinstance(each, Batch)}
    bare = [step for step, each in told.items() if each.ids is None and not each.counts]
    if bare:
        return unknown("samples", f"no samples were told of step {listed(bare)}", CURE, "L2")
    with_ids = [each for each in told.values() if each.ids is not None]
    if len(with_ids) == len(told):
        return _by_ids(view, {step: each.ids or () for step, each in told.items()})
    if with_ids:
        said = f"{len(with_ids)} of {len(told)} steps told ids, the others only numbers"
        return unknown("samples", said, CURE, "L2")
    return _by_counts(view, told)


# --- ids ----------------------------------------------------------------------------------------
def _by_ids(view: View, told: Mapping[int, tuple[int, ...]]) -> Claim:
    wrong = [*_against_intents(view, told), *_against_plan(view, told)]
    uses = Counter(sample for ids in told.values() for sample in ids)
    clean = _clean_ids(view)
    if clean is not None:
        wrong += _against_clean(view, told, clean)
    hidden = len(view.untold) * max(len(ids) for ids in told.values())
    most = _passes(view, sum(uses.values()) + hidden)
    if most is None and clean is None and max(uses.values()) > 1:
        if wrong:
            return broken("samples", some(wrong), "L2")
        sample = next(each for each, count in sorted(uses.items()) if count > 1)
        said = f"sample {sample} was used {uses[sample]} times, and how large the data set is"
        return unknown("samples", f"{said} is not known", "hold it with fault-free runs", "L2")
    if most is not None:
        wrong += [
            f"sample {sample} was used {count} times, {most} is the most"
            for sample, count in sorted(uses.items())
            if count > most
        ]
    if wrong:
        return broken("samples", some(wrong), "L2")
    often = "once" if max(uses.values()) == 1 else "as often as the data set was gone through"
    return holds("samples", f"{sum(uses.values())} samples, each {often}", "L2")


def _passes(view: View, total: int) -> int | None:
    """Return how often an id may occur: the data set's passes; None where it is not known."""
    numbers = [
        whole(plan_value(view.head.plan, "samples", name))
        for name in ("shards", "per_shard", "reserve")
    ]
    if not view.own or None in numbers:
        return None
    shards, each, reserve = (number or 0 for number in numbers)
    size = (shards - reserve) * each
    return -(-total // size) if size > 0 else None


def _against_plan(view: View, told: Mapping[int, tuple[int, ...]]) -> list[str]:
    parts = [whole(plan_value(view.head.plan, name)) for name in ("micro_shards", "micro_batch")]
    if not view.own or None in parts:
        return []
    wanted = (parts[0] or 0) * (parts[1] or 0)
    keep = view.head.mode == KEEP
    return [
        f"step {step} used {len(ids)} samples, a batch has {wanted}"
        for step, ids in told.items()
        if len(ids) > wanted or (keep and len(ids) != wanted)
    ]


def _against_intents(view: View, told: Mapping[int, tuple[int, ...]]) -> list[str]:
    """Return the steps that used other samples than were written down before the reduction."""
    intents: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
    for what in view.faulted.of("intent"):
        step, ids = whole(what.fields.get("step")), ids_of(what.fields.get("samples"))
        if step is not None and ids is not None:
            intents.setdefault(step, []).append((what.at, ids))
    wrong = []
    for step, ids in told.items():
        before = [each for at, each in intents.get(step, []) if at <= view.path.steps[step].at]
        if before and before[-1] != ids:
            wrong.append(f"step {step} used other samples than its intent says")
        elif intents and not before and not view.gaps:
            wrong.append(f"step {step} was committed without an intent before it")
    return wrong


def _clean_ids(view: View) -> Mapping[int, tuple[int, ...]] | None:
    """Return the sample ids of a fault-free run, where it told those of every step."""
    for told in view.clean:
        found = {step: batch(commit) for step, commit in told.path.steps.items()}
        ids = {s: b.ids for s, b in found.items() if isinstance(b, Batch) and b.ids is not None}
        if ids and len(ids) == len(found):
            return ids
    return None


def _against_clean(
    view: View, told: Mapping[int, tuple[int, ...]], clean: Mapping[int, tuple[int, ...]]
) -> list[str]:
    """Return where other samples were used than without the fault, or some oftener."""
    quarantined = any(True for _ in view.faulted.of("quarantine"))
    if view.head.mode == KEEP and not quarantined:
        apart = [step for step, ids in told.items() if step in clean and clean[step] != ids]
        return [f"step {listed(apart)} used other samples than without the fault"] if apart else []
    if quarantined:
        return []
    free = Counter(sample for ids in clean.values() for sample in ids)
    uses = Counter(sample for ids in told.values() for sample in ids)
    allowed = max(free.values())
    return [
        f"sample {sample} was used {count} times, without the fault {allowed} is the most"
        for sample, count in sorted(uses.items())
        if count > allowed
    ]


# --- numbers ------------------------------------------------------------------------------------
def _by_counts(view: View, told: Mapping[int, Batch]) -> Claim:
    """Judge numbers: what all processes tell of a step adds up to what it is without the fault."""
    reference = _clean_counts(view) or {}
    first = next(iter(told.values())).counts
    wrong, unclear = [], []
    for step, each in told.items():
        wanted = reference.get(step, first if not reference else ())
        if not wanted or sum(each.counts) == sum(wanted):
            continue
        if view.head.mode != KEEP and sum(each.counts) < sum(wanted):
            continue
        if len(each.counts) != len(wanted) and set(each.counts) == set(wanted):
            unclear.append(step)
        else:
            wrong.append(
                f"step {step} used {sum(each.counts)} samples, without the fault {sum(wanted)}"
            )
    if wrong:
        return broken("samples", some(wrong), "L2")
    if unclear:
        said = f"fewer processes told the same number of samples of step {listed(unclear)}"
        return unknown("samples", f"{said}: of the batch, or of their part", ONE, "L2")
    total = sum(sum(each.counts) for each in told.values())
    return holds("samples", f"the numbers add up: {total} in {len(told)} steps", "L2")


def _clean_counts(view: View) -> Mapping[int, tuple[int, ...]] | None:
    for clean in view.clean:
        found = {step: batch(commit) for step, commit in clean.path.steps.items()}
        counts = {s: b.counts for s, b in found.items() if isinstance(b, Batch) and b.counts}
        if counts:
            return counts
    return None


# --- quarantine ---------------------------------------------------------------------------------
def quarantine(view: View) -> Claim:
    """Was a bad shard put out of use, no good one, and is nothing of it used from then on?"""
    said = [
        (shard, whole(what.fields.get("step")) or 0, ids_of(what.fields.get("samples")) or ())
        for what in view.faulted.of("quarantine")
        if (shard := whole(what.fields.get("shard"))) is not None
    ]
    if not said:
        if "quarantine" in view.expected.kinds:
            if not view.fired:
                return view.unfired("quarantine")
            return view.absent("quarantine", "no shard of the data set was put out of use")
        return left_out("quarantine", "no shard of the data set was bad")
    bad = _bad_shards(view)
    wrong = [f"shard {s} was put out of use, and is good" for s, _, _ in said if s not in bad]
    each = whole(plan_value(view.head.plan, "samples", "per_shard")) if view.own else None
    for shard, since, ids in said:
        used = _used(view.path, since, shard if each else None, each or 1) | _among(
            view.path, since, frozenset(ids)
        )
        if used:
            wrong.append(f"shard {shard} was used in step {listed(sorted(used))} all the same")
    if wrong:
        return broken("quarantine", some(wrong))
    shards = listed(sorted({shard for shard, _, _ in said}))
    return holds("quarantine", f"shard {shards} put out of use, and not used from then on")


def _bad_shards(view: View) -> frozenset[int]:
    """Return the shards that were poisoned, by the plan or by an injection."""
    named = plan_value(view.head.plan, "samples", "poisoned")
    known = list(named) if isinstance(named, list | tuple) else []
    known += [what.fields.get("shard") for what in view.faulted.of("injected")]
    return frozenset(shard for each in known if (shard := whole(each)) is not None)


def _used(path: Trajectory, since: int, shard: int | None, each: int) -> set[int]:
    if shard is None:
        return set()
    low, high = shard * each, (shard + 1) * each
    return {
        step
        for step, commit in path.steps.items()
        for told in commit.told
        if step >= since and any(low <= sample < high for sample in told.ids or ())
    }


def _among(path: Trajectory, since: int, ids: frozenset[int]) -> set[int]:
    return {
        step
        for step, commit in path.steps.items()
        for told in commit.told
        if step >= since and ids & frozenset(told.ids or ())
    }
