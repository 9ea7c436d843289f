"""Records for the reports to render: a rack's burn, healthy but for what a test changes."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackproof.diagnostics.evidence import Head, Planned, Record, Settled
from rackproof.diagnostics.judge import Judgement, judge
from rackproof.diagnostics.limits import Limit, Limits, parse, shipped
from rackproof.diagnostics.recovery.record import Expected, Fact
from rackproof.diagnostics.recovery.record import Head as DrillHead
from rackproof.harness.happening import Happening
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Value, Why
from rackproof.harness.platform import absent, platform_limits
from rackproof.harness.spec import RackSpec, load
from rackproof.reports.drill_record import DrillWriter

INVENTORY = (
    "gpu.present gpu.name gpu.pci_id memory.total driver.version vbios.version pcie.gen.max "
    "pcie.width.max nvlink.links ecc.enabled fabric.state fabric.status fabric.health "
    "fabric.clique serial.unique"
).split()
HEALTH = (
    "ecc.uncorrected.volatile sram.threshold remap.pending remap.failure remap.banks.none "
    "throttle.thermal throttle.power_brake temperature thermal.margin recovery.action xid.count"
).split()
MEMORY = (
    "memory.miscompares memory.coverage ecc.corrected.delta ecc.uncorrected.delta xid.count"
).split()
GEMM = (
    "gemm.fp32.wrong gemm.fp32.checked gemm.fp32.rate throttle.thermal temperature xid.count"
).split()
PLAN = (
    Planned(
        "inventory",
        {"gpu": INVENTORY, "link": ["nvlink.active", "nvlink.speed"], "host": ["gpu.unexpected"]},
        1.0,
    ),
    Planned("health", {"gpu": HEALTH, "link": ["nvlink.ber"]}, 1.0),
    Planned("memory.address", {"gpu": MEMORY}, 1.0),
    Planned("memory.march", {"gpu": MEMORY}, 3.0),
    Planned("gemm.fp32", {"gpu": GEMM}, 2.0),
)
NOTED = {"gpu.serial", "gpu.uuid", "gpu.pci", "power.average"}
HEALTHY: Mapping[str, Value] = {
    "gpu.present": 1, "driver.version": "580.105.08", "vbios.version": "97.10.4A.00.1A",
    "ecc.enabled": 1, "fabric.state": "completed", "fabric.status": "success",
    "fabric.health": "healthy", "fabric.clique": "6f1c7a52/0", "serial.unique": 1,
    "recovery.action": "none", "thermal.margin": 31.0, "memory.coverage": 0.97,
    "gemm.fp32.checked": 12, "gemm.fp32.rate": 60.0, "nvlink.active": 1, "nvlink.ber": 1e-15,
    "temperature": 52.0,
}  # fmt: skip
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Case:
    """What a test changes: runs by (burn, subject, metric), what is missing, and the rest."""

    rack: str = "gb300-nvl72"
    trays: int | None = 2
    source: str = "emulated"
    runs: Mapping[Key, Sequence[Value]] = field(default_factory=dict)
    missing: Sequence[Missing] = ()
    events: Sequence[Event] = ()
    limits: str = ""
    text: Mapping[str, str] = field(default_factory=dict)  # metric -> what every GPU says
    ended: bool = True
    problems: Sequence[str] = ()
    only: Sequence[str] = ()
    today: str = "2026-07-30"


def _constants(spec: RackSpec) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for limit in platform_limits(spec):
        value = limit.equal if limit.equal is not None else limit.low
        if value is not None:
            found[limit.metric] = value
    return found


def _head(case: Case, spec: RackSpec) -> Head:
    limits = [*shipped()]
    limits += [
        Limit(b.metric, b.source, "platform", b.low, b.high, b.equal, b.subject)
        for b in platform_limits(spec)
    ]
    waivers: Sequence[object] = ()
    if case.limits:
        own = parse(case.limits, "limits.toml")
        limits, waivers = [*own.limits, *limits], own.waivers
    trays = spec.trays[: case.trays]
    gpus = {gpu.subject: spec.sku.key for tray in trays for gpu in tray.gpus}
    plan = [p for p in PLAN if not case.only or p.burn in case.only]
    return Head(
        rack=case.rack, source=case.source, seed=7, level="quick", verb="burn", gpus=gpus,
        hosts=[tray.host for tray in trays], links=spec.links, plan=plan,
        limits=Limits(tuple(limits), tuple(waivers)).as_json(),  # type: ignore[arg-type]
        today=case.today, versions={"rackproof": "0.1.0", "python": "3.11.9", "driver": "580.95"},
        absent=absent(spec), domain=spec.domain,
    )  # fmt: skip


def _measured(key: Key, values: Sequence[Value]) -> Iterator[Measurement]:
    burn, subject, metric = key
    for attempt, value in enumerate(values, 1):
        yield Measurement(burn, subject, metric, value, metrics()[metric].unit, attempt)


def _gpu_notes(case: Case, number: int, subject: str) -> Iterator[Measurement]:
    own: dict[str, Value] = {
        "gpu.serial": f"165{number:010d}",
        "gpu.uuid": f"GPU-{number:08x}-0000-4000-8000-000000000000",
        "gpu.pci": f"{8 + number % 4:04x}:01:00.0",
        "power.average": 612.5 + number,
    }
    for metric, value in {**own, **{m: t for m, t in case.text.items() if m in NOTED}}.items():
        yield from _measured(("inventory", subject, metric), [value])


def record_of(case: Case) -> Record:
    """Return the record of a burn, healthy but for what `case` changes."""
    spec = load(case.rack)
    head = _head(case, spec)
    usual = {**dict.fromkeys(metrics(), 0), **HEALTHY, **_constants(spec), **case.text}
    draw = random.Random(1)
    gone = {(m.check, m.subject, m.metric) for m in case.missing}
    seen: list[Seen] = [*case.missing, *case.events]
    settled: set[Settled] = set()
    for number, subject in enumerate(head.gpus):
        seen += _gpu_notes(case, number, subject)
    for planned in head.plan:
        for sort, names in planned.owes.items():
            for subject in head.subjects(sort):
                settled.add((planned.burn, subject, 1))
                for name in names:
                    key = (planned.burn, subject, name)
                    value: Value = usual[name]
                    if name == "gemm.fp32.rate":
                        value = 60.0 + draw.gauss(0, 0.3)
                    if name in head.absent:
                        seen.append(Missing(*key, Why.NOT_SUPPORTED, "not supported"))
                    elif key not in gone:
                        seen += _measured(key, case.runs.get(key, [value]))
    return Record(head, seen, frozenset(settled), case.ended, tuple(case.problems))


def made(case: Case) -> tuple[Record, Judgement]:
    """Return the record and its judgement by the real judge."""
    record = record_of(case)
    return record, judge(record)


@pytest.fixture(scope="session")
def case() -> type[Case]:
    """The class that says what differs from a healthy rack."""
    return Case


@pytest.fixture(scope="session")
def run_of() -> Callable[[Case], tuple[Record, Judgement]]:
    """`run_of(case(...))` gives a record and its judgement."""
    return made


WAIVERS = """
[[limit]]
metric = "temperature"
high = 80
unit = "C"
source = "site rule 12"
[[golden]]
item = "driver"
value = "580.105.08"
[[waiver]]
subject = "rack0/tray01/gpu0"
check = "health"
until = 2099-01-31
owner = "ops@example.org"
reason = "coolant valve is on order"
[[waiver]]
subject = "rack0/tray01/gpu3"
check = "*"
until = 2020-01-31
owner = "ops@example.org"
reason = "was replaced long ago"
"""


@pytest.fixture(scope="session")
def failing() -> Callable[..., Case]:
    """A case with a stuck bit, a waived hot GPU, a gap, a dark link and an XID."""

    def build(rack: str = "gb300-nvl72", trays: int | None = 2) -> Case:
        bad = "rack0/tray00/gpu1"
        return Case(
            rack=rack,
            trays=trays,
            runs={
                ("memory.march", bad, "ecc.corrected.delta"): [63, 63, 64],
                ("memory.march", bad, "xid.count"): [1, 0, 0],
                ("health", "rack0/tray01/gpu0", "temperature"): [84.0, 85.0, 84.5],
                ("inventory", "rack0/tray00/gpu3/link07", "nvlink.active"): [0, 0, 0],
                ("inventory", "rack0/tray00/gpu3/link08", "nvlink.active"): [0, 0, 0],
            },
            missing=[
                Missing("health", "rack0/tray01/gpu2", "thermal.margin", Why.NO_READING,
                        "the sensor gave no reading", "read it with another tool"),
            ],
            events=[Event(bad, "xid.94", "Contained memory error", 12.5, "virtual")],
            limits=WAIVERS,
        )  # fmt: skip

    return build


EVIL = "<script>alert(1)</script>\u202e\x1b[31m"


def write_drill(folder: Path, text: str = "") -> Path:
    """Write the record of a command that was killed at step 5 of 10 and began again; return it.

    `text` stands in everything that a training command may say.
    """
    writer = DrillWriter(folder)
    expected = Expected(proof="L1", timeline=("fault", "resumed"), restarts=1, lost_steps=10)
    plan = {"command": ["train", f"--name={text}"], "steps": 10}
    writer.head(
        DrillHead("gpu-loss", "gb300-nvl72", "emulated", 7, "C", 10, plan, expected,
             {"replica0": "rack0/tray00/gpu0"}, date="2026-07-30T10:00:00+00:00")
    )  # fmt: skip
    writer.begin("faulted", 100.0)

    def say(at: float, kind: str, who: str = "replica0", attempt: int = 1, **more: object) -> None:
        writer.happening("faulted", Happening(at, who, kind, more, attempt))

    def see(at: float, what: str, **more: object) -> None:
        writer.fact(Fact(what, more, "faulted", at))

    for attempt, begin, steps in ((1, 100.5, 5), (2, 102.0, 10)):
        pid = 1000 + attempt
        say(begin, "hello", attempt=attempt, pid=pid, rank=0, world=1, note=text)
        see(begin, "alive", member="replica0", pid=pid, there=True, ours=True)
        for step in range(1, steps + 1):
            say(begin + step / 10, "step", attempt=attempt, step=step, loss=1.0, samples=4)
        if attempt == 1:
            say(101.1, "injected", "drill", fault="kill", member="replica0", pid=pid)
            see(101.11, "died", member="replica0", pid=pid, code=-9)
            for kind in ("exited", "lost", "isolated"):
                say(101.12, kind, "drill", member="replica0", pid=pid, code=-9, why=text)
            say(101.2, "restarted", "drill", step=0, uri=text)
    say(103.0, "fault", attempt=2, why=text)
    see(103.1, "died", member="replica0", pid=1002, code=0)
    see(103.2, "checkpoint", uri=text or "/run/step-10", tier="T1", step=10, verifies=True,
        digest="", fields=[], problem=text)  # fmt: skip
    writer.finish("faulted", 103.2, [text] if text else [], finished=True)
    writer.conclude([], "PASS", "L4")
    writer.close()
    return folder


@pytest.fixture(scope="session")
def drill_run() -> Callable[..., Path]:
    """`drill_run(folder, text="")` writes the run directory of a drill that had to begin again."""
    return write_drill


@pytest.fixture(scope="session")
def evil() -> str:
    """Text that a page or a terminal must not obey."""
    return EVIL
