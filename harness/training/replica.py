"""One replica, or hot spare, of the reference run: ``python -m … FOLDER NAME ATTEMPT``.

In: work from the coordinator. Out: gradients of micro-shards, a vote on each step, checkpoints
where it is told to write them. State changes only on a commit: the next state is prepared beside
the present one. Orders on stdin (a JSON line each) make it do what broken hardware would; when
stdin ends, whoever started it is dead, and so is it.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.errors import CheckpointError
from rackproof.harness.launch import processes
from rackproof.harness.training import wire
from rackproof.harness.training.data import DataSet, DataState
from rackproof.harness.training.diary import Diary
from rackproof.harness.training.model import Model, module
from rackproof.harness.training.optimizer import AdamW, State, on_host
from rackproof.harness.training.roster import ADDRESS, Roster
from rackproof.harness.training.vault import Vault

DATA = "data"
ALONE = 10.0  # s without a coordinator after which a replica gives up
ORDERS: Mapping[str, str] = {
    "flip-bit": "one bit of the next gradient is wrong, once (or in every step: always=true)",
    "nan": "the next gradient holds a NaN, once",
    "slow": "every micro-shard takes `seconds` longer",
    "wrong-state": "the state that it takes over has a wrong bit",
    "lie": "it claims steps that it does not take",
    "storage": "storage `under` a path `breaks`, a kind of checkpoint.faulty.Order",
}
"""What broken hardware, or a broken trainer, would make of it."""


class Replica:
    """The process: its state, its connection, and what it was ordered."""

    def __init__(self, roster: Roster, name: str, attempt: int) -> None:
        """Open the data set and say hello in the events file."""
        self.roster, self.plan, self.name, self.attempt = roster, roster.plan, name, attempt
        self.diary = Diary(roster.folder, name, attempt)
        self.xp = module(self.plan.device)
        self.model = Model(self.plan.shape, self.xp)
        self.adamw = AdamW(self.plan.optimizer)
        self.dataset = DataSet.open(roster.folder / DATA)
        self.orders: dict[str, dict[str, Any]] = {}
        self.state: State | None = None
        self.data: DataState | None = None
        self.prepared: tuple[int, State, str] | None = None
        self.spare_state: State | None = None
        self.digest = ""
        self.epoch = 0
        self.vault = Vault(self)
        self._send = threading.Lock()
        self._line: Any = None
        self._heard = time.monotonic()
        world = self.plan.replicas
        rank = [seat.name for seat in roster.seats].index(name)
        self.diary.note("hello", pid=os.getpid(), rank=rank, world=world)

    # --- connection -----------------------------------------------------------------------
    def connect(self) -> bool:
        """Connect to whoever is the coordinator now; False when nobody was heard for long."""
        while time.monotonic() - self._heard < ALONE:
            try:
                known = json.loads((self.roster.folder / ADDRESS).read_text("utf-8"))
                host, port = known[self.name if self.plan.proxied else ""]
                self._line = wire.open_to((host, port), 1.0)
                self._greet()
            except (OSError, ValueError, KeyError):
                time.sleep(0.01)
                continue
            return True
        return False

    def _greet(self) -> None:
        prepared = None if self.prepared is None else [self.prepared[0], self.prepared[2]]
        self.say(
            "hello", name=self.name, pid=os.getpid(), epoch=self.epoch, prepared=prepared,
            step=-1 if self.state is None else self.state.step, digest=self.digest,
            data=None if self.data is None else self.data.as_json(),
        )  # fmt: skip

    def say(self, what: str, payload: bytes | bytearray | memoryview = b"", **fields: Any) -> None:
        """Send a frame; raises wire.Closed."""
        with self._send:
            wire.send(self._line, {"what": what, **fields}, payload)

    def beat(self) -> None:
        """Say now and then that this process runs."""
        with contextlib.suppress(wire.Closed, AttributeError, OSError):
            self.say("beat")

    # --- work -----------------------------------------------------------------------------
    def gradient(self, step: int, shard: int, ids: list[int]) -> tuple[float, NDArray[np.float32]]:
        """Return mean loss and gradient, float32[P], of one micro-shard, as the orders bend it."""
        tokens, scale = self.dataset.rows(ids)
        key = (self.plan.seed, step, shard)
        loss, found = self.model.gradient(self.state.weights, tokens, scale, key)  # type: ignore[union-attr]
        grad = on_host(found)
        if "slow" in self.orders:
            time.sleep(float(self.orders["slow"].get("seconds", 0.02)))
        if "flip-bit" in self.orders:
            if not self.orders["flip-bit"].get("always"):
                del self.orders["flip-bit"]
            grad.view(np.uint32)[len(grad) // 2] ^= 1 << 20
        if self.orders.pop("nan", None) is not None:
            grad[0] = np.nan
        return float(loss), grad

    def work(self, head: Mapping[str, Any], _: bytearray) -> None:
        """Compute the micro-shards that are asked for, and send each as it is done."""
        self.epoch, step = int(head["epoch"]), int(head["step"])
        for shard, ids in head["shards"]:
            began = time.perf_counter()
            loss, grad = self.gradient(step, shard, ids)
            spent = time.perf_counter() - began
            finite = bool(np.isfinite(grad).all())
            bad = [] if finite else self.broken(step, shard, ids)
            self.say(
                "grad", grad.data.cast("B"), epoch=self.epoch, step=step, shard=shard, loss=loss,
                seconds=spent, finite=finite, bad=bad, check=bool(head.get("check")),
            )  # fmt: skip

    def broken(self, step: int, shard: int, ids: list[int]) -> list[int]:
        """Return those sample ids that alone give a gradient that is not finite."""
        found = []
        for one in ids:
            tokens, scale = self.dataset.rows([one])
            key = (self.plan.seed, step, shard)
            _, grad = self.model.gradient(self.state.weights, tokens, scale, key)  # type: ignore[union-attr]
            if not np.isfinite(on_host(grad)).all():
                found.append(one)
        return found

    def reduce(self, head: Mapping[str, Any], payload: bytearray) -> None:
        """Prepare the next state, and vote on it."""
        assert self.state is not None  # noqa: S101 - the coordinator sends work to none without one
        grad = self.xp.asarray(np.frombuffer(payload, np.float32))
        into, self.spare_state = self.spare_state, None
        after = self.adamw.advance(self.state, grad, into)
        if "lie" in self.orders:
            same = (self.state.weights, self.state.m, self.state.v)
            after = State(after.step, *(each.copy() for each in same))
        self.prepared = (after.step, after, after.digest())
        self.say("vote", epoch=head["epoch"], step=after.step, digest=self.prepared[2])

    def commit(self, head: Mapping[str, Any], __: bytearray) -> None:
        """Make the prepared state the present one, and say so; write a checkpoint where told."""
        if self.prepared is None or self.prepared[0] != head["step"]:
            return
        before = self.state
        _, self.state, self.digest = self.prepared
        self.prepared = None
        self.spare_state = before
        self.data = DataState.read(head["data"])
        self.diary.note(
            "step", step=self.state.step, loss=head["loss"], samples=head["samples"],
            digest=self.digest,
        )  # fmt: skip
        if head.get("save"):
            self.vault.save()

    def discard(self, _: Mapping[str, Any], __: bytearray) -> None:
        """Forget the prepared state: the step is repeated."""
        if self.prepared is not None:
            self.spare_state, self.prepared = self.prepared[1], None

    # --- state from elsewhere -----------------------------------------------------------------
    def begin(self, head: Mapping[str, Any], _: bytearray) -> None:
        """Begin: with the initial state, or from the newest checkpoint that verifies."""
        found = None
        if head["resume"]:
            try:
                found = self.vault.newest()
            except CheckpointError as error:
                self.diary.note("fault", why=str(error)[:500])
        if found is None:
            self.state = State.initial(self.model, self.plan.seed)
            self.data = DataState.initial(self.dataset, self.plan)
        else:
            self.state, self.data = found
        self.ready("")

    def give(self, head: Mapping[str, Any], _: bytearray) -> None:
        """Send the present state to a member that has none."""
        assert self.state is not None  # noqa: S101
        assert self.data is not None  # noqa: S101
        parts = (self.state.weights, self.state.m, self.state.v)
        payload = b"".join(on_host(part).tobytes() for part in parts)
        self.say(
            "given", payload, to=head["to"], step=self.state.step, digest=self.digest,
            data=self.data.as_json(),
        )  # fmt: skip

    def take(self, head: Mapping[str, Any], payload: bytearray) -> None:
        """Take over a state, and say what its digest is here."""
        flat = np.frombuffer(payload, np.float32).copy()
        if self.orders.pop("wrong-state", None) is not None:
            flat.view(np.uint32)[7] ^= 1 << 3
        parts = (self.xp.array(part) for part in np.split(flat, 3))
        self.state = State(int(head["step"]), *parts)
        self.data = DataState.read(head["data"])
        self.prepared = self.spare_state = None
        self.diary.note(
            "restore", step=self.state.step, uri=f"peer:{head['from']}",
            fields=["weights", "optimizer", "rng", "data"],
        )  # fmt: skip
        self.ready(str(head["from"]))

    def ready(self, source: str) -> None:
        """Say with which state this replica is ready."""
        assert self.state is not None  # noqa: S101
        assert self.data is not None  # noqa: S101
        self.digest = self.state.digest()
        self.say(
            "ready", step=self.state.step, digest=self.digest, data=self.data.as_json(),
            source=source, uri=self.vault.uri,
        )  # fmt: skip

    # --- the loop ------------------------------------------------------------------------------
    def run(self) -> int:
        """Work until the coordinator says that it is over; return the exit code."""
        verbs: dict[str, Callable[[Mapping[str, Any], bytearray], None]] = {
            "begin": self.begin, "give": self.give, "take": self.take, "work": self.work,
            "reduce": self.reduce, "commit": self.commit, "discard": self.discard,
        }  # fmt: skip
        while True:
            try:
                if self._line is None and not self.connect():
                    return 3
                head, payload = wire.receive(self._line)
                self._heard = time.monotonic()
                what = head.get("what")
                if what in {"end", "leave"}:
                    self.vault.close()
                    return 0 if what == "end" else 4
                if what in verbs:
                    verbs[what](head, payload)
            except wire.Closed:
                with contextlib.suppress(OSError, AttributeError):
                    self._line.close()
                self._line = None


def obey(replica: Replica) -> None:
    """Take orders from stdin; when it ends, whoever started us is gone, and we go too."""
    for text in sys.stdin:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            order = json.loads(text)
            replica.orders[order["order"]] = order
            replica.vault.bend()
    os._exit(5)


def beat(replica: Replica, every: float) -> None:
    """Say again and again that we run."""
    while True:
        time.sleep(every)
        replica.beat()


def main(words: list[str]) -> int:
    """Run one replica: FOLDER NAME ATTEMPT."""
    folder, name, attempt = Path(words[0]), words[1], int(words[2])
    replica = Replica(Roster.load(folder), name, attempt)
    threading.Thread(target=obey, args=(replica,), daemon=True).start()
    every = replica.plan.silence / 5
    threading.Thread(target=beat, args=(replica, every), daemon=True).start()
    return replica.run()


if __name__ == "__main__":
    processes.mortal()
    sys.exit(main(sys.argv[1:]))
