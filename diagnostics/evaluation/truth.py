"""What is really the matter: one cause at one place, drawn from a world. Only the injector knows.

A Site is an NVL72 rack of 18 trays or an HGX node of 8 GPUs, with the addresses that logs would
name. A Truth is one incident: its cause, where it lies, and how it answers when it is tried again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.evaluation.worlds import OF_GPU, Sort, World
from rackproof.diagnostics.retest.model import Cause

Place = tuple[str, str]
"""A machine's name, and the subject there: ``pci:…``, ``host``; ``fabric`` has no machine."""
TRAYS, NVL72, LINKS = 18, "nvl72", 18
_TRAY = ("0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00")
_NODE = ("0000:19:00", "0000:3b:00", "0000:4c:00", "0000:5d:00",
         "0000:9b:00", "0000:bb:00", "0000:cb:00", "0000:db:00")  # fmt: skip
_SWITCHES = ("0000:05:00", "0000:06:00", "0000:07:00", "0000:08:00")
_NVL72_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Site:
    """Where it happens: the hosts of one NVLink domain, and the addresses on each."""

    kind: str
    hosts: tuple[str, ...]
    gpus: tuple[str, ...]
    switches: tuple[str, ...]
    nic: str

    @property
    def wide(self) -> bool:
        """Whether it is a rack of several machines."""
        return len(self.hosts) > 1


@dataclass(frozen=True, slots=True)
class Truth:
    """One incident as it is.

    `home` is (host, subject) of the GPU that speaks first, `link` its link; `hit` the chance that
    one run shows it, where it does show. `wide` says that it does so on other GPUs of the domain
    too, `seen` is False where no burn ever sees it, `stuck` says that it waits for a reset.
    `places` are those where its root may rightly be named, `near` others that suffer from it.
    `earlier` are incidents of the home GPU in `hours` before, None where unknown.
    """

    sort: Sort
    cause: Cause
    site: Site
    home: Place
    link: int
    hit: float
    wide: bool
    seen: bool
    stuck: bool
    incidents: int
    places: frozenset[Place]
    near: frozenset[Place]
    earlier: int | None
    hours: float

    @property
    def components(self) -> tuple[str, ...]:
        """The words for the component that are right."""
        return self.sort.right(self.cause)


def subject(address: str) -> str:
    """Return the subject of an address as logs write it."""
    return f"pci:{address}.0"


def _site(rng: np.random.Generator) -> Site:
    row = int(rng.integers(10, 99))
    if rng.random() < _NVL72_SHARE:
        hosts = tuple(f"r{row}-t{tray:02d}" for tray in range(TRAYS))
        return Site(NVL72, hosts, _TRAY, (), "0000:03:00.0")
    return Site("hgx", (f"h{row}",), _NODE, _SWITCHES, "0000:5e:00.0")


def pick(rng: np.random.Generator, weights: Mapping[Cause, float]) -> Cause:
    """Return one of the keys, by its weight."""
    at = rng.random() * sum(weights.values())
    for cause, weight in weights.items():
        at -= weight
        if at < 0:
            return cause
    return cause


def _hit(rng: np.random.Generator, world: World, cause: Cause) -> float:
    """Return how often one run shows what `cause` does."""
    sometimes = float(rng.beta(world.hit_a, world.hit_b))
    draw = rng.random()
    if cause is Cause.APP:
        return world.racy_hit if draw < world.app_racy else world.app_hit
    if cause is Cause.PERSISTENT:
        return world.persistent_hit
    if cause is Cause.INTERMITTENT:
        return sometimes
    if cause in (Cause.TRANSIENT, Cause.DRIVER):
        return world.chance if cause is Cause.TRANSIENT else world.driver_again
    return sometimes if draw < world.flapping else world.fixed_hit


def _places(sort: Sort, cause: Cause, site: Site, home: Place) -> frozenset[Place]:
    """Return where the root may rightly be named."""
    host, gpu = home
    others: set[Place] = set()
    if cause is Cause.SWITCH or sort.name == "switch":
        others = {(host, subject(switch)) for switch in site.switches} | {("", "fabric")}
    elif cause is Cause.NIC or sort.name == "nic":
        return frozenset({(host, f"pci:{site.nic}"), (host, "host")})
    elif cause in (Cause.HOST, Cause.APP) or sort.name in ("host-memory", "power"):
        others = {(host, "host")}
    mine: set[Place] = set() if sort.name == "host-memory" else {(host, gpu)}
    return frozenset(mine | others)


def _near(sort: Sort, cause: Cause, site: Site, home: Place) -> frozenset[Place]:
    """Return the places that suffer from it without being its root."""
    if cause in (Cause.HOST, Cause.APP) or sort.name == "power":
        return frozenset((home[0], subject(gpu)) for gpu in site.gpus) - {home}
    if cause in (Cause.LINK, Cause.SWITCH) and sort.name in ("nvlink", "switch"):
        return frozenset((h, subject(gpu)) for h in site.hosts for gpu in site.gpus) - {home}
    return frozenset()


def _earlier(rng: np.random.Generator, world: World, cause: Cause) -> int | None:
    """Return the earlier incidents of the home GPU, None where nobody kept them."""
    usual = world.healthy_rate * world.history_hours
    lemon = rng.random() < world.lemons
    mean = usual * (world.lemon_times if lemon else 1.0)
    if cause in OF_GPU or cause is Cause.LINK:
        mean += world.defect_cases
    count = int(rng.poisson(mean))
    return count if rng.random() < world.history_known else None


def draw(rng: np.random.Generator, world: World) -> Truth:
    """Return one incident of a world."""
    shares = np.array([sort.share for sort in world.sorts])
    sort = world.sorts[int(rng.choice(len(shares), p=shares / shares.sum()))]
    cause = pick(rng, world.causes(sort))
    site = _site(rng)
    home = (str(rng.choice(site.hosts)), subject(str(rng.choice(site.gpus))))
    unseen = world.unseen_silent if sort.name == "silent" else world.unseen
    stuck = cause is Cause.TRANSIENT and rng.random() < world.stuck
    again = cause in OF_GPU or cause is Cause.LINK
    return Truth(
        sort, cause, site, home, int(rng.integers(LINKS)),
        _hit(rng, world, cause),
        wide=cause is Cause.SWITCH and rng.random() < world.switch_wide,
        seen=not (cause in OF_GPU and rng.random() < unseen),
        stuck=stuck or cause is Cause.DRIVER,
        incidents=1 + int(rng.poisson(world.incidents_again)) * again,
        places=_places(sort, cause, site, home),
        near=_near(sort, cause, site, home),
        earlier=_earlier(rng, world, cause),
        hours=world.history_hours,
    )  # fmt: skip
