"""The model of layer B: pure in (seed, step, member), the same bits twice, and it learns.

torch runs in one child, as its threads are pinned before it is imported.
"""

import itertools
import json
import subprocess
import sys

import pytest

CHILD = """
import json
from dataclasses import replace
from rackproof.harness.training.plan import Optimizer, Plan, Shape
from rackproof.harness.training.torch.train import pin
pin(1)
import torch
from rackproof.harness.training.torch.net import Net, digest, samples, tokens

shape = Shape(layers=1, width=16)
plan = Plan(seed=5, replicas=3, micro_shards=8, micro_batch=2, shape=shape)

def train(steps, members=(0, 1, 2), net=None):
    net = net or Net(plan)
    for _ in range(steps):
        net.advance([net.gradient(net.step + 1, member)[1] for member in members])
    return net

def state(net):
    return {name: value.clone() for name, value in net.state().items()}

told = {"samples": [samples(plan, step, m) for step in (1, 2) for m in range(3)]}
half, other = train(3), train(1)
other.load(3, state(half))
told["once"], told["twice"] = train(6).digest(), train(6).digest()
told["alone"] = train(6, (0, 2)).digest()
told["halves"] = [digest(3, state(half)), half.digest()]
told["resumed"] = train(3, net=other).digest()

quick = Net(replace(plan, optimizer=Optimizer(rate=1e-2)))
first, gradient = quick.gradient(1, 0)
told["signed"] = bool((torch.signbit(gradient) & (gradient == 0)).any())
told["losses"] = [first, train(60, net=quick).gradient(61, 0)[0]]

told["bits"] = [digest(3, state(half)), digest(4, state(half))]
for name in ("weights", "m", "v"):
    changed = state(half)
    changed[name].view(torch.int32)[7] ^= 1
    told["bits"].append(digest(3, changed))

try:
    half.load(1, {name: torch.zeros(3) for name in ("weights", "m", "v")})
except ValueError as error:
    told["size"] = str(error)

a, b = tokens(plan, [3, 9]), tokens(plan, [9, 4, 3])
told["same"] = bool((a[0] == b[2]).all() and (a[1] == b[0]).all())
told["reseeded"] = bool((tokens(replace(plan, seed=6), [3]) == a[:1]).all())
told["inside"] = bool((a >= 0).all() and (a < plan.shape.vocabulary).all())
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(module):
    module("torch")
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_samples_of_all_members_are_the_batch_once(told):
    assert sorted(itertools.chain(*told["samples"])) == list(range(32))
    assert [len(each) for each in told["samples"][:3]] == [6, 6, 4]


def test_it_is_pure(told):
    assert told["once"] == told["twice"]


def test_it_resumes_to_the_same_bits(told):
    assert told["halves"][0] == told["halves"][1]
    assert told["resumed"] == told["once"]


def test_another_membership_has_another_trajectory(told):
    assert told["alone"] != told["once"]


def test_it_learns(told):
    first, last = told["losses"]
    assert last < 0.8 * first


def test_no_gradient_is_minus_zero(told):
    assert told["signed"] is False


def test_a_digest_tells_a_bit_a_step_and_a_moment_apart(told):
    assert len(set(told["bits"])) == 5


def test_a_state_of_another_size_is_refused(told):
    assert "is not that of a model" in told["size"]


def test_tokens_depend_on_seed_and_id_alone(told):
    assert told["same"]
    assert not told["reseeded"]
    assert told["inside"]
