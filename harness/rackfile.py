"""The file that describes a rack, read and checked key by key.

In: TOML that a person wrote. Out: its tables with every key known, of the right type and in
range, or one SpecError that says where (file, table, key), what is wrong and what is due. Nothing
is built here, so a typo in a count costs a message and not the machine's memory.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.skus import CONSTANTS

MAX_BYTES = 1 << 20
MAX_TRAYS = 4096
MAX_RACKS = 64
MAX_TEXT = 200
RESERVED = ("local",)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHOWN = 60

# What the emulator needs beside a SKU's constants: achieved rates and strings, with their units.
EMULATION_ONLY: Mapping[str, str] = {
    "driver_version": "text",
    "vbios_version": "text",
    "fp32_rate": "TFLOP/s",
    "tf32_rate": "TFLOP/s",
    "bf16_rate": "TFLOP/s",
    "fp16_rate": "TFLOP/s",
    "fp8_rate": "TFLOP/s",
    "hbm_copy_rate": "TB/s",
    "h2d_rate": "GB/s",
    "d2h_rate": "GB/s",
    "pair_rate": "GB/s",
    "collective_rate": "GB/s",
    "coolant_temperature": "C",
    "thermal_resistance": "C/W",
}
EMULATION: Mapping[str, str] = {**CONSTANTS, **EMULATION_ONLY}


@dataclass(frozen=True, slots=True)
class Key:
    """What one key may hold: its `kind`, its range, the words of a choice, and whether it must be.

    kind: ``name`` ``text`` ``choice`` ``int`` ``number`` ``flag`` (true or false, or a number that
    says how much).
    """

    kind: str
    low: float = 0
    high: float = 1e6
    words: tuple[str, ...] = ()
    required: bool = False


TABLES: Mapping[str, Mapping[str, Key]] = {
    "rack": {
        "name": Key("name", required=True),
        "generation": Key("text"),
        "source": Key("choice", words=("emulated", "real"), required=True),
        "identity": Key("text"),
    },
    "tray": {
        "count": Key("int", 1, MAX_TRAYS, required=True),
        "gpus": Key("int", 1, 16, required=True),
        "cpus": Key("int", 0, 64),
        "nics": Key("int", 0, 64),
        "nic_rate": Key("number", 0.001, 1e5),
        "rack": Key("int", 0, MAX_RACKS - 1),
    },
    "gpu": {"sku": Key("text", required=True)},
    "fabric": {
        "switches": Key("int", 0, 256),
        "links_per_gpu": Key("int", 0, 64),
        "domain": Key("int", 1, MAX_TRAYS * 16),
    },
    "power": {
        "shelves": Key("int", 0, 64),
        "shelf_kw": Key("number", 0.001, 1e4),
        "uncappable_kw": Key("number", 0, 1e4),
        "bbu": Key("flag", 0, 1e6),
        "cbu": Key("flag", 0, 1e6),
        "bess": Key("flag", 0, 1e9),
    },
    "cooling": {"kind": Key("choice", words=("aalc", "flc", "air"), required=True)},
    "spares": {"trays": Key("int", 0, MAX_TRAYS - 1)},
    "emulation": {
        name: Key("text") if unit == "text" else Key("number", -1000, 1e9)
        for name, unit in EMULATION.items()
    },
}
_MUST = ("rack", "tray", "gpu")

Tables = dict[str, Any]


def read(path: Path) -> bytes:
    """Return the file's bytes; a SpecError for what is no readable file of at most 1 MiB."""
    try:
        if not path.exists():
            msg = f"{shown(str(path))}: there is no such file; `rackproof list racks` lists names"
            raise SpecError(msg)
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "no regular file"
            msg = f"{shown(str(path))}: is {kind}; name the rack's TOML file itself"
            raise SpecError(msg)
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"{shown(str(path))}: cannot be read: {reason}"
        raise SpecError(msg) from None
    if len(raw) > MAX_BYTES:
        msg = f"{shown(str(path))}: is larger than 1 MiB, and no rack's description is"
        raise SpecError(msg)
    return raw


def parse(raw: bytes, file: str) -> Tables:
    """Return the checked tables of a rack file; `file` is how messages call it."""
    file = shown(file)
    try:
        tables = tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{file}: is no text (byte {error.start} is not UTF-8); a rack file is TOML"
        raise SpecError(msg) from None
    except (ValueError, RecursionError) as error:
        msg = f"{file}: is no TOML: {error}"
        raise SpecError(msg) from None
    for table in tables:
        if table not in TABLES:
            msg = f"{file}: unknown {_unknown('table', table, TABLES)}"
            raise SpecError(msg)
    for table in _MUST:
        if table not in tables:
            due = "[[tray]]" if table == "tray" else f"[{table}]"
            msg = f"{file}: {due} is missing; a rack needs [rack], [[tray]] and [gpu]"
            raise SpecError(msg)
    return {name: _table(file, name, value) for name, value in tables.items()}


def _table(file: str, name: str, value: object) -> object:
    if name == "tray":
        if not isinstance(value, list) or not value or not all(isinstance(t, dict) for t in value):
            msg = f"{file}: [[tray]] is written with two brackets, once per sort of tray"
            raise SpecError(msg)
        return [_keys(f"{file}: [[tray]] {n}", name, t) for n, t in enumerate(value, 1)]
    if not isinstance(value, dict):
        msg = f"{file}: [{name}] must be one table, written [{name}]"
        raise SpecError(msg)
    return _keys(f"{file}: [{name}]", name, value)


def _keys(where: str, table: str, values: dict[str, Any]) -> dict[str, Any]:
    known = TABLES[table]
    for key, value in values.items():
        if key not in known:
            msg = f"{where}: unknown {_unknown('key', key, known)}"
            raise SpecError(msg)
        problem = _problem(known[key], value)
        if problem:
            msg = f"{where} {key}: {problem}"
            raise SpecError(msg)
    for key, entry in known.items():
        if entry.required and key not in values:
            hint = f", one of {', '.join(entry.words)}" if entry.words else ""
            msg = f"{where}: {key} is missing{hint}"
            raise SpecError(msg)
    return values


def _problem(key: Key, value: object) -> str:
    """Return what is wrong with `value`, or an empty string."""
    if key.kind == "flag" and isinstance(value, bool):
        return ""
    if key.kind in {"int", "number", "flag"}:
        return _number_problem(key, value)
    return _text_problem(key, value)


def _text_problem(key: Key, value: object) -> str:
    if not isinstance(value, str):
        return f"is {_sort(value)}, and text is due"
    if not value or len(value) > MAX_TEXT or not value.isprintable():
        return f"must be 1 to {MAX_TEXT} printable characters"
    if key.kind == "choice" and value not in key.words:
        return f"{shown(value)!r} is none of {', '.join(key.words)}{nearest(value, key.words)}"
    return _name_problem(value) if key.kind == "name" else ""


def _name_problem(value: str) -> str:
    if not _NAME.fullmatch(value):
        return (
            f"{shown(value)!r} cannot be part of a folder's name; "
            "use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return f"{value!r} is reserved for this machine's own GPUs" if value in RESERVED else ""


def _number_problem(key: Key, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {_sort(value)}, and a {'whole ' if key.kind == 'int' else ''}number is due"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, and a finite number is due"
    if key.kind == "int" and isinstance(value, float):
        return f"is {value}, and a whole number is due"
    if not key.low <= value <= key.high:
        seen = value if abs(value) < 1e12 else "far out of range"  # noqa: PLR2004
        return f"is {seen}; it must be from {key.low:g} to {key.high:g}"
    return ""


def _sort(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    named = {str: "text", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return named.get(type(value), "a date or time")


def shown(text: str) -> str:
    """Return `text` fit for one line of a message: printable, and not endless."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return clean if len(clean) <= 2 * _SHOWN else clean[:_SHOWN] + "…" + clean[-_SHOWN:]


def _unknown(what: str, word: str, known: Mapping[str, object]) -> str:
    close = nearest(word[:_SHOWN], known)
    listed = "" if close else f"; known: {', '.join(known)}"
    return f"{what} {shown(word)}{close}{listed}"
