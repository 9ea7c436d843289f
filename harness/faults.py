"""The grammar of faults that can be planted: ``KIND@SUBJECT[:key=value,...]``.

In: what the user typed, the rack it is for, and the seed. Out: Fault, with its subject drawn
where it was ``?`` and its parameters complete, or a SpecError that says in one line what is
wrong. The kinds are data (faults.toml); what a fault does is devices/emulated/planted.py's.
"""

import functools
import hashlib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import Any

from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.metrics import metrics
from rackproof.harness.skus import skus
from rackproof.harness.spec import RackSpec

Parameter = int | float | str

SORTS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "gpu": re.compile(r"rack\d+/tray\d+/gpu\d+"),
        "link": re.compile(r"rack\d+/tray\d+/gpu\d+/link\d+"),
        "host": re.compile(r"rack\d+/tray\d+/host"),
        "nic": re.compile(r"rack\d+/tray\d+/nic\d+"),
        "switch": re.compile(r"rack\d+/switch\d+"),
        "shelf": re.compile(r"rack\d+/power/shelf\d+"),
        "cooling": re.compile(r"rack\d+/cooling"),
    }
)
_NUMBER = re.compile(
    r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE
)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """One parameter of a kind: its type (int, float, metric, sku, lasts), default, and range.

    low and high may be taken, above and below not. A key without a default may be left out, and
    `absent` says what holds then.
    """

    name: str
    type: str
    default: Parameter | None = None
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: tuple[str, ...] = ()
    absent: str = ""
    about: str = ""

    @property
    def span(self) -> str:
        """The range in words, for a message."""
        low = f"above {self.above:g}" if self.above > -math.inf else ""
        low = f"at least {self.low:g}" if self.low > -math.inf else low
        high = f"below {self.below:g}" if self.below < math.inf else ""
        high = f"at most {self.high:g}" if self.high < math.inf else high
        return " and ".join(part for part in (low, high) if part)


_COMMON = (
    Key("lasts", "lasts", absent="for good", about="seconds (simulated), or once"),
    Key("rate", "float", absent="1", above=0.0, high=1.0, about="chance to strike in a burn's run"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of faults.toml.

    persistence is a word of the contract, ``any``, ``by-rate``, or ``none`` where nobody ought to
    be accused; an empty `action` leaves the action open; `available` is false in a version that
    knows the name and cannot plant it.
    """

    name: str
    on: tuple[str, ...]
    summary: str
    verdict: str
    component: tuple[str, ...]
    persistence: str
    available: bool
    action: tuple[str, ...] = ()
    needs: str = ""
    keys: Mapping[str, Key] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to plant: its kind, where, and its parameters with the defaults filled in."""

    kind: str
    subject: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the fault as a user would type it."""
        keys = ",".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.kind}@{self.subject}" + (f":{keys}" if keys else "")


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Return all kinds by name, in the file's order."""
    text = resources.files("rackproof.harness").joinpath("faults.toml").read_text("utf-8")
    return MappingProxyType({name: _kind(name, row) for name, row in tomllib.loads(text).items()})


def parse_all(texts: Iterable[str], spec: RackSpec, seed: int) -> list[Fault]:
    """Return the faults that `texts` name, in order.

    A ``?`` is drawn from the seed and the place of its fault in the list, among the subjects that
    no other fault of its kind holds. Raises SpecError for the first text that makes no sense, and
    for two faults of one kind on one subject.
    """
    drafts = [_draft(text, spec) for text in texts]
    taken: set[tuple[str, str]] = set()
    for kind, subject, _ in drafts:
        if subject != "?" and (kind.name, subject) in taken:
            msg = f"{kind.name}@{subject} is planted twice: a subject holds one fault of a kind"
            raise SpecError(msg)
        taken.add((kind.name, subject))
    faults = []
    for position, (kind, asked, parameters) in enumerate(drafts):
        subject = asked
        if asked == "?":
            free = [s for s in subjects(spec, kind) if (kind.name, s) not in taken]
            if not free:
                msg = f"{kind.name}@?: every subject that it could be on has one already"
                raise SpecError(msg)
            subject = free[_draw(f"{seed}/plant/{position}", len(free))]
            taken.add((kind.name, subject))
        faults.append(Fault(kind.name, subject, _complete(kind, subject, parameters, spec)))
    return faults


def parse(text: str, spec: RackSpec, seed: int) -> Fault:
    """Return the one fault that `text` names; as parse_all with a list of one."""
    return parse_all([text], spec, seed)[0]


def subjects(spec: RackSpec, kind: Kind) -> list[str]:
    """Return the subjects of `spec` that the kind allows, in the rack's order."""
    return [subject for sort in kind.on for subject in spec.of_sort(sort)]


def lacking(spec: RackSpec, kind: Kind) -> str:
    """Return why this platform cannot have the kind (``air-cooled``, ...), or an empty string."""
    if kind.needs == "liquid" and spec.cooling == "air":
        return "air-cooled"
    if not subjects(spec, kind):
        return f"no {' and no '.join(kind.on)}"
    wants_sku = any(key.type == "sku" for key in kind.keys.values())
    if wants_sku and not any(_siblings(gpu.sku) for gpu in spec.gpus):
        return "no other SKU of its form factor"
    return ""


def _draft(text: str, spec: RackSpec) -> tuple[Kind, str, dict[str, Parameter]]:
    """Return kind, subject (or ``?``) and the parameters that were given, all checked."""
    head, colon, tail = text.strip().partition(":")
    name, at, subject = head.partition("@")
    known = kinds()
    if name not in known:
        msg = f"unknown fault kind {name[:60]!r}{nearest(name, known)} in {text[:120]!r}"
        raise SpecError(msg)
    kind = known[name]
    if not at or not subject or (colon and not tail):
        msg = f"{text[:120]!r} is no fault: write KIND@SUBJECT[:key=value,...], or ? as SUBJECT"
        raise SpecError(msg)
    reason = lacking(spec, kind)
    if reason:
        msg = f"{name}: {spec.name} cannot have it ({reason})"
        raise SpecError(msg)
    if subject != "?":
        _check_subject(kind, subject, spec)
    parameters = _parameters(kind, tail) if tail else {}
    if not kind.available:
        msg = f"{name} cannot be planted in this version; rackproof list faults shows what can be"
        raise SpecError(msg)
    return kind, subject, parameters


def _check_subject(kind: Kind, subject: str, spec: RackSpec) -> None:
    sort = next((s for s, shape in SORTS.items() if shape.fullmatch(subject)), None)
    if sort is not None and sort not in kind.on:
        msg = f"{kind.name} is a fault of a {' or a '.join(kind.on)}, and {subject} is a {sort}"
        raise SpecError(msg)
    allowed = subjects(spec, kind)
    if subject not in allowed:
        hint = nearest(subject, allowed)
        msg = f"{kind.name}: {spec.name} has no {subject[:60]!r}{hint}"
        raise SpecError(msg)


def _parameters(kind: Kind, tail: str) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for part in tail.split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        if name not in kind.keys:
            hint = nearest(name, kind.keys)
            msg = f"{kind.name} has no key {name[:60]!r}{hint}; it has {', '.join(kind.keys)}"
            raise SpecError(msg)
        if not equals or not text:
            msg = f"{kind.name}: {name} needs a value, as in {name}=1"
            raise SpecError(msg)
        if name in found:
            msg = f"{kind.name}: {name} is given twice"
            raise SpecError(msg)
        found[name] = _value(kind.name, kind.keys[name], text)
    return found


def _value(kind: str, key: Key, text: str) -> Parameter:
    """Return the text as the key's type; a SpecError where it is none, or out of range."""
    shown = f"{kind}: {key.name}={text[:60]!r}"
    if key.type == "sku":
        if text not in skus():
            msg = f"{shown}: unknown SKU{nearest(text, skus())}; known: {', '.join(skus())}"
            raise SpecError(msg)
        return text
    if key.type == "metric":
        families = [text.rsplit(".", dots)[0] for dots in range(3)] if text in metrics() else [text]
        if not any(family in key.choices for family in families):
            msg = f"{shown} is none of {', '.join(key.choices)}{nearest(text, key.choices)}"
            raise SpecError(msg)
        return text
    if key.type == "lasts":
        return text if text == "once" else _number(shown, _SECONDS, text)
    return _number(shown, key, text)


_SECONDS = Key("lasts", "float", above=0.0)


def _number(shown: str, key: Key, text: str) -> int | float:
    whole = key.type == "int"
    if not (_INTEGER if whole else _NUMBER).fullmatch(text):
        other = ", or once" if key.name == "lasts" else ""
        msg = f"{shown} is no {'whole number' if whole else 'number'}{other}"
        raise SpecError(msg)
    value = int(text) if whole else float(text)
    in_range = key.low <= value <= key.high and key.above < value < key.below
    if not (math.isfinite(value) and in_range):
        msg = f"{shown} is out of range: {key.span or 'a finite number'}"
        raise SpecError(msg)
    return value


def _complete(
    kind: Kind, subject: str, given: Mapping[str, Parameter], spec: RackSpec
) -> Mapping[str, Parameter]:
    """Return all parameters: what was given, then the defaults, in the order of the kind's keys."""
    complete = {}
    for name, key in kind.keys.items():
        value = given.get(name, key.default)
        if key.type == "sku":
            value = _other_sku(kind.name, subject, value, spec)
        if value is not None:
            complete[name] = value
    return complete


def _other_sku(kind: str, subject: str, asked: Parameter | None, spec: RackSpec) -> str:
    own = next(gpu.sku for gpu in spec.gpus if gpu.subject == subject)
    others = _siblings(own)
    if asked is None and others:
        return others[0]
    if asked == own:
        msg = f"{kind}: {subject} is a {own} already; sku= wants one of {', '.join(others)}"
        raise SpecError(msg)
    if asked not in others:
        msg = f"{kind}: {asked or 'nothing'} does not fit into the place of a {own}" + (
            f"; sku= wants one of {', '.join(others)}" if others else ""
        )
        raise SpecError(msg)
    return str(asked)


def _siblings(own: str) -> list[str]:
    """Return the other SKUs of the same form factor, those whose name in NVML is known."""
    mine = skus()[own]
    form = mine.text("form_factor")
    if form is None or mine.text("name") is None:
        return []
    return [
        key
        for key, sku in skus().items()
        if key != own and sku.text("form_factor") == form and sku.text("name") is not None
    ]


def _draw(key: str, among: int) -> int:
    """Return a number below `among`, a pure function of `key`."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % among


def _kind(name: str, row: Mapping[str, Any]) -> Kind:
    given = dict(row.get("keys", {}))
    common = [_override(key, given.pop(key.name, {})) for key in _COMMON]
    own = [Key(key, **_tupled(table)) for key, table in given.items()]
    return Kind(
        name=name,
        on=tuple(row["on"]),
        summary=row["summary"],
        verdict=row["verdict"],
        component=tuple(row["component"]),
        persistence=row["persistence"],
        available=row["available"],
        action=tuple(row.get("action", ())),
        needs=row.get("needs", ""),
        keys=MappingProxyType({key.name: key for key in (*own, *common)}),
    )


def _override(key: Key, table: Mapping[str, Any]) -> Key:
    return Key(
        key.name,
        key.type,
        table.get("default"),
        above=key.above,
        high=key.high,
        absent=key.absent,
        about=key.about,
    )


def _tupled(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: tuple(v) if isinstance(v, Sequence) and not isinstance(v, str) else v
        for k, v in table.items()
    }
