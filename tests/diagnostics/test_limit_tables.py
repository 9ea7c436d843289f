"""The packaged limits, each held against the metrics and the physics of the platform."""

import tomllib
from importlib import resources
from typing import Any

import pytest

from rackproof.diagnostics import limits
from rackproof.harness import spec
from rackproof.harness.metrics import metrics
from rackproof.harness.skus import skus
from rackproof.harness.units import UNITS

PEAKS = {
    "gemm.fp32.rate": "fp32",
    "gemm.tf32.rate": "tf32",
    "gemm.bf16.rate": "bf16",
    "gemm.fp16.rate": "bf16",
    "gemm.fp8.rate": "fp8",
    "hbm.bandwidth": "hbm_rate",
    "link.pair": "nvlink_rate",
}
RATES = {
    "fp32_rate": "fp32",
    "tf32_rate": "tf32",
    "bf16_rate": "bf16",
    "fp8_rate": "fp8",
    "hbm_copy_rate": "hbm_rate",
    "pair_rate": "nvlink_rate",
}


def rows(file: str, table: str) -> list[dict[str, Any]]:
    text = resources.files("rackproof.diagnostics.limits").joinpath(file).read_text("utf-8")
    found = tomllib.loads(text)
    assert set(found) == {table}
    assert isinstance(found[table], list)
    return list(found[table])


SPEC = rows("spec.toml", "limit")
ACHIEVED = rows("achieved.toml", "achieved")


def problems(row: dict[str, Any]) -> list[str]:
    """What is wrong with a row of spec.toml."""
    metric = metrics().get(row.get("metric", ""))
    if metric is None:
        return ["no such metric"]
    bounds = {key: row[key] for key in ("low", "high", "equal") if key in row}
    found = [f"unknown key {key}" for key in row.keys() - {"metric", "unit", "source", *bounds}]
    if row.get("unit") != metric.unit:
        found.append(f"unit {row.get('unit')}, and the metric is in {metric.unit}")
    if len(row.get("source", "")) < 10:
        found.append("no source")
    if not bounds or ("equal" in bounds and len(bounds) > 1):
        found.append("wants low, high, or equal alone")
    if "low" in bounds and metric.better != "high" and "high" not in bounds:
        found.append(f"a low limit, and {metric.better} is better")
    if "high" in bounds and metric.better != "low" and "low" not in bounds:
        found.append(f"a high limit, and {metric.better} is better")
    if not metric.judged:
        found.append("the metric is only noted")
    text = [key for key, value in bounds.items() if isinstance(value, str)]
    if (metric.unit == "text") != bool(text):
        found.append("text and number are mixed up")
    return found


@pytest.mark.parametrize("row", SPEC, ids=[row["metric"] for row in SPEC])
def test_a_limit_fits_its_metric(row: dict[str, Any]) -> None:
    assert problems(row) == []


def test_the_check_itself_sees_each_mistake() -> None:
    good = {"metric": "temperature", "high": 95, "unit": "C", "source": "a page somewhere"}
    assert problems(good) == []
    assert problems({**good, "metric": "temperatur"})
    assert problems({**good, "unit": "W"})
    assert problems({**good, "source": ""})
    assert problems({**good, "equal": 3})
    assert problems({**good, "metric": "thermal.margin"})
    assert problems({**good, "metric": "power.average", "unit": "W"})
    assert problems({**good, "high": "hot"})
    assert problems({**good, "hihg": 3})
    assert problems({k: v for k, v in good.items() if k != "high"})


def test_no_metric_is_limited_twice() -> None:
    names = [row["metric"] for row in SPEC]
    assert len(names) == len(set(names))


def test_counts_are_never_negative_and_ratios_never_above_one() -> None:
    for row in SPEC:
        for bound in (row.get("low"), row.get("high")):
            if bound is not None:
                assert bound >= 0
                over = row["metric"].startswith("power.")  # over a limit, which may be overshot
                assert bound <= 1 or over or row["unit"] not in {"ratio", "flag"}


def test_the_temperature_bound_is_above_every_slowdown_and_below_every_silicon_limit() -> None:
    high = next(row["high"] for row in SPEC if row["metric"] == "temperature")
    slowdowns = [t for part in skus().values() if (t := part.number("temperature_slowdown"))]
    assert max(slowdowns) < high <= 105


def test_the_packaged_limits_load_in_their_layers() -> None:
    loaded = limits.shipped()
    assert {limit.layer for limit in loaded} <= {"spec", "achieved"}
    assert len([limit for limit in loaded if limit.layer == "spec"]) == len(SPEC)


def achieved_problems(row: dict[str, Any]) -> list[str]:
    """What is wrong with a row of achieved.toml."""
    metric, part = metrics().get(row.get("metric", "")), skus().get(row.get("sku", ""))
    if metric is None or part is None:
        return ["no such metric or SKU"]
    found = []
    if row.keys() != {"sku", "metric", "value", "unit", "source", "address_known"}:
        found.append("a key is missing or unknown")
    if row.get("unit") != metric.unit or metric.unit not in UNITS:
        found.append("not in the metric's unit")
    if metric.better != "high" or not row.get("value", 0) > 0:
        found.append("an achieved value is a rate, and more is better")
    if not row.get("source") or not isinstance(row.get("address_known"), bool):
        found.append("no source, or not said whether its address is known")
    if row.get("address_known") and "not recorded" in row.get("source", ""):
        found.append("says that its address is known, and it is not")
    name = PEAKS.get(metric.name)
    peak = part.known(name) if name else None
    if peak is not None and isinstance(peak.value, int | float):
        # one direction of NVLink is stated per GPU; rates in TB/s stand beside metrics in GB/s
        scale = UNITS[peak.unit][1] / UNITS[metric.unit][1]
        if row["value"] > peak.value * scale:
            found.append("above the peak")
    return found


def test_every_achieved_value_is_one_that_the_sku_can_reach() -> None:
    assert [(row, found) for row in ACHIEVED if (found := achieved_problems(row))] == []


def test_the_check_of_achieved_values_sees_each_mistake() -> None:
    good = {
        "sku": "h100",
        "metric": "gemm.fp32.rate",
        "value": 50,
        "unit": "TFLOP/s",
        "source": "a page",
        "address_known": True,
    }
    assert achieved_problems(good) == []
    assert achieved_problems({**good, "value": 68})
    assert achieved_problems({**good, "value": 0})
    assert achieved_problems({**good, "unit": "GFLOP/s"})
    assert achieved_problems({**good, "sku": "h101"})
    assert achieved_problems({**good, "metric": "temperature"})
    assert achieved_problems({**good, "source": "public file, address not recorded"})


def test_the_rates_that_are_assumed_for_the_emulator_are_within_physics() -> None:
    pcie = {4: 31.5, 5: 63.0, 6: 121.0}  # GB/s of 16 lanes in one direction
    for name, _ in spec.shipped():
        rack = spec.load(name)
        for rate, peak in RATES.items():
            value, limit = rack.assumed(rate), rack.assumed(peak)
            if isinstance(value, int | float) and isinstance(limit, int | float):
                assert value <= limit, (name, rate)
        if rack.assumed("c2c_rate") is None:
            gen = rack.assumed("pcie_gen")
            assert isinstance(gen, int | float)
            for copy in ("h2d_rate", "d2h_rate"):
                value = rack.assumed(copy)
                assert isinstance(value, int | float)
                assert value <= pcie[int(gen)], (name, copy)
