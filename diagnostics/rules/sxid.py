"""SXids: errors of an NVSwitch. The log line's own Fatal or Non-fatal decides where it speaks.

A fatal error of an access port reaches the GPU behind it as Xid 74; the same error on several
switches at once has one cause outside of them.
"""

from collections.abc import Mapping
from dataclasses import replace

from rackproof.diagnostics.rules.tables import Rule, sxids

UNLISTED = Rule("nvswitch", "reset-gpu", "switch", "hardware", name="not in the driver's list")


def meaning(code: int, detail: Mapping[str, str | int | float]) -> Rule:
    """Return what one SXid event means."""
    severity, rule = sxids().get(code, ("line", UNLISTED))
    said = detail.get("severity", severity if severity != "line" else "non-fatal")
    if said == "fatal" and rule.kind != "hardware":
        return replace(rule, action="reset-gpu", kind="hardware")
    if said == "non-fatal" and severity == "line":
        return replace(rule, action="watch", kind="watch")
    return rule
