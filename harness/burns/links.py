"""link.*: data between GPUs over NVLink, compared where it arrives; and what the links counted.

link.pair copies between every pair of a domain's GPUs, both ways, with one partner at a time;
link.all lets all GPUs copy at once, in several permutations; link.collective sums over all of them.
A degraded link among many hardly shows in a GPU's bandwidth (half the rate on one of 18 is 2.8 %),
so each burn also reads the counters of every link: what it carried beside its neighbours, errors,
and recoveries.
"""

from collections.abc import Iterator

from rackproof.harness.burns.base import Burn, Crew, Run
from rackproof.harness.burns.linkwork import Copies, LinkWindow, present
from rackproof.harness.burns.pairing import Round, shifts, tournament
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device, Reduced
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.spec import RackSpec

COPY = 2 << 30
"""Bytes of one copy: four times nvbandwidth's default buffer, so that latency is lost in it."""
REDUCED = 8 << 30
"""Bytes of the all-reduce: the size at which bus bandwidths are published for HGX and NVL72."""
SEGMENTS = 6
"""How many parts link.pair's rounds are counted in, by link."""
FEWEST = 2
LINK = ("nvlink.active", "nvlink.errors.delta", "nvlink.recoveries.delta")
SHARED = (*LINK, "nvlink.share")


def lacks(spec: RackSpec) -> str:
    """Return why a rack cannot have the burns: no two GPUs that NVLinks join."""
    if min(len(spec.gpus), spec.domain) < FEWEST:
        return "no NVLink domain of it has two GPUs"
    if not spec.links:
        return "its GPUs have no NVLinks, or nobody says how many"
    return ""


def domains(crew: Crew, bench: Bench) -> Iterator[list[list[str]]]:
    """Yield the GPUs of each NVLink domain that are with the crew, parted by rack."""
    gpus, size = bench.spec.gpus, bench.spec.domain
    for first in range(0, len(gpus), size):
        parts: dict[int, list[str]] = {}
        for gpu in gpus[first : first + size]:
            if gpu.subject in crew.devices:
                parts.setdefault(gpu.rack, []).append(gpu.subject)
        yield list(parts.values())


def _rounds(crew: Crew, bench: Bench, *, at_once: bool) -> list[Round]:
    """Return the rounds of all domains, which go on side by side."""
    of_domains = [(shifts if at_once else tournament)(parts) for parts in domains(crew, bench)]
    longest = max(map(len, of_domains), default=0)
    merged = [[p for own in of_domains for p in own[n : n + 1]] for n in range(longest)]
    if not longest:
        msg = f"{len(crew.devices)} GPU to copy between: it takes two of one NVLink domain"
        raise DeviceError(msg)
    return [[pair for pairs in together for pair in pairs] for together in merged]


def _copy(crew: Crew, bench: Bench, notes: Run, *, at_once: bool) -> tuple[Copies, LinkWindow]:
    """Copy round by round; leave a GPU that gets lost behind, and go on with the others."""
    copies, key = Copies(), (notes.settings.seed << 10) + notes.settings.attempt
    rounds = _rounds(crew, bench, at_once=at_once)
    window = LinkWindow(crew, bench.links or 0, notes)
    marks = {len(rounds) * n // SEGMENTS for n in range(1, SEGMENTS)}
    for number, pairs in enumerate(rounds):
        if number and (at_once or number in marks):
            window.mark()
        here = [pair for pair in pairs if all(gpu in crew.devices for gpu in pair)]
        for turned in (False,) if at_once else (False, True):
            asked = [(b, a) if turned else (a, b) for a, b in here]
            found = bench.fabric.exchange(asked, COPY, key + (number << 20)) if asked else {}
            if copies.add(found):
                crew.each(present)
                here = [pair for pair in here if all(gpu in crew.devices for gpu in pair)]
    return copies, window


def pair(crew: Crew, bench: Bench, notes: Run) -> None:
    """Copy between every two GPUs of a domain, one partner at a time, one way and then the other.

    No pair is left out, up to the largest domain that there is: 72 GPUs meet in 71 rounds.
    """
    copies, window = _copy(crew, bench, notes, at_once=False)
    window.note(share=True)
    copies.note("link.pair", list(crew.devices), notes, extras=True)


def together(crew: Crew, bench: Bench, notes: Run) -> None:
    """Let every GPU send to one other and receive from one, all at once, in permutations."""
    copies, window = _copy(crew, bench, notes, at_once=True)
    window.note(share=True)
    copies.note("link.all", list(crew.devices), notes, extras=False)


def collective(crew: Crew, bench: Bench, notes: Run) -> None:
    """All-reduce over each NVLink domain; the slowest of several is the rack's figure."""
    window = LinkWindow(crew, bench.links or 0, notes)
    done: list[Reduced] = []
    stopped: DeviceError | None = None
    for parts in domains(crew, bench):
        gpus = [gpu for part in parts for gpu in part]
        try:
            done.append(_reduce(crew, bench, notes, gpus))
        except DeviceError as error:
            stopped = error
    window.note(share=False)
    if stopped is not None:
        raise stopped
    for reduced in done:
        for subject, wrong in reduced.wrong.items():
            if subject in crew.devices:
                notes.note("link.collective.wrong", wrong, subject)
    notes.note("link.collective.rate", min(bus_bandwidth(reduced) for reduced in done))
    notes.note("link.collective.ranks", min(reduced.ranks for reduced in done))


def _reduce(crew: Crew, bench: Bench, notes: Run, gpus: list[str]) -> Reduced:
    """All-reduce over `gpus`; where it cannot run, over those of them that can take part."""
    while True:
        if len(gpus) < FEWEST:
            msg = f"{len(gpus)} GPU to sum over: it takes two of one NVLink domain"
            raise DeviceError(msg)
        try:
            return bench.fabric.all_reduce(gpus, REDUCED, notes.settings.seed)
        except DeviceError as error:
            states = crew.each(_apart)
            able = [gpu for gpu in gpus if states.get(gpu) == ""]
            if len(able) == len(gpus):
                raise
            for gpu in gpus:
                if states.get(gpu):
                    reason = DeviceError(f"it took no part in the sum: {states[gpu]} ({error})")
                    notes.miss("link.collective.wrong", reason, gpu)
            gpus = able


def _apart(device: Device) -> str:
    """Return why a GPU cannot take part in a collective by its own driver; empty where it can."""
    present(device)
    telemetry = device.telemetry
    for metric, good in (
        ("fabric.state", ("completed",)),
        ("fabric.status", ("success",)),
        ("fabric.health", ("healthy", "limited-capacity")),
    ):
        try:
            said = telemetry.read(metric)
        except (Lost, NotPresent):
            raise
        except DeviceError:
            continue
        if said not in good:
            return f"{metric} is {said}"
    return ""


def bus_bandwidth(reduced: Reduced) -> float:
    """Return GB/s of bus bandwidth: size / time x 2 (n - 1) / n (nccl-tests, PERFORMANCE.md)."""
    if reduced.seconds <= 0.0:
        msg = "the all-reduce took no time"
        raise DeviceError(msg)
    ranks = reduced.ranks
    return reduced.size / reduced.seconds * 2.0 * (ranks - 1) / ranks / 1e9


BURNS = (
    Burn(
        "link.pair",
        "copies between every two GPUs of the NVLink domain, both ways, one partner at a time",
        {
            "gpu": ("link.pair.rate", "link.pair.wrong", "link.pair.coverage", "xid.count"),
            "link": SHARED,
        },
        {"acceptance": 2.0, "soak": 2.0},
        wide=pair,
        lacks=lacks,
    ),
    Burn(
        "link.all",
        "copies between GPUs while all others copy too, in several permutations",
        {"gpu": ("link.all.rate", "link.all.wrong", "xid.count"), "link": SHARED},
        {"quick": 2.0, "acceptance": 2.0, "soak": 2.0},
        wide=together,
        lacks=lacks,
    ),
    Burn(
        "link.collective",
        "an all-reduce over the NVLink domain, its sums compared on every GPU",
        {
            "fabric": ("link.collective.rate", "link.collective.ranks"),
            "gpu": ("link.collective.wrong", "xid.count"),
            "link": LINK,
        },
        {"acceptance": 2.0, "soak": 2.0},
        wide=collective,
        lacks=lacks,
    ),
)
