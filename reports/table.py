"""The judged checks as a table, one row each: a pandas frame, CSV, or Parquet.

In: a record and its judgement. A reading that is a number stands in `value`, one that is a text in
`text`, so that both columns keep one type. In CSV a text that a spreadsheet would take for a
formula is prefixed with an apostrophe; numbers are left alone.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.harness.errors import RecordError, SpecError
from rackproof.harness.model import Measurement, Value
from rackproof.reports.words import shown, visible

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "burn subject serial metric value text unit low high equal limit_source decided_by verdict "
    "waived runs message"
).split()
NUMBERS = ("value", "low", "high")
FLAGS = ("waived",)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # OWASP, CSV injection


def _number(value: Value | None) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _row(check: Check, serials: dict[str, str]) -> dict[str, Any]:
    limit = check.limit
    number = _number(check.value)
    return {
        "burn": check.id,
        "subject": check.subject,
        "serial": serials.get(gpu_of(check.subject)),
        "metric": check.metric,
        "value": number,
        "text": None if number is not None or check.value is None else str(check.value),
        "unit": check.unit,
        "low": limit.low if limit else None,
        "high": limit.high if limit else None,
        "equal": shown(limit.equal) if limit and limit.equal is not None else None,
        "limit_source": limit.source if limit else None,
        "decided_by": check.decided_by,
        "verdict": str(check.verdict),
        "waived": check.waiver is not None,
        "runs": ", ".join(shown(v) for v in check.runs),
        "message": check.message,
    }


def frame(record: Record, judgement: Judgement) -> "pd.DataFrame":
    """Return one row a check, in the plan's order; a missing cell is a missing cell, never 0."""
    import pandas as pd  # noqa: PLC0415 - half a second that only this needs

    serials = {
        m.subject: str(m.value)
        for m in record.seen
        if isinstance(m, Measurement) and m.metric == "gpu.serial"
    }
    rows = [_row(check, serials) for check in judgement.checks]
    types = {name: "float64" if name in NUMBERS else "string" for name in COLUMNS}
    types |= dict.fromkeys(FLAGS, "bool")
    return pd.DataFrame(rows, columns=COLUMNS).astype(types)


def _harmless(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    begins_formula = cell.lstrip(" \n").startswith(FORMULA)
    return f"'{visible(cell)}" if begins_formula else visible(cell)


def csv(record: Record, judgement: Judgement) -> str:
    """Return the frame as CSV (RFC 4180 with bare line feeds, UTF-8, a missing cell is empty)."""
    table = frame(record, judgement)
    for name in COLUMNS:
        if name not in (*NUMBERS, *FLAGS):
            table[name] = table[name].map(_harmless, na_action="ignore")
    return str(table.to_csv(index=False, lineterminator="\n"))


def parquet(record: Record, judgement: Judgement, path: Path) -> None:
    """Write the frame to `path`.

    Raises SpecError where pyarrow is not installed, RecordError where `path` cannot be written.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "Parquet needs pyarrow: pip install rackproof[parquet]"
        raise SpecError(msg) from error
    del pa
    try:
        frame(record, judgement).to_parquet(path, engine="pyarrow", index=False)
    except OSError as error:
        msg = f"{path}: cannot be written ({error.strerror or error})"
        raise RecordError(msg) from error
