"""What DCGM's error codes mean: dcgm_errors.csv, and DCGM's own severity where it says more.

An event ``dcgm.fr.N`` comes in, with `severity` and `category` in its detail where the file gives
them; a Rule goes out. A code of the future is judged by what the file itself says of it.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace

from rackproof.diagnostics.rules.tables import Rule, rows
from rackproof.harness.model import Event

PREFIX = "dcgm.fr."
# dcgmErrorSeverity_t of dcgm_errors.h: 1 monitor, 2 isolate, 4 triage, 5 configuration, 6 reset.
CONFIGURATION = 5
_BY_SEVERITY = {
    1: ("watch", "watch"),
    2: ("field-diag", "hardware"),
    6: ("reset-gpu", "hardware"),
}
# dcgmErrorCategory_t of dcgm_errors.h, those that name a part.
_BY_CATEGORY = {9: "thermal", 10: "hbm", 11: "nvlink", 12: "nvswitch", 13: "pcie", 14: "power"}
_SOURCE = "github.com/NVIDIA/DCGM dcgmlib/dcgm_errors.h"


@functools.cache
def errors() -> Mapping[int, tuple[Rule, str]]:
    """Return (rule, who is the root where every GPU shows it) by error code."""
    return {
        int(row["code"]): (
            Rule(
                row["component"],
                row["action"],
                f"dcgm-{row['component']}",
                row["kind"],
                name=row["name"],
                source=row["source"],
            ),
            row["shared"],
        )
        for row in rows("dcgm_errors.csv")
    }


def number(code: str) -> int | None:
    """Return N of ``dcgm.fr.N``, or None."""
    digits = code.removeprefix(PREFIX)
    return int(digits) if code.startswith(PREFIX) and digits.isdecimal() else None


def shared_by(code: str) -> str:
    """Return host, fabric or "": who is the root where every GPU of a machine shows `code`."""
    found = errors().get(number(code) or 0)
    return found[1] if found else "host"


def _told(event: Event, name: str) -> int:
    value = event.detail.get(name)
    return value if isinstance(value, int) else 0


def meaning(event: Event) -> Rule:
    """Return what one error of DCGM means.

    Severity 5 is a matter of configuration, whatever the table says: no part is accused for it.
    """
    severity, category = _told(event, "severity"), _told(event, "category")
    found = errors().get(number(event.code) or 0)
    if found is None:
        action, kind = _BY_SEVERITY.get(severity, ("retest", "watch"))
        component = _BY_CATEGORY.get(category, "unknown")
        rule = Rule(component, action, f"dcgm-{component}", kind, name="unlisted", source=_SOURCE)
    else:
        rule = found[0]
    if severity == CONFIGURATION and rule.kind in ("hardware", "terminal"):
        return replace(rule, component="host", action="watch", kind="watch", family="dcgm-host")
    return rule
