"""The nouns of the sequential test: causes, retests, their outcomes, what a case begins with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """What may lie behind a case; exactly one does."""

    APP = "app"
    DRIVER = "driver"
    TRANSIENT = "transient"
    PERSISTENT = "persistent"  # the GPU's, every time
    INTERMITTENT = "intermittent"  # the GPU's, now and then
    LINK = "link"  # a link or the slot: it stays where it is when the GPU is moved
    SWITCH = "switch"
    HOST = "host"  # the host, its power or its cooling
    NIC = "nic"


class Test(StrEnum):
    """A retest: how the burn that failed is run once more."""

    __test__ = False  # to pytest, what is called Test... is a class of tests

    AGAIN = "again"
    RESET = "reset"  # reset the GPU, then burn
    REBOOT = "reboot"  # reboot the node, then burn
    ELSEWHERE = "elsewhere"  # the same job on another GPU
    SWAP = "swap"  # exchange the GPU with a neighbour, burn both
    SOAK = "soak"  # many runs in a row


TOUCHING = frozenset((Test.RESET, Test.REBOOT, Test.SWAP))
"""Retests that change a node. On a real rack they are proposed, never run by us."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a retest showed.

    In `struck` of `runs` runs the fault showed: on the case's own subject, for ELSEWHERE on the
    other GPU, for SWAP on the GPU in its new place. `stayed` is for SWAP alone: in how many of as
    many runs it showed at the old place, with the other GPU in it.
    """

    test: Test
    runs: int = 1
    struck: int = 0
    stayed: int = 0


@dataclass(frozen=True, slots=True)
class Signs:
    """What a case begins with, before any retest.

    `component` is the contract's word that the rules point at, `kind` the rule's (terminal,
    hardware, driver, watch, app, sympathetic), `family` its family of codes or cause. `prior` is
    the chance that such a fault outlasts a reset (xid.csv). `failed` and `passed` count runs of the
    burns that show it, (0, 0) where there are none; `incidents` how often it came, more than an
    hour apart. `known` are outcomes that the evidence itself holds: a file that shows the fault
    again after a boot is a failed REBOOT. `alike` counts other GPUs that show the same at the same
    time. `earlier` cases of the same serial number were seen in `hours` before this one (None:
    history unknown). `burn_seconds` is the device time of one run of the burns that show it.
    `waits` says that the vendor asks for a reset or a reboot: what passes stays until then.
    """

    component: str
    kind: str = "hardware"
    family: str = ""
    prior: float = 0.1
    failed: int = 0
    passed: int = 0
    incidents: int = 1
    alike: int = 0
    known: tuple[Outcome, ...] = ()
    earlier: int | None = None
    hours: float = 0.0
    burn_seconds: float = 60.0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Retest:
    """A retest worth its cost: how many runs, its device seconds and its cost in GPU-hours.

    `gain` is the expected loss, in GPU-hours, that it saves beyond its cost. `why` says it in
    words.
    """

    test: Test
    runs: int
    seconds: float
    cost: float
    gain: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is concluded: the contract's words for persistence, component and action.

    `confidence` is the posterior of the cause that decided, `sure` the probability that the
    persistence is right, `risk` the expected loss in GPU-hours that is left, `posterior` the whole
    belief, `because` the reasons in words. `choice` is the row of losses.toml that was taken.
    """

    persistence: str
    component: str
    action: str
    confidence: float
    risk: float = 0.0
    posterior: Mapping[Cause, float] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    sure: float = 0.5
    choice: str = "watch"
