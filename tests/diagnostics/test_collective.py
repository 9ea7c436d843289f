"""The published curves of all-reduce, and the limit that they give."""

import pytest

from rackproof.diagnostics.limits import collective
from rackproof.diagnostics.limits.collective import SIZE, Point, expected, points
from rackproof.harness import spec
from rackproof.harness.metrics import metrics
from rackproof.harness.skus import skus
from rackproof.harness.units import UNITS


def point(ranks, size, rate):
    return Point("h100", ranks, size, rate, address_known=True, source="a page")


def test_every_point_is_within_the_physics_and_has_a_source() -> None:
    for each in points():
        part = skus()[each.sku]
        peak = part.number("nvlink_rate")
        assert peak is not None
        # the switches reduce, so that bus bandwidth may pass one direction of the GPU's links by
        # the share that in-switch sums save: 480 GB/s are read on H100, of 450 GB/s of links
        assert 0 < each.rate < 1.1 * peak, each
        assert each.source
        assert not (each.address_known and each.source.endswith("not recorded)")
                    and each.sku == "gb200")  # fmt: skip
    keys = [(p.sku, p.ranks, p.size) for p in points()]
    assert len(keys) == len(set(keys))
    assert metrics()["link.collective.rate"].unit == "GB/s"
    assert "GB/s" in UNITS


def test_a_curve_is_interpolated_in_size_and_ranks_and_never_beyond() -> None:
    known = [point(8, 1 << 30, 400.0), point(8, 4 << 30, 480.0), point(32, 4 << 30, 400.0)]
    assert expected(known, 8, 4 << 30) == 480.0
    assert expected(known, 8, 2 << 30) == pytest.approx(440.0)
    assert expected(known, 8, 16 << 30) == 480.0, "flat beyond the largest buffer"
    assert expected(known, 16, 4 << 30) == pytest.approx(440.0)
    assert expected(known, 64, 4 << 30) is None
    assert expected(known, 4, 4 << 30) is None
    assert expected(known, 8, 1 << 20) is None
    assert expected([], 8, SIZE) is None


@pytest.mark.parametrize(
    ("name", "low"),
    [("gb200-nvl72", 751.1), ("gb300-nvl72", 751.1), ("catalina", 751.1), ("hgx-h100", 432.1),
     ("hgx-h200", 432.0), ("hgx-b200", 751.1)],
)  # fmt: skip
def test_a_shipped_rack_is_judged_at_nine_tenths_of_what_is_published(
    name: str, low: float
) -> None:
    rack = spec.load(name)
    (limit,) = collective(rack.sku.key, rack.domain)
    assert (limit.metric, limit.layer) == ("link.collective.rate", "achieved")
    assert limit.low == pytest.approx(low, abs=0.1)
    assert "0.9 x" in limit.source
    assumed = rack.assumed("collective_rate")
    assert isinstance(assumed, float)
    assert assumed > limit.low


def test_without_a_curve_there_is_no_limit() -> None:
    assert collective("vr", 72) == ()
    assert collective("gb200", 4) == (), "its address is not recorded"
    assert collective("gb200", None) == ()
    assert collective("h100", 64) == ()
