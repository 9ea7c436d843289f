"""Healing without pickle: what a state must be, or it is refused. torch runs in one child."""

import json
import subprocess
import sys

import pytest

CHILD = """
import json
from datetime import timedelta
from rackproof.harness.errors import DrillError
from rackproof.harness.training.torch.train import pin
pin(1)
import torch
from safetensors.torch import save
from rackproof.harness.training.torch.loopback import Healing, HOST
from rackproof.harness.training.torch.net import digest

FACTS = {"config": "c", "threads": 1}
state = {name: torch.arange(4.0) + n for n, name in enumerate(("weights", "m", "v"))}
given = {"user": {"default": state}, "torchft": {"step": 7, "batches_committed": 14}}
wait, told, took = timedelta(seconds=5), {}, []

def healing(**facts):
    return Healing(FACTS | facts, lambda *what: took.append(what))

def refusal(ours, where, step=7):
    try:
        ours.recv_checkpoint(0, where, step, wait)
    except DrillError as error:
        return [str(error), ours.refused]
    return ["taken", ""]

peer, ours = healing(), healing()
peer.send_checkpoint([1], 7, given, wait)
state["weights"][0] = 99.0  # what is served is a copy
found = ours.recv_checkpoint(0, peer.metadata(), 7, wait)
told["step"], told["torchft"] = found["user"]["default"]["step"], found["torchft"]
told["weights"] = found["user"]["default"]["weights"].tolist()
told["took"] = took[0][0] == 7 and took[0][1] == digest(7, found["user"]["default"])
told["address"] = peer.metadata()
told["config"] = refusal(healing(config="d"), peer.metadata())
told["threads"] = refusal(healing(threads=2), peer.metadata())
told["elsewhere"] = refusal(ours, "http://192.0.2.1:80")

body = dict(peer._served)["/7"]
peer._served["/7"] = body[:-1] + bytes([body[-1] ^ 1])
told["bit"] = refusal(ours, peer.metadata())
peer._served["/8"] = body
told["other step"] = refusal(ours, peer.metadata(), 8)
for name, junk in (("pickle", b"\\x80\\x04N."), ("empty", b""), ("bare", save(state))):
    peer._served["/7"] = junk
    told[name] = refusal(ours, peer.metadata())
told["count"] = len(took)
for each in (peer, ours):
    each.shutdown()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(module):
    module("torch")
    done = subprocess.run(
        [sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_peer_takes_a_copy_of_the_state_and_knows_its_digest(told):
    assert told["step"] == 7
    assert told["torchft"] == {"step": 7, "batches_committed": 14}
    assert told["weights"] == [0.0, 1.0, 2.0, 3.0]
    assert told["took"]
    assert told["count"] == 1
    assert told["address"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("config", "the peer's config is 'c', and ours 'd'"),
        ("threads", "the peer's threads is 1, and ours 2"),
        ("bit", "not what its digest says"),
        ("other step", "not what its digest says"),
    ],
)
def test_a_state_of_another_run_or_with_a_wrong_bit_is_refused_for_good(told, what, said):
    assert said in told[what][0]
    assert said in told[what][1]


@pytest.mark.parametrize("what", ["pickle", "empty", "bare"])
def test_what_is_no_state_is_not_read(told, what):
    assert "a peer gave what is no state" in told[what][0]


def test_a_state_from_elsewhere_is_not_asked_for(told):
    assert "from 127.0.0.1 only" in told["elsewhere"][0]
