"""What an input's problems have to say of the judging: why it is UNKNOWN, and what had no limit.

Readings come in with what their readers said; they go out with sentences added: a rate that nothing
bounds, one GPU far slower than too few others, and never an UNKNOWN without a reason.
"""

from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.offline_peers import few
from rackproof.diagnostics.rules import published
from rackproof.harness.readers import Reading

MOST_NAMED = 6


def _reason(reading: Reading) -> str:
    """Return why nothing can be said of an input whose reader gave no reason."""
    if reading.cut:
        return "ends before what it promises: the rest is not judged"
    if not reading.records:
        return "holds nothing by which health could be judged: no record in it"
    if not reading.worked:
        return "the tool came to no result by which health could be judged"
    seen = sorted({m.metric for m in reading.measurements} | {m.metric for m in reading.missing})
    named = ", ".join(seen[:MOST_NAMED]) + (" and others" if len(seen) > MOST_NAMED else "")
    told = f"only {named}, by which nothing is judged" if seen else "only the names of devices"
    return f"holds nothing by which health could be judged: {told}"


def remarked(readings: Sequence[Reading], silent: Sequence[bool]) -> list[Reading]:
    """Return `readings` with what is to be said of each; `silent` where nothing told of health."""
    found = []
    for reading, quiet in zip(readings, silent, strict=True):
        more = [
            said for part in reading.parts or (reading,)
            for said in (*published.unjudged(part.measurements), *few(part))
        ]  # fmt: skip
        if quiet or (not reading.problems and (reading.cut or not reading.worked)):
            more.insert(0, _reason(reading))
        found.append(replace(reading, problems=(*reading.problems, *more)) if more else reading)
    return found
