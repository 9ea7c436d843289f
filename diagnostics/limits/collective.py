"""What an all-reduce over one NVLink domain reaches in public: a curve by ranks and size.

In: a SKU, how many GPUs take part, how large the buffer is. Out: the limit of
`link.collective.rate`, 0.9 of the published bus bandwidth, or None where no curve says. A point
whose address is not recorded is shown beside the others and bounds nothing. Between two published
counts of ranks, and between two sizes, the value is interpolated on a logarithmic scale; beyond the
last count nothing is guessed, and beyond the last size the curve is flat.
"""

import csv
import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from rackproof.diagnostics.limits.layers import Limit

METRIC = "link.collective.rate"
SIZE = 8 << 30  # bytes of the buffer that the burn reduces
SHARE = 0.9  # as of every achieved value


@dataclass(frozen=True, slots=True)
class Point:
    """One published reading: GB/s of bus bandwidth of an all-reduce of `size` bytes."""

    sku: str
    ranks: int
    size: int
    rate: float
    address_known: bool
    source: str


@functools.cache
def points() -> tuple[Point, ...]:
    """Return the packaged table."""
    here = resources.files("rackproof.diagnostics.limits")
    text = here.joinpath("collective.csv").read_text("utf-8")
    return tuple(
        Point(
            row["sku"],
            int(row["ranks"]),
            int(row["size_bytes"]),
            float(row["busbw_gb_s"]),
            row["address_known"] == "yes",
            row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    )


def _between(curve: Mapping[int, float], at: int, *, flat: bool) -> float | None:
    """Return the curve's value at `at`; `flat` says that it goes on beyond its last point."""
    below = max((x for x in curve if x <= at), default=None)
    above = min((x for x in curve if x >= at), default=None)
    if below is None or (above is None and not flat):
        return None
    if above is None or above == below:
        return curve[below]
    share = math.log(at / below) / math.log(above / below)
    return curve[below] + share * (curve[above] - curve[below])


def expected(known: Sequence[Point], ranks: int, size: int) -> float | None:
    """Return the bus bandwidth in GB/s that `known` points of one SKU give, or None."""
    by_ranks: dict[int, dict[int, float]] = defaultdict(dict)
    for point in known:
        by_ranks[point.ranks][point.size] = point.rate
    at_size = {n: _between(curve, size, flat=True) for n, curve in by_ranks.items()}
    return _between({n: v for n, v in at_size.items() if v is not None}, ranks, flat=False)


def collective(sku: str, ranks: int | None, size: int = SIZE) -> tuple[Limit, ...]:
    """Return the limit of an all-reduce over `ranks` GPUs of one domain; none without a curve."""
    known = [p for p in points() if p.sku == sku and p.address_known]
    rate = expected(known, ranks, size) if ranks else None
    if rate is None:
        return ()
    near = min(known, key=lambda p: (abs(p.ranks - (ranks or 0)), abs(p.size - size)))
    source = f"{SHARE} x {rate:.6g} GB/s over {ranks} GPUs, {size >> 20} MiB: {near.source}"
    return (Limit(METRIC, source, "achieved", low=SHARE * rate),)
