"""JSON that somebody else may have written: parsed with nothing taken on trust.

In: bytes. Out: plain values; a CheckpointError for what is no JSON object, names a key twice,
holds NaN or an infinity, or nests without end.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from rackproof.harness.errors import CheckpointError

SHA = re.compile(r"[0-9a-f]{64}", re.ASCII)


def canonical(body: object) -> bytes:
    """Return the one way to write `body`: sorted keys, no spaces, ASCII; ValueError for NaN."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def parse(text: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in `text`; `what` names it in the error."""
    try:
        body = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_never)
    except (ValueError, RecursionError) as error:
        msg = f"{what} cannot be read as JSON ({str(error)[:80]})"
        raise CheckpointError(msg) from error
    if not isinstance(body, dict):
        msg = f"{what} is no JSON object"
        raise CheckpointError(msg)
    return body


def whole(value: object, most: int) -> bool:
    """Return whether a value is a whole number from 0 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def sha(value: object) -> bool:
    """Return whether a value is a sha256 in lower hexadecimal digits."""
    return isinstance(value, str) and bool(SHA.fullmatch(value))


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for key, value in pairs:
        if key in body:
            msg = f"{key[:40]!r} is there twice"
            raise ValueError(msg)
        body[key] = value
    return body


def _never(word: str) -> None:
    msg = f"{word} is no number"
    raise ValueError(msg)
