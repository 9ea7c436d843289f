"""The one reduction of gradients: the mean over micro-shards, added up in their order.

Addition of floats is not associative, so the order is part of the result. Everyone who reduces uses
this function, with gradients in the order of micro-shards, whoever computed them.
"""

from collections.abc import Sequence
from typing import Any

from rackproof.harness.errors import DrillError


def mean(gradients: Sequence[Any], into: Any = None) -> Any:
    """Return the mean of `gradients`, each [P] of the same dtype, added up from first to last.

    `into` [P], which is none of them, takes the result where it is given. No gradient is changed.
    Raises DrillError where there is none.
    """
    if not gradients or any(into is each for each in gradients):
        msg = "a mean needs gradients, and a place that is none of them"
        raise DrillError(msg)
    if into is None:
        into = gradients[0].copy()
    else:
        into[...] = gradients[0]
    for gradient in gradients[1:]:
        into += gradient
    into *= 1.0 / len(gradients)
    return into
