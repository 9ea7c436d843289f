"""Limits in layers: the user's file, what the SKU achieves, the rack's own median, the spec.

A limit carries its unit and its source. Comes in: plain tables (parsed TOML, or the `limits` of a
record's first line). Goes out: for one metric and subject, the bounds that apply, and who says so.
The user's bound replaces those of the SKU and of the spec; the median stays, since an outlier is
an outlier under any contract.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from importlib import resources
from typing import Any

from rackproof.diagnostics.limits import fields
from rackproof.diagnostics.limits.collective import collective
from rackproof.diagnostics.limits.layers import LAYERS, Limit, Limits, Waiver
from rackproof.diagnostics.limits.user import parse
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.metrics import metrics

__all__ = [
    "LAYERS", "Limit", "Limits", "Waiver", "collective", "from_record", "parse", "shipped",
]  # fmt: skip

SHARE_OF_ACHIEVED = 0.9  # a healthy part reaches at least this share of what its SKU achieves


def from_record(table: Mapping[str, Any]) -> Limits:
    """Return the Limits that a record's first line holds.

    Raises SpecError when they make no sense; the file is untrusted.
    """
    try:
        limits = tuple(_recorded(Limit(**entry)) for entry in table.get("limit", ()))
        waivers = tuple(_waiver(entry) for entry in table.get("waiver", ()))
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError, SpecError) as error:
        msg = f"the record's limits cannot be read: {error}"
        raise SpecError(msg) from error
    return Limits(limits, waivers)


def _waiver(entry: Mapping[str, Any]) -> Waiver:
    texts: dict[str, Any] = {key: fields.text(entry, key, "waiver") for key in entry}
    texts["until"] = date.fromisoformat(texts["until"])
    waiver = Waiver(**texts)
    if (waiver.subject is None) == (waiver.serial is None):
        msg = "a waiver wants either subject or serial"
        raise SpecError(msg)
    return waiver


def _recorded(limit: Limit) -> Limit:
    """Return the limit; a SpecError when one of its parts is of the wrong type or missing."""
    entry = asdict(limit)
    where = fields.text(entry, "metric", "limit")
    if where not in metrics():
        raise fields.bad(where, f"unknown metric{nearest(where, metrics())}")
    if fields.text(entry, "layer", where) not in LAYERS or limit.layer == "median":
        raise fields.bad(where, f"unknown layer {limit.layer!r}")
    for key in ("source", "subject"):
        fields.text(entry, key, where)
    if limit.sku is not None:
        fields.text(entry, "sku", where)
    bounds = [fields.number(entry, key, where) for key in ("low", "high")]
    if limit.equal is not None:
        fields.equal(entry, "equal", metrics()[where], where)
    if (limit.equal is None) == (bounds == [None, None]):
        raise fields.bad(where, "wants low, high or both, or equal alone")
    if limit.equal is None and metrics()[where].unit == "text":
        raise fields.bad(where, "is a text, and no bounds fit it")
    return limit


def shipped() -> tuple[Limit, ...]:
    """Return the packaged limits: what holds on every platform, and what SKUs achieve.

    A row of achieved.toml whose address is not known is no limit on its own and is left out.
    """
    here = resources.files("rackproof.diagnostics.limits")
    spec = tomllib.loads(here.joinpath("spec.toml").read_text("utf-8"))
    found = [
        Limit(
            row["metric"],
            row["source"],
            "spec",
            low=row.get("low"),
            high=row.get("high"),
            equal=row.get("equal"),
        )
        for row in spec["limit"]
    ]
    achieved = tomllib.loads(here.joinpath("achieved.toml").read_text("utf-8"))
    found += [
        Limit(
            row["metric"],
            f"{SHARE_OF_ACHIEVED} x {row['value']} {row['unit']}: {row['source']}",
            "achieved",
            low=SHARE_OF_ACHIEVED * row["value"],
            sku=row["sku"],
        )
        for row in achieved.get("achieved", ())
        if row.get("address_known", True)
    ]
    return tuple(found)
