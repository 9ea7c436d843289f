"""The checkpoints of layer B: its state as the seven fields of harness.checkpoint, and back.

In: a Net, and RP_CKPT_URL (a path, or ``NAME=URL``; empty: no checkpoints). All replicas hold the
same state, so one of them writes. Tensors are named weights/…, m/… and v/…, in the model's order.
"""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rackproof.harness.checkpoint import commit, topology
from rackproof.harness.checkpoint.anatomy import FIELDS, Context, Snapshot
from rackproof.harness.checkpoint.restore import Expect, newest
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch.events import Events
from rackproof.harness.training.torch.net import Net

FLUSH = 60.0  # seconds for a last save


class Store:
    """Saves and restores one replica's Net. `facts` are what two replicas must agree on."""

    fields = FIELDS

    def __init__(self, plan: Plan, net: Net, tell: Events, tier: Tier | None) -> None:
        self.plan, self.net, self.tell, self.tier = plan, net, tell, tier
        self.writer: Writer | None = None
        self.commit = dict(commit.here(Path(__file__).parent))
        self.facts = {
            "config": plan.config_hash,
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
            "isa": platform.machine() + " " + torch.backends.cpu.get_cpu_capability(),
        }

    @classmethod
    def of(cls, plan: Plan, net: Net, environment: Mapping[str, str], tell: Events) -> "Store":
        """Return the store at RP_CKPT_URL."""
        url = environment.get("RP_CKPT_URL", "")
        return cls(plan, net, tell, Tier.of(url) if url else None)

    def _snapshot(self) -> Snapshot:
        state, plan = self.net.state(), self.plan
        named = {
            part: {f"{part}/{name}": view.numpy() for name, view in self.net.parts(flat).items()}
            for part, flat in state.items()
        }
        seen = topology.here(plan.replicas, int(self.facts["threads"]))
        context = Context(
            rng={"torch": {"seed": plan.seed, "key": "splitmix64 of (seed, step, member)"}},
            data={"stream": "counter", "seed": plan.seed, "offset": self.net.step * plan.batch},
            config={"sha256": plan.config_hash},
            topology={**seen, "torch": self.facts["torch"], "torch_isa": self.facts["isa"]},
            commit=self.commit,
        )
        return Snapshot(self.net.step, named["weights"], {**named["m"], **named["v"]}, context)

    def save(self) -> None:
        """Save the state of now; its copy is made before this returns, the rest on a thread."""
        if self.tier is None:
            return
        if self.writer is None:
            self.writer = Writer([self.tier], tell=self._told, leave_out=self._forgotten)
        self.writer.save(self._snapshot())

    @property
    def _forgotten(self) -> str:
        """The planted mistake ``forget:FIELD``: a field that is not written."""
        word, _, field = self.plan.defect.partition(":")
        return field if word == "forget" else ""

    def _told(self, what: Mapping[str, Any]) -> None:
        more = {name: value for name, value in what.items() if name != "kind"}
        self.tell("ckpt", **more, form=what.get("kind", "full"))

    def resume(self) -> str:
        """Load the newest checkpoint; return its address, or an empty text where there is none."""
        if self.tier is None or not self.tier.steps():
            return ""
        found = newest([self.tier], expect=Expect(config_sha=self.plan.config_hash))
        snapshot, flat = found.snapshot, {}
        tensors = {**snapshot.weights, **snapshot.optimizer}
        for part in ("weights", "m", "v"):
            names = [f"{part}/{name}" for name, _ in self.net.layout]
            if not all(name in tensors for name in names):
                msg = f"{found.uri} is no checkpoint of this model"
                raise CheckpointError(msg)
            pieces = [torch.tensor(tensors[name]).reshape(-1) for name in names]
            flat[part] = torch.cat(pieces)
        self.net.load(snapshot.step, flat)
        return str(found.uri)

    def close(self, *, final: bool) -> None:
        """Write what is under way, and with `final` the state of now as well."""
        if final and self.net.step:
            self.save()
        if self.writer is not None:
            self.writer.close(FLUSH)
