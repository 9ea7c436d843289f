"""Restore: the newest step that verifies, over all tiers.

In: tiers, nearest first, and what the run expects. Out: a Restored. Every checkpoint that was
passed over is named with the reason; LATEST is a hint, and is only ever compared. Another config or
commit is refused unless that is allowed, and then remarked; another topology loads, but where
threads, BLAS or instruction set differ nobody promises the same bits.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.checkpoint import anatomy, load, manifest
from rackproof.harness.checkpoint.lane import reason
from rackproof.harness.checkpoint.store import Store
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.errors import CheckpointError

BITS = ("threads", "blas", "isa")
"""What of the topology changes the bits of a sum."""


@dataclass(frozen=True, slots=True)
class Expect:
    """What a run expects of a checkpoint; None is not asked.

    `allow_other` loads one of another config or commit all the same. `topology` is that of now
    (`topology.here`); without it, bits are promised as far as the checkpoint goes. `within`:
    seconds after which a tier that does not answer is passed over.
    """

    config_sha: str | None = None
    commit_sha: str | None = None
    allow_other: bool = False
    topology: Mapping[str, Any] | None = None
    within: float = 60.0


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot and where it was; `passed_over`: (uri, why). Not `promised`: see `remarks`."""

    snapshot: anatomy.Snapshot
    uri: str
    tier: str
    passed_over: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    promised: bool = True
    fields: tuple[str, ...] = anatomy.FIELDS


@dataclass(frozen=True, slots=True)
class Found:
    """The directories of a tier, the steps of unfinished saves, and what its LATEST says."""

    tier: Tier
    store: Store
    names: Sequence[str]
    unfinished: Sequence[int]
    latest: str | None


@dataclass(slots=True)
class _Tale:
    """What is to be told of the search."""

    passed_over: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def newest(
    tiers: Sequence[Tier], *, expect: Expect | None = None, lenient: bool = False
) -> Restored:
    """Return the newest checkpoint that verifies; a CheckpointError where there is none.

    `lenient` takes one that lacks fields, each then empty: a careless trainer, for negative
    controls. The judge's `verify` does not.
    """
    expect = expect or Expect()
    tale = _Tale()
    found = [each for tier in tiers if (each := _ask(tier, expect.within, tale))]
    for _, each, name in _in_order(found):
        uri = each.tier.uri(name)
        try:
            loaded = load.load(each.store, name)
            if loaded.problem and not lenient:
                raise CheckpointError(loaded.problem)  # noqa: TRY301 - passed over like the others
        except CheckpointError as error:
            tale.passed_over.append((uri, str(error)))
            continue
        _hints(found, loaded.snapshot.step, tale)
        promised = _fits(loaded.snapshot.context, expect, uri, tale)
        if loaded.problem:
            tale.remarks.append(loaded.problem)
        return Restored(
            loaded.snapshot, uri, each.tier.name, tuple(tale.passed_over), tuple(tale.remarks),
            promised and not loaded.problem, loaded.fields,
        )  # fmt: skip
    why = "; ".join(f"{uri}: {words}" for uri, words in tale.passed_over) or "no tier was named"
    msg = f"there is no checkpoint that verifies ({why})"
    raise CheckpointError(msg)


def _in_order(found: Sequence[Found]) -> list[tuple[tuple[int, int, int], Found, str]]:
    """Return (order, where, name) of all directories: newest step first, then nearest tier."""
    rows = []
    for number, each in enumerate(found):
        for name in each.names:
            step, again = manifest.place(name) or (0, 0)
            rows.append(((-step, -again, number), each, name))
    return sorted(rows, key=lambda row: row[0])


def _ask(tier: Tier, within: float, tale: _Tale) -> Found | None:
    """Return what a tier holds, or None; it is passed over when it fails or does not answer."""
    store = tier.store()
    answer = _in_time(
        lambda: Found(tier, store, store.names(), store.unfinished(), store.latest()), within
    )
    if isinstance(answer, Found):
        return answer
    why = f"no answer in {within:g} s" if answer is None else reason(answer)
    tale.passed_over.append((tier.url, why))
    return None


def _in_time(what: Callable[[], Found], within: float) -> Found | Exception | None:
    """Return what a call gives or raises, or None when that takes too long."""
    answer: list[Found | Exception] = []

    def call() -> None:
        try:
            answer.append(what())
        except (OSError, CheckpointError) as error:
            answer.append(error)

    thread = threading.Thread(target=call, name="checkpoint-ask", daemon=True)
    thread.start()
    thread.join(within)
    return answer[0] if answer else None


def _hints(found: Sequence[Found], step: int, tale: _Tale) -> None:
    """Remark where LATEST says otherwise; it is never followed."""
    for each in found:
        tale.remarks += [
            f"a save of step {left} to {each.tier.name} was never finished, and is ignored"
            for left in each.unfinished
            if left > step
        ]
        if each.latest is None:
            continue
        place = manifest.place(each.latest)
        if place is None:
            tale.remarks.append(f"LATEST of {each.tier.name} names nothing that can be")
        elif place[0] != step:
            tale.remarks.append(
                f"LATEST of {each.tier.name} names step {place[0]}; the newest that verifies over "
                f"all tiers is {step}"
            )


def _fits(context: anatomy.Context, expect: Expect, uri: str, tale: _Tale) -> bool:
    """Return whether the same bits can be promised; a CheckpointError for what is refused."""
    asked = (
        ("config", "sha256", expect.config_sha, context.config),
        ("commit", "sha", expect.commit_sha, context.commit),
    )
    other = [
        f"{field} {str(have.get(key))[:12]} is not the {str(want)[:12]} of this run"
        for field, key, want, have in asked
        if want is not None and have.get(key) != want
    ]
    if other and not expect.allow_other:
        msg = f"{uri} is of another run: {', '.join(other)}"
        raise CheckpointError(msg)
    if context.commit.get("dirty"):
        tale.remarks.append("it was written with changes that its commit does not hold")
    now = expect.topology
    differs = [
        f"{key} was {_short(context.topology.get(key))} and is {_short(now.get(key))}"
        for key in BITS
        if now is not None and context.topology.get(key) != now.get(key)
    ]
    if now is not None and context.topology.get("replicas") != now.get("replicas"):
        was = context.topology.get("replicas")
        tale.remarks.append(f"{was} replicas wrote it, and {now.get('replicas')} go on")
    tale.remarks.extend(other)
    if differs:
        tale.remarks.append(f"bit identity not promised: {', '.join(differs)}")
    return not other and not differs


def _short(value: object) -> str:
    return str(value)[:60]
