"""The emulated NVLink fabric: GPUs' links, the switches between them, and data that crosses them.

In: the Fabric seam. Out: how long copies and all-reduces take, the counters of both ends of every
link, and whether what arrived is what was sent.

Our assumptions: a copy's bytes are striped over a GPU's links dynamically, each link taking what it
can, so half the rate on one of 18 links costs 2.8 % of the GPU's bandwidth and a dead link 1/18.
Link n of one GPU reaches the links of another that end at the same switch. Where a domain spans two
racks (catalina), switch n of the one is joined to switch n of the other without loss, and a path
between the racks needs both. Switches never block. The slowest GPU sets the pace of an all-reduce.
Sizes below some hundred MiB, where latency counts, are not modelled: rates do not depend on size.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated.driver import EmulatedDriver
from rackproof.harness.devices.emulated.driver_state import Flag
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.stripes import LinkNoise, Routes, arrived, sent
from rackproof.harness.devices.emulated.wires import Port
from rackproof.harness.devices.protocol import Moved, Reduced
from rackproof.harness.errors import DeviceError, Lost, NotPresent, TimedOut
from rackproof.harness.spec import RackSpec

BOTH_WAYS = 0.99
"""What a direction keeps of its rate while the other is busy too: 763 of 768 GB/s (OCI GB200)."""
PAIR_OF_LINKS, COLLECTIVE_OF_LINKS = 0.8, 0.85
"""Shares of the links' stated rate where a rack file gives none: as GB200, 768 and 840 of 956."""
LINK_UTILISATION = 0.3
"""Share of the dynamic power that NVLink traffic takes: assumed."""
_GONE = int(Flag.LOST | Flag.ABSENT | Flag.HUNG)
_COMPLETED, _UNHEALTHY = 3, 2  # NVML's fabric state, and health summary

Pair = tuple[str, str]
Indices = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.float64]


class EmulatedFabric:
    """What joins an emulated rack's GPUs; see protocol.Fabric."""

    def __init__(
        self, spec: RackSpec, gpus: Mapping[str, EmulatedGpu], driver: EmulatedDriver
    ) -> None:
        """Join `gpus`, in the order of the driver's rows."""
        self._spec = spec
        self._gpus = list(gpus.values())
        self._place = {subject: place for place, subject in enumerate(gpus)}
        self._driver = driver
        self._routes = Routes.of(spec)
        self.survey()
        self._nominal = float(spec.assumed("nvlink_speed") or 0.0) * 1000.0
        self._ports = np.zeros((2, len(self._gpus), spec.links), np.uint64)  # received, sent

    def survey(self) -> None:
        """Know which die sits where: after the building, and after an exchange of GPUs."""
        self._spread = np.array([gpu.birth.spread for gpu in self._gpus])

    def port(self, link: str) -> Port:
        """Return the switch's end of a link, by the link's subject."""
        gpu, _, last = link.rpartition("/link")
        place, number = self._place[gpu], int(last)
        wires = self._gpus[place].wires
        received, sent = (int(kib) for kib in self._ports[:, place, number])
        return Port(wires.switches[number], bool(wires.alive[number]), received, sent)

    # --- one copy from one GPU to another, many at once -------------------------------------------

    def exchange(
        self, pairs: Sequence[Pair], size: int, seed: int
    ) -> Mapping[Pair, Moved | DeviceError]:
        """Copy between pairs, all at once; all wait until the slowest is done.

        Really compared are WORDS words a copy, generated from the seed at both ends: what crosses
        is a pure function, so a link that spoils data spoils these too (`Wires.spoils`).
        """
        found: dict[Pair, Moved | DeviceError] = {}
        unfit = self._unfit(name for pair in pairs for name in pair)
        going: list[Pair] = []
        for pair in dict.fromkeys(pairs):
            refusal = self._refusal(pair, unfit)
            if refusal is None:
                going.append(pair)
            else:
                found[pair] = refusal
        if going:
            self._cross(going, size, seed, found)
        return {pair: found[pair] for pair in pairs}

    def _cross(
        self, pairs: list[Pair], size: int, seed: int, found: dict[Pair, Moved | DeviceError]
    ) -> None:
        a = np.array([self._place[pair[0]] for pair in pairs])
        b = np.array([self._place[pair[1]] for pair in pairs])
        peers = _peers(a, b)
        self._crossing(peers)
        routes, noise = self._routes, self._noise(a, b)
        capacity = self._capacity()
        width = routes.width(capacity, a, b)
        links = width.sum(axis=1)
        rate = self._pace(a, b) * links / routes.links * noise.rate
        seconds = np.divide(size, rate, out=np.zeros(len(pairs)), where=rate > 0.0)
        lost = self._pass(sorted(peers), float(seconds.max()))
        wrong = self._wrong(a, seed)
        good = links > 0.0
        for n, pair in enumerate(pairs):
            gone = next((lost[place] for place in (a[n], b[n]) if place in lost), None)
            good[n] &= gone is None
            if gone is not None:
                found[pair] = gone
            elif not good[n]:
                found[pair] = DeviceError(f"no NVLink path between {pair[0]} and {pair[1]} is up")
            else:
                found[pair] = Moved(size, float(seconds[n]), int(wrong[n]))
        a, b, width = a[good], b[good], width[good]
        self._count(a, size * routes.split(capacity, width, a, noise.out[good]), sent=True)
        self._count(b, size * routes.split(capacity, width, b, noise.into[good]), sent=False)
        self._crossed(peers)

    def _pace(self, a: Indices, b: Indices) -> Numbers:
        """Return the B/s of each copy over whole links: what its busier end has left for it."""
        count = len(self._gpus)
        out, into = np.bincount(a, minlength=count), np.bincount(b, minlength=count)
        both = (into[a] > 0) | (out[b] > 0)
        slower = np.minimum(self._spread[a] / out[a], self._spread[b] / into[b])
        return self._rate("pair_rate", PAIR_OF_LINKS) * slower * np.where(both, BOTH_WAYS, 1.0)

    def _noise(self, a: Indices, b: Indices) -> LinkNoise:
        keys = [
            self._gpus[i].noise.key(f"to {self._gpus[j].gpu.subject}")
            for i, j in zip(a, b, strict=True)
        ]
        return LinkNoise.of(keys, self._routes.links)

    def _wrong(self, a: Indices, seed: int) -> npt.NDArray[np.int64]:
        """Send the words of each copy, and count those that arrive wrong."""
        words = sent(seed, a)
        spoils = [self._gpus[place].wires.spoils for place in a]
        wrong: npt.NDArray[np.int64] = np.count_nonzero(
            arrived(words, spoils) != sent(seed, a), axis=1
        )
        return wrong

    # --- an all-reduce ----------------------------------------------------------------------------

    def all_reduce(self, gpus: Sequence[str], size: int, seed: int) -> Reduced:
        """Sum over the GPUs, every one of which then holds the sum; WORDS words are really summed.

        Raises Lost that names the first GPU that is, or a DeviceError for one that cannot. A GPU
        with `Wires.spoils` receives that many words of the sum wrong.
        """
        unfit = self._unfit(gpus)
        if unfit:
            raise next(iter(unfit.values()))
        places = np.array([self._place[gpu] for gpu in gpus])
        if len(set(gpus)) < 2 or len(set(gpus)) != len(gpus):  # noqa: PLR2004 - alone nobody sums
            msg = "an all-reduce is over two GPUs or more, each named once"
            raise DeviceError(msg)
        if len({place // self._spec.domain for place in places}) > 1:
            msg = "an all-reduce stays within one NVLink domain"
            raise DeviceError(msg)
        peers = {place: places[places != place] for place in places.tolist()}
        self._crossing(peers)
        try:
            seconds = self._reduce(places, size)
        finally:
            self._crossed(peers)
        return Reduced(size, seconds, len(places), self._sums(gpus, places, seed))

    def _reduce(self, places: Indices, size: int) -> float:
        """Let the time of an all-reduce pass and its data cross; return the seconds."""
        capacity = self._capacity()[places]
        links = capacity.sum(axis=1)
        if links.min() <= 0.0:
            msg = f"{self._gpus[places[links.argmin()]].gpu.subject} has no NVLink that is up"
            raise DeviceError(msg)
        noise = np.array([self._gpus[place].noise.factor("all-reduce") for place in places])
        slowest = float((links / self._routes.links * self._spread[places] * noise).min())
        moved = size * 2.0 * (len(places) - 1) / len(places)  # each GPU sends and receives it
        seconds = moved / (self._rate("collective_rate", COLLECTIVE_OF_LINKS) * slowest)
        lost = self._pass(places.tolist(), seconds)
        if lost:
            raise next(iter(lost.values()))
        stripes = moved * capacity / links[:, None]
        self._count(places, stripes, sent=True)
        self._count(places, stripes, sent=False)
        return seconds

    def _sums(self, gpus: Sequence[str], places: Indices, seed: int) -> dict[str, int]:
        """Sum the words over the GPUs, and count at each those that differ from the sum."""
        total = sent(seed, places).sum(axis=0, dtype=np.uint64)
        spoils = [self._gpus[place].wires.spoils for place in places]
        held = arrived(np.broadcast_to(total, (len(places), len(total))).copy(), spoils)
        wrong = np.count_nonzero(held != total, axis=1)
        return dict(zip(gpus, map(int, wrong), strict=True))

    # --- who can take part ------------------------------------------------------------------------

    def _unfit(self, names: Iterable[str]) -> dict[str, DeviceError]:
        """Return those of the GPUs that cannot exchange anything, each with the reason."""
        rows = self._driver.rows
        sick = (
            (rows["flags"] & _GONE != 0)
            | (rows["fabric_state"] != _COMPLETED)
            | (rows["fabric_status"] != 0)
            | (rows["fabric_health_summary"] == _UNHEALTHY)
        )
        if not self._spec.switches:  # links without a switch know no registration
            sick = rows["flags"] & _GONE != 0
        wanted = dict.fromkeys(names)
        unfit = [s for s in wanted if s not in self._place or sick[self._place[s]]]
        for subject in unfit:
            for fault in (
                self._gpus[self._place[subject]].wires.faults if subject in self._place else ()
            ):
                fault.refused()
        return {subject: self._reason(subject) for subject in unfit}

    def _reason(self, subject: str) -> DeviceError:
        place = self._place.get(subject)
        if place is None:
            return NotPresent(f"{subject} is not in this rack")
        flags = int(self._gpus[place].row["flags"])
        if flags & Flag.LOST:
            return Lost(f"{subject} is lost")
        if flags & Flag.ABSENT:
            return NotPresent(f"{subject} is not there")
        if flags & Flag.HUNG:
            return TimedOut(f"{subject} does not answer")
        return DeviceError(f"{subject} is not in good health with the NVLink fabric")

    def _refusal(self, pair: Pair, unfit: Mapping[str, DeviceError]) -> DeviceError | None:
        for subject in pair:
            if subject in unfit:
                return unfit[subject]
        a, b = (self._place[subject] for subject in pair)
        if a == b:
            return DeviceError(f"{pair[0]} is no peer of itself")
        if a // self._spec.domain != b // self._spec.domain:
            return DeviceError(f"{pair[0]} and {pair[1]} are in two NVLink domains")
        return None

    # --- links ------------------------------------------------------------------------------------

    def _capacity(self) -> Numbers:
        """Return what each link of each GPU can carry, as a share of a whole link's rate."""
        count = self._routes.links
        rows = self._driver.rows
        links = rows["links"][:, :count]
        there = np.arange(count) < rows["nvlink_count"][:, None]
        up = np.array([gpu.wires.alive for gpu in self._gpus]) & (links["state"] == 1) & there
        quality = np.array([gpu.wires.quality for gpu in self._gpus])
        speed = np.minimum(links["speed_mbps"] / self._nominal, 1.0) if self._nominal else 1.0
        return np.where(up, quality * speed, 0.0)

    def _count(self, places: Indices, sizes: Numbers, *, sent: bool) -> None:
        """Move the data counters of both ends by `sizes`, bytes by copy and link."""
        kib = np.rint(sizes / 1024.0).astype(np.uint64)
        counters = self._driver.rows["links"]["tx_kib" if sent else "rx_kib"]
        np.add.at(counters[:, : self._routes.links], places, kib)
        np.add.at(self._ports[0 if sent else 1], places, kib)

    def _crossing(self, peers: Mapping[int, Indices]) -> None:
        for place, others in peers.items():
            for fault in self._gpus[place].wires.faults:
                fault.crossing([self._gpus[other] for other in others])

    def _crossed(self, peers: Mapping[int, Indices]) -> None:
        for place in peers:
            for fault in self._gpus[place].wires.faults:
                fault.crossed()

    # --- time -------------------------------------------------------------------------------------

    def _pass(self, places: Iterable[int], seconds: float) -> dict[int, Lost]:
        """Let `seconds` pass on the clocks of all, from the latest of them; return who got lost."""
        gpus = {place: self._gpus[place] for place in places}
        start = max(gpu.clock.now() for gpu in gpus.values())
        lost: dict[int, Lost] = {}
        for place, gpu in gpus.items():
            try:
                behind = start - gpu.clock.now()
                if behind > 0.0:
                    gpu.advance(behind)
                gpu.advance(seconds, LINK_UTILISATION)
            except Lost as error:
                lost[place] = error
        return lost

    def _rate(self, name: str, share: float) -> float:
        """Return a rate of the rack's [emulation] table, or a share of the links' own, in B/s."""
        value = self._spec.assumed(name)
        if value is not None:
            return float(value) * 1e9
        return share * self._routes.links * self._nominal * 1e6


def _peers(a: Indices, b: Indices) -> dict[int, Indices]:
    """Return for each GPU that takes part those it sends to or receives from."""
    found: dict[int, set[int]] = {}
    for i, j in zip(a.tolist(), b.tolist(), strict=True):
        found.setdefault(i, set()).add(j)
        found.setdefault(j, set()).add(i)
    return {place: np.array(sorted(others)) for place, others in found.items()}
