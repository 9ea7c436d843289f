"""The way between an emulated GPU and its host: PCIe, and C2C where the GPU sits beside its CPU.

In: the rack, and what the PCIe link trained to. Out: the generation that the link runs at, at rest
and under load, and the rates of copies. On a superchip host copies go over C2C, so that a PCIe link
that trained low shows in its generation alone.
"""

from dataclasses import dataclass

from rackproof.harness.spec import RackSpec

IDLE_GEN = 1
"""Where a link rests without load: power saving of the link, seen on idle data-centre GPUs."""
LANE_RATE: dict[int, float] = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one lane and direction by generation: GT/s x the share of the line code (8b/10b up to
Gen 2, 128b/130b up to Gen 5, 242 of 256 bytes of a flit in Gen 6)."""
OF_RAW = 0.88
"""What copies reach of the link's raw rate where the rack's file says nothing: 55.4 of 63 GB/s on
HGX H100."""
DUPLEX = 164.8 / 200.7
"""What is left of each way while the other one runs, assumed for every SKU: host to device on
GB200, both ways against one way."""
TRANSFER_UTILISATION = 0.1
"""Share of the dynamic power that host copies take: assumed."""


@dataclass(slots=True)
class Bus:
    """One GPU's way to its host. `h2d` and `d2h` are B/s at the link's best generation, `best`."""

    best: int
    h2d: float
    d2h: float
    over_pcie: bool
    trained: int
    moving: bool = False

    @property
    def share(self) -> float:
        """What the generation that the link trained to leaves of the copy rates."""
        if not self.over_pcie or self.trained >= self.best:
            return 1.0
        return LANE_RATE[self.trained] / LANE_RATE[self.best]

    def generation(self, *, busy: bool) -> int:
        """Return the generation that the link runs at."""
        return self.trained if busy else min(IDLE_GEN, self.trained)

    def rate(self, way: str) -> float:
        """Return the B/s of copies ``h2d``, ``d2h``, or ``both``, the sum of both ways."""
        rates = {"h2d": self.h2d, "d2h": self.d2h, "both": DUPLEX * (self.h2d + self.d2h)}
        return rates[way] * self.share


def bus(spec: RackSpec, gen: int, width: int) -> Bus:
    """Return the way to the host of a healthy GPU of this rack."""
    raw = OF_RAW * LANE_RATE[min(max(gen, 1), max(LANE_RATE))] * width
    h2d, d2h = (spec.assumed(f"{way}_rate") for way in ("h2d", "d2h"))
    return Bus(
        best=gen,
        h2d=1e9 * (raw if h2d is None else float(h2d)),
        d2h=1e9 * (raw if d2h is None else float(d2h)),
        over_pcie=spec.assumed("form_factor") != "superchip",
        trained=gen,
    )
