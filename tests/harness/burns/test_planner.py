"""Which burns, in what order, and how often."""

from hypothesis import given
from hypothesis import strategies as st

from rackproof.harness.burns import BURNS, plan
from rackproof.harness.burns.planner import arranged, fit, order, priority, rounds
from rackproof.harness.burns.table import PROBE

IDS = [burn.id for burn in plan("acceptance")]


def test_the_probe_comes_first_and_the_racks_own_burns_last():
    for seed in range(20):
        found = arranged(plan("acceptance"), seed, 1, PROBE)
        assert [burn.id for burn in found[:2]] == ["inventory", "health"]
        wide = [burn.wide is not None for burn in found]
        assert wide == sorted(wide)
        assert sorted(burn.id for burn in found) == sorted(IDS)


def test_another_seed_or_round_is_another_order_and_the_same_is_the_same():
    orders = {tuple(order(IDS, seed, turn, first=PROBE)) for seed in range(4) for turn in (1, 2, 3)}
    assert len(orders) == 12
    assert order(IDS, 7, 2, first=PROBE) == order(IDS[::-1], 7, 2, first=PROBE)


@given(st.integers(0, 2**63 - 1), st.sets(st.sampled_from(IDS)))
def test_a_narrower_plan_keeps_the_order(seed, some):
    whole = order(IDS, seed, 1, first=PROBE)
    narrow = order([name for name in IDS if name in some], seed, 1, first=PROBE)
    assert narrow == [name for name in whole if name in some]


def test_breadth_comes_first():
    ranked = priority(IDS, PROBE)
    assert ranked[:2] == ["inventory", "health"]
    families = {name.partition(".")[0] for name in IDS}
    first = [name.partition(".")[0] for name in ranked[: len(families)]]
    assert len(set(first)) == len(families), "one of each family before a second of any"
    assert next(name for name in ranked if name.startswith("memory.")) == "memory.march"


@given(st.lists(st.floats(0.1, 1e4), min_size=len(IDS), max_size=len(IDS)), st.floats(0, 1e5))
def test_what_is_taken_fits_and_what_is_left_out_did_not(seconds, budget):
    costs = dict(zip(IDS, seconds, strict=True))
    taken, left_out = fit(costs, budget, PROBE)
    assert sum(costs[name] for name in taken) <= budget * (1 + 1e-9)
    assert sorted([*taken, *left_out]) == sorted(IDS)
    assert taken == [name for name in IDS if name in taken]
    left = budget - sum(costs[name] for name in taken)
    assert all(costs[name] > left - 1e-6 for name in left_out)


def test_a_larger_budget_never_drops_the_probe():
    costs = {name: BURNS[name].seconds["acceptance"] for name in IDS}
    for budget in (2.0, 20.0, 200.0, 2000.0):
        taken, _ = fit(costs, budget, PROBE)
        assert {"inventory", "health"} <= set(taken)
    assert fit(costs, 1e6, PROBE) == (IDS, {})


def test_why_it_was_left_out_is_said():
    _, left_out = fit({"inventory": 1.0, "gemm.fp32": 12.0}, 5.0, PROBE)
    assert left_out == {"gemm.fp32": "takes 12 s, and 4 s of the budget were left"}


def test_rounds_begin_until_the_time_is_over():
    assert [rounds(lasting, 60.0) for lasting in (1, 60, 61, 600, 601)] == [1, 1, 2, 10, 11]
    assert rounds(60.0, 0.0) == 1
