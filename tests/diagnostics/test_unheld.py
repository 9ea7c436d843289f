"""A limit of the user's that no check met is UNKNOWN, and never silent."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.evidence import Head, Planned
from rackproof.diagnostics.limits import Limit, Limits
from rackproof.diagnostics.unheld import held, unheld
from rackproof.diagnostics.verdict import Verdict

BURN, RACK, GPU = "power.step", "rack0/power", "rack0/tray00/gpu0"
HEAD = Head(
    rack="r", source="emulated", seed=1, level="acceptance", verb="burn", gpus={GPU: "h100"},
    hosts=[], links=0, limits={}, today="2026-07-30",
    plan=[Planned(BURN, {"gpu": ("power.steady",), "power": ("power.step.mains.line",)}, wide=True),
          Planned("health", {"link": ("nvlink.active",)})],
)  # fmt: skip
WITH = replace(HEAD, around={"power": [RACK]})


def user(metric="power.step.mains.line", **more):
    return Limits((Limit(metric, "the site", "user", high=1.0, **more),))


def check(verdict=Verdict.PASS, subject=RACK, metric="power.step.mains.line"):
    return Check(BURN, subject, metric, verdict, "said", "W")


def test_a_limit_that_no_check_met_is_unknown_with_a_reason_and_a_cure():
    (found,) = held(HEAD, user(), [])
    assert (found.id, found.metric, found.verdict) == (
        BURN, "power.step.mains.line", Verdict.UNKNOWN,
    )  # fmt: skip
    assert "held nothing" in found.message
    assert "whole rack" in found.cure
    assert found.decided_by == "user"
    assert unheld([found]) == ["power.step.mains.line"]


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN])
def test_one_that_a_check_met_adds_nothing(verdict):
    own = [check(verdict)]
    assert held(WITH, user(), own) == own
    assert unheld(own) == []


def test_one_that_was_left_aside_is_asked_for():
    (found,) = held(WITH, user(), [check(Verdict.SKIP)])
    assert found.verdict is Verdict.UNKNOWN
    assert held(WITH, Limits(), [check(Verdict.SKIP)]) == [check(Verdict.SKIP)]


def test_one_that_is_meant_for_another_rack_asks_nothing():
    assert held(WITH, user(sku="gb300"), []) == []
    assert held(WITH, user(subject="rack7/power"), []) == []


def test_one_of_a_burn_that_was_not_planned_and_one_that_is_ours_ask_nothing():
    assert held(HEAD, user("power.smoothing.excess"), []) == []
    ours = Limits((replace(user().limits[0], layer="spec"),))
    assert held(HEAD, ours, []) == []


def test_it_is_so_for_every_sort_of_subject():
    (found,) = held(HEAD, user("nvlink.active"), [])
    assert (found.id, found.verdict) == ("health", Verdict.UNKNOWN)


def test_an_sku_holds_for_gpus_and_not_for_what_stands_around_them():
    (_, found) = held(WITH, user(sku="h100"), [check()])
    assert found.verdict is Verdict.UNKNOWN
    own = [check(subject=GPU, metric="power.steady")]
    assert held(WITH, user("power.steady", sku="h100"), own) == own
