"""metrics.toml as objects: what a reading can be, and how a metric travels with a record."""

import json
import math
from dataclasses import asdict, replace

import pytest

from rackproof.harness.errors import SpecError
from rackproof.harness.metrics import Metric, from_table, metrics

OWN = Metric("acme.skew", "ratio", "gpu", "low", judged=True, relative=False,
             component="sm", action="watch", about="signed, and a mean")  # fmt: skip


@pytest.mark.parametrize("metric", metrics().values(), ids=lambda metric: metric.name)
def test_every_metric_can_be_read_and_has_a_least_where_silence_would_pass(metric: Metric) -> None:
    assert metric.possible(0 if metric.unit != "text" else "a text")
    if metric.unit != "text":
        assert not metric.possible(math.nan)
        assert not metric.possible(-math.inf)
    signed = ("thermal.margin", "thermal.soak.slope", "power.step.ramp", "power.step.mains.ramp",
              "power.smoothing.excess")  # fmt: skip
    if metric.judged and metric.better == "low" and metric.name not in signed:
        assert not metric.possible(-300.0), "it would be within any limit"


def test_counts_are_whole_and_a_share_is_no_more_than_all() -> None:
    table = metrics()
    assert [table["xid.count"].possible(value) for value in (2, 2.0, 0.5)] == [True, True, False]
    assert all(table["remap.pending"].possible(value) for value in (0, 1))
    assert not any(table["remap.pending"].possible(value) for value in (0.5, 2))
    assert table["gemm.fp32.every"].possible(1.5), "it is a mean"
    assert [table["memory.coverage"].possible(value) for value in (1, 1.01)] == [True, False]


def test_a_teams_own_metric_says_itself_what_it_can_be() -> None:
    assert OWN.possible(-0.5)
    assert not replace(OWN, least=0).possible(-0.5)
    assert replace(OWN, unit="errors").possible(0.5)
    assert not replace(OWN, unit="errors", whole=True).possible(0.5)


def test_a_metric_travels_with_a_record_and_an_older_record_is_read() -> None:
    bounded = replace(OWN, least=-1.0, most=1)
    table = json.loads(json.dumps(asdict(bounded)))
    assert from_table(table) == bounded
    old = {key: value for key, value in table.items() if key not in ("whole", "least", "most")}
    assert from_table(old) == OWN


@pytest.mark.parametrize(
    "wrong", [{"least": "0"}, {"most": True}, {"whole": 1}, {"unit": None}, {"mean": True}]
)
def test_a_table_that_is_no_metric_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="metric"):
        from_table({**asdict(OWN), **wrong})
