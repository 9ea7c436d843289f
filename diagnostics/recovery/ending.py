"""How did the run end? Its exit code, a signal, or the drill's patience: what happened, in words.

In: a View. Out: a sentence for the claim that it did not come to its end as it should. How a job
was given up is a fact of its own (`outcome`); else the end of its processes tells it.
"""

from collections.abc import Mapping
from typing import Any

from rackproof.diagnostics.recovery.claims import some
from rackproof.diagnostics.recovery.telling import whole
from rackproof.diagnostics.recovery.view import View


def ending(view: View) -> str:
    """Return in words how the run that was hit ended."""
    told = [str(fact.fields.get("why")) for fact in view.facts("outcome")]
    if told:
        return some(list(dict.fromkeys(told)))
    over = any(True for _ in view.faulted.of("ended"))
    struck = {strike.pid for strike in view.struck} - {None}
    ends = {
        what.text("member"): what.fields
        for what in view.faulted.of("exited")
        if _pid(what.fields) not in struck
    }
    if ends and not over:
        return some([_how(fields) for fields in ends.values()])
    known = struck | {_pid(what.fields) for what in view.faulted.of("exited")}
    rest = [fact.fields for fact in view.facts("died") if _pid(fact.fields) not in known]
    killed = dict.fromkeys(str(each.get("member")) for each in rest if each.get("code") != 0)
    if killed:
        when = "after its last step" if over else f"after step {view.path.top}"
        were = "were" if len(killed) > 1 else "was"
        return f"{some(list(killed))} {were} still there {when}, and ended by the drill"
    found = [_how(fields) for fields in (*rest, *ends.values())]
    return some(found) if found else "nobody saw how it ended"


def _pid(fields: Mapping[str, Any]) -> int | None:
    return whole(fields.get("pid"))


def _how(fields: Mapping[str, Any]) -> str:
    code = fields.get("code")
    if not isinstance(code, int) or isinstance(code, bool):
        return f"{fields.get('member')} ended, and nobody saw with which exit code"
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return f"{fields.get('member')} ended with {how}"
