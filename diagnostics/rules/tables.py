"""The packaged tables as objects: code in, Rule out. Reading package data is no I/O of ours.

xid.csv, sxid.csv and nvlink5.csv hold facts of the vendor with their source; kernel.toml and
smi.toml hold what the kernel's and nvidia-smi's own signs mean.
"""

import csv
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """What a sign means by itself.

    `component` and `action` are the contract's words. `family` groups codes into one episode.
    `kind`: terminal (nothing but a swap will help), hardware, driver, watch (an early or unclear
    sign), app, sympathetic (follows somebody else's fault), directive (Xid 154), ignore. `prior` is
    the chance that the fault outlasts a reset; `note` is what the vendor advises to look at next.
    """

    component: str
    action: str
    family: str
    kind: str
    prior: float = 0.1
    name: str = ""
    source: str = ""
    note: str = ""


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a packaged CSV table."""
    text = resources.files("rackproof.diagnostics.rules").joinpath(name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@functools.cache
def xids() -> Mapping[int, Rule]:
    """Return the Xid table by code."""
    return {
        int(row["code"]): Rule(
            row["component"],
            row["action"],
            row["family"],
            row["kind"],
            float(row["prior"]),
            row["name"],
            row["source"],
        )
        for row in rows("xid.csv")
    }


@functools.cache
def sxids() -> Mapping[int, tuple[str, Rule]]:
    """Return (severity, rule) by SXid code; severity ``line``: the log line itself says it."""
    found = {}
    for row in rows("sxid.csv"):
        action = row["action"]
        kind = {"watch": "watch", "none": "ignore"}.get(action, "hardware")
        rule = Rule(
            row["component"], action, "switch", kind, name=row["name"], source=row["source"]
        )
        found[int(row["code"])] = (row["severity"], rule)
    return found


@dataclass(frozen=True, slots=True)
class Decoded:
    """One row of the NVLink 5 sheet: unit (any of several spellings), link-down reason, status."""

    units: frozenset[str]
    reason: int | None
    status: int
    action: str
    investigatory: str
    severity: str


@functools.cache
def nvlink5() -> Mapping[int, tuple[Decoded, ...]]:
    """Return the NVLink 5 sheet by Xid, in the sheet's order."""
    found: dict[int, list[Decoded]] = {}
    for row in rows("nvlink5.csv"):
        found.setdefault(int(row["xid"]), []).append(
            Decoded(
                frozenset(row["unit"].split("/")),
                int(row["reason"]) if row["reason"] else None,
                int(row["status"], 16),
                row["action"],
                row["investigatory"],
                row["severity"],
            )
        )
    return {xid: tuple(rows) for xid, rows in found.items()}


@functools.cache
def toml(name: str) -> Mapping[str, Any]:
    """Return a packaged TOML table."""
    text = resources.files("rackproof.diagnostics.rules").joinpath(name).read_text("utf-8")
    return tomllib.loads(text)
