"""Readings of nvidia-smi, several files, several machines: one verdict and the right root."""

from pathlib import Path

import pytest

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS
from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.rules import tables
from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers import Reading

GPUS = [f"0000:{bus:02x}:00" for bus in (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)]


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


def victims(judgement):
    return {d.subject for d in judgement.diagnoses if d.role == "victim"}


def reading(flags, name="q.txt", total=8, **more):
    """Return a query of `total` GPUs; `flags` gives a GPU's values by metric."""
    measured = [
        Measurement("nvidia-smi-q", f"pci:{gpu}.0", metric, value, "flag")
        for i, gpu in enumerate(GPUS[:total])
        for metric, value in flags(i).items()
    ]
    return Reading(Path(name), "nvidia-smi-q", total, measurements=tuple(measured), **more)


def test_the_same_flag_on_every_gpu_is_the_hosts():
    found = judge_inputs([reading(lambda _: {"throttle.power_brake": 1})])
    assert (found.verdict, roots(found)) == ("FAIL", [("host:unknown", "power", "check-power")])
    assert len(victims(found)) == 8


def test_the_flag_on_seven_of_eight_is_not():
    found = judge_inputs([reading(lambda i: {"throttle.power_brake": int(i > 0)})])
    assert len(roots(found)) == 7
    assert not victims(found)


@pytest.mark.parametrize(
    ("metric", "value", "verdict", "component", "action"),
    [
        ("remap.pending", 1, "FAIL", "hbm", "reset-gpu"),
        ("remap.failure", 1, "FAIL", "hbm", "rma"),
        ("remap.banks.none", 1, "FAIL", "hbm", "rma"),
        ("remap.banks.low", 2, "UNKNOWN", "hbm", "watch"),
        ("remap.rows.uncorrected", 513, "FAIL", "hbm", "rma"),
        ("sram.threshold", 1, "FAIL", "sram", "rma"),
        ("ecc.uncorrected.volatile", 2, "FAIL", "hbm", "reset-gpu"),
        ("retired.pages", 63, "FAIL", "hbm", "rma"),
        ("thermal.margin", -1, "FAIL", "thermal", "check-cooling"),
        ("throttle.thermal", 1, "FAIL", "thermal", "check-cooling"),
        ("throttle.hw_slowdown", 1, "UNKNOWN", "unknown", "watch"),
        ("fabric.status", "Insufficient Resources", "FAIL", "fabric", "reboot-node"),
        ("fabric.health", "Unhealthy", "FAIL", "fabric", "reboot-node"),
        ("fabric.state", "In Progress", "UNKNOWN", "fabric", "retest"),
        ("recovery.action", "reset", "FAIL", "unknown", "reset-gpu"),
        ("recovery.action", "reboot", "FAIL", "unknown", "reboot-node"),
    ],
)
def test_one_reading_outside(metric, value, verdict, component, action):
    found = judge_inputs([reading(lambda i: {metric: value} if i == 3 else {"remap.pending": 0})])
    assert roots(found) == [("pci:0000:5d:00.0", component, action)]
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("metric", "value"),
    [("remap.rows.uncorrected", 3), ("ecc.corrected.aggregate", 9), ("fabric.status", "Success"),
     ("ecc.uncorrected.aggregate", 2), ("throttle.thermal", 0), ("thermal.margin", 5),
     ("recovery.action", "none"), ("pcie.replays", 120)],
)  # fmt: skip
def test_readings_inside(metric, value):
    found = judge_inputs([reading(lambda _: {metric: value, "remap.pending": 0})])
    assert (found.verdict, found.diagnoses) == ("PASS", ())


@pytest.mark.parametrize(
    ("narrow", "expected"),
    [({3}, [("pci:0000:5d:00.0", "pcie", "check-cabling")]), (set(range(8)), [])],
    ids=["one of eight", "built so"],
)
def test_pcie_width_by_peers(narrow, expected):
    found = judge_inputs([reading(lambda i: {
        "gpu.name": "X", "pcie.width": 8 if i in narrow else 16, "pcie.width.max": 16,
        "remap.pending": 0,
    })])  # fmt: skip
    assert roots(found) == expected


@pytest.mark.parametrize(
    ("counts", "watched"),
    [([0, 0, 5000, 1], ["pci:0000:4c:00.0"]), ([900, 0, 0, 0], []), ([5000] * 4, []),
     ([2_000_000], ["pci:0000:19:00.0"])],
)  # fmt: skip
def test_corrected_errors_are_held_against_the_peers(counts, watched):
    found = judge_inputs([reading(
        lambda i: {"ecc.corrected.volatile": counts[i], "remap.pending": 0}, total=len(counts)
    )])  # fmt: skip
    assert [(s, c, a) for s, c, a in roots(found)] == [(w, "hbm", "watch") for w in watched]


def test_nothing_to_judge_by_is_unknown():
    found = judge_inputs([reading(lambda _: {"gpu.name": "X"})])
    assert found.verdict == "UNKNOWN"


def test_a_cut_or_an_idle_tool_is_unknown_and_a_fault_in_it_is_not_lost():
    quiet = reading(lambda _: {"remap.pending": 0}, cut=True)
    assert judge_inputs([quiet]).verdict == "UNKNOWN"
    assert (
        judge_inputs([reading(lambda _: {"remap.pending": 0}, worked=False)]).verdict == "UNKNOWN"
    )
    assert judge_inputs([reading(lambda _: {"remap.failure": 1}, cut=True)]).verdict == "FAIL"


def test_unrecognised_counts_when_named_or_alone():
    good = reading(lambda _: {"remap.pending": 0})
    named = Reading(Path("x"), problems=("no known kind of file",))
    met = Reading(Path("x"), problems=("no known kind of file",), named=False)
    assert judge_inputs([good, named]).verdict == "UNKNOWN"
    assert judge_inputs([good, met]).verdict == "PASS"
    assert judge_inputs([met]).verdict == "UNKNOWN"
    assert judge_inputs([]).verdict == "UNKNOWN"


def test_a_mapping_in_one_file_serves_the_others():
    named = reading(lambda _: {"remap.pending": 0}, aliases={"gpu2": "pci:0000:4c:00.0"},
                    serials={"pci:0000:4c:00.0": "S2"})  # fmt: skip
    failed = Measurement("q", "gpu2", "remap.failure", 1, "flag")
    other = Reading(Path("b"), "nvidia-smi-q", 1, measurements=(failed,))
    (only,) = judge_inputs([other, named]).diagnoses
    assert (only.subject, only.serial) == ("pci:0000:4c:00.0", "S2")


def test_different_gpus_at_one_address_are_two_machines():
    one, two = (
        reading(lambda _: {"remap.failure": 1}, name, total=1, uuids={"pci:0000:19:00.0": uuid})
        for name, uuid in (("a.txt", "GPU-1"), ("b.txt", "GPU-2"))
    )
    assert [s for s, *_ in roots(judge_inputs([one, two]))] == [
        "host:a/pci:0000:19:00.0", "host:b/pci:0000:19:00.0"
    ]  # fmt: skip


def test_a_directive_in_a_query_decides_over_a_log():
    log = Reading(Path("k"), "kernel-log", 1, events=(
        Event("pci:0000:19:00.0", "xid.119", "Timeout", 9.0, "boot", {"line": 1}),))  # fmt: skip
    query = reading(lambda i: {"recovery.action": "none" if i else "reboot"})
    assert roots(judge_inputs([log, query])) == [("pci:0000:19:00.0", "driver", "reboot-node")]


def test_all_words_are_the_contracts():
    rules = [*tables.xids().values(), *(rule for _, rule in tables.sxids().values())]
    smi, kernel = tables.toml("smi.toml"), tables.toml("kernel.toml")
    rows = [*kernel.values(), *smi["rule"], *smi["event"].values()]
    said = [(r.component, r.action) for r in rules] + [(r["component"], r["action"]) for r in rows]
    assert {component for component, _ in said} <= set(COMPONENTS)
    assert {action for _, action in said} <= set(ACTIONS)
    assert all(row["source"] for row in rows)


def test_a_host_by_its_short_and_its_full_name_is_one_machine():
    events = (Event("pci:0000:19:00.0", "xid.79", "x", 9.0, "epoch", {"line": 1}),)
    files = [
        Reading(Path(name), "kernel-log", 1, events=events, host=name)
        for name in ("n17", "n17.lan")
    ]
    assert roots(judge_inputs(files)) == [("pci:0000:19:00.0", "pcie", "reboot-node")]
    files.append(Reading(Path("n18"), "kernel-log", 1, events=events, host="n18"))
    assert [s for s, *_ in roots(judge_inputs(files))] == [
        "host:n17/pci:0000:19:00.0",
        "host:n18/pci:0000:19:00.0",
    ]
