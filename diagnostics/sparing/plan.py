"""How many spares a hall needs for so many days, and how far one fault reaches. Pure.

In: racks, days, rates, a confidence, a seeded generator. Out: figures by closed form, each with the
simulation's own beside it where there is one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rackproof.diagnostics.sparing.closed import (
    binomial_at_most,
    interval,
    poisson_at_most,
    stock_for,
    unavailability,
    usable,
    useful,
)
from rackproof.diagnostics.sparing.simulate import Scenario, demand, simulate
from rackproof.diagnostics.sparing.tables import figure

EVENTS = 400_000  # failures and repairs that one plan simulates, at most
FEWEST, MOST = 200, 20_000  # windows
AGREES = 4.0  # standard errors between simulation and closed form
OUT = {"nvl72": (18, 4, 2), "nvl8": (9, 8, 1)}
"""Layouts of equal size for the blast radius: units, GPUs of each, spare units. 64 of 72 in use."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is planned for. `rate` is failures per GPU-hour, `persistent` their lasting share.

    `trays` of `per_tray` GPUs make a rack, of which `spare` may be out. `repair` is in hours; `job`
    is how many GPUs one job spans, all racks' where it is 0.
    """

    racks: int
    days: float
    trays: int
    per_tray: int
    spare: int
    rate: float
    persistent: float
    repair: float
    confidence: float
    spare_racks: int = 0
    job: int = 0

    @property
    def tray_rate(self) -> float:
        """Lasting failures per tray-hour: what takes a tray out until its repair."""
        return self.rate * self.persistent * self.per_tray

    @property
    def hours(self) -> float:
        """The window."""
        return self.days * 24.0


def plan(wanted: Demand, draw: np.random.Generator) -> dict[str, Any]:
    """Return the planning table as plain values."""
    gpus = wanted.racks * wanted.trays * wanted.per_tray
    lasting = wanted.rate * wanted.persistent * gpus * wanted.hours
    down = unavailability(wanted.tray_rate, wanted.repair)
    rows = _availability(wanted, down)
    simulated = _simulated(wanted, draw)
    out = wanted.racks * (1.0 - rows[wanted.spare]["usable"])
    return {
        "racks": wanted.racks,
        "days": wanted.days,
        "gpus": gpus,
        "failures": wanted.rate * gpus * wanted.hours,
        "lasting_failures": lasting,
        "tray_unavailability": down,
        "in_rack": rows,
        "racks_below": out,
        "hall_covers": binomial_at_most(
            wanted.spare_racks, wanted.racks, 1.0 - rows[wanted.spare]["usable"]
        ),
        "stock_without_replenishment": stock_for(lasting, wanted.confidence),
        "stock_with_replenishment": stock_for(
            wanted.tray_rate * wanted.racks * wanted.trays * wanted.repair, wanted.confidence
        ),
        "confidence": wanted.confidence,
        "useful_time": _useful(wanted),
        "simulation": simulated,
        "agrees": _agree(wanted, rows[wanted.spare], simulated, lasting),
    }


def _availability(wanted: Demand, down: float) -> list[dict[str, Any]]:
    """Return for each number of trays that may be out how often the rack, and all, have enough."""
    rows = []
    for spare in range(min(wanted.spare + 2, wanted.trays - 1) + 1):
        enough = usable(wanted.trays, spare, down)
        rows.append(
            {
                "spare_trays": spare,
                "usable": enough,
                "all_usable": enough**wanted.racks,
                "in_use": (wanted.trays - spare) * wanted.per_tray,
            }
        )
    return rows


def _useful(wanted: Demand) -> dict[str, float]:
    """Return the best checkpoint interval of one job, over all racks or as wide as was said."""
    gpus = wanted.job or wanted.racks * (wanted.trays - wanted.spare) * wanted.per_tray
    failures, write = wanted.rate * gpus, figure("time", "write")
    gap = interval(write, failures)
    share = useful(gap, write, figure("time", "begin"), failures)
    return {"gpus": gpus, "interval_hours": gap, "share": share}


def _simulated(wanted: Demand, draw: np.random.Generator) -> dict[str, Any]:
    """Simulate a long window, so that all units up at its start matters little."""
    hours = max(wanted.hours, 40.0 * wanted.repair)
    # a part of the racks stands for all of them: they are independent
    racks = min(wanted.racks, 50)
    events = 2.0 * racks * wanted.trays * wanted.tray_rate * hours
    trials = int(min(MOST, max(FEWEST, EVENTS / max(events, 1.0))))
    scenario = Scenario(racks, wanted.trays, wanted.spare, wanted.tray_rate, wanted.repair, hours)
    found = simulate(scenario, trials, draw)
    mean = wanted.rate * wanted.persistent * wanted.racks * wanted.trays * wanted.per_tray
    asked = demand(
        mean, wanted.hours, int(min(MOST, max(FEWEST, EVENTS / (mean * wanted.hours + 1)))), draw
    )
    stock = stock_for(mean * wanted.hours, wanted.confidence)
    return {
        "usable": found.usable,
        "usable_error": found.usable_error,
        "covered": float((asked <= stock).mean()),
        "covered_trials": int(asked.size),
        "events": found.events,
        "windows": trials,
    }


def _agree(wanted: Demand, row: dict[str, Any], simulated: dict[str, Any], mean: float) -> bool:
    """Say whether simulation and closed forms agree within AGREES standard errors.

    Where a window saw no outage its error says nothing: then one outage in all windows is allowed.
    """
    bias = 2.0 * wanted.repair / max(wanted.hours, 40.0 * wanted.repair) * (1.0 - row["usable"])
    error = simulated["usable_error"] or 1.0 / (simulated["windows"] + 1.0)
    close = abs(simulated["usable"] - row["usable"]) <= AGREES * error + bias
    covered = poisson_at_most(stock_for(mean, wanted.confidence), mean)
    spread = (covered * (1.0 - covered) / simulated["covered_trials"]) ** 0.5
    slack = AGREES * spread + 1.0 / simulated["covered_trials"]
    return bool(close and abs(simulated["covered"] - covered) <= slack)


def blast(rate: float, persistent: float, repair: float) -> list[dict[str, Any]]:
    """Return NVL72 against NVL8 at the same failure rates, 64 of 72 GPUs in use in both.

    stopped: GPUs whose NVLink domain is broken by one failure · lost: their GPU-hours a month of
    restarts · out: GPUs out of use for one lasting failure · usable: share of time that 64 GPUs are
    there, with the spares of the layout.
    """
    rows = []
    restart = figure("time", "restart")
    for name, (units, per_unit, spare) in OUT.items():
        in_use = (units - spare) * per_unit
        down = unavailability(rate * persistent * per_unit, repair)
        domain = in_use if name == "nvl72" else per_unit
        monthly = rate * in_use * 720.0
        rows.append(
            {
                "layout": name,
                "gpus": units * per_unit,
                "in_use": in_use,
                "domain": domain,
                "failures_a_month": monthly,
                "stopped": domain,
                "lost": monthly * domain * restart,
                "out": per_unit,
                "usable": usable(units, spare, down),
            }
        )
    return rows
