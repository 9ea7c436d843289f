"""From readings to Saids: every event and reading with what the rules say that it means.

Readings of files come in; Saids with their machine, their place in one spelling and their meaning
go out. What means nothing, or only that all is well, is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.episodes import Said
from rackproof.diagnostics.machines import Machines
from rackproof.diagnostics.offline_peers import compared, models_of
from rackproof.diagnostics.rules import kernel, links, signs, sxid, xid
from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.model import Event
from rackproof.harness.readers import Reading

CLEANED_UP = 45  # Xid: channels removed after another error


def _code(event: Event) -> int | None:
    head, _, digits = event.code.rpartition(".")
    return int(digits) if head in ("xid", "sxid") and digits.isdecimal() else None


def meaning(event: Event) -> Rule | None:
    """Return what an event of a log means; None for a code that only other tables know."""
    number = _code(event)
    if number is not None and event.code.startswith("xid."):
        return xid.meaning(number, event.detail, event.text)
    if number is not None:
        return sxid.meaning(number, event.detail)
    return kernel.meaning(event)


def _causes(said: Sequence[Said]) -> list[Said]:
    """Return the Xids that an Xid 45 names as its cause, where the log has lost them."""
    told = {(s.machine, s.subject, s.event.code) for s in said}
    found = []
    for one in said:
        cause = one.event.detail.get("cause")
        if one.event.code != "xid.45" or not isinstance(cause, int) or cause == CLEANED_UP:
            continue
        code = f"xid.{cause}"
        if (one.machine, one.subject, code) not in told:
            rule = xid.meaning(cause, {}, "")
            found.append(replace(one, event=replace(one.event, code=code), rule=rule))
    return found


def _placed(one: Said) -> Said:
    """Return a sign of one link as its GPU's, with the link in its detail: as the kernel has it."""
    gpu, slash, number = one.subject.rpartition("/link")
    if not slash or not number.isdecimal():
        return one
    family = one.rule.family if one.rule.family == "link" else f"{one.rule.family}/{number}"
    detail = dict(one.event.detail) | {"link": int(number)}
    event = replace(one.event, detail=detail)
    return replace(one, event=event, subject=gpu, rule=replace(one.rule, family=family))


def said_by(readings: Sequence[Reading], known: Machines) -> list[Said]:
    """Return all that was said, with its meaning; what means nothing is left out."""
    found, decided = compared(readings, known)
    for index, reading in enumerate(readings):
        pairs = [(e, rule) for e in reading.events if (rule := meaning(e)) is not None]
        pairs += [
            pair for pair in signs.signs(reading.measurements, reading.events)
            if pair[0].code not in decided
        ]  # fmt: skip
        for told, rule in pairs:
            event = told if math.isfinite(told.at or 0.0) else replace(told, at=None)
            machine, subject = known.place(index, event.subject)
            found.append(Said(event, rule, machine, subject, str(reading.path)))
    found += _causes(found)
    models = models_of(readings, known)
    found = [
        replace(one, rule=links.by_generation(one.rule, models[gpu]))
        if (gpu := (one.machine, one.subject.partition("/")[0])) in models else one
        for one in found
    ]  # fmt: skip
    return [_placed(s) for s in found if s.rule.kind != "ignore" or s.rule.family == "nic-link"]
