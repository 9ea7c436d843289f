"""What several subjects have in common is the fault of what they share.

The same flag on every GPU of a tray is the tray's, on every GPU of a rack the rack's; the same
link dark on every GPU is the switch's; every link of one GPU dark is the GPU's. In: the groups of
failed checks. Out: the shared cases, each with its root and its members.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.effects import component_of, explains
from rackproof.diagnostics.evidence import Head, gpu_of
from rackproof.diagnostics.groups import Group
from rackproof.harness.model import sort_of
from rackproof.harness.topology import shares

FEWEST = 2  # what one subject alone has, nobody shares
# cause -> what gives it to a rack
PARTS = {"brake": "power", "cap": "power", "power": "power", "thermal": "cooling"}


@dataclass(frozen=True, slots=True)
class Shared:
    """One root that `members` share. Where a group is that root itself, it is the `lead`."""

    subject: str
    cause: str
    component: str
    members: tuple[Group, ...]
    lead: Group | None = None


def tray_of(gpu: str) -> str:
    """Return the tray of a GPU's subject."""
    return gpu.rpartition("/")[0]


def rack_of(subject: str) -> str:
    """Return the rack of a subject."""
    return subject.partition("/")[0]


class Places:
    """Which groups there are, and which planned GPUs still answer."""

    def __init__(self, head: Head, groups: Sequence[Group]) -> None:
        """Index `groups` by what they point at."""
        self.head = head
        self.gone = {g.subject: g for g in groups if g.cause == "gone" and g.subject in head.gpus}
        self.alive = [gpu for gpu in head.gpus if gpu not in self.gone]
        self.on_gpus = [g for g in groups if g.subject in head.gpus]
        self.links = [g for g in groups if sort_of(g.subject) == "link"]
        self.dark = {g.subject: g for g in self.links if "nvlink.active" in g.metrics}

        self.around = {g.subject: g for g in groups if g.cause in PARTS and g not in self.on_gpus}

    def flagged(self, cause: str) -> dict[str, Group]:
        """Return the living GPUs whose failed checks point at `cause`."""
        return {g.subject: g for g in self.on_gpus if g.cause == cause}

    def all_of(self, gpus: Iterable[str], flagged: dict[str, Group]) -> tuple[Group, ...]:
        """Return the groups of `gpus` when there are two or more and each of them is flagged."""
        found = [flagged.get(gpu) for gpu in gpus]
        whole = [group for group in found if group is not None]
        return tuple(whole) if len(whole) == len(found) >= FEWEST else ()

    def alike(self, gpus: Iterable[str], flagged: dict[str, Group]) -> tuple[Group, ...]:
        """Return the groups of `gpus` when all of them are flagged, and by one sign in common."""
        whole = self.all_of(gpus, flagged)
        return whole if whole and set.intersection(*(g.signs for g in whole)) else ()

    def source(self, rack: str, part: str) -> Group | None:
        """Return the failed group of a rack's cooling or power, or of the first of its shelves."""
        own = self.around.get(f"{rack}/{part}")
        shelves = (g for s, g in self.around.items() if s.startswith(f"{rack}/{part}/"))
        return own or next(shelves, None)


def shared(head: Head, groups: Sequence[Group]) -> list[Shared]:
    """Return what is shared, in the rack's order. No group stands in two of them."""
    places = Places(head, groups)
    switches = _switches(places)
    found = [*_outside(places), *_hosts(places), *switches]
    whole = places.all_of(places.alive, places.flagged("fabric"))
    if whole and switches:
        first = switches[0]
        merged = Shared(first.subject, first.cause, first.component, (*first.members, *whole))
        found[found.index(first)] = merged
    elif whole:
        found.append(Shared("fabric", "fabric", "fabric", whole))
    taken = {id(member) for case in found for member in case.members}
    return [*found, *_own_links(places, taken)]


def _by(place: Callable[[str], str], gpus: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        found[place(gpu)].append(gpu)
    return found


def _outside(places: Places) -> list[Shared]:
    """Power and heat: the rack's where all its living GPUs have it, else the tray's."""
    found = []
    for cause, part in PARTS.items():
        flagged, component = places.flagged(cause), component_of(cause)
        for rack, gpus in _by(rack_of, places.alive).items():
            trays = _by(tray_of, gpus)
            whole = places.alike(gpus, flagged)
            lead = places.source(rack, part)
            if whole and (len(trays) >= FEWEST or lead):
                subject = lead.subject if lead else f"{rack}/{part}"
                found.append(Shared(subject, cause, component, whole, lead))
                continue
            if lead and part == "cooling":  # it stands still: who is hot is hot because of it
                continue
            for tray, own in trays.items():
                whole = places.alike(own, flagged)
                if whole:
                    found.append(Shared(f"{tray}/host", cause, component, whole))
    return found


def _hosts(places: Places) -> list[Shared]:
    """Trays whose GPUs are all gone: the host's doing."""
    trays = _by(tray_of, places.head.gpus)
    cases = ((tray, places.all_of(gpus, places.gone)) for tray, gpus in trays.items())
    return [Shared(f"{tray}/host", "gone", "host", whole) for tray, whole in cases if whole]


def _switches(places: Places) -> list[Shared]:
    """Links that are dark on every living GPU of a rack: their switch, or the whole fabric."""
    found = []
    links = range(places.head.links or 0)
    for rack, gpus in _by(rack_of, places.alive).items():
        dark = {n: places.all_of([f"{g}/link{n:02d}" for g in gpus], places.dark) for n in links}
        if not any(dark.values()):
            continue
        if all(dark.values()):
            members = tuple(group for whole in dark.values() for group in whole)
            found.append(Shared("fabric", "fabric", "fabric", members))
            continue
        found += _switches_of(rack, dark, places.head.switches)
    return found


def _switches_of(
    rack: str, dark: dict[int, tuple[Group, ...]], switches: int | None
) -> list[Shared]:
    """Name the switches of a rack whose links are all dark; without a count, the fabric."""
    if not switches:
        members = tuple(group for whole in dark.values() for group in whole)
        return [Shared("fabric", "nvswitch", "nvswitch", members)]
    found, passed = [], 0
    for number, size in enumerate(shares(len(dark), switches)):
        own = [dark[n] for n in range(passed, passed + size)]
        passed += size
        if own and all(own):
            members = tuple(group for whole in own for group in whole)
            found.append(Shared(f"{rack}/switch{number:02d}", "nvswitch", "nvswitch", members))
    return found


def _own_links(places: Places, taken: set[int]) -> list[Shared]:
    """Links that the state of their own GPU explains: it is gone, or wrong, or has none that works.

    The root is the GPU; where it has a group of its own, that one leads.
    """
    by_gpu: dict[str, list[Group]] = defaultdict(list)
    for link in places.links:
        if id(link) not in taken:
            by_gpu[gpu_of(link.subject)].append(link)
    own: dict[str, list[Group]] = defaultdict(list)
    for group in places.on_gpus:
        own[group.subject].append(group)
    found = []
    for gpu, links in by_gpu.items():
        dark = sum(link.subject in places.dark for link in links)
        whole = dark == places.head.links and dark >= FEWEST
        left = links
        for lead in own[gpu]:
            led = [link for link in left if _follows(link, lead, whole=whole)]
            left = [link for link in left if link not in led]
            if led:
                found.append(Shared(gpu, lead.cause, lead.component, tuple(led), lead))
        if whole and left:
            found.append(Shared(gpu, "nvlink", "nvlink", tuple(left)))
    return found


def _follows(link: Group, lead: Group, *, whole: bool) -> bool:
    if whole and lead.component in ("fabric", "nvlink"):
        return True
    return all(explains(lead.cause, lead.metrics, metric) for metric in link.metrics)
