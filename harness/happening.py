"""What a training run says of itself, a JSON line each: the seam between any trainer and the judge.

In: lines of an events file (``RP_EVENTS``), which are untrusted. Out: a Happening for each line
that is one. Five kinds are anybody's (the contract's); the others are those of our own coordinator
and of the drill that supervises. `at` is seconds of the machine's monotonic clock, which all of its
processes share; a line that gives none gets the time at which it was read.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST = 1 << 20  # bytes of a line; a step of a thousand sample ids is a hundredth of it
GONE = "is not there (any more)"  # the problem of a checkpoint that can only have been removed

TRAINER: Mapping[str, str] = {
    "hello": "pid, rank, world: a process of the training command is there",
    "step": "step, loss, samples, participants?, digest?: a step is committed",
    "ckpt": "phase (staged, committed, failed, skipped, removed), step, uri, seconds?",
    "restore": "step, uri, fields: state was taken from a checkpoint, or from peer:NAME",
    "fault": "what the trainer itself saw go wrong",
}
"""The kinds of the contract, which any command may write."""

COORDINATOR: Mapping[str, str] = {
    "epoch": "epoch, participants, shards: who takes part from here on, with what",
    "intent": "epoch, step, participants, shards, samples: written before the reduction",
    "discarded": "epoch, step, why: a step that was not committed, and is repeated",
    "lost": "member, why (closed, silent, wrong-digest, told): a member is not there any more",
    "isolated": "member, epoch: nothing waits for that member any more",
    "spare-active": "member, instead, subject: a hot spare takes a place",
    "resynchronised": "member, step, digest: its state equals that of the others",
    "refused": "member, why: a spare that may not take part",
    "slow": "member, why (link, compute), factor: it is behind the others",
    "reslot": "shards: how many micro-shards each member has from here on",
    "suspect": "member, step, shard, why (nan, differs): a gradient that another member refutes",
    "quarantine": "shard, step, samples: a shard of the data set is not used any more",
    "restarted": "step, uri: the whole job went back to a checkpoint",
    "ended": "step, digest: the last step is committed",
}

DRILL: Mapping[str, str] = {
    "injected": "fault, member, subject?, pid?: what the drill did",
    "exited": "member, pid, code: a process of ours or of the command's has ended",
    "detected": "subject, by: telemetry shows that something is wrong",
    "diagnosed": "subject, component, persistence, action: what diagnostics conclude",
    "decided": "subject, decision, spare: what sparing does about it",
    "told": "member, subject: the training run was told to go on with that spare",
    "blind": "why: telemetry could not be watched, judged or passed on; what it finds is not known",
}

KINDS = frozenset((*TRAINER, *COORDINATOR, *DRILL))


@dataclass(frozen=True, slots=True)
class Happening:
    """One line: who said what, when. `fields` are plain JSON values, as they were written."""

    at: float
    who: str
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 1

    def number(self, name: str) -> int | None:
        """Return a field that is a whole number, or None."""
        value = self.fields.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(self, name: str) -> str:
        """Return a field that is a text, or an empty one."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def as_json(self) -> dict[str, Any]:
        """Return the plain object that `parse` takes."""
        head = {"kind": self.kind, "at": round(self.at, 6), "who": self.who}
        return {**head, "attempt": self.attempt, **self.fields}


def parse(line: bytes | str, who: str, read_at: float, attempt: int = 1) -> Happening | str:
    """Return the Happening of a line, or in a few words why it is none.

    `who`, `attempt` and `read_at` hold where the line does not say.
    """
    if len(line) > LONGEST:
        return f"longer than {LONGEST} bytes"
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(body, dict):
        return "no JSON object"
    kind = body.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        return f"kind {str(kind)[:40]!r} is none of {', '.join(TRAINER)}"
    at, said, turn = body.pop("at", None), body.pop("who", None), body.pop("attempt", None)
    timed = isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at)
    return Happening(
        float(at) if timed else read_at,
        said if isinstance(said, str) and said else who,
        kind,
        body,
        turn if isinstance(turn, int) and not isinstance(turn, bool) else attempt,
    )
