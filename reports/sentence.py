"""sentence(body) -> str: the last line of `diagnose`, beside the verdict.

In: the JSON of `diagnose` (rackproof.diagnosis/1). Out: how many inputs, who failed, what could not
be judged, and of runs what is waived and what was left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rackproof.reports.words import counted, named

IDLE = ("none", "watch", "retest")


def _named(diagnoses: Iterable[Mapping[str, Any]]) -> str:
    names = [f"{d['subject']} ({d['component']}, {d['action']})" for d in diagnoses]
    return named(list(dict.fromkeys(names)))


def _remarks(body: Mapping[str, Any]) -> list[str]:
    """Return the remarks of the one run that has some, or how many runs have which."""
    runs = [entry for entry in body["inputs"] if entry.get("remarks")]
    if len(runs) == 1:
        return list(runs[0]["remarks"])
    partial = sum(bool(entry.get("left_out")) for entry in runs)
    held = sum(len(entry["remarks"]) > bool(entry.get("left_out")) for entry in runs)
    found = [f"some FAILs of {counted(held, 'run')} are waived"] if held else []
    return [*found, f"burns of {counted(partial, 'run')} were left out"] if partial else found


def _finding(body: Mapping[str, Any]) -> str:
    roots = [d for d in body["diagnoses"] if d["role"] == "root"]
    if body["verdict"] == "FAIL":  # the last line names who failed, not what only asks for a look
        roots = [d for d in roots if d["component"] != "app" and d["action"] not in IDLE] or roots
    if roots:
        return _named(roots)
    if body["verdict"] == "PASS":
        held = any(len(e.get("remarks", ())) > bool(e.get("left_out")) for e in body["inputs"])
        unread = sum(entry["kind"] == "unrecognised" for entry in body["inputs"])
        left = f"; {unread} of them not read, see above" if unread else ""
        return "no sign of a fault" + (" that is not waived" if held else "") + left
    if all(entry["kind"] == "unrecognised" for entry in body["inputs"]):
        return "nothing was recognised"
    return _unjudged(body)


def _unjudged(body: Mapping[str, Any]) -> str:
    """Say how much could not be judged; "see above" only where something stands there."""
    rows = [row for entry in body["inputs"] for row in entry.get("unknown", ())]
    if rows:
        checks = counted(sum(row["count"] for row in rows), "check")
        return f"{checks} could not be judged; see above"
    said = any(entry.get("problems") for entry in body["inputs"])
    return "not all could be judged" + ("; see above" if said else "")


def sentence(body: Mapping[str, Any]) -> str:
    """Return the line of what was found, in the inputs and beside them."""
    inputs = counted(len(body["inputs"]), "input")
    return "; ".join([f"{inputs}: {_finding(body)}", *_remarks(body)])
