"""From failed checks to who did it: roots, victims, components, persistence and actions."""

from unittest.mock import ANY

import pytest

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS, PERSISTENCES
from rackproof.diagnostics.judge import judge
from rackproof.harness.model import Event, Measurement, Missing, Why

GPU = "rack0/tray00/gpu1"
TRAY0 = [f"rack0/tray00/gpu{n}" for n in range(4)]
TRAY1 = [f"rack0/tray01/gpu{n}" for n in range(4)]
ECC, RATE = ("memory.march", "ecc.corrected.delta"), ("gemm.fp32", "gemm.fp32.rate")
HOT, BRAKE = ("gemm.fp32", "throttle.thermal"), ("gemm.fp32", "throttle.power_brake")
DARK = ("inventory", "nvlink.active")
LOST = ("memory.march", "gpu.present")


def on(subject, what, *values):
    return {(what[0], subject, what[1]): values}


def on_all(subjects, what, *values):
    return {(what[0], s, what[1]): values for s in subjects}


def roots(judgement):
    return [(d.subject, d.component) for d in judgement.diagnoses if d.role == "root"]


def victims(judgement):
    return {d.subject for d in judgement.diagnoses if d.role == "victim"}


def well_formed(judgement):
    """What holds of all diagnoses: the contract's words, cases with one root, evidence."""
    cases = {}
    ids = {c.id for c in judgement.checks}
    for d in judgement.diagnoses:
        assert d.component in COMPONENTS
        assert d.persistence in PERSISTENCES
        assert d.action in ACTIONS
        assert 0.0 <= d.confidence <= 1.0
        assert d.because
        cases.setdefault(d.case, []).append(d.role)
        if d.role == "victim":
            assert d.action == "none"
        else:
            assert any(line.startswith(tuple(ids)) for line in d.because)
    for roles in cases.values():
        assert roles.count("root") == 1
    entries = [(d.subject, d.case) for d in judgement.diagnoses]
    assert len(set(entries)) == len(entries)
    return judgement


# --- one GPU ------------------------------------------------------------------------------------


def test_one_root_for_one_cause_with_serial_and_evidence(bed, accuse):
    judgement = well_formed(bed(runs=on(GPU, ECC, 63, 63, 64)).judge())
    (found,) = judgement.diagnoses
    assert found.as_json() == {
        "subject": GPU,
        "serial": "1650000001",
        "component": "hbm",
        "persistence": "persistent",
        "role": "root",
        "case": 1,
        "action": "swap-to-spare",
        "confidence": pytest.approx(0.8, abs=0.05),
        "because": [
            "memory.march: ecc.corrected.delta 63, 63, 64 in 3 of 3 runs",
            ANY,
            ANY,
        ],
    }
    _, belief, more = found.because
    assert belief.startswith("belief: persistent 0.")
    assert more.startswith("what would tell more: re")
    assert accuse(judgement) == {GPU}


def test_two_causes_on_one_gpu_are_two_roots(bed, accuse):
    runs = on(GPU, ECC, 1, 1, 1) | on(GPU, HOT, 1, 1, 1)
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [(GPU, "hbm"), (GPU, "thermal")]
    assert accuse(judgement) == {GPU}


@pytest.mark.parametrize(("flag", "component"), [(HOT, "thermal"), (BRAKE, "power")])
def test_what_holds_the_clocks_down_explains_a_slow_gpu(bed, flag, component):
    runs = on(GPU, flag, 1, 1, 1) | on(GPU, RATE, 40.0, 40.0, 40.0)
    assert roots(well_formed(bed(runs=runs).judge())) == [(GPU, component)]


def test_a_slow_gpu_alone_is_its_own_cause(bed):
    judgement = well_formed(bed(runs=on(GPU, RATE, 40.0, 40.0, 40.0)).judge())
    assert roots(judgement) == [(GPU, "sm")]


def test_heat_explains_no_wrong_product(bed):
    runs = on(GPU, HOT, 1, 1, 1) | on(GPU, ("gemm.fp32", "gemm.fp32.wrong"), 2, 2, 2)
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [(GPU, "sm"), (GPU, "thermal")]


def test_a_wrong_part_explains_its_size_its_speed_and_its_links(bed, accuse):
    runs = (
        on(GPU, ("inventory", "gpu.name"), *["NVIDIA B200"] * 3)
        | on(GPU, RATE, 40.0, 40.0, 40.0)
        | on(GPU, ("inventory", "memory.total"), 1.0)
        | on_all([f"{GPU}/link{n:02d}" for n in range(3)], ("inventory", "nvlink.speed"), 25.0)
    )
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [(GPU, "host")]
    assert accuse(judgement) == {GPU}
    runs |= on(GPU, ECC, 9, 9, 9)
    assert roots(bed(runs=runs).judge()) == [(GPU, "hbm"), (GPU, "host")]


# --- gone ---------------------------------------------------------------------------------------


def test_a_gone_gpu_explains_the_rest_and_its_links(bed, accuse):
    runs = on(GPU, LOST, 0, 0, 0) | on(GPU, ECC, 5, None, None) | on(GPU, HOT, 1, 1, 1)
    runs |= on(f"{GPU}/link01", DARK, 0, 0, 0)
    gaps = {("memory.march", GPU, "memory.coverage"): [Why.LOST] * 3}
    judgement = well_formed(bed(runs=runs, gaps=gaps).judge())
    assert roots(judgement) == [(GPU, "unknown")]
    assert victims(judgement) == {f"{GPU}/link01"}
    assert accuse(judgement) == {GPU}
    assert judgement.verdict == "FAIL"


def test_a_gpu_that_fell_off_the_bus_says_so(bed):
    runs = on(GPU, LOST, 0, 0, 0) | on(GPU, ("memory.march", "xid.count"), 1, None, None)
    judgement = well_formed(bed(runs=runs, events=[Event(GPU, "xid.79", "off the bus")]).judge())
    (found,) = judgement.diagnoses
    assert (found.component, found.persistence, found.action) == (
        "pcie",
        "persistent",
        "reboot-node",
    )
    assert "xid.79 x1" in found.because


def test_a_run_without_a_reading_is_no_pass(bed):
    runs = on(GPU, ECC, 5, None, None)
    gaps = {("memory.march", GPU, "ecc.corrected.delta"): [Why.TIMED_OUT] * 3}
    (found,) = bed(runs=runs, gaps=gaps).judge().diagnoses
    assert found.persistence == "undetermined"
    assert "in 1 of 1 runs" in found.because[0]


def test_a_gpu_that_came_back_was_gone_for_a_while(bed):
    (found,) = bed(runs=on(GPU, LOST, 0, 1, 1)).judge().diagnoses
    assert found.persistence == "transient"


def test_all_gpus_of_a_tray_gone_is_the_hosts(bed, accuse):
    judgement = well_formed(bed(runs=on_all(TRAY0, LOST, 0, 0, 0)).judge())
    assert roots(judgement) == [("rack0/tray00/host", "host")]
    assert victims(judgement) == set(TRAY0)
    assert accuse(judgement) == {"rack0/tray00/host"}


# --- shared -------------------------------------------------------------------------------------


def test_a_brake_on_all_gpus_of_a_tray_is_the_hosts(bed, accuse):
    runs = on_all(TRAY0, BRAKE, 1, 1, 1) | on_all(TRAY0, RATE, 40.0, 40.0, 40.0)
    judgement = well_formed(bed(runs=runs, trays=4).judge())
    assert roots(judgement) == [("rack0/tray00/host", "power")]
    assert victims(judgement) == set(TRAY0)
    assert accuse(judgement) == {"rack0/tray00/host"}
    lead = judgement.diagnoses[0]
    assert (lead.persistence, lead.action) == ("persistent", "check-power")
    assert any("on 4 of 4" in line for line in lead.because)
    assert {d.case for d in judgement.diagnoses} == {lead.case}


def test_a_brake_on_three_of_four_is_their_own(bed):
    judgement = bed(runs=on_all(TRAY0[:3], BRAKE, 1, 1, 1)).judge()
    assert roots(judgement) == [(gpu, "power") for gpu in TRAY0[:3]]


def test_a_gpu_that_is_gone_does_not_hide_that_the_rest_of_its_tray_shares_a_flag(bed, accuse):
    runs = on_all(TRAY0[1:], BRAKE, 1, 1, 1) | on(TRAY0[0], LOST, 0, 0, 0)
    judgement = well_formed(bed(runs=runs).judge())
    assert accuse(judgement) == {"rack0/tray00/host", TRAY0[0]}


def test_one_gpu_alone_shares_nothing(bed):
    runs = on("rack0/tray00/gpu0", BRAKE, 1, 1, 1)
    judgement = bed(trays=8, gpus=1, runs=runs).judge()
    assert roots(judgement) == [("rack0/tray00/gpu0", "power")]


@pytest.mark.parametrize(("flag", "part"), [(BRAKE, "power"), (HOT, "cooling")])
def test_a_flag_on_all_trays_is_the_racks(bed, accuse, flag, part):
    judgement = well_formed(bed(runs=on_all(TRAY0 + TRAY1, flag, 1, 1, 1)).judge())
    assert [s for s, _ in roots(judgement)] == [f"rack0/{part}"]
    assert victims(judgement) == set(TRAY0 + TRAY1)
    assert accuse(judgement) == {f"rack0/{part}"}


def test_of_two_racks_only_the_one_that_has_it(bed, accuse):
    judgement = well_formed(bed(racks=2, runs=on_all(TRAY0 + TRAY1, BRAKE, 1, 1, 1)).judge())
    assert accuse(judgement) == {"rack0/power"}


def test_another_fault_on_a_victim_is_still_its_own(bed, accuse):
    runs = on_all(TRAY0, BRAKE, 1, 1, 1) | on(TRAY0[2], ECC, 4, 4, 4)
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [("rack0/tray00/host", "power"), (TRAY0[2], "hbm")]
    assert accuse(judgement) == {"rack0/tray00/host", TRAY0[2]}


def test_the_fabric_of_all_gpus_is_the_fabrics(bed, accuse):
    runs = on_all(TRAY0 + TRAY1, ("inventory", "fabric.state"), "in-progress")
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [("fabric", "fabric")]
    assert accuse(judgement) == {"fabric"}
    one = bed(runs=on(GPU, ("inventory", "fabric.state"), "in-progress")).judge()
    assert roots(one) == [(GPU, "fabric")]


# --- links --------------------------------------------------------------------------------------


def links(gpus, *numbers):
    return [f"{gpu}/link{n:02d}" for gpu in gpus for n in numbers]


def test_a_link_is_a_root_of_its_own(bed, accuse):
    link = f"{GPU}/link02"
    judgement = well_formed(bed(runs=on(link, DARK, 0, 0, 0)).judge())
    (found,) = judgement.diagnoses
    assert (found.subject, found.component, found.action) == (link, "nvlink", "check-cabling")
    assert found.serial == "1650000001"
    assert accuse(judgement) == {link}
    assert judgement.subjects[GPU] == "FAIL"


def test_the_same_link_dark_on_all_gpus_is_the_switchs(bed, accuse):
    gone = links(TRAY0 + TRAY1, 1)
    judgement = well_formed(bed(runs=on_all(gone, DARK, 0, 0, 0)).judge())
    assert roots(judgement) == [("rack0/switch01", "nvswitch")]
    assert victims(judgement) == set(gone)
    assert accuse(judgement) == {"rack0/switch01"}
    one_less = bed(runs=on_all(gone[1:], DARK, 0, 0, 0)).judge()
    assert accuse(one_less) == set(gone[1:])


def test_a_switch_takes_several_links_of_each_gpu(bed, accuse):
    gone = links(TRAY0, 0, 1)
    runs = on_all(gone, DARK, 0, 0, 0)
    judgement = bed(trays=1, links=4, switches=2, runs=runs).judge()
    assert accuse(judgement) == {"rack0/switch00"}
    half = bed(trays=1, links=4, switches=2, runs=on_all(links(TRAY0, 0), DARK, 0, 0, 0)).judge()
    assert accuse(half) == set(links(TRAY0, 0))


def test_all_links_dark_is_the_fabrics_and_without_a_count_of_switches_too(bed, accuse):
    gone = links(TRAY0 + TRAY1, 0, 1, 2)
    assert accuse(bed(runs=on_all(gone, DARK, 0, 0, 0)).judge()) == {"fabric"}
    some = bed(switches=None, runs=on_all(links(TRAY0 + TRAY1, 1), DARK, 0, 0, 0)).judge()
    assert accuse(some) == {"fabric"}
    assert roots(some) == [("fabric", "nvswitch")]


def test_all_links_of_one_gpu_are_the_gpus(bed, accuse):
    judgement = well_formed(bed(runs=on_all(links([GPU], 0, 1, 2), DARK, 0, 0, 0)).judge())
    assert roots(judgement) == [(GPU, "nvlink")]
    assert accuse(judgement) == {GPU}
    runs = on_all(links([GPU], 0, 1, 2), DARK, 0) | on(GPU, ("inventory", "fabric.state"), "no")
    judgement = well_formed(bed(runs=runs).judge())
    assert roots(judgement) == [(GPU, "fabric")]
    assert accuse(judgement) == {GPU}


# --- persistence --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "lasting"),
    [
        ([3, 3, 3], "persistent"),
        ([3, 3], "persistent"),
        ([3, 0, 0], "transient"),
        ([0, 3, 0], "transient"),
        ([3, 0, 3], "intermittent"),
        ([3, 3, 0], "intermittent"),
        ([3], "undetermined"),
    ],
)
def test_persistence_of_a_gpu_and_of_a_link(bed, values, lasting):
    (found,) = bed(runs=on(GPU, ECC, *values)).judge().diagnoses
    assert found.persistence == lasting
    up = [0 if v else 1 for v in values]
    (found,) = bed(runs=on(f"{GPU}/link00", DARK, *up)).judge().diagnoses
    assert found.persistence == lasting


def test_burns_that_did_not_fail_say_nothing_about_persistence(bed):
    other = ("memory.march", "memory.miscompares")
    (found,) = bed(runs=on(GPU, other, 1, 1, 1) | on(GPU, ECC, 0, 0, 0)).judge().diagnoses
    assert found.persistence == "persistent"


def test_what_comes_and_goes_is_watched(bed):
    (found,) = bed(runs=on(GPU, ECC, 3, 0, 0)).judge().diagnoses
    assert found.action == "watch"


# --- what the driver says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "action"), [("remap.pending", "reset-gpu"), ("remap.failure", "rma")]
)
def test_remaps_have_actions_of_their_own(bed, metric, action):
    runs = on(GPU, ("health", metric), 1, 1, 1)
    runs |= on(GPU, ("health", "recovery.action"), "reset", "reset", "reset")
    (found,) = well_formed(bed(runs=runs).judge()).diagnoses
    assert (found.component, found.action) == ("hbm", action)


def test_an_xid_alone_is_the_xids_cause(bed):
    runs = on(GPU, ("gemm.fp32", "xid.count"), 1, 0, 0)
    app = bed(runs=runs, events=[Event(GPU, "xid.13", "graphics exception")]).judge()
    (found,) = well_formed(app).diagnoses
    assert (found.component, found.action) == ("app", "retest")
    assert app.verdict == "FAIL"
    dead = bed(runs=runs, events=[Event(GPU, "xid.48", "DBE")]).judge()
    assert roots(dead) == [(GPU, "hbm")]
    assert dead.diagnoses[0].action not in ("none", "retest")
    silent = bed(runs=runs).judge()
    assert roots(silent) == [(GPU, "unknown")]


@pytest.mark.parametrize(("asked", "action"), [("reset", "reset-gpu"), ("reboot", "reboot-node")])
def test_the_drivers_own_directive_decides_where_nothing_else_failed(bed, asked, action):
    runs = on(GPU, ("health", "recovery.action"), *[asked] * 3)
    (found,) = well_formed(bed(runs=runs).judge()).diagnoses
    assert found.action == action


def test_an_xid_beside_a_fault_is_its_evidence_and_no_cause(bed):
    runs = on(GPU, ECC, 3, 3, 3) | on(GPU, ("memory.march", "xid.count"), 1, 1, 1)
    events = [Event(GPU, "xid.94", "contained")] * 3
    (found,) = well_formed(bed(runs=runs, events=events).judge()).diagnoses
    assert found.component == "hbm"
    assert "xid.94 x3" in found.because


def test_an_event_alone_concludes_nothing(bed):
    judgement = bed(events=[Event(GPU, "xid.79", "off the bus")]).judge()
    assert (judgement.verdict, judgement.diagnoses) == ("PASS", [])


# --- nobody -------------------------------------------------------------------------------------


def test_unknown_accuses_nobody(bed, accuse):
    gaps = {("health", GPU, "thermal.margin"): [Why.NO_READING]}
    judgement = bed(gaps=gaps).judge()
    assert judgement.verdict == "UNKNOWN"
    assert accuse(judgement) == set()


def test_what_a_waived_fail_shows_is_not_concluded(bed, accuse):
    text = (
        f'[[waiver]]\nsubject = "{GPU}"\ncheck = "memory.*"\nuntil = 2099-01-01\n'
        'owner = "ops"\nreason = "known"\n'
    )
    runs = on(GPU, ECC, 3, 3, 3) | on(GPU, HOT, 1, 1, 1)
    judgement = bed(runs=runs, limits=text).judge()
    assert roots(judgement) == [(GPU, "thermal")]
    clean = bed(runs=on(GPU, ECC, 3, 3, 3), limits=text).judge()
    assert clean.diagnoses == []
    assert accuse(clean) == set()


def test_a_subject_that_is_not_in_the_plan_breaks_nothing(bed, change):
    record = bed().record()
    odd = [
        Measurement("inventory", subject, "nvlink.active", 0, "links", 1)
        for subject in ("", "/", "link07", "rack9/tray00/gpu0/link99", "\u2603")
    ]
    lost = Missing("inventory", "nowhere", "gpu.present", Why.LOST, "x")
    judgement = judge(change(record, seen=[*record.seen, *odd, lost]))
    assert judgement.verdict == "FAIL"
