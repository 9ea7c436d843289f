"""NVLink counters by their many names: of nvidia-smi, of dcgmi and of DCGM's fields.

A name as the tool writes it comes in, a metric of metrics.toml goes out; counters that say nothing
about health (traffic, corrected FEC blocks) have none.
"""

import functools
import re

from rackproof.harness.model import Why

UINT16, SMALL = 65535, 1024
# NVML nvmlFieldValueEnums: an NVLink 5 BER has its exponent in bits 0-7, its mantissa in 8-11.
_MANTISSA, _EXPONENT, _WIDTH = 8, 0xFF, 0xF
_ZERO_EXPONENT = 255
_PACKED_TOP = 0xFFF
_SHOWN = re.compile(r"(\d{1,6}(?:\.\d{1,12})?)(?:[eE]([+-]?\d{1,4}))?\Z")
_NAMES = (
    ("failed recover", "nvlink.recoveries.failed"),
    ("recovery failed", "nvlink.recoveries.failed"),
    ("recovery successful", "nvlink.recoveries"),
    ("successful recover", "nvlink.recoveries"),
    ("recovery events", "nvlink.recoveries.all"),
    ("recovery error", "nvlink.recoveries"),
    ("replay", "nvlink.replays"),
    ("fec error", ""),
    ("effective ber", "nvlink.ber"),
    ("symbol ber", "nvlink.ber.symbol"),
    ("crc", "nvlink.crc"),
    ("symbol error", ""),
    ("effective error", "nvlink.faults"),
    ("malformed packet", "nvlink.faults"),
    ("buffer overrun", "nvlink.faults"),
    ("rx error", "nvlink.faults"),
    ("rx remote error", "nvlink.faults"),
    ("rx general error", "nvlink.faults"),
    ("link integrity", "nvlink.faults"),
    ("tx discards", "nvlink.faults"),
    ("tx discard", "nvlink.faults"),
)
UNITS = {"nvlink.recoveries": "events", "nvlink.recoveries.failed": "events",
         "nvlink.recoveries.all": "events", "nvlink.replays": "errors", "nvlink.crc": "errors",
         "nvlink.faults": "errors", "nvlink.ber": "ratio",
         "nvlink.ber.symbol": "ratio"}  # fmt: skip
RATES = frozenset(("nvlink.ber", "nvlink.ber.symbol"))
# The count of all recoveries stands for those that succeeded where these are not told apart.
ALL, SUCCEEDED = "nvlink.recoveries.all", "nvlink.recoveries"
DELTAS = {"nvlink.recoveries": "nvlink.recoveries.delta",
          "nvlink.recoveries.failed": "nvlink.recoveries.failed.delta",
          "nvlink.replays": "nvlink.replays.delta", "nvlink.crc": "nvlink.crc.delta",
          "nvlink.faults": "nvlink.faults.delta"}  # fmt: skip


@functools.lru_cache(1024)
def metric_of(name: str) -> str:
    """Return the metric that a counter's name stands for, or "" where health needs none."""
    low = name.lower().replace("_", " ")
    return next((metric for text, metric in _NAMES if text in low), "")


def count(text: str) -> int | Why:
    """Return a count of errors; all bits set, at any width, is how a driver says "unknown"."""
    bare = text.strip()
    if not bare.isdecimal() or len(bare) > 20:  # noqa: PLR2004 - the digits of 64 bits
        return Why.NO_READING
    value = int(bare)
    near = any(top - SMALL <= value < top for top in (1 << 32, 1 << 64))
    return Why.NO_READING if near or value == UINT16 or value >= 1 << 64 else value


def ber(text: str) -> float | Why:
    """Return a bit error rate as it is printed: ``15e-255`` and its like stand for zero."""
    match = _SHOWN.match(text.strip())
    if match is None:
        return Why.NO_READING
    exponent = int(match[2] or 0)
    value = 0.0 if exponent <= -_ZERO_EXPONENT + 1 else float(match[0])
    return value if 0 <= value <= 1 else Why.NO_READING


def packed_ber(value: int) -> float | Why:
    """Return the bit error rate that NVML packs as mantissa and exponent in twelve bits."""
    if not 0 <= value <= _PACKED_TOP:
        return Why.NO_READING
    mantissa, exponent = value >> _MANTISSA & _WIDTH, value & _EXPONENT
    if exponent == _ZERO_EXPONENT or not mantissa:
        return 0.0
    rate = float(f"{mantissa}e-{exponent}")
    return rate if rate <= 1 else Why.NO_READING
