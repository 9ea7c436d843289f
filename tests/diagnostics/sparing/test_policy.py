"""Who gets a spare: the surest fault first, within the stock; what gets none is exposed."""

import pytest

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS, PERSISTENCES, Diagnosis
from rackproof.diagnostics.sparing.policy import MILD, Rack, decide, exposed, lasting
from rackproof.diagnostics.sparing.tables import figure, rate_of, rates

RATE = 4.2e-5


def root(subject="rack0/tray03/gpu1", component="hbm", action="swap-to-spare", **more):
    given = {"persistence": "persistent", "confidence": 0.97, "case": 1, **more}
    return Diagnosis(subject, component, given["persistence"], action, given["case"], ("x",),
                     confidence=given["confidence"])  # fmt: skip


def nvl72(spare=2, **more):
    return Rack("a", 18, 4, spare, RATE, **more)


def of(decided):
    return {d.diagnosis.subject: d.decision for d in decided}


def test_a_sure_fault_takes_one_spare_gpu_and_its_tray_stays() -> None:
    rack = nvl72()
    (one,) = decide([(rack, root())], 0)
    assert one.decision == "swap-gpu"
    assert rack.left == 7
    assert not one.exposed
    assert one.cost < min(one.instead.values())


def test_whole_trays_go_where_the_site_wants_it() -> None:
    rack = nvl72(whole=True)
    decided = decide([(rack, root()), (rack, root("rack0/tray03/gpu2", case=2))], 0)
    assert [d.decision for d in decided] == ["swap-tray", "tray-out"]
    assert rack.left == 4


def test_a_host_takes_its_whole_tray() -> None:
    (one,) = decide([(nvl72(), root("rack0/tray03/host", "host", "field-diag"))], 0)
    assert one.decision == "swap-tray"
    assert "swap-gpu" not in one.instead


def test_when_spares_run_out_the_surest_get_them_and_the_rest_is_exposed() -> None:
    rack = Rack("a", 9, 1, 2, RATE, job=512)
    faults = [(rack, root(f"rack0/tray{n:02d}/gpu0", confidence=0.90 + n / 100, case=n))
              for n in range(4)]  # fmt: skip
    decided = decide(faults, 0)
    got = of(decided)
    assert [got[f"rack0/tray{n:02d}/gpu0"] for n in (3, 2)] == ["swap-tray", "swap-tray"]
    stays = exposed(decided)
    assert {d.diagnosis.subject for d in stays} == {"rack0/tray00/gpu0", "rack0/tray01/gpu0"}
    assert all("no spare is left" in d.why for d in stays)
    assert [d.cost for d in stays] == sorted((d.cost for d in stays), reverse=True)


def test_a_spare_rack_is_used_when_the_rack_has_none_and_what_is_in_it_is_done_with() -> None:
    rack = nvl72(spare=0)
    two = [(rack, root()), (rack, root("rack0/tray09/gpu0", confidence=0.9, case=2))]
    assert [d.decision for d in decide(two, 1)] == ["move-rack", "rack-out"]
    assert not exposed(decide(two, 1))
    alone = decide([(nvl72(spare=0), root())], 0)
    assert exposed(alone) == alone


def test_an_unsure_fault_keeps_what_it_has() -> None:
    faint = root(persistence="transient", confidence=0.98, action="field-diag")
    (one,) = decide([(nvl72(), faint)], 3)
    assert one.decision == "keep"
    assert not one.exposed


def test_links_and_switches_are_repaired_where_they_are() -> None:
    link = root("rack0/tray03/gpu1/link07", "nvlink", "check-cabling")
    switch = root("rack0/switch03", "nvswitch", "field-diag", case=2)
    got = of(decide([(nvl72(), link), (nvl72(), switch)], 0))
    assert got["rack0/tray03/gpu1/link07"] == "repair-link"
    assert got["rack0/switch03"] == "repair-switch"
    quick = decide([(nvl72(), switch)], 2)
    assert quick[0].decision == "move-rack"  # a spare rack loses less than two hours of a domain


def test_power_of_the_whole_rack_is_repaired_at_its_place() -> None:
    (one,) = decide([(nvl72(), root("rack0/power/shelf2", "power", "check-power"))], 0)
    assert one.decision == "repair-site"
    assert "swap-tray" not in one.instead


def test_final_evidence_ends_in_an_rma() -> None:
    (one,) = decide([(nvl72(), root(action="rma"))], 0)
    assert one.decision == "swap-gpu"
    assert "RMA" in one.why


@pytest.mark.parametrize("action", sorted(MILD))
def test_what_needs_no_spare_takes_none(action) -> None:
    rack = nvl72()
    (one,) = decide([(rack, root(action=action))], 1)
    assert one.decision == MILD[action]
    assert rack.left == 8


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_diagnosis_gets_a_decision(component) -> None:
    for subject in ("rack0/tray03/gpu1", "rack0/tray03/host", "rack0/switch00", "fabric", "rank3"):
        for action in ACTIONS:
            for persistence in PERSISTENCES:
                one = root(subject, component, action, persistence=persistence)
                (decided,) = decide([(nvl72(), one)], 0)
                assert decided.decision
                assert decided.cost is None or decided.cost >= 0


def test_order_of_the_roots_changes_nothing() -> None:
    made = [root(f"rack0/tray{n:02d}/gpu0", confidence=0.6 + n / 50, case=n) for n in range(12)]
    for spare in (0, 1, 2):
        ahead = decide([(r := nvl72(spare), one) if n == 0 else (r, one)
                        for n, one in enumerate(made)], 1)  # fmt: skip
        rack = nvl72(spare)
        back = decide([(rack, one) for one in reversed(made)], 1)
        assert of(ahead) == of(back)


def test_how_surely_a_fault_lasts() -> None:
    assert lasting(root(confidence=0.9)) == 0.9
    assert lasting(root(persistence="transient", confidence=0.9)) == pytest.approx(0.1)
    assert lasting(root(persistence="undetermined")) == figure("doubt", "undetermined")


@pytest.mark.parametrize(
    ("sku", "name"), [("gb300", "gb200-worst"), ("h200", "h100"), ("b200-hgx", "b200"),
                      ("h100-sxm", "h100"), ("vr200", "gb200-worst"), ("what", "gb200-worst")],
)  # fmt: skip
def test_a_sku_is_planned_with_a_published_rate(sku, name) -> None:
    value, source, found = rate_of(sku)
    assert found == name
    assert (value, source) == rates()[name]
    assert source
