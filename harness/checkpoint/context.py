"""The context: the five of the seven fields that are no tensors, as ``context.json``.

In: a Snapshot. Out: bytes in canonical JSON, and back; beside the fields stand the step, the order
in which tensors were laid down, and whether the save fell inside gradient accumulation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.harness.checkpoint import anatomy
from rackproof.harness.checkpoint.manifest import CONTEXT_NAME, SCHEMA
from rackproof.harness.checkpoint.strict import canonical, parse, sha
from rackproof.harness.errors import CheckpointError

KEYS = frozenset((*anatomy.CONTEXT, "schema", "step", "order", "accumulating"))


@dataclass(frozen=True, slots=True)
class Read:
    """A context file: its fields by name (those that are there), and the order of tensors."""

    step: int
    fields: dict[str, Any]
    order: tuple[str, ...]
    accumulating: bool

    def context(self) -> anatomy.Context:
        """Return the Context; a field that is not there is empty."""
        return anatomy.Context(
            **{name: self.fields.get(name, {}) for name in anatomy.CONTEXT},
            accumulating=self.accumulating,
        )


def encode(snapshot: anatomy.Snapshot, order: Sequence[str], leave_out: str = "") -> bytes:
    """Return the file's bytes; a CheckpointError for what JSON does not know."""
    body: dict[str, Any] = {
        name: getattr(snapshot.context, name) for name in anatomy.CONTEXT if name != leave_out
    }
    body |= {
        "schema": SCHEMA,
        "step": snapshot.step,
        "order": list(order),
        "accumulating": snapshot.context.accumulating,
    }
    try:
        return canonical(body)
    except (TypeError, ValueError) as error:
        msg = f"the context cannot be written as JSON ({error})"
        raise CheckpointError(msg) from error


def read(text: bytes) -> Read:
    """Return what the file says; a CheckpointError for what is no context of this schema."""
    body = parse(text, CONTEXT_NAME)
    if body.get("schema") != SCHEMA:
        msg = f"{CONTEXT_NAME} is of schema {str(body.get('schema'))[:40]!r}, and not {SCHEMA!r}"
        raise CheckpointError(msg)
    strange = sorted(set(body) - KEYS)
    if strange:
        msg = f"{CONTEXT_NAME} holds {strange[0][:40]!r}, which is none of its fields"
        raise CheckpointError(msg)
    step, order, within = body.get("step"), body.get("order"), body.get("accumulating")
    if not isinstance(step, int) or isinstance(step, bool) or not isinstance(within, bool):
        msg = f"{CONTEXT_NAME} gives no step, or not whether gradients were being accumulated"
        raise CheckpointError(msg)
    if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
        msg = f"{CONTEXT_NAME} gives no order of tensors"
        raise CheckpointError(msg)
    fields = {name: body[name] for name in anatomy.CONTEXT if name in body}
    for name, value in fields.items():
        if not isinstance(value, dict):
            msg = f"{CONTEXT_NAME} gives {name} as something else than an object"
            raise CheckpointError(msg)
    return Read(step, fields, tuple(order), within)


def faults(fields: dict[str, Any]) -> list[str]:
    """Return what is wrong with fields that are there, in words."""
    found = []
    if fields.get("config") and not sha(fields["config"].get("sha256")):
        found.append("config holds no sha256")
    commit = fields.get("commit")
    if commit and not (isinstance(commit.get("sha"), str) and commit["sha"]):
        found.append("commit holds no sha")
    return found
