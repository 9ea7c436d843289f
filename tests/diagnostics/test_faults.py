"""Every fault kind by the signs that it leaves: one root, the right component, nobody innocent.

The signs are written by hand, apart from the emulator's: what a kind shows on its subject, and what
it makes others show.
"""

import itertools
from dataclasses import dataclass, field

import pytest

from rackproof.diagnostics.evidence import Planned
from rackproof.diagnostics.limits import Limit
from rackproof.harness.faults import kinds
from rackproof.harness.model import Event, Why

GPUS = [f"rack0/tray{t:02d}/gpu{g}" for t in range(2) for g in range(4)]
ALWAYS = 3
PLAN = (
    Planned("inventory", {"gpu": ["gpu.name", "fabric.health", "memory.total"],
                          "link": ["nvlink.active"]}),
    Planned("health", {"gpu": ["remap.pending", "remap.failure", "throttle.thermal",
                               "power.limit.gap", "thermal.margin", "xid.count"]}),
    Planned("platform", {"nic": ["nic.flaps", "nic.link"],
                         "shelf": ["shelf.supplies.bad", "shelf.health"],
                         "cooling": ["cooling.flow", "cooling.health"]}),
    Planned("memory.march", {"gpu": ["memory.miscompares", "ecc.corrected.delta",
                                     "ecc.uncorrected.delta", "xid.count"]}),
    Planned("hbm.bandwidth", {"gpu": ["hbm.bandwidth", "hbm.wrong"]}),
    Planned("gemm.fp32", {"gpu": ["gemm.fp32.wrong", "gemm.fp32.rate", "throttle.power_brake"]}),
    Planned("gemm.bf16", {"gpu": ["gemm.bf16.wrong", "gemm.bf16.rate", "throttle.thermal"]}),
    Planned("copy.h2d", {"gpu": ["copy.h2d.rate", "pcie.gen.loaded"]}),
    Planned("link.pair", {"gpu": ["link.pair.rate", "link.pair.coverage", "link.pair.wrong",
                                  "xid.count"],
                          "link": ["nvlink.active", "nvlink.share", "nvlink.errors.delta",
                                   "nvlink.recoveries.delta"]}, wide=True),
    Planned("link.all", {"gpu": ["link.all.rate", "xid.count"], "link": ["nvlink.active"]},
            wide=True),
    Planned("link.collective", {"fabric": ["link.collective.rate", "link.collective.ranks"]},
            wide=True),
    Planned("power.steady", {"gpu": ["power.steady", "throttled.thermal.share",
                                     "throttled.brake.share", "power.limit.gap"]}),
    Planned("power.step", {"gpu": ["power.step.peak"]}, wide=True),
    Planned("power.cap", {"gpu": ["power.cap.held", "power.cap.readback"]}),
    Planned("thermal.soak", {"gpu": ["thermal.soak.temperature", "throttled.thermal.share"]}),
)  # fmt: skip
BOUNDS = {
    "pcie.gen.loaded": {"low": 6}, "link.pair.rate": {"low": 750}, "link.all.rate": {"low": 630},
    "link.collective.rate": {"low": 800}, "link.collective.ranks": {"low": 8},
    "power.steady": {"low": 1050}, "power.cap.held": {"high": 1.02},
    "power.cap.readback": {"equal": 1}, "power.limit.gap": {"high": 1},
    "power.step.peak": {"high": 1.1}, "throttled.thermal.share": {"high": 0},
    "throttled.brake.share": {"high": 0}, "shelf.supplies.bad": {"high": 0},
    "shelf.health": {"equal": "ok"}, "cooling.flow": {"low": 50},
    "cooling.health": {"equal": "ok"}, "nic.flaps": {"high": 0}, "nic.link": {"equal": 1},
    "nvlink.share": {"low": 0.95}, "nvlink.errors.delta": {"high": 0},
    "nvlink.recoveries.delta": {"high": 0}, "link.pair.coverage": {"low": 1},
    "link.pair.wrong": {"high": 0}, "hbm.wrong": {"high": 0}, "gpu.name": {"equal": "NVIDIA B300"},
    "memory.total": {"equal": 0},
}  # fmt: skip
LAYERS = [Limit(name, "of this test", "platform", **bound) for name, bound in BOUNDS.items()]
AROUND = {
    "nic": [f"rack0/tray{t:02d}/nic0" for t in range(2)],
    "power": ["rack0/power"],
    "shelf": ["rack0/power/shelf0", "rack0/power/shelf1"],
    "cooling": ["rack0/cooling"],
}


@dataclass
class Signs:
    """What a fault shows: values by (burn, subject, metric), XIDs, gaps."""

    runs: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    gaps: dict = field(default_factory=dict)

    def show(self, subject, *readings):
        """Add (burn, metric, value or values); one value stands for each of three runs."""
        for burn, metric, value in readings:
            values = value if isinstance(value, tuple) else (value,) * ALWAYS
            self.runs[burn, subject, metric] = values
        return self

    def say(self, gpus, code, burn="link.pair"):
        """Let GPUs report an XID once."""
        for gpu in gpus:
            self.events.append(Event(gpu, code, "said"))
            self.show(gpu, (burn, "xid.count", (1, 0, 0)))
        return self


def others(gpu):
    return [other for other in GPUS if other != gpu]


def slow(signs, gpus, share=0.8):
    for gpu in gpus:
        signs.show(gpu, ("gemm.fp32", "gemm.fp32.rate", 60.0 * share),
                   ("gemm.bf16", "gemm.bf16.rate", 1700.0 * share))  # fmt: skip
    return signs


def without(signs, gpu):
    """Show what the others cannot do without a GPU."""
    for other in others(gpu):
        signs.show(other, ("link.pair", "link.pair.coverage", 6 / 7))
    return signs.show("fabric", ("link.collective", "link.collective.ranks", 7))


def gone(gpu):
    signs = Signs()
    for planned in PLAN:
        if "gpu" in planned.owes:
            signs.show(gpu, (planned.burn, "gpu.present", 0))
            for name in planned.owes["gpu"]:
                signs.gaps[planned.burn, gpu, name] = [Why.LOST] * ALWAYS
    return without(signs, gpu)


def dark(signs, links):
    for link in links:
        signs.show(link, ("link.pair", "nvlink.share", 0.0))
        signs.show(link, *((burn, "nvlink.active", 0) for burn in ("inventory", "link.all")))
    return signs


def hot(signs, gpus):
    for gpu in gpus:
        signs.show(gpu, ("gemm.bf16", "throttle.thermal", (1, 0, 1)),
                   ("power.steady", "throttled.thermal.share", 0.4),
                   ("power.steady", "power.steady", 700.0),
                   ("thermal.soak", "throttled.thermal.share", 0.9),
                   ("link.all", "link.all.rate", 500.0))  # fmt: skip
    return slow(signs, gpus)


def braked(gpus):
    signs = Signs()
    for gpu in gpus:
        signs.show(gpu, ("gemm.fp32", "throttle.power_brake", 1),
                   ("power.steady", "throttled.brake.share", 1.0),
                   ("power.steady", "power.steady", 500.0))  # fmt: skip
    return slow(signs, gpus, 0.5)


def nvlink_down(link):
    gpu = link.rpartition("/")[0]
    signs = dark(Signs(), [link]).show(gpu, ("link.pair", "link.pair.rate", 720.0))
    signs.show("fabric", ("link.collective", "link.collective.rate", 700.0))
    return signs.say([gpu], "xid.149").say(others(gpu), "xid.145")


def nvswitch_down(switch):
    number = int(switch[-2:])
    signs = dark(Signs(), [f"{gpu}/link{number:02d}" for gpu in GPUS])
    for gpu in GPUS:
        signs.show(gpu, ("link.pair", "link.pair.rate", 500.0))
    return signs.say(GPUS, "xid.145")


def unhealthy(gpu):
    signs = Signs().show(gpu, ("inventory", "fabric.health", "unhealthy"),
                         ("link.pair", "link.pair.coverage", 0.0))  # fmt: skip
    return without(signs, gpu)


def coolant(cooling):
    signs = Signs().show(cooling, ("platform", "cooling.flow", 0.0),
                         ("platform", "cooling.health", "critical"))  # fmt: skip
    return slow(hot(signs, GPUS[:6]), GPUS[6:], 0.7)


def capped(gpu):
    signs = Signs().show(gpu, ("health", "power.limit.gap", 420.0),
                         ("power.steady", "power.limit.gap", 420.0),
                         ("power.steady", "power.steady", 980.0),
                         ("power.cap", "power.cap.readback", 0))  # fmt: skip
    return slow(signs, [gpu], 0.9)


def memory(metric, *values):
    return lambda gpu: Signs().show(gpu, ("memory.march", metric, values))


SHOWS = {
    "hbm-stuck-bit": memory("ecc.corrected.delta", 63, 63, 64),
    "hbm-bit-flip": memory("ecc.corrected.delta", 1, 0, 0),
    "hbm-address-alias": lambda gpu: Signs().show(
        gpu, ("memory.march", "memory.miscompares", 2), ("hbm.bandwidth", "hbm.wrong", 9)
    ),
    "hbm-uncorrectable": lambda gpu: Signs().show(
        gpu, ("memory.march", "ecc.uncorrected.delta", 2), ("health", "remap.pending", 1)
    ).say([gpu], "xid.48", "memory.march"),
    "row-remap-pending": lambda gpu: Signs().show(gpu, ("health", "remap.pending", 1)),
    "row-remap-failure": lambda gpu: Signs().show(gpu, ("health", "remap.failure", 1)),
    "ecc-storm": memory("ecc.corrected.delta", 300, 290, 310),
    "sm-sdc": lambda gpu: Signs().show(
        gpu, ("gemm.fp32", "gemm.fp32.wrong", 3), ("gemm.bf16", "gemm.bf16.wrong", 2)
    ),
    "slow-gpu": lambda gpu: slow(Signs(), [gpu], 0.9),
    "gpu-lost": lambda gpu: gone(gpu).say([gpu], "xid.79", "memory.march"),
    "gpu-missing": gone,
    "wrong-sku": lambda gpu: slow(
        Signs().show(gpu, ("inventory", "gpu.name", "NVIDIA B200"),
                     ("inventory", "memory.total", 7)), [gpu]),
    "nvlink-down": nvlink_down,
    "nvlink-degraded": lambda link: Signs().show(
        link, ("link.pair", "nvlink.share", 0.5), ("link.pair", "nvlink.errors.delta", 900)
    ),
    "nvlink-flap": lambda link: Signs().show(
        link, ("link.pair", "nvlink.recoveries.delta", (2, 0, 1))
    ),
    "nvswitch-down": nvswitch_down,
    "fabric-unhealthy": unhealthy,
    "pcie-downtrain": lambda gpu: Signs().show(
        gpu, ("copy.h2d", "pcie.gen.loaded", 3), ("copy.h2d", "copy.h2d.rate", 90.0)
    ),
    "thermal-throttle": lambda gpu: hot(Signs(), [gpu]).show(
        gpu, ("thermal.soak", "thermal.soak.temperature", 89.0)
    ),
    "coolant-loss": coolant,
    "power-brake": lambda where: braked(
        GPUS[:4] if where == "rack0/tray00/host" else GPUS[4:] if "host" in where else [where]
    ),
    "power-cap-out-of-band": capped,
    "power-cap-ignored": lambda gpu: Signs().show(gpu, ("power.cap", "power.cap.held", 1.4),
                                                  ("power.step", "power.step.peak", 1.3)),
    "psu-loss": lambda shelf: Signs().show(shelf, ("platform", "shelf.supplies.bad", 1)),
    "nic-flap": lambda nic: Signs().show(nic, ("platform", "nic.flaps", (2, 0, 3))),
    "sensor-missing": lambda gpu: Signs(gaps={("health", gpu, "thermal.margin"): [Why.NO_READING]}),
}  # fmt: skip
PLACES = {
    "gpu": ("rack0/tray00/gpu1", "rack0/tray01/gpu2"),
    "link": ("rack0/tray00/gpu2/link00", "rack0/tray01/gpu0/link02"),
    "switch": ("rack0/switch01", "rack0/switch01"),
    "cooling": ("rack0/cooling", "rack0/cooling"),
    "shelf": ("rack0/power/shelf0", "rack0/power/shelf1"),
    "nic": ("rack0/tray00/nic0", "rack0/tray01/nic0"),
    "host": ("rack0/tray00/host", "rack0/tray01/host"),
}
CASES = [(kind, sort) for kind in SHOWS for sort in kinds()[kind].on]


def judged(bed, *signs):
    runs, gaps, events = {}, {}, []
    for each in signs:
        runs |= each.runs
        gaps |= each.gaps
        events += each.events
    gaps = {key: why for key, why in gaps.items() if key not in runs}
    whole = bed(plan=PLAN, layers=LAYERS, around=AROUND, runs=runs, gaps=gaps, events=events)
    return whole.judge()


def roots(judgement):
    return {d.subject: d for d in judgement.diagnoses if d.role == "root"}


def told(judgement):
    """Everything that fails on a subject ends in a diagnosis, as root or as victim."""
    named = {d.subject for d in judgement.diagnoses}
    failed = {c.subject for c in judgement.checks if any(c.failed)}
    assert failed <= named | {"rack0/power"}
    for case in {d.case for d in judgement.diagnoses}:
        own = [d.role for d in judgement.diagnoses if d.case == case]
        assert own.count("root") == 1
    return judgement


def test_every_kind_of_the_table_is_here():
    assert set(SHOWS) == set(kinds())


def test_a_healthy_rack_has_no_diagnosis(bed):
    judgement = judged(bed)
    assert [c for c in judgement.checks if c.verdict == "FAIL"] == []
    assert judgement.diagnoses == []


@pytest.mark.parametrize(("name", "sort"), CASES)
def test_one_fault_has_one_root_and_accuses_nobody_else(bed, accuse, name, sort):
    kind, subject = kinds()[name], PLACES[sort][0]
    judgement = told(judged(bed, SHOWS[name](subject)))
    if name == "sensor-missing":
        assert (judgement.verdict, accuse(judgement)) == ("UNKNOWN", set())
        return
    assert accuse(judgement) == {subject}
    (found,) = roots(judgement).values()
    assert found.component in kind.component
    if kind.persistence not in ("any", "by-rate"):
        assert found.persistence == kind.persistence
    if kind.action:
        assert found.action in kind.action


PAIRS = [
    pair for pair in itertools.combinations(CASES, 2)
    if pair[0][1] != pair[1][1] or pair[0][1] not in ("switch", "cooling")
]  # fmt: skip


def expected(*faults):
    return {subject for name, subject in faults if name != "sensor-missing"}


def hidden(faults):
    """Return the faults that leave no sign of their own beside the others.

    Heat on a rack without coolant; one slow GPU of eight of which half are braked.
    """
    names, places = {name for name, _ in faults}, {subject for _, subject in faults}
    found = set()
    if "coolant-loss" in names:
        found |= {"thermal-throttle", "slow-gpu"}
    if places & set(PLACES["host"]):
        found |= {"slow-gpu"}
    return {subject for name, subject in faults if name in found}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=[f"{a[0]}+{b[0]}" for a, b in PAIRS])
def test_two_faults_are_told_apart(bed, accuse, one, other):
    faults = [(one[0], PLACES[one[1]][0]), (other[0], PLACES[other[1]][1])]
    judgement = told(judged(bed, *(SHOWS[name](subject) for name, subject in faults)))
    assert accuse(judgement) == expected(*faults) - hidden(faults)
    for name, subject in faults:
        found = roots(judgement).get(subject)
        assert found is None or found.component in kinds()[name].component or name == "gpu-lost"
