"""Xids: what a code, its text and its companions on one GPU say about the cause.

A code alone is a prior. NVLink 5 codes (144 to 150) are decoded by sub-unit and status, a double
bit error by where it struck, Xid 154 by the number of the action that the driver asks for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rackproof.diagnostics.rules.tables import Decoded, Rule, nvlink5, xids

UNLISTED = Rule("unknown", "watch", "unlisted", "watch", name="not in the catalogue")
LINK_DOWN_REASON = 20, 0x3F  # shift and mask in the first register: bits 20 to 25
# Xid 154 by number, since the wording changed from driver to driver (seen: "GPU Reset Required",
# "PF FLR", "OS Reboot", "Node Reboot Required").
DIRECTIVES: Mapping[int, tuple[str, str]] = {
    1: ("unknown", "reset-gpu"),
    2: ("unknown", "reboot-node"),
    3: ("nvlink", "reset-gpu"),
    4: ("unknown", "reset-gpu"),
    5: ("fabric", "reboot-node"),
}
SEVERITY = ("none", "watch", "retest", "restart-app", "update-software", "check-cooling",
            "check-power", "check-cabling", "reset-gpu", "reboot-node", "field-diag",
            "swap-to-spare", "move-to-spare-rack", "rma")  # fmt: skip
# The less, the more of a root: a terminal sign, a GPU off the bus, memory, links, firmware.
KINDS = ("terminal", "hardware", "driver", "watch", "app", "sympathetic", "directive", "counted",
         "ignore")  # fmt: skip
_FAMILIES = ("bus", "memory", "power", "init", "c2c", "link")
_SRAM = re.compile(r"\b(SRAM|L1|L2|LTC|register file|GPC|TPC)\b(?!\s*0x)", re.IGNORECASE)
_DRAM = re.compile(r"framebuffer|\bDRAM\b|\bHBM\b|\bFBHUB\b|\bFB\b", re.IGNORECASE)
Detail = Mapping[str, str | int | float]


def rule_of(code: int) -> Rule:
    """Return the table's rule for an Xid; a code of the future is watched, not dropped."""
    return xids().get(code, UNLISTED)


def rank(code: int) -> tuple[int, int, int]:
    """Return a sort key: the smallest of a case's codes is its root.

    149 stands before the other link codes, since it names the link that fell.
    """
    rule = rule_of(code)
    family = _FAMILIES.index(rule.family) if rule.family in _FAMILIES else len(_FAMILIES)
    return KINDS.index(rule.kind), family, 0 if code == 149 else 1  # noqa: PLR2004


def cause_of(codes: Iterable[str]) -> Rule:
    """Return the rule of the most root-like of event codes such as ``xid.79``; others are skipped.

    Without any Xid among them the rule is the one for unlisted codes (component ``unknown``).
    """
    numbers = [int(c[4:]) for c in codes if c.startswith("xid.") and c[4:].isdecimal()]
    wanted = sorted(numbers, key=lambda n: (*rank(n), n))
    return rule_of(wanted[0]) if wanted else UNLISTED


def number(value: object) -> int | None:
    """Return an integer of an event's detail, or None."""
    return value if isinstance(value, int) else None


def decode(code: int, detail: Detail) -> Decoded | None:
    """Return the row of the NVLink 5 sheet that fits an event of Xid 144 to 150, if any does.

    The status may hold several bits: the gravest row wins.
    """
    unit, first, status = (detail.get(k) for k in ("unit", "register", "status"))
    if not isinstance(unit, str) or not isinstance(status, int):
        return None
    shift, mask = LINK_DOWN_REASON
    reason = first >> shift & mask if isinstance(first, int) else 0
    fits = [
        row
        for row in nvlink5().get(code, ())
        if row.units & set(unit.split("/"))
        and (row.reason is None or row.reason == reason)
        and (row.status == status or row.status & status)
    ]
    return max(fits, key=lambda row: SEVERITY.index(row.action), default=None)


def _link(code: int, detail: Detail, rule: Rule) -> Rule:
    row = decode(code, detail)
    if row is not None:
        action = row.action
        rule = replace(rule, note=row.investigatory)
        fatal = "atal" in row.severity and not row.severity.startswith("Non")
        if action == "none" and fatal:
            action = "watch"
    elif "severity" in detail:
        action = "reset-gpu" if detail["severity"] == "fatal" else "watch"
    else:
        return rule
    if rule.kind == "sympathetic":
        return replace(rule, action=action)
    kind = {"none": "ignore", "watch": "watch"}.get(action, rule.kind)
    return replace(rule, action=action, kind=kind)


def meaning(code: int, detail: Detail, text: str) -> Rule:
    """Return what one Xid event means: the table's rule, sharpened by the event's own words."""
    rule = rule_of(code)
    if code in nvlink5():
        return _link(code, detail, rule)
    if code in (48, 140, 94, 95) and _SRAM.search(text) and not _DRAM.search(text):
        return replace(rule, component="sram") if code in (48, 140) else rule
    if code == 154:  # noqa: PLR2004
        wanted = number(detail.get("action")) or 0
        component, action = DIRECTIVES.get(wanted, ("unknown", "watch" if wanted else "none"))
        kind = rule.kind if wanted else "ignore"
        return replace(rule, component=component, action=action, kind=kind)
    return rule
