import tomllib
from collections import Counter
from dataclasses import replace
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS, PERSISTENCES
from rackproof.harness import faults
from rackproof.harness.devices.emulated.kinds import KINDS, SITES
from rackproof.harness.errors import SpecError
from rackproof.harness.faults import Fault, kinds, lacking, parse, parse_all, subjects
from rackproof.harness.spec import build, load

RACK = load("gb300-nvl72")
GPU = "rack0/tray03/gpu1"

CONTRACT = """
hbm-stuck-bit hbm-bit-flip hbm-address-alias hbm-uncorrectable row-remap-pending row-remap-failure
ecc-storm sm-sdc slow-gpu gpu-lost gpu-missing wrong-sku nvlink-down nvlink-degraded nvlink-flap
nvswitch-down fabric-unhealthy pcie-downtrain thermal-throttle coolant-loss power-brake
power-cap-out-of-band power-cap-ignored psu-loss nic-flap sensor-missing
""".split()


def refusal(text, rack=RACK):
    with pytest.raises(SpecError) as caught:
        parse(text, rack, 7)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_kind_of_the_contract_is_a_row():
    assert list(kinds()) == CONTRACT


def test_a_row_is_available_where_there_is_a_class_for_it():
    assert {name for name, kind in kinds().items() if kind.available} == {*KINDS, *SITES}


def test_rows_speak_the_contracts_words():
    for kind in kinds().values():
        assert kind.verdict in {"FAIL", "UNKNOWN"}
        assert set(kind.component) <= set(COMPONENTS)
        assert kind.persistence in {*PERSISTENCES, "any", "by-rate", "none"}
        assert set(kind.action) <= set(ACTIONS)
        assert kind.summary


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        (f"hbm-stuck-bit@{GPU}", {"count": 1, "bits": 1}),
        (f"hbm-stuck-bit@{GPU}:count=2", {"count": 2, "bits": 1}),
        (f"hbm-bit-flip@{GPU}", {"bits": 1, "lasts": "once"}),
        (f"hbm-bit-flip@{GPU}:lasts=2.5", {"bits": 1, "lasts": 2.5}),
        (f"hbm-uncorrectable@{GPU}", {"bits": 2}),
        (f"row-remap-pending@{GPU}", {"rows": 1}),
        (f"ecc-storm@{GPU}", {"per_second": 100.0}),
        (f"sm-sdc@{GPU}:rate=0.3", {"rate": 0.3, "relative": 0.1}),
        (f"slow-gpu@{GPU}:factor=0.8,lasts=once", {"factor": 0.8, "lasts": "once"}),
        (f"gpu-lost@{GPU}", {"at": 0.5}),
        (f"gpu-missing@{GPU}", {}),
        (f"wrong-sku@{GPU}", {"sku": "gb200"}),
        (f"nvlink-down@{GPU}/link07", {}),
        ("power-brake@rack0/tray03/host", {}),
        (f"sensor-missing@{GPU}", {"metric": "temperature"}),
        (f"sensor-missing@{GPU}:metric=power.average", {"metric": "power.average"}),
    ],
)
def test_parameters_are_completed_with_the_defaults(text, parameters):
    fault = parse(text, RACK, 7)
    assert (fault.kind, fault.subject) == tuple(text.partition(":")[0].split("@"))
    assert fault.parameters == parameters


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hbm-stuk-bit@?", "did you mean hbm-stuck-bit?"),
        ("", "unknown fault kind"),
        ("slow-gpu", "write KIND@SUBJECT"),
        ("slow-gpu@", "write KIND@SUBJECT"),
        ("slow-gpu@?:", "write KIND@SUBJECT"),
        ("slow-gpu@?:factr=0.5", "did you mean factor?"),
        ("slow-gpu@?:factor", "needs a value"),
        ("slow-gpu@?:factor=", "needs a value"),
        ("slow-gpu@?:factor=0.5,factor=0.6", "given twice"),
        ("slow-gpu@?:factor=0.5,", "no key ''"),
        ("slow-gpu@?:factor=1", "below 1"),
        ("slow-gpu@?:factor=0", "above 0"),
        ("slow-gpu@?:factor=-0.5", "above 0"),
        ("slow-gpu@?:factor=nan", "out of range"),
        ("slow-gpu@?:factor=inf", "out of range"),
        ("slow-gpu@?:factor=half", "no number"),
        ("slow-gpu@?:factor=0.\n5", "no number"),
        ("slow-gpu@?:rate=0", "above 0"),
        ("slow-gpu@?:rate=1.5", "at most 1"),
        ("slow-gpu@?:lasts=0", "above 0"),
        ("slow-gpu@?:lasts=inf", "out of range"),
        ("slow-gpu@?:lasts=twice", "no number, or once"),
        ("hbm-stuck-bit@?:count=1.5", "no whole number"),
        ("hbm-stuck-bit@?:count=0", "at least 1"),
        ("hbm-stuck-bit@?:count=\u0661", "no whole number"),
        ("hbm-stuck-bit@?:count=9999999999999999999999", "no whole number"),
        ("hbm-uncorrectable@?:bits=1", "at least 2"),
        ("slow-gpu@rack0/tray99/gpu1", "did you mean rack0/tray"),
        ("slow-gpu@rack0/tray3/gpu1", "did you mean rack0/tray"),
        ("slow-gpu@rack0/tray03/host", "is a host"),
        (f"slow-gpu@{GPU}/link07", "is a link"),
        (f"nvlink-down@{GPU}", "is a gpu"),
        ("slow-gpu@fabric", "has no 'fabric'"),
        ("wrong-sku@?:sku=gb300", "is a gb300 already"),
        ("wrong-sku@?:sku=h100", "does not fit"),
        ("wrong-sku@?:sku=gb20", "did you mean gb200?"),
        ("sensor-missing@?:metric=temprature", "did you mean temperature?"),
        ("sensor-missing@?:metric=memory.miscompares", "is none of"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(text, said):
    assert said in refusal(text)


def test_every_kind_can_be_planted_and_one_that_could_not_would_say_so(monkeypatch):
    assert all(kind.available for kind in kinds().values())
    name = "power-cap-ignored"
    waiting = {**kinds(), name: replace(kinds()[name], available=False)}
    monkeypatch.setattr(faults, "kinds", lambda: waiting)
    assert "cannot be planted in this version" in refusal(f"{name}@?")


@pytest.mark.parametrize(
    ("rack", "kind", "reason"),
    [
        ("hgx-h100", "coolant-loss", "air-cooled"),
        ("hgx-h100", "psu-loss", "no shelf"),
        ("vr-nvl72", "wrong-sku", "no other SKU of its form factor"),
    ],
)
def test_what_the_platform_lacks_is_refused_with_the_reason(rack, kind, reason):
    spec = load(rack)
    assert lacking(spec, kinds()[kind]) == reason
    assert reason in refusal(f"{kind}@?", spec)


def test_a_rack_without_nvlink_has_no_nvlink_faults():
    raw = b'[rack]\nname="x"\nsource="emulated"\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku="vr"\n'
    assert "no link" in refusal("nvlink-down@?", build(raw, "x.toml"))


def test_the_form_factor_decides_what_fits_into_a_slot():
    hgx = load("hgx-h100")
    assert parse("wrong-sku@?:sku=h200", hgx, 1).parameters["sku"] == "h200"
    assert "does not fit" in refusal("wrong-sku@?:sku=gb200", hgx)


def test_the_same_fault_twice_is_refused():
    texts = [f"slow-gpu@{GPU}", f"slow-gpu@{GPU}:factor=0.5"]
    with pytest.raises(SpecError, match="planted twice"):
        parse_all(texts, RACK, 7)


def test_two_kinds_on_one_gpu_are_let_through():
    assert len(parse_all([f"slow-gpu@{GPU}", f"ecc-storm@{GPU}"], RACK, 7)) == 2


def test_a_draw_goes_by_seed_and_place_in_the_list():
    texts = ["slow-gpu@?", "ecc-storm@?"]
    once = parse_all(texts, RACK, 7)
    assert parse_all(texts, RACK, 7) == once
    assert once[0] == parse("slow-gpu@?", RACK, 7)
    drawn = {parse("slow-gpu@?", RACK, seed).subject for seed in range(800)}
    assert len(drawn) == 72


def test_draws_of_one_kind_never_meet():
    hgx = load("hgx-h100")
    for seed in range(20):
        faults = parse_all(["slow-gpu@?"] * 7 + ["slow-gpu@rack0/tray00/gpu3"], hgx, seed)
        assert max(Counter(fault.subject for fault in faults).values()) == 1
    with pytest.raises(SpecError, match="every subject"):
        parse_all(["slow-gpu@?"] * 9, hgx, 1)


def test_a_draw_is_among_all_sorts_that_the_kind_allows():
    kind = kinds()["power-brake"]
    sorts = {s.rpartition("/")[2][:3] for s in subjects(RACK, kind)}
    assert sorts == {"gpu", "hos"}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fault_is_typed_as_it_is_printed(name):
    fault = parse(f"{name}@?:lasts=3.25,rate=0.125", RACK, 11)
    assert parse(str(fault), RACK, 99) == fault


def outcome(text):
    try:
        return parse(text, RACK, 1)
    except SpecError as error:
        return str(error)


@given(st.text(max_size=60))
def test_any_text_is_a_fault_or_one_line(text):
    for candidate in (text, f"slow-gpu@{text}", f"slow-gpu@?:factor={text}", f"slow-gpu@?:{text}"):
        found = outcome(candidate)
        assert isinstance(found, Fault) or "\n" not in found


def test_the_table_has_no_key_that_nobody_reads():
    text = resources.files("rackproof.harness").joinpath("faults.toml").read_text("utf-8")
    known = {"on", "needs", "summary", "verdict", "component", "persistence", "action",
             "available", "keys"}  # fmt: skip
    for name, row in tomllib.loads(text).items():
        assert set(row) <= known, name
