"""PS1 to PS11: every criterion has its checks, every check of it is owed, and the page says so."""

import re
from pathlib import Path

import pytest

from rackproof.diagnostics.criteria import CRITERIA, criterion
from rackproof.diagnostics.limits import shipped
from rackproof.harness.burns import BURNS
from rackproof.harness.metrics import metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "read-a-power-step.md"


def test_all_eleven_are_there():
    assert set(CRITERIA.values()) == {f"PS{n}" for n in range(1, 12)}


@pytest.mark.parametrize(("burn", "metric"), CRITERIA)
def test_each_check_is_owed_and_judged(burn, metric):
    owed = {name for names in BURNS[burn].owes.values() for name in names}
    assert metric in owed
    assert metrics()[metric].judged


@pytest.mark.parametrize("metric", sorted({m for _, m in CRITERIA if "step" in m or "smooth" in m}))
def test_what_the_metric_is_begins_with_its_criterion(metric):
    about = metrics()[metric].about
    name = next(name for (_, own), name in CRITERIA.items() if own == metric)
    assert about.startswith(f"{name}: ") or "seen" in metric


def test_what_has_no_criterion_has_none():
    assert criterion("power.step", "gpu.present") == criterion("health", "thermal.margin") == ""


def test_the_page_maps_every_criterion_to_the_metrics_that_are_judged():
    rows = dict(re.findall(r"^\| (PS\d+) \|(.*)$", PAGE.read_text("utf-8"), re.MULTILINE))
    for (burn, metric), name in CRITERIA.items():
        assert f"`{metric}`" in rows[name], (burn, metric)


def test_the_page_names_every_limit_that_ships_for_them():
    text = PAGE.read_text("utf-8")
    own = {m for _, m in CRITERIA}
    for limit in shipped():
        if limit.metric in own and limit.metric.startswith(("power.step.", "power.store")):
            bound = limit.low if limit.low is not None else limit.high
            assert f"{bound:g}" in text, limit.metric
