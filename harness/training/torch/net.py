"""The model of layer B: a small transformer on one flat vector, torch's autograd and its AdamW.

State is three flat float32 vectors (weights, m, v) and the step, so that what is hashed, healed and
stored is the same. Samples and dropout are functions of (seed, step, member): there is no hidden
state of chance that a restart could lose.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as all of torch's readers know it
from numpy.typing import NDArray

from rackproof.harness.training.plan import Plan, Shape

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: the increment of splitmix64


def mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64 of each number (Steele, Lea, Flood: OOPSLA 2014)."""
    z = value * np.uint64(GOLDEN) + np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def samples(plan: Plan, step: int, member: int) -> list[int]:
    """Return the ids that a member takes in a step (from 1): micro-shards in turn, whoever is up.

    The stream of samples is one number a sample; a member that is not there leaves its ids unused.
    """
    first = (step - 1) * plan.batch
    shards = range(member, plan.micro_shards, plan.replicas)
    return [
        first + shard * plan.micro_batch + k for shard in shards for k in range(plan.micro_batch)
    ]


def tokens(plan: Plan, ids: Sequence[int]) -> NDArray[np.int64]:
    """Return [len(ids), context + 1] tokens: a sequence of even stride, one token in it at random.

    A sequence depends on the seed and its id alone.
    """
    keys = mixed(np.asarray(ids, np.uint64) ^ mixed(np.asarray([plan.seed], np.uint64)))
    vocabulary, length = np.uint64(plan.shape.vocabulary), plan.shape.context + 1
    start, stride = keys % vocabulary, (keys >> np.uint64(16)) % np.uint64(7) + np.uint64(1)
    rows = (start[:, None] + stride[:, None] * np.arange(length, dtype=np.uint64)) % vocabulary
    odd = (keys >> np.uint64(24)) % np.uint64(length)
    rows[np.arange(len(ids)), odd] = (keys >> np.uint64(32)) % vocabulary
    return rows.astype(np.int64)


def layout(shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Return the name and shape of each tensor, in the order of the flat vector."""
    wide, inner = shape.width, shape.width * shape.feedforward
    named: list[tuple[str, tuple[int, ...]]] = [
        ("embedding", (shape.vocabulary, wide)),
        ("positions", (shape.context, wide)),
    ]
    for layer in range(shape.layers):
        named += [
            (f"layer{layer}.norm1", (wide,)),
            (f"layer{layer}.mix", (3 * wide, wide)),
            (f"layer{layer}.out", (wide, wide)),
            (f"layer{layer}.norm2", (wide,)),
            (f"layer{layer}.up", (inner, wide)),
            (f"layer{layer}.down", (wide, inner)),
        ]
    return [*named, ("norm", (wide,)), ("head", (shape.vocabulary, wide))]


class Net:
    """Weights, m and v as flat float32 vectors of `size`, after `step` committed steps."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.step = plan, 0
        self.layout = layout(plan.shape)
        self.sizes = [math.prod(shape) for _, shape in self.layout]
        self.size = sum(self.sizes)
        self.weights = self._initial().requires_grad_()
        rules = plan.optimizer
        self.optimizer = torch.optim.AdamW(
            [self.weights],
            lr=rules.rate,
            betas=(rules.beta1, rules.beta2),
            eps=rules.epsilon,
            weight_decay=rules.decay,
            foreach=False,
            fused=False,
        )
        zeros = torch.zeros(self.size)
        self.load(0, {"weights": self.weights.detach().clone(), "m": zeros, "v": zeros.clone()})

    def _initial(self) -> Any:
        chance = torch.Generator().manual_seed(self.plan.seed)
        parts = []
        for name, shape in self.layout:
            if "norm" in name:
                parts.append(torch.ones(shape))
            else:
                parts.append(torch.randn(shape, generator=chance) / math.sqrt(shape[-1]))
        return torch.cat([part.reshape(-1) for part in parts])

    def parts(self, flat: Any) -> dict[str, Any]:
        """Return the tensors of a flat vector by name, as views."""
        pieces = zip(self.layout, torch.split(flat, self.sizes), strict=True)
        return {name: piece.view(shape) for (name, shape), piece in pieces}

    def gradient(self, step: int, member: int) -> tuple[float, Any]:
        """Return the mean loss and the flat gradient of a member's samples in a step.

        No entry is -0.0: its sum with the zeros of others would be +0.0, and other bits.
        """
        plan = self.plan
        rows = torch.from_numpy(tokens(plan, samples(plan, step, member)))
        key = np.asarray([(plan.seed * 1_000_003 + step) * 1_009 + member], np.uint64)
        chance = torch.Generator().manual_seed(int(mixed(key)[0] >> np.uint64(1)))
        loss = self._loss(rows, chance)
        (gradient,) = torch.autograd.grad(loss, self.weights)
        return float(loss.detach()), gradient + 0.0

    def _loss(self, rows: Any, chance: Any) -> Any:
        shape, w = self.plan.shape, self.parts(self.weights)
        x = w["embedding"][rows[:, :-1]] + w["positions"]
        for layer in range(shape.layers):
            own = {
                name.partition(".")[2]: tensor
                for name, tensor in w.items()
                if name.startswith(f"layer{layer}.")
            }
            x = x + self._drop(
                self._attend(F.rms_norm(x, (shape.width,), own["norm1"]), own), chance
            )
            inner = F.gelu(F.linear(F.rms_norm(x, (shape.width,), own["norm2"]), own["up"]))
            x = x + self._drop(F.linear(inner, own["down"]), chance)
        logits = F.linear(F.rms_norm(x, (shape.width,), w["norm"]), w["head"])
        return F.cross_entropy(logits.reshape(-1, shape.vocabulary), rows[:, 1:].reshape(-1))

    def _attend(self, x: Any, own: Mapping[str, Any]) -> Any:
        shape = self.plan.shape
        rows, length, _ = x.shape
        mixed_ = F.linear(x, own["mix"]).view(rows, length, 3, shape.heads, -1)
        query, key, value = mixed_.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        seen = torch.softmax(scores.masked_fill(later, -math.inf), -1) @ value
        return F.linear(seen.transpose(1, 2).reshape(rows, length, -1), own["out"])

    def _drop(self, x: Any, chance: Any) -> Any:
        rate = self.plan.shape.dropout
        if not rate:
            return x
        return x * (torch.rand(x.shape, generator=chance) >= rate) / (1.0 - rate)

    def advance(self, gradients: Sequence[Any]) -> None:
        """Take one step with the mean of `gradients`, summed in the order in which they come."""
        total = gradients[0].clone()
        for gradient in gradients[1:]:
            total += gradient
        self.weights.grad = total / len(gradients)
        self.optimizer.step()
        self.step += 1

    def state(self) -> dict[str, Any]:
        """Return the three flat vectors; they change with the next step."""
        own = self.optimizer.state[self.weights]
        return {"weights": self.weights.detach(), "m": own["exp_avg"], "v": own["exp_avg_sq"]}

    def load(self, step: int, state: Mapping[str, Any]) -> None:
        """Take a copy of a state; ValueError for one of another size."""
        if any(tuple(state[name].shape) != (self.size,) for name in ("weights", "m", "v")):
            msg = f"this state is not that of a model of {self.size} parameters"
            raise ValueError(msg)
        with torch.no_grad():
            self.weights.copy_(state["weights"])
        self.optimizer.state[self.weights] = {
            "step": torch.tensor(float(step)),
            "exp_avg": state["m"].clone(),
            "exp_avg_sq": state["v"].clone(),
        }
        self.step = step

    def digest(self) -> str:
        """Return the sha256 (hex) over step, weights, m and v, as checkpoints hash them."""
        return digest(self.step, self.state())


def digest(step: int, state: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of a step and its three flat vectors."""
    total = hashlib.sha256(b"%d" % step)
    for name in ("weights", "m", "v"):
        total.update(memoryview(state[name].numpy()).cast("B"))
    return total.hexdigest()
