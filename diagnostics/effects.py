"""What follows from what: which readings need no other reason than a fault that is known.

On one GPU, heat that holds the clocks down explains low rates and low power; a GPU that is gone
explains everything. At a distance, a link that is down explains what its GPU cannot exchange, and
coolant that stands still explains every hot GPU of its rack. A cause explains something only where
a sign of its own stands (a rate is no heat).
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

GONE = frozenset({"gpu.present"})
WRONG_PART = frozenset({"gpu.name", "gpu.pci_id"})
FOLLOWS = frozenset({"xid.count", "recovery.action"})  # said of any cause on that GPU
# What an event leaves behind: it stays outside until somebody resets the GPU, and does not tell
# whether the event comes again.
TRACES = frozenset(
    "remap.pending remap.failure remap.banks.none retired.pending retired.pages sram.threshold "
    "ecc.uncorrected.volatile".split()
)
BRAKE = frozenset({"throttle.power_brake", "throttled.brake.share"})
CAP = frozenset({"power.limit.gap", "power.cap.readback"})
REACH = frozenset({"link.pair.coverage", "link.collective.ranks"})  # who took part at all

RATES = ("gemm.*.rate", "hbm.bandwidth", "hbm.triad", "copy.*.rate", "link.*.rate")
LINKS = ("link.*",)
# what a part of another SKU has in another size or number, and its links with it
PART = (
    "memory.total", "nvlink.links", "nvlink.speed", "pcie.*.max", "vbios.version", "temperature",
    "thermal.*", "power.*", "gemm.*.digest", "serial.unique",
)  # fmt: skip
SHORT = ("power.steady", "power.step.*", "power.agreement")  # of a GPU that is held down


@dataclass(frozen=True, slots=True)
class Effect:
    """A GPU with one of `signs` outside, for `cause`, needs no reason more for `explained`."""

    cause: str
    signs: tuple[str, ...]
    explained: tuple[str, ...]


# In order: the first that explains a reading takes it.
EFFECTS = (
    Effect("gone", ("*",), ("*",)),
    Effect("wrong-part", ("*",), (*RATES, *PART)),
    Effect("thermal", ("thermal.*", "throttle*.thermal*", "temperature"), (*RATES, *SHORT)),
    Effect("brake", ("*",), (*RATES, "power.*")),
    Effect("cap", ("*",), (*RATES, "power.*")),
    Effect("power", ("power.steady",), RATES),
    Effect("pcie", ("pcie.*",), ("copy.*",)),
    Effect("fabric", ("fabric.*",), LINKS),
    Effect("nvlink", ("nvlink.*",), LINKS),
    Effect("hbm", ("memory.miscompares", "ecc.uncorrected.delta"), ("copy.wrong", "link.*.wrong")),
    Effect("hbm", ("hbm.*", "memory.*", "ecc.*"), ("link.*.rate", "copy.*.rate")),
    Effect("sm", ("gemm.*.rate",), RATES),
)


@functools.cache
def matches(metric: str, patterns: tuple[str, ...]) -> bool:
    """Say whether a metric's name fits one of the patterns."""
    return any(fnmatchcase(metric, pattern) for pattern in patterns)


def explains(cause: str, signs: Iterable[str], metric: str) -> bool:
    """Say whether a GPU with `cause`, shown by the metrics `signs`, has `metric` outside too."""
    signs = tuple(signs)
    return any(
        effect.cause == cause
        and matches(metric, effect.explained)
        and any(matches(sign, effect.signs) for sign in signs)
        for effect in EFFECTS
    )


def cause_of_metric(metric: str, component: str) -> str:
    """Return the cause that a metric is a sign of: most are named after their component."""
    return next((cause for cause, own in CAUSES.items() if metric in own), component)


def component_of(cause: str) -> str:
    """Return the contract's component of a cause, but for a GPU that is gone."""
    return COMPONENTS.get(cause, cause)


CAUSES = {"gone": GONE, "wrong-part": WRONG_PART, "brake": BRAKE, "cap": CAP, "reach": REACH}
COMPONENTS = {
    "gone": "unknown", "wrong-part": "host", "brake": "power", "cap": "power", "reach": "fabric",
}  # fmt: skip
ORDER = tuple(dict.fromkeys(effect.cause for effect in EFFECTS))
