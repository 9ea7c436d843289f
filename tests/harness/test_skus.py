"""The table of SKUs: every constant with unit, tag and source, and consistent with physics."""

import itertools
import math

import pytest

from rackproof.harness.errors import SpecError
from rackproof.harness.skus import CONSTANTS, TAGS, Constant, Sku, sku, skus
from rackproof.harness.units import UNITS

KEYS = ("h100", "h200", "b200", "gb200", "gb300", "vr")
KNOWN = [(key, name) for key in KEYS for name in skus()[key].constants]

# Payload of one PCIe lane in one direction, GB/s: 2.5 GT/s … 64 GT/s by generation.
PCIE_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def numbers(part: Sku, *names: str) -> list[float]:
    found = [part.number(name) for name in names]
    if None in found:
        pytest.skip(f"optional: not all of {', '.join(names)} are known for {part.key}")
    return [value for value in found if value is not None]


def both(name: str, other: str) -> list[str]:
    return [key for key in KEYS if {name, other} <= set(skus()[key].constants)]


def test_the_skus_of_the_contract_are_there() -> None:
    assert tuple(skus()) == KEYS


def test_an_unknown_sku_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="gb300"):
        sku("gb301")
    with pytest.raises(SpecError, match="h100"):
        sku("")


def test_an_unknown_constant_is_a_mistake_of_ours_and_named() -> None:
    with pytest.raises(KeyError, match="memory_total"):
        sku("h100").known("memory_totl")


@pytest.mark.parametrize(("key", "name"), KNOWN)
def test_every_constant_has_its_unit_tag_and_source(key: str, name: str) -> None:
    constant = skus()[key].constants[name]
    assert constant.unit == CONSTANTS[name]
    assert constant.unit in UNITS or constant.unit == "SMs"
    assert constant.tag in TAGS
    assert len(constant.source) > 5
    assert "unknown" not in str(constant.value)
    if constant.unit == "text":
        assert isinstance(constant.value, str)
        assert constant.value
    else:
        assert isinstance(constant.value, int | float)
        assert not isinstance(constant.value, bool)
        assert math.isfinite(constant.value)
        assert constant.value > 0 or name.startswith("tlimit")


def test_nothing_of_vera_rubin_is_firm() -> None:
    assert [name for name, c in sku("vr").constants.items() if c.firm] == []


def test_a_constant_is_firm_when_seen_or_confirmed_and_never_when_announced() -> None:
    assert Constant(1, "W", "seen", "a page").firm
    assert Constant(1, "W", "measured", "a part").firm
    assert not Constant(1, "W", "memory", "nobody").firm
    assert Constant(1, "W", "memory", "nobody", "a second page").firm
    assert not Constant(1, "W", "announced", "a vendor", "a second page").firm


def test_what_is_not_known_is_none_and_not_zero() -> None:
    part = sku("vr")
    assert part.known("nvlink_links") is None
    assert part.number("nvlink_links") is None
    assert part.text("name") is None
    assert sku("h100").number("name") is None


def test_pci_ids_are_in_lower_case_and_differ() -> None:
    ids = [c.value for key in KEYS if (c := skus()[key].known("pci_id"))]
    assert len(set(ids)) == len(ids) == 5
    for value in ids:
        assert isinstance(value, str)
        assert value == f"{int(value, 16):#06x}"


@pytest.mark.parametrize("key", both("nvlink_speed", "nvlink_links"))
def test_speed_times_links_is_the_gpus_figure_within_ten_percent(key: str) -> None:
    speed, links, rate = numbers(sku(key), "nvlink_speed", "nvlink_links", "nvlink_rate")
    assert speed * links == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("key", KEYS)
def test_the_tuples_of_a_sku_agree_with_each_other(key: str) -> None:
    part = sku(key)
    low, default, high = (part.number(f"power_{x}") for x in ("min", "default", "max"))
    idle = part.number("power_idle")
    ladder = [value for value in (idle, low, default, high) if value is not None]
    assert ladder == sorted(ladder)
    steps = [part.number(f"temperature_{x}") for x in ("max_operating", "slowdown", "shutdown")]
    known = [value for value in steps if value is not None]
    assert known == sorted(known)
    offsets = [part.number(f"tlimit_{x}") for x in ("shutdown", "slowdown", "max_operating")]
    known = [value for value in offsets if value is not None]
    assert known == sorted(known)


@pytest.mark.parametrize("key", both("tf32", "fp8"))
def test_a_narrower_input_has_a_higher_peak(key: str) -> None:
    fp32, tf32, bf16, fp8 = numbers(sku(key), "fp32", "tf32", "bf16", "fp8")
    assert fp32 < tf32 < bf16 < fp8


@pytest.mark.parametrize("key", both("pcie_gen", "pcie_width"))
def test_a_pcie_link_is_one_that_exists(key: str) -> None:
    gen, width = numbers(sku(key), "pcie_gen", "pcie_width")
    assert gen in PCIE_LANE
    assert width in {1, 2, 4, 8, 16}
    # What confirms Gen 5 x16 on H200: 52 GB/s fit no narrower and no older link.
    if key == "h200":
        assert PCIE_LANE[4] * 16 < 52 < PCIE_LANE[5] * 16


def test_memory_sizes_differ_by_more_than_the_tolerance_of_their_limits() -> None:
    sizes = sorted(size for key in KEYS if (size := sku(key).number("memory_total")))
    assert all(b / a > 1.03 for a, b in itertools.pairwise(sizes))
