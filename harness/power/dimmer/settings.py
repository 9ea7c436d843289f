"""The constants of the Dimmer, from settings.toml, and what the stores of each feed can bridge.

In: the table, or other values by keyword. Out: a frozen `Settings`; nonsense is a ValueError that
names the constant.
"""

import functools
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Bridge:
    """What the stores behind one feed can give while a ramp is on its way: J, and W at once."""

    energy: float
    power: float

    def __post_init__(self) -> None:
        """Refuse what no store holds; a ValueError."""
        if not (self.energy >= 0.0 and self.power >= 0.0):
            msg = (
                f"a store holds 0 J or more and gives 0 W or more, not {self.energy} J and"
                f" {self.power} W"
            )
            raise ValueError(msg)


@functools.cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Return settings.toml: name -> value, unit, mark, source."""
    file = resources.files("rackproof.harness.power.dimmer").joinpath("settings.toml")
    return MappingProxyType(tomllib.loads(file.read_text("utf-8")))


def _of(name: str) -> Callable[[], float]:
    return lambda: float(table()[name]["value"])


@dataclass(frozen=True, slots=True)
class Settings:
    """All constants of the Dimmer; units, marks and sources stand in settings.toml.

    `bridges` are the stores by feed; a feed that is not named there is judged by its breaker only.
    An upper controller asks nothing of GPUs and `advises` those below it by contracts: it follows
    the caps that they set, and has a `cycle` of 9 s (`upper_cycle`).
    """

    above: float = field(default_factory=_of("above"))
    target: float = field(default_factory=_of("target"))
    below: float = field(default_factory=_of("below"))
    settled_low: float = field(default_factory=_of("settled_low"))
    settled_high: float = field(default_factory=_of("settled_high"))
    quiet: float = field(default_factory=_of("quiet"))
    cycle: float = field(default_factory=_of("cycle"))
    tick: float = field(default_factory=_of("tick"))
    grain: float = field(default_factory=_of("grain"))
    window: float = field(default_factory=_of("window"))
    periods: float = field(default_factory=_of("periods"))
    calm: float = field(default_factory=_of("calm"))
    down: float = field(default_factory=_of("down"))
    urgent: float = field(default_factory=_of("urgent"))
    longest: float = field(default_factory=_of("longest"))
    up: float = field(default_factory=_of("up"))
    jitter: float = field(default_factory=_of("jitter"))
    lag: float = field(default_factory=_of("lag"))
    strain_step: float = field(default_factory=_of("strain_step"))
    strain_ramp: float = field(default_factory=_of("strain_ramp"))
    trip_step: float = field(default_factory=_of("trip_step"))
    missing: float = field(default_factory=_of("missing"))
    silence: float = field(default_factory=_of("silence"))
    reversal: float = field(default_factory=_of("reversal"))
    ripple: float = field(default_factory=_of("ripple"))
    idle: float = field(default_factory=_of("idle"))
    unsure: float = field(default_factory=_of("unsure"))
    sliver: float = field(default_factory=_of("sliver"))
    short: float = field(default_factory=_of("short"))
    stuck: float = field(default_factory=_of("stuck"))
    moved: float = field(default_factory=_of("moved"))
    ignored: float = field(default_factory=_of("ignored"))
    bridges: Mapping[str, Bridge] = field(default_factory=dict)
    advises: bool = False

    def __post_init__(self) -> None:
        """Refuse nonsense; a ValueError that names the constant."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in ("bridges", "advises") and not (
                math.isfinite(value) and value >= 0.0
            ):
                msg = f"Dimmer: {one.name} is {value}; it must be a number, 0 or more"
                raise ValueError(msg)
        for name in ("cycle", "tick", "window", "down", "urgent", "up", "quiet", "calm", "stuck",
                     "silence"):  # fmt: skip
            if not getattr(self, name) > 0.0:
                msg = f"Dimmer: {name} must be above 0"
                raise ValueError(msg)
        self._ordered("below", "settled_low", "target", "settled_high", "above")
        if self.above > 1.0:
            msg = f"Dimmer: above is {self.above}; a cut must begin at or under the limit, 1"
            raise ValueError(msg)
        self._ordered("down", "urgent")
        self._ordered("tick", "cycle", "silence")
        self._ordered("strain_ramp", "strain_step")
        if self.strain_step >= 1.0 or self.missing >= 1.0 or self.idle >= 1.0:
            msg = "Dimmer: strain_step, missing and idle are shares, under 1"
            raise ValueError(msg)

    def _ordered(self, *names: str) -> None:
        values = [getattr(self, name) for name in names]
        if values != sorted(values):
            said = ", ".join(f"{n} {v:g}" for n, v in zip(names, values, strict=True))
            msg = f"Dimmer: these must not fall: {said}"
            raise ValueError(msg)

    def span(self, period: float) -> float:
        """Return the window of a job with this iteration period, s: whole iterations of it.

        ``max(window, periods x period)``, rounded up to whole iterations.
        """
        if period <= 0.0:
            return self.window
        least = max(self.window, self.periods * period)
        return math.ceil(least / period - 1e-9) * period


def upper_cycle() -> float:
    """Return the cycle of an upper controller, s."""
    return float(table()["upper_cycle"]["value"])
