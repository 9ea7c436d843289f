"""The drills of the power zone: a limit falls, the mains go, sensors fail; the Dimmer acts.

Inject: on the emulated rack's own equipment, while a training run stands on its GPUs and commits a
real step for each step of virtual time. Oracle: the criteria DD1 to DD13 (diagnostics.power), and
the states of the fault-free run, bit for bit: caps change time, not arithmetic. Seconds are
virtual.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from rackproof.diagnostics.drills.base import Drill, Least, PowerZone, Stage
from rackproof.diagnostics.recovery.record import Expected
from rackproof.harness.spec import RackSpec
from rackproof.harness.training.plan import Plan, Shape

STEP_S = 2.0
"""Seconds of a training step at full power."""
SETTLE_S, HOLD_S, RECOVER_S = 30.0, 105.0, 215.0
"""Before the first event; under a lowered limit; after it, until caps from the lowest floor to the
highest limit have come back: 1,200 W at 20 W each 3 s, and what they wait for before."""
AFTER_S = 30.0
"""What is left of the run after all that, at full power."""
SMALL, LARGE, LIGHT = 0.2, 0.4, 0.1
"""By how much of the measured load a limit falls."""
ON_BATTERY = 0.2
BATTERY_S = 45.0
BLIND_S = 45.0
BLIND_SHARE = 0.4
"""Of the GPUs' power readings that are lost; a fifth is what the Dimmer bears."""
COOLANT_LEFT = 0.5
SAGS = ((0.7, 0.020), (0.7, 0.300))
"""Depth, and seconds: the first is the supplies' own affair, the second a battery's."""
FEWEST_TRAYS = 4
CRITERIA = (*(f"DD{number}" for number in range(1, 14)), "cooling")
ALWAYS = ("DD1", "DD4", "DD5", "DD8", "DD11")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a drill: its name in the record, what is done, how long it takes, what it shows.

    Seconds are those at most; `shows` are criteria that only it shows.
    """

    name: str
    hold: Callable[[PowerZone], None]
    seconds: float
    shows: tuple[str, ...] = ()


def _lowered(name: str, cut: float) -> Part:
    def hold(zone: PowerZone) -> None:
        zone.limit(name, cut)
        zone.run(HOLD_S)
        zone.lift()
        zone.recover()

    return Part(name, hold, HOLD_S + RECOVER_S, ("DD2", "DD3", "DD6", "DD7", "DD10"))


def _on_battery(zone: PowerZone) -> None:
    zone.lose_ac("ac-loss", ON_BATTERY)
    zone.run(BATTERY_S)
    zone.return_ac()
    zone.recover()


def _sags(zone: PowerZone) -> None:
    for left, seconds in SAGS:
        zone.sag("sag", left, seconds)
        zone.run(8.0)


def _ramped(zone: PowerZone) -> None:
    zone.ramp("utility-ramp", LIGHT + 0.05, 45.0)
    zone.run(HOLD_S - 45.0)
    zone.lift()
    zone.recover()


def _blind(zone: PowerZone) -> None:
    """Lose the sensors under a limit, and lift it meanwhile: who guesses would raise the caps."""
    zone.limit("sensor-loss", LIGHT)
    zone.run(HOLD_S)
    zone.lose_sensors(BLIND_SHARE)
    zone.run(BLIND_S / 3.0)
    zone.lift()
    zone.run(BLIND_S * 2.0 / 3.0)
    zone.return_sensors()
    zone.recover()


def _warm(zone: PowerZone) -> None:
    zone.lose_coolant("coolant-loss", COOLANT_LEFT)
    zone.run(HOLD_S)
    zone.return_coolant()
    zone.recover()


def _killed(zone: PowerZone) -> None:
    """Kill the controller while caps are in force; the next one takes them over."""
    zone.limit("controller-killed", LIGHT)
    zone.run(HOLD_S)
    zone.kill_controller()
    zone.run(5.0)
    zone.start_controller()
    zone.run(10.0)
    zone.lift()
    zone.recover()


def drawn(draw: Random) -> Part:
    """Return an event of drawn size and times, which may begin before the last one is got over."""
    name, cut = f"drawn {draw.getrandbits(32):08x}", draw.uniform(0.05, 0.4)
    held_for, rest = draw.uniform(8.0, 30.0), draw.uniform(2.0, 15.0)
    kind = draw.choices(("limit", "ac", "ramp", "sag"), (0.6, 0.15, 0.15, 0.1))[0]
    blind = draw.random() < BLINDED
    share = draw.uniform(0.1, 1.0)

    def hold(zone: PowerZone) -> None:
        zone.ready(RECOVER_S)
        if kind == "sag":  # at a load that stands: what moves of it is to be seen
            zone.recover()
            zone.sag(name, draw.uniform(0.5, 0.75), draw.choice((0.02, 0.1, 1.0)))
        elif kind == "ac":
            zone.lose_ac(name, cut)
        elif kind == "ramp":
            zone.ramp(name, cut, round(held_for / 2.0))
        else:
            zone.limit(name, cut)
        if blind:
            zone.run(held_for / 4.0)
            zone.lose_sensors(share)
        zone.run(held_for)
        if blind:
            zone.return_sensors()
        if kind == "ac":
            zone.return_ac()
        elif kind != "sag":
            zone.lift()
        zone.run(rest)

    waits = LIKELY * RECOVER_S if kind == "sag" else READY_S
    return Part(name, hold, waits + 1.4 * held_for + rest)


def random_events(seed: int, count: int) -> Drill:
    """Return a drill of so many drawn events: no trip, no cap left behind, the same bits."""
    draw = Random(f"power events {seed}")
    parts = tuple(drawn(draw) for _ in range(count))
    name = "power-random"
    return _drill(
        name, f"{count} drawn events", *parts, Part("", lambda zone: zone.recover(), RECOVER_S)
    )


READY_S, LIKELY = 30.0, 0.4
"""What is planned for a wait: until something can be cut, s; of a recovery, as a share."""
BLINDED = 0.3
"""Share of drawn events in which sensors are lost as well."""
LIMIT_20, LIMIT_40 = _lowered("limit -20 %", SMALL), _lowered("limit -40 %", LARGE)
AC = Part("ac-loss", _on_battery, BATTERY_S + RECOVER_S, ("DD2", "DD10"))
SAG = Part("sag", _sags, 16.0, ("DD13",))
RAMP = Part("utility-ramp", _ramped, HOLD_S + RECOVER_S, ("DD10",))
BLIND = Part("sensor-loss", _blind, HOLD_S + BLIND_S + RECOVER_S, ("DD9",))
KILL = Part("controller-killed", _killed, HOLD_S + 15.0 + RECOVER_S)
WARM = Part("coolant-loss", _warm, HOLD_S + RECOVER_S, ("cooling",))
CONTROL = Part("control", lambda zone: zone.control(SMALL), 0.0, ("DD12",))


def _plan(parts: tuple[Part, ...]) -> Plan:
    """Return a run that is at least as long as its parts.

    It has a great many steps, so that one of them is small.
    """
    seconds = SETTLE_S + sum(part.seconds for part in parts) + AFTER_S
    small = Plan(shape=Shape(layers=1), micro_batch=1)
    return replace(small, steps=round(seconds / STEP_S), every=50, replicas=2, spares=1)


def held(stage: Stage, parts: tuple[Part, ...]) -> None:
    """Hold the parts of a drill, one after the other, on one training run."""
    plan = stage.sized(_plan(parts))
    shown = {*ALWAYS, *(each for part in parts for each in part.shows)}
    due = [each for each in CRITERIA if each in shown] + [part.name for part in parts if part.name]
    stage.expect(Expected(proof="L4", power=tuple(due)))
    stage.clean(plan)
    with stage.run(replace(plan, gate=1)) as job, stage.power(job) as zone:
        zone.run(SETTLE_S + stage.draw.uniform(0.0, STEP_S))
        for part in parts:
            part.hold(zone)
        zone.finish()
        job.finish()


def _drill(name: str, summary: str, *parts: Part) -> Drill:
    steps = _plan(parts).steps
    return Drill(
        name,
        summary,
        lambda stage: held(stage, parts),
        lacks=_lacks_coolant if WARM in parts else _lacks,
        needs=lambda _layer, _seed: Least(steps, 1),
    )


def _lacks(spec: RackSpec) -> str:
    """Return why a rack has no power zone that could be drilled."""
    power, gpus = spec.power, len(spec.gpus) // spec.racks
    if not power.shelves:
        return "it has no power shelves, so that there is no zone of its own"
    if not power.bbu:
        return "it has no BBU to ride on"
    if min(len(spec.trays), len(spec.gpus)) < FEWEST_TRAYS * spec.racks:
        return f"a job in training and another one want {FEWEST_TRAYS} trays in each rack"
    most = gpus * (spec.sku.number("power_default") or 0.0) / 1000.0
    gives, fixed = power.shelves * (power.shelf_kw or 0.0), power.uncappable_kw or 0.0
    if gives and gives < fixed + most:
        return f"its shelves give {gives:g} kW, and it draws up to {fixed + most:.1f}"
    return ""


def _lacks_coolant(spec: RackSpec) -> str:
    """Return why a rack has no coolant to lose."""
    return "it is cooled by air" if spec.cooling == "air" else _lacks(spec)


DRILLS = (
    _drill(
        "power-dim",
        "limits fall, the mains go, sensors and the controller fail: the Dimmer cuts, training"
        " goes on",
        LIMIT_20, LIMIT_40, AC, SAG, RAMP, BLIND, KILL, CONTROL,
    ),
    _drill("ac-loss", "the mains of a rack go: the battery carries, the Dimmer stretches it",
           AC, SAG),
    _drill("utility-ramp", "the utility asks for less along a ramp, and gives it back", RAMP),
    _drill("sensor-loss", "power readings are lost under a limit: caps are held, never raised",
           BLIND),
    _drill("coolant-loss", "half of the coolant is gone: the Dimmer cuts to what it can carry",
           WARM),
)  # fmt: skip
