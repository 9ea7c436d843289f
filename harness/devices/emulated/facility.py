"""What stands around the emulated GPUs: NICs, host memory, PCIe errors, power shelves, cooling.

In: a RackSpec, a seed, and the power that the GPUs draw now. Out: a Host for the burns, and one
part for each subject that a fault can change. Every part has a clock of its own: it begins a run
when the run first looks at it, so that what it says depends on no other part's work.

Assumed, and never the basis of a limit: two pumps a rack, 1.5 L/min of coolant for each kW of heat,
and six supplies a shelf where the rack's file gives shelves (8 shelves of 6 x 5.5 kW in NVL72,
docs.nvidia.com, enterprise reference architectures, NVL72 AI factory, components).
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.emulated import draw
from rackproof.harness.errors import NotPresent, Unsupported
from rackproof.harness.model import Tray, Value, item_of, sort_of
from rackproof.harness.spec import RackSpec

SUPPLIES = 6
PUMPS = 2
FLOW_L_MIN_KW = 1.5
"""PG25 that takes 1 kW away at a rise of 10 K, the middle of the usual range."""
NIC_GB_S = 400.0
"""Rate of a port in Gb/s where neither the rack's file nor its SKU says it: assumed."""
COOLANT_C = 25.0
"""Coolant where a rack file gives none: assumed, as for the GPUs."""
EARLIER = 4
"""Counters begin below this, drawn from the rack's identity: a machine that has been up a while."""

OK, WARNING, CRITICAL = "ok", "warning", "critical"


class Effect(Protocol):
    """A planted fault as the part that it is on sees it; as gpu.Effect."""

    def begin(self, check: str, attempt: int) -> None:
        """A run of a burn begins on the part."""

    def end(self) -> None:
        """The run is over."""

    def due(self, now: float, utilisation: float) -> float:
        """Return the seconds until the fault changes by itself; inf for never."""
        ...

    def passed(self, now: float, seconds: float, utilisation: float) -> None:
        """`seconds` have passed; it is `now` on the part's clock."""

    def read(self, metric: str, link: int | None) -> None:
        """The part was asked for `metric`."""


class Part:
    """One subject around the GPUs. Sorts of it give their readings by metric."""

    def __init__(self, subject: str, seed: int) -> None:
        self.subject = subject
        self.clock = VirtualClock()
        self.noise = draw.Noise(seed, subject)
        self.effects: list[Effect] = []

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return what it can say."""
        raise NotImplementedError

    def read(self, metric: str) -> Value:
        """Return one reading; its faults hear of it."""
        known = self.readings()
        if metric not in known:
            msg = f"{self.subject} has no reading {metric}"
            raise Unsupported(msg)
        for effect in self.effects:
            effect.read(metric, None)
        return known[metric]()

    def begin(self, check: str, attempt: int, at: float) -> None:
        """Begin a run; idle until `at` before it."""
        self.advance(max(0.0, at - self.clock.now()))
        self.noise.begin(check, attempt)
        for effect in self.effects:
            effect.begin(check, attempt)

    def end(self) -> None:
        """End the run."""
        for effect in self.effects:
            effect.end()

    def restart(self) -> None:
        """Begin the counters anew, as the machine was started again."""

    def advance(self, seconds: float) -> None:
        """Let time pass, and stop wherever a fault changes by itself."""
        left = seconds
        while left > 0.0:
            step = min([left, *(e.due(self.clock.now(), 0.0) for e in self.effects)])
            self.clock.advance(step)
            left -= step
            for effect in self.effects:
                effect.passed(self.clock.now(), step, 0.0)


class Nic(Part):
    """One port: `up`, its rate in Gb/s, and counters since the machine started."""

    def __init__(self, subject: str, seed: int, speed: float, earlier: int) -> None:
        super().__init__(subject, seed)
        self.up = True
        self.speed = speed
        self.flaps = earlier
        self.errors = earlier

    def restart(self) -> None:
        """Begin the counters anew."""
        self.flaps = self.errors = 0

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return link, speed, and the cumulative counters of flaps and errors."""
        return {
            "nic.link": lambda: int(self.up),
            "nic.speed": lambda: self.speed,
            "nic.flaps": lambda: self.flaps,
            "nic.errors": lambda: self.errors,
        }


class HostBoard(Part):
    """A tray's host: its memory's and its PCIe devices' error counters, since it started."""

    def __init__(self, subject: str, seed: int, earlier: int) -> None:
        super().__init__(subject, seed)
        self.counts = {
            "host.memory.corrected": earlier,
            "host.memory.uncorrected": 0,
            "host.aer.corrected": earlier,
            "host.aer.nonfatal": 0,
            "host.aer.fatal": 0,
        }

    def restart(self) -> None:
        """Begin the counters anew."""
        self.counts = dict.fromkeys(self.counts, 0)

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return the cumulative counters."""
        return {name: lambda name=name: self.counts[name] for name in self.counts}  # type: ignore[misc]


class Shelf(Part):
    """A power shelf: `bad` of its supplies give nothing; the others of the rack carry the load."""

    def __init__(self, subject: str, seed: int, feed: "Feed") -> None:
        super().__init__(subject, seed)
        self.bad = 0
        self._feed = feed
        feed.shelves.append(self)

    @property
    def good(self) -> int:
        """How many of its supplies give power."""
        return SUPPLIES - self.bad

    @property
    def health(self) -> str:
        """What its controller says of it."""
        if not self.bad:
            return OK
        return WARNING if self.good else CRITICAL

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return health, bad supplies, and output in W."""
        return {
            "shelf.health": lambda: self.health,
            "shelf.supplies.bad": lambda: self.bad,
            "shelf.output": lambda: self._feed.output(self) * self.noise.factor("shelf.output"),
        }


class Feed:
    """The bus that the shelves of one rack share: each good supply gives the same."""

    def __init__(self, watts: Callable[[], float]) -> None:
        self.shelves: list[Shelf] = []
        self._watts = watts

    def output(self, shelf: Shelf) -> float:
        """Return the W that a shelf gives."""
        good = sum(each.good for each in self.shelves)
        return self._watts() * shelf.good / good if good else 0.0


class Cooling(Part):
    """The coolant of one rack: liquid in all racks that have a part of this sort."""

    def __init__(self, subject: str, seed: int, design_kw: float, supply: float) -> None:
        super().__init__(subject, seed)
        self.flowing = True
        self.leak = False
        self._design = FLOW_L_MIN_KW * design_kw
        self._supply = supply

    def stop(self) -> None:
        """Let the pumps stand still. What the GPUs feel of it is their own affair."""
        self.flowing = False

    def start(self) -> None:
        """Let the pumps run again."""
        self.flowing = True

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return health, pumps, flow in L/min, leak, and the supply's temperature in C."""
        noise = self.noise
        return {
            "cooling.health": lambda: OK if self.flowing and not self.leak else CRITICAL,
            "cooling.pumps.bad": lambda: 0 if self.flowing else PUMPS,
            "cooling.flow": self._flow,
            "cooling.leak": lambda: int(self.leak),
            "cooling.supply": lambda: self._supply * noise.factor("cooling.supply"),
        }

    def _flow(self) -> float:
        return self._design * self.noise.factor("cooling.flow") if self.flowing else 0.0


class Facility:
    """Every part around a rack's GPUs, by subject."""

    def __init__(self, spec: RackSpec, seed: int, drawn: Callable[[str], float]) -> None:
        """Build them; `drawn` returns the W that the GPU of a subject draws now."""
        self.parts: dict[str, Part] = {}
        for tray in spec.trays:
            self._host(spec, tray, seed)
        for rack in range(spec.racks):
            self._rack(spec, rack, seed, drawn)
        self._items: dict[str, list[Part]] = {}
        for subject, part in self.parts.items():
            self._items.setdefault(item_of(subject), []).append(part)

    def of_item(self, item: str) -> list[Part]:
        """Return the parts that are burnt with an item."""
        return self._items.get(item, [])

    def cooling(self, subject: str) -> Cooling:
        """Return a rack's cooling by its subject, as in ``cooling("rack0/cooling").stop()``."""
        part = self.parts[subject]
        if not isinstance(part, Cooling):
            msg = f"{subject} is no cooling"
            raise TypeError(msg)
        return part

    def _host(self, spec: RackSpec, tray: Tray, seed: int) -> None:
        def earlier(subject: str) -> int:
            return draw.below(EARLIER, "earlier", spec.identity, subject)

        self.parts[tray.host] = HostBoard(tray.host, seed, earlier(tray.host))
        for number in range(tray.nics or 0):
            nic = tray.host.removesuffix("/host") + f"/nic{number}"
            self.parts[nic] = Nic(nic, seed, port_rate(spec, tray), earlier(nic))

    def _rack(self, spec: RackSpec, rack: int, seed: int, drawn: Callable[[str], float]) -> None:
        gpus = [gpu.subject for gpu in spec.gpus if gpu.rack == rack]
        fixed = (spec.power.uncappable_kw or 0.0) * 1000.0
        feed = Feed(lambda: fixed + sum(drawn(gpu) for gpu in gpus))
        for subject in spec.of_sort("shelf"):
            if subject.startswith(f"rack{rack}/"):
                self.parts[subject] = Shelf(subject, seed, feed)
        subject = f"rack{rack}/cooling"
        if subject in spec.of_sort("cooling"):
            heat = fixed / 1000.0 + len(gpus) * float(spec.assumed("power_default") or 0.0) / 1000.0
            supply = spec.assumed("coolant_temperature")
            celsius = COOLANT_C if supply is None else float(supply)
            self.parts[subject] = Cooling(subject, seed, heat, celsius)


def port_rate(spec: RackSpec, tray: Tray) -> float:
    """Return the rate of a tray's ports in Gb/s: the rack file's, else its GPUs' shares of them."""
    if tray.nic_rate is not None:
        return tray.nic_rate
    each = spec.assumed("nic_rate")
    return NIC_GB_S if each is None or not tray.nics else float(each) * len(tray.gpus) / tray.nics


class EmulatedHost:
    """The facility as protocol.Host.

    The parts of an item (a host and its NICs, ...) are in a run from the first reading of one on.
    """

    def __init__(self, facility: Facility) -> None:
        self._facility = facility
        self._run: tuple[str, int, float] | None = None
        self._waited = 0.0
        self._begun: dict[str, list[Part]] = {}

    def read(self, metric: str, subject: str) -> Value:
        """Return one reading of a part."""
        part = self._facility.parts.get(subject)
        if part is None:
            msg = f"{subject}: there is no such {sort_of(subject)}"
            raise NotPresent(msg)
        self._join(subject)
        return part.read(metric)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Begin a run."""
        self.end()
        self._run = (check, attempt, at)

    def wait(self, seconds: float) -> None:
        """Let time pass on the parts that were looked at in this run."""
        self._waited += seconds
        for part in self._parts():
            part.advance(seconds)

    def end(self) -> None:
        """End the run."""
        for part in self._parts():
            part.end()
        self._begun.clear()
        self._run, self._waited = None, 0.0

    def _parts(self) -> list[Part]:
        return [part for parts in self._begun.values() for part in parts]

    def _join(self, subject: str) -> None:
        """Let all parts of a subject's item begin the run, at the time that has come in it."""
        item = item_of(subject)
        if self._run is None or item in self._begun:
            return
        self._begun[item] = self._facility.of_item(item)
        for part in self._begun[item]:
            part.begin(*self._run)
            part.advance(self._waited)
