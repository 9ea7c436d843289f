"""Declares ACME's burn: what it does, what it owes, and what bounds it."""

from fixtures import LEAST_CLOCK_MHZ
from rackproof.fixtures.own import Burn, Limit, Metric, declare

SECONDS = 5.0


def hold_clock(device, _bench, notes):
    """Load one GPU and note the lowest SM clock that shows while the load lasts."""
    seen = []
    plane = device.plane
    plane.load(1.0)
    try:
        for _ in range(10):
            device.wait(SECONDS / 10)
            seen.append(device.telemetry.read("clock.sm"))
    finally:
        plane.load(0.0)
    notes.note("acme.clock.lowest", min(seen))


declare(
    Burn(
        "acme.clock",
        "the SM clock under full load, as our job scheduler promises it",
        owes={"gpu": ("acme.clock.lowest", "xid.count")},
        seconds={"quick": SECONDS, "acceptance": SECONDS, "soak": SECONDS},
        run=hold_clock,
    ),
    metrics=[
        Metric(
            "acme.clock.lowest",
            unit="MHz",
            subject="gpu",
            better="high",
            judged=True,
            relative=True,  # also held against the rack's own median
            component="thermal",
            action="check-cooling",
            about="lowest SM clock under full load",
        )
    ],
    limits=[
        Limit("acme.clock.lowest", "ACME job scheduler, service level 3", "user",
              low=LEAST_CLOCK_MHZ),
    ],
)  # fmt: skip
