"""A small rack's record to judge: healthy, but for what a test says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rackproof.diagnostics.evidence import Head, Planned, Record, gpu_of
from rackproof.diagnostics.judge import Judgement, judge
from rackproof.diagnostics.limits import Limit, Limits, parse, shipped
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Value, Why

HEALTHY: Mapping[str, Value] = {
    "gpu.present": 1,
    "gpu.name": "NVIDIA B300",
    "driver.version": "580.1",
    "nvlink.links": 18,
    "nvlink.active": 1,
    "nvlink.speed": 50.0,
    "recovery.action": "none",
    "thermal.margin": 30.0,
    "temperature": 50.0,
    "memory.coverage": 0.97,
    "gemm.fp32.rate": 60.0,
    "fabric.state": "completed",
    "fabric.health": "healthy",
    "gemm.bf16.rate": 1700.0,
    "hbm.bandwidth": 6500.0,
    "copy.h2d.rate": 200.0,
    "link.pair.rate": 769.0,
    "link.pair.coverage": 1.0,
    "link.all.rate": 700.0,
    "link.collective.rate": 900.0,
    "link.collective.ranks": 8,
    "nvlink.share": 1.0,
    "pcie.gen.loaded": 6,
    "power.steady": 1300.0,
    "power.cap.held": 1.0,
    "power.cap.readback": 1,
    "power.step.peak": 1.0,
    "thermal.soak.temperature": 60.0,
    "shelf.health": "ok",
    "cooling.health": "ok",
    "cooling.flow": 100.0,
    "nic.link": 1,
}
PLAN = (
    Planned("inventory", {"gpu": ["gpu.name", "driver.version", "fabric.state"],
                          "link": ["nvlink.active", "nvlink.speed"],
                          "host": ["gpu.unexpected"]}),
    Planned("health", {"gpu": ["remap.pending", "remap.failure", "throttle.thermal",
                               "throttle.power_brake", "thermal.margin", "retired.pages",
                               "recovery.action", "xid.count"]}),
    Planned("memory.march", {"gpu": ["memory.miscompares", "memory.coverage",
                                     "ecc.corrected.delta", "xid.count"]}),
    Planned("gemm.fp32", {"gpu": ["gemm.fp32.wrong", "gemm.fp32.rate", "throttle.thermal",
                                  "throttle.power_brake", "xid.count"]}),
)  # fmt: skip
OF_THE_SKU = (
    Limit("gpu.name", "seen on the part", "platform", equal="NVIDIA B300"),
    Limit("nvlink.links", "seen on the part", "platform", equal=18),
    Limit("nvlink.speed", "seen on the part", "platform", low=49.5),
)
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Bed:
    """What a test changes of a healthy run of 2 trays with 4 GPUs of 3 links.

    `runs` gives the values of (burn, subject, metric) by attempt (None: not read), `gaps` what is
    Missing in each attempt, `unsettled` the attempts of (burn, subject) that did not end.
    """

    trays: int = 2
    gpus: int = 4
    links: int = 3
    racks: int = 1
    plan: Sequence[Planned] = PLAN
    runs: Mapping[Key, Sequence[Value | None]] = field(default_factory=dict)
    gaps: Mapping[Key, Sequence[Why]] = field(default_factory=dict)
    unsettled: frozenset[tuple[str, str, int]] = frozenset()
    events: Sequence[Event] = ()
    limits: str = ""
    layers: Sequence[Limit] = OF_THE_SKU
    today: str = "2026-07-30"
    absent: Sequence[str] = ("retired.pages",)
    ended: bool = True
    problems: Sequence[str] = ()
    switches: int | None = 3
    skus: Mapping[str, str] = field(default_factory=dict)
    around: Mapping[str, Sequence[str]] = field(default_factory=dict)
    domain: int | None = None

    def head(self) -> Head:
        trays = [f"rack{r}/tray{t:02d}" for r in range(self.racks) for t in range(self.trays)]
        gpus = [f"{tray}/gpu{g}" for tray in trays for g in range(self.gpus)]
        user = parse(self.limits, "limits.toml") if self.limits else Limits()
        limits = Limits((*user.limits, *self.layers, *shipped()), user.waivers)
        return Head(
            rack="test", source="emulated", seed=1, level="quick", verb="burn",
            gpus={gpu: self.skus.get(gpu, "b300") for gpu in gpus},
            hosts=[f"{tray}/host" for tray in trays], links=self.links, plan=self.plan,
            limits=limits.as_json(), today=self.today, absent=self.absent,
            domain=self.domain or len(gpus), switches=self.switches, around=self.around,
        )  # fmt: skip

    def record(self) -> Record:
        head = self.head()
        seen: list[Seen] = list(self.events)
        for number, gpu in enumerate(head.gpus):
            serial = f"1650000{number:03d}"
            seen.append(Measurement("inventory", gpu, "gpu.serial", serial, "text"))
        attempts = {(p.burn, item): 1 for p in head.plan for item in head.items(p)}
        for (burn, subject, _), values in (*self.runs.items(), *self.gaps.items()):
            owner = (burn, head.item_of(burn, subject))
            attempts[owner] = max(attempts.get(owner, 1), len(values))
        for key in self._keys(head):
            seen += self._read(key, attempts[key[0], head.item_of(*key[:2])])
        settled = {(b, s, n) for (b, s), last in attempts.items() for n in range(1, last + 1)}
        return Record(
            head, seen, frozenset(settled - self.unsettled), self.ended, tuple(self.problems)
        )

    def _keys(self, head: Head) -> list[Key]:
        owed = [
            (p.burn, subject, metric)
            for p in head.plan
            for sort, names in p.owes.items()
            for subject in head.subjects(sort)
            for metric in names
        ]
        return list(dict.fromkeys((*owed, *self.runs, *self.gaps)))

    def _read(self, key: Key, last: int) -> Iterator[Seen]:
        burn, subject, metric = key
        usual = HEALTHY.get(metric, 0)
        if metric in self.absent and key not in self.gaps and key not in self.runs:
            for n in range(1, last + 1):
                yield Missing(burn, subject, metric, Why.NOT_SUPPORTED, "N/A", "", n)
            return
        gaps = self.gaps.get(key, ())
        for n, why in enumerate(gaps, 1):
            yield Missing(burn, subject, metric, why, f"because {why}", "look there", n)
        values = self.runs.get(key, () if gaps else [usual] * last)
        for n, value in enumerate(values, 1):
            if value is not None:
                yield Measurement(burn, subject, metric, value, metrics()[metric].unit, n)

    def judge(self) -> Judgement:
        return judge(self.record())


def accused(judgement: Judgement) -> set[str]:
    """Return the subjects that are accused, in the contract's words.

    A subject is accused when it is the root of a diagnosis, or when a check of it is FAIL and
    neither it nor the GPU that it belongs to is a victim. A waived FAIL does not count.
    """
    victims = {d.subject for d in judgement.diagnoses if d.role == "victim"}
    failed = {c.subject for c in judgement.checks if c.verdict == "FAIL" and c.waiver is None}
    roots = {d.subject for d in judgement.diagnoses if d.role == "root"}
    return roots | {s for s in failed if s not in victims and gpu_of(s) not in victims}


@pytest.fixture(scope="session")
def bed() -> type[Bed]:
    return Bed


@pytest.fixture(scope="session")
def accuse() -> Callable[[Judgement], set[str]]:
    return accused


@pytest.fixture(scope="session")
def change() -> Callable[..., Any]:
    """`dataclasses.replace`, for beds and records."""
    return replace
