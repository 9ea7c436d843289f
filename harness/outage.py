"""The faults that together are a loss of power, as texts of the fault grammar. Pure.

In: a rack and the trays that go dark. Out: the GPUs in them are lost; of a rack all of whose trays
go dark, every supply of every power shelf gives nothing as well. That is what telemetry of a dark
rack shows here; that its hosts and NICs answer no more is not modelled.
"""

from collections.abc import Collection

from rackproof.harness.spec import RackSpec

SUPPLIES = 6
"""Of a shelf (8 shelves of 6 x 5.5 kW in NVL72: docs.nvidia.com, enterprise reference
architectures, NVL72 AI factory, components); the emulated rack's shelves have as many."""


def outage(spec: RackSpec, trays: Collection[str]) -> list[str]:
    """Return ``KIND@SUBJECT`` of everything that fails when `trays` (``rack0/tray03``) go dark."""
    dark = {tray.host.removesuffix("/host"): tray for tray in spec.trays}
    faults = []
    for rack in range(spec.racks):
        inside = [place for place, tray in dark.items() if tray.rack == rack]
        if inside and all(place in trays for place in inside):
            faults += [
                f"psu-loss@{shelf}"
                for shelf in spec.of_sort("shelf")
                if shelf.startswith(f"rack{rack}/")
                for _ in range(SUPPLIES)
            ]
    lost = [gpu.subject for place, tray in dark.items() if place in trays for gpu in tray.gpus]
    return faults + [f"gpu-lost@{gpu}" for gpu in lost]


def trays_of(spec: RackSpec, rack: int) -> list[str]:
    """Return the trays of one rack."""
    return [tray.host.removesuffix("/host") for tray in spec.trays if tray.rack == rack]
