"""metrics.toml as objects: every metric once, with its unit and which way is better.

A team's own metrics stand beside the shipped ones once they are declared (fixtures/own.py); a
record carries them, so that reading it declares them too.
"""

import functools
import math
import re
import tomllib
from dataclasses import MISSING, dataclass, fields
from importlib import resources
from typing import Any

from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.units import COUNTED, UNITS, possible

BETTER = ("high", "low", "equal")
SUBJECTS = ("gpu", "link", "host", "nic", "shelf", "power", "cooling", "fabric")
MAX_NAME = 100  # characters
_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `better` is high, low or equal.

    What is not `judged` is only noted, and so is what is `optional` where nobody gives a limit;
    what is `relative` is also held against the rack's own median or most common value. A reading
    below `least` or above `most` (in `unit`) cannot be, nor a part of what is counted `whole`.
    """

    name: str
    unit: str
    subject: str
    better: str
    judged: bool
    relative: bool
    component: str
    action: str
    about: str
    optional: bool = False
    whole: bool = False
    least: float | None = None
    most: float | None = None

    def possible(self, value: float | str) -> bool:
        """Say whether a reading can be at all, within limits or not."""
        if isinstance(value, str):
            return True
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.most is None else self.most
        ours = low <= value <= high and not (self.whole and value % 1)
        return ours and possible(value, self.unit)


def _usual(unit: str) -> dict[str, Any]:
    """Return what a table of metrics.toml need not say."""
    whole = unit in COUNTED or unit == "flag"
    return {"judged": True, "relative": False, "whole": whole}


def _walk(table: dict[str, Any], path: tuple[str, ...]) -> list[Metric]:
    if isinstance(table.get("unit"), str):
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        found = [Metric(name=".".join(path), **{**_usual(own["unit"]), **own})]
    else:
        found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _walk(value, (*path, key))
    return found


@functools.cache
def _shipped() -> dict[str, Metric]:
    text = resources.files("rackproof.harness").joinpath("metrics.toml").read_text("utf-8")
    return {m.name: m for m in _walk(tomllib.loads(text), ())}


_known: dict[str, Metric] = {}


def metrics() -> dict[str, Metric]:
    """Return all metrics by name: the shipped ones in the file's order, then what was declared."""
    if not _known:
        _known.update(_shipped())
    return _known


def declared() -> dict[str, Metric]:
    """Return the metrics that do not come with rackproof."""
    return {name: metric for name, metric in metrics().items() if name not in _shipped()}


def declare(metric: Metric) -> None:
    """Add a metric; the same again is fine.

    Raises SpecError for a name that is taken or lies in a family of ours, and for a word that
    metrics.toml would not have.
    """
    if not _NAME.fullmatch(metric.name) or len(metric.name) > MAX_NAME:
        msg = f"metric {metric.name[:60]!r}: a name is like acme.fan.speed, in lower case"
        raise SpecError(msg)
    families = {name.partition(".")[0] for name in _shipped()}
    known = metrics().get(metric.name)
    if metric.name.partition(".")[0] in families or known not in (None, metric):
        msg = f"metric {metric.name!r}: is taken; begin its name with a word of your own"
        raise SpecError(msg)
    for value, words, what in (
        (metric.unit, UNITS, "unit"),
        (metric.subject, SUBJECTS, "subject"),
        (metric.better, BETTER, "better"),
    ):
        if value not in words:
            msg = f"metric {metric.name}: unknown {what} {value!r}{nearest(value, words)}"
            raise SpecError(msg)
    metrics()[metric.name] = metric


_KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "str"),
    bool: (bool, "bool"),
    float | None: (int | float | None, "number"),
}
"""What a field of a plain table has to be, by the type of the field."""


def from_table(table: dict[str, Any]) -> Metric:
    """Return the metric of a plain table; a SpecError where it is none. The table is untrusted."""
    for field in fields(Metric):
        if field.name not in table and field.default is not MISSING:
            continue
        wanted, what = _KINDS[field.type]
        value = table.get(field.name)
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            msg = f"a metric's {field.name} is missing, or no {what}"
            raise SpecError(msg)
    if table.keys() - {field.name for field in fields(Metric)}:
        msg = f"metric {table['name'][:60]!r} has keys that no metric has"
        raise SpecError(msg)
    return Metric(**table)
