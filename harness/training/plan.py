"""Plan: all that a reference training run is made of. Plain values; two equal plans, equal bits.

`config` is what the trajectory depends on; how many replicas there are, where, and how they are
watched, is not part of it: keep-batch gives the same bits for any membership.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rackproof.harness.errors import DrillError

MODES = ("keep-batch", "drop-batch")
AUDITS = ("none", "one", "all")
DEVICES = ("numpy", "cupy")


@dataclass(frozen=True, slots=True)
class Shape:
    """The transformer: sizes in numbers of units; `feedforward` is a multiple of `width`."""

    layers: int = 2
    width: int = 48
    heads: int = 2
    context: int = 16
    vocabulary: int = 64
    feedforward: int = 4
    dropout: float = 0.1


@dataclass(frozen=True, slots=True)
class Optimizer:
    """AdamW (Loshchilov and Hutter, arXiv:1711.05101), constant learning rate."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.01


@dataclass(frozen=True, slots=True)
class Samples:
    """The data set: `shards` files of `per_shard` samples; the last `reserve` shards are kept back.

    `poisoned` shards hold one sample whose weight is NaN, as a broken file would.
    """

    shards: int = 64
    per_shard: int = 64
    reserve: int = 4
    poisoned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Times are seconds.

    `micro_shards` (V) parts of a batch, of `micro_batch` samples each, are shared among the
    replicas. `regions` are dealt out in turn to replicas and spares; those `elsewhere` have no GPU
    in the rack that is watched. `audit` recomputes no, one or all micro-shards of a step on another
    replica. A member that says nothing for `silence` is lost.
    `pace` is the least time of a step, as if it waited for data. No step after `gate` is begun
    until the job is told so (0: there is none).
    `tiers` are checkpoint tiers, each ``NAME=URL``; `auto` puts a spare in a lost replica's place
    at once, without waiting to be told. `proxied` leads members' connections through a proxy that
    can be slowed or cut. `defect` is a planted mistake of the trainer, for negative controls:
    ``forget:FIELD`` of a checkpoint, ``threads:N`` after a restart.
    """

    seed: int = 0
    steps: int = 60
    replicas: int = 2
    spares: int = 1
    micro_shards: int = 8
    micro_batch: int = 4
    shape: Shape = field(default_factory=Shape)
    optimizer: Optimizer = field(default_factory=Optimizer)
    samples: Samples = field(default_factory=Samples)
    mode: str = "keep-batch"
    regions: tuple[str, ...] = ("region0",)
    elsewhere: tuple[str, ...] = ()
    every: int = 10
    tiers: tuple[str, ...] = ()
    delta: bool = False
    busy: str = "wait"
    audit: str = "none"
    silence: float = 2.0
    pace: float = 0.0
    gate: int = 0
    auto: bool = True
    proxied: bool = False
    threads: int = 1
    device: str = "numpy"
    defect: str = ""

    def __post_init__(self) -> None:
        """Raise DrillError for a plan that cannot be run."""
        whole = ("steps", "replicas", "micro_shards", "micro_batch", "every", "threads")
        for name in whole:
            if getattr(self, name) < 1:
                msg = f"a training run with {name} = {getattr(self, name)} cannot be"
                raise DrillError(msg)
        for name, words in (("mode", MODES), ("audit", AUDITS), ("device", DEVICES)):
            if getattr(self, name) not in words:
                msg = f"{name} = {getattr(self, name)!r}: one of {', '.join(words)}"
                raise DrillError(msg)
        if self.micro_shards < self.replicas:
            msg = f"{self.replicas} replicas cannot share {self.micro_shards} micro-shards"
            raise DrillError(msg)

    @property
    def batch(self) -> int:
        """Samples in a step."""
        return self.micro_shards * self.micro_batch

    @property
    def config(self) -> dict[str, Any]:
        """What the trajectory depends on, as plain JSON values."""
        body = asdict(self)
        names = "seed micro_shards micro_batch shape optimizer samples mode".split()
        return {name: body[name] for name in names}

    @property
    def config_hash(self) -> str:
        """The sha256 (hex) of `config` in canonical JSON."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        """Return all of it with plain values."""
        return asdict(self)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Plan":
        """Return the plan that `as_json` gave; a DrillError for anything else."""
        known = {each.name for each in fields(cls)}
        try:
            given = {name: value for name, value in dict(body).items() if name in known}
            given["shape"] = Shape(**given["shape"])
            given["optimizer"] = Optimizer(**given["optimizer"])
            samples = dict(given["samples"])
            samples["poisoned"] = tuple(samples["poisoned"])
            given["samples"] = Samples(**samples)
            given["regions"] = tuple(given["regions"])
            given["tiers"] = tuple(given["tiers"])
            given["elsewhere"] = tuple(given["elsewhere"])
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            msg = f"this is no plan of a training run ({error})"
            raise DrillError(msg) from error
