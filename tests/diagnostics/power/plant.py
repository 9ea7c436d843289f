"""A small rack for synthetic power records: 72 GPUs, two jobs, caps, stores, breakers. Not ours.

It shares no code with the emulated house: first-order power, the speed law, stores and breakers by
the equations of the design. The Dimmer here is a table: the caps that end at 0.95 of a limit, the
lowest priority first, and ramps towards them.
"""

import math
from dataclasses import dataclass, field

IDLE, TOP, GAMMA = 145.0, 1200.0, 0.24
FIXED, RATED, BBU_J, BESS_J = 45_000.0, 142_000.0, 240 * 142_000.0, 300 * 142_000.0
EVERY, TICK, CYCLE = 0.1, 0.5, 3.0
DOWN, URGENT, UP = 20.0, 100.0, 20.0
K, A, DECAY = 9.22, 2.04, 120.0
FEEDS = ("site/power", "row0/power", "rack0/power")
RACK = FEEDS[-1]
JOBS = {"batch": (24, 1, 200.0, 1.5), "training": (48, 2, 300.0, 2.0)}
SHAPES = {"batch": (0.9, 0.2, 0.4), "training": (1.2, 0.3, 0.5)}
USES = (1.0, 0.8, 0.35)
NAMES = ("mean", "peak", "seen", "strain", "margin")


def speed(cap):
    return ((min(cap, TOP) - IDLE) / (TOP - IDLE)) ** GAMMA


def mean_watts(name, cap):
    """Return the mean power of a GPU of a job under a cap, over whole steps."""
    compute, memory, talk = SHAPES[name]
    seconds = (compute / speed(cap), memory, talk)
    watts = [min(IDLE + (TOP - IDLE) * use, cap) for use in USES]
    return sum(w * s for w, s in zip(watts, seconds, strict=True)) / sum(seconds)


def load(caps):
    return FIXED + sum(JOBS[name][0] * mean_watts(name, cap) for name, cap in caps.items())


def fitted(limit):
    """Return the caps under which the rack draws 0.95 of a limit: the lowest priority first."""
    caps = dict.fromkeys(JOBS, TOP)
    for name in JOBS:  # in the order of priority
        low, high = JOBS[name][2], TOP
        if load({**caps, name: low}) > 0.95 * limit:
            caps[name] = low
            continue
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if load({**caps, name: middle}) < 0.95 * limit else (low, middle)
            )
        caps[name] = low
        break
    return caps


@dataclass
class Gang:
    """A job at work: one phase after the other, all its GPUs alike."""

    name: str
    watts: float = IDLE
    phase: int = 0
    left: float = 0.0
    number: int = 1
    begin: float = 0.0
    drawn: list = field(default_factory=list)

    def __post_init__(self):
        self.left = SHAPES[self.name][0]

    def advance(self, at, cap):
        """Let a part of a second pass; return the W of a GPU, and a step that ended."""
        ended, still = None, EVERY
        while still > 1e-12:
            rate = speed(cap) if self.phase == 0 else 1.0
            took = min(still, self.left / rate)
            self.left -= took * rate
            still -= took
            if self.left <= 1e-12:
                self.phase = (self.phase + 1) % 3
                self.left = SHAPES[self.name][self.phase]
                if not self.phase:
                    now = at + EVERY - still
                    watts = sum(self.drawn) / max(len(self.drawn), 1)
                    ended = (self.number, self.begin, now, 0.012, watts)
                    self.number, self.begin, self.drawn = self.number + 1, now, []
        want = min(IDLE + (TOP - IDLE) * USES[self.phase], cap)
        self.watts += (want - self.watts) * (1 - math.exp(-EVERY / 0.075))
        self.drawn.append(self.watts)
        return self.watts, ended


class Plant:
    """The rack over time; `log` holds the facts that it leaves, in the order of a record."""

    def __init__(self, run="dimmed"):
        self.run, self.place, self.log = run, 0, []
        self.gangs = [Gang(name) for name in JOBS]
        self.caps = dict.fromkeys(JOBS, TOP)
        self.goal, self.rate, self.rises = dict(self.caps), DOWN, 0.0
        self.limit, self.mains = RATED, True
        self.bbu, self.cbu, self.bess, self.strain = 1.0, 0.5, 0.5, 0.0
        self.even, self.grid = 105_000.0, 105_000.0
        self.columns = {feed: {} for feed in FEEDS}
        self.steps = {name: [] for name in JOBS}
        self.loads, self.blind, self.frozen = [], False, False
        self.begun = 0.0
        if run == "dimmed":
            for name in JOBS:
                self.told_cap(name)

    @property
    def now(self):
        return round(self.place * EVERY, 6)

    @property
    def steady(self):
        return sum(self.loads[-120:]) / len(self.loads[-120:])

    def say(self, sort, **fields):
        self.log.append({"sort": sort, **fields})

    def event(self, name, what, **more):
        self.say("event", run=self.run, at=self.now, id=name, what=what, feed=RACK, **more)

    def electric(self, what, before=0.0, **more):
        at = round(self.now + 0.01 - before, 6)
        self.say("electric", run=self.run, at=at, what=what, feed=RACK, **more)

    def carried(self, seconds):
        self.electric("bus-low", before=seconds)
        self.electric("bbu-carries", seconds=seconds)

    def act(self, what, ramp="", job=""):
        self.say(
            "act", run=self.run, at=self.now, what=what, feed=RACK, job=job, text="", ramp=ramp
        )

    def told_cap(self, name):
        self.say("caps", at=self.now, job=name, watts=round(self.caps[name], 3), differ=0)

    # --- time --------------------------------------------------------------------------------
    def pass_(self, seconds):
        for _ in range(round(seconds / EVERY)):
            if self.run == "dimmed" and not self.place % round(TICK / EVERY):
                self.steer()
            self.tick()

    def steer(self):
        for name, cap in self.caps.items():
            new = cap
            if cap > self.goal[name]:
                new = max(self.goal[name], cap - self.rate * TICK)
            elif cap < self.goal[name] and not self.blind and self.now >= self.rises - 1e-9:
                new = min(self.goal[name], cap + UP)
            if new != cap:
                self.caps[name] = new
                self.told_cap(name)
        if self.now >= self.rises - 1e-9:
            self.rises = self.now + CYCLE

    def tick(self):
        gpus, peak = FIXED, FIXED
        for gang in self.gangs:
            watts, step = gang.advance(self.now, self.caps[gang.name])
            gpus += JOBS[gang.name][0] * watts
            peak += JOBS[gang.name][0] * watts * 1.01
            self.steps[gang.name] += [step] if step else []
        self.place += 1
        self.loads.append(gpus)
        self.electrics(gpus, peak)

    def electrics(self, rack, peak):
        self.even += (rack - self.even) * (1 - math.exp(-EVERY / 0.2))
        cbu = max(-20_000.0, min(20_000.0, rack - self.even))
        self.cbu += (0.5 - self.cbu) * 0.2 - 0.1 * cbu / 72_000.0
        bbu = rack - cbu if not self.mains else (-7100.0 if self.bbu < 1.0 else 0.0)
        self.bbu = min(1.0, self.bbu - bbu * EVERY / BBU_J)
        seen = rack - cbu - bbu
        over = seen / self.limit - 1.0
        if over > 0:
            self.strain += EVERY * over**A / K
        else:
            self.strain *= math.exp(-EVERY / DECAY)
        self.grid += (seen - self.grid) * (1 - math.exp(-EVERY / 30.0))
        bess = max(-71_000.0, min(71_000.0, seen - self.grid))
        self.bess -= bess * EVERY / BESS_J
        self.put(RACK, (rack, peak, seen, self.strain, 24.0 - rack / 10_000.0),
                 {"bbu": (self.bbu, bbu), "cbu": (self.cbu, cbu)})  # fmt: skip
        for feed in FEEDS[1:-1]:
            self.put(feed, (seen, peak, seen, 0.0, None), {})
        self.put(FEEDS[0], (seen, peak, seen - bess, 0.0, None), {"bess": (self.bess, bess)})

    def put(self, feed, values, stores):
        columns = self.columns[feed]
        for name, value in zip(NAMES, values, strict=True):
            columns.setdefault(name, []).append(value)
        for name, (charge, out) in stores.items():
            columns.setdefault(f"charge.{name}", []).append(charge)
            columns.setdefault(f"out.{name}", []).append(out)

    # --- what a drill does -------------------------------------------------------------------
    def dim(self, name, what, cut, ramp, **more):
        steady = self.steady
        watts = (1.0 - cut) * steady
        self.event(name, what, watts=watts, asked=watts, steady=steady, **more)
        if what in ("limit", "ac-lost"):
            self.limit = watts
        self.act("overload-detected")
        self.act("dimmer-acts", ramp=ramp)
        self.rate = {"normal": DOWN, "urgent": URGENT, "step": 2400.0}[ramp]
        self.goal = fitted(watts)

    def free(self, name, what):
        self.event(name, what)
        self.limit, self.goal = RATED, dict.fromkeys(JOBS, TOP)
        self.rises = self.now + CYCLE

    def recover(self):
        while any(cap < TOP for cap in self.caps.values()):
            self.pass_(CYCLE)
        self.act("settled")
        self.pass_(14.0)

    def limits(self, moment):
        now = [cap for name, cap in self.caps.items() for _ in range(JOBS[name][0])]
        self.say("limits", moment=moment, was=[TOP] * 72, now=now, other=[])

    def close(self):
        """Write the traces and the steps, in blocks."""
        size = 400
        for feed, columns in self.columns.items():
            for begin in range(0, len(columns["mean"]), size):
                body = {"charge": {}, "out": {}}
                for name, values in columns.items():
                    which, _, store = name.partition(".")
                    part = values[begin : begin + size]
                    if store:
                        body[which][store] = part
                    else:
                        body[which] = part
                at = round(begin * EVERY, 6)
                self.say("trace", run=self.run, feed=feed, every=EVERY, **{"from": at}, **body)
        for name, rows in self.steps.items() if self.run == "dimmed" else ():
            for begin in range(0, len(rows), 40):
                part = zip(*rows[begin : begin + 40], strict=True)
                columns = zip(("number", "begin", "end", "spread", "watts"), part, strict=True)
                self.say("steps", job=name, **{key: list(values) for key, values in columns})


SETTINGS = {
    "ramp.down": DOWN, "ramp.urgent": URGENT, "ramp.up": UP / CYCLE, "tick": TICK, "cycle": CYCLE,
    "breaker.k": K, "breaker.a": A, "breaker.decay": DECAY, f"{RACK}.bbu.power": 177_500.0,
    f"{RACK}.cbu.power": 72_000.0, f"{FEEDS[0]}.bess.power": 71_000.0,
}  # fmt: skip


def layout():
    floors = sum(gpus * floor for gpus, _, floor, _ in JOBS.values())
    feeds = [
        {"name": name, "parent": FEEDS[place - 1] if place else "", "rated": RATED,
         "fixed": FIXED, "floors": floors}
        for place, name in enumerate(FEEDS)
    ]  # fmt: skip
    jobs = [
        {"name": name, "gpus": gpus, "priority": priority, "floor": floor, "period": period,
         "training": name == "training"}
        for name, (gpus, priority, floor, period) in JOBS.items()
    ]  # fmt: skip
    return {"sort": "layout", "feeds": feeds, "jobs": jobs, "settings": dict(SETTINGS)}


def lowered(plant, name, cut):
    plant.dim(name, "limit", cut, "urgent")
    plant.pass_(105.0)
    plant.free(name, "lift")
    plant.recover()


def mains(plant):
    plant.dim("ac-loss", "ac-lost", 0.2, "step")
    plant.mains = False
    plant.carried(0.003)
    plant.pass_(45.0)
    plant.mains = True
    plant.free("ac-loss", "ac-back")
    plant.recover()


def sags(plant):
    for seconds in (0.020, 0.300):
        plant.event("sag", "sag", left=0.7, seconds=seconds)
        if seconds > 0.020:
            plant.carried(0.0035)
        plant.pass_(8.0)


def ramped(plant):
    steady = plant.steady
    plant.dim("utility-ramp", "ramp", 0.15, "normal", seconds=45.0)
    watts = 0.85 * steady
    for part in range(1, 46):
        plant.limit = steady + (watts - steady) * part / 45
        plant.goal = fitted(plant.limit)
        plant.pass_(1.0)
    plant.pass_(35.0)
    plant.free("utility-ramp", "lift")
    plant.recover()


def blind(plant):
    plant.dim("sensor-loss", "limit", 0.1, "normal")
    plant.pass_(105.0)
    plant.blind = True
    plant.event("sensor-loss", "sensors-lost", share=0.6)
    plant.pass_(2.0)
    plant.act("hold")
    plant.act("alarm")
    plant.pass_(13.0)
    plant.free("sensor-loss", "lift")
    plant.pass_(30.0)
    plant.blind = False
    plant.event("sensor-loss", "sensors-back")
    plant.act("resume-telemetry")
    plant.recover()


def killed(plant):
    plant.dim("controller-killed", "limit", 0.1, "normal")
    plant.pass_(105.0)
    plant.event("controller-killed", "controller-killed")
    plant.limits("dimmed")
    plant.pass_(5.0)
    plant.event("controller-killed", "controller-back")
    plant.pass_(10.0)
    plant.free("controller-killed", "lift")
    plant.recover()
    plant.limits("after-kill")


def warm(plant):
    plant.dim("coolant-loss", "coolant-lost", 0.25, "urgent", share=0.5)
    plant.pass_(105.0)
    plant.free("coolant-loss", "coolant-back")
    plant.recover()


def alone():
    """Return what a rack leaves whose limit falls while nobody acts: it trips."""
    plant = Plant("control")
    plant.pass_(20.0)
    steady = plant.steady
    plant.limit = 0.8 * steady
    plant.event("control", "limit", watts=plant.limit, asked=plant.limit, steady=steady)
    while plant.strain < 1.0:
        plant.pass_(EVERY)
    plant.say("electric", run="control", at=plant.now, what="breaker-tripped", feed=RACK)
    plant.close()
    return plant.log


PARTS = {
    "limit -20 %": lambda plant: lowered(plant, "limit -20 %", 0.2),
    "limit -40 %": lambda plant: lowered(plant, "limit -40 %", 0.4),
    "ac-loss": mains, "sag": sags, "utility-ramp": ramped, "sensor-loss": blind,
    "controller-killed": killed, "coolant-loss": warm,
}  # fmt: skip


def drilled(*parts):
    """Return the facts of a drill of some parts, with its control."""
    plant = Plant()
    plant.pass_(30.0)
    for part in parts:
        PARTS[part](plant)
    plant.pass_(6.0)
    plant.limits("end")
    plant.close()
    return [layout(), *plant.log, *alone()], len(plant.steps["training"])
