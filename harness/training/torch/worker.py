"""The loop of a replica under torchft: quorum, gradient, vote, step, event. See train.

In: a Plan, the number of this replica (0 … R-1) and the contract's environment. It never goes on
alone from an old state: before its first step it waits until all are there, or is healed by a peer;
before the last few it waits for whoever is missing, so that one run has one end. `pace` is the
least time of a step.
"""

import signal
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torchft
from torch.distributed import ReduceOp

from rackproof.harness.errors import DrillError
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch import BEGAN, loopback
from rackproof.harness.training.torch.events import Events
from rackproof.harness.training.torch.group import Group
from rackproof.harness.training.torch.net import Net, samples
from rackproof.harness.training.torch.store import Store

PATIENCE, LINGER, PAUSE = 60.0, 60.0, 0.02  # seconds
MARGIN = 0.2  # seconds over the time in which a lost replica still counts as there
LAST = 5  # steps at the end that are for all, if the missing come in time
FEWEST = 2.0  # seconds that a collective may take at least: a busy machine is no lost one


class Told(Exception):
    """SIGTERM came while we waited for the others."""


class Replica:
    """One member, `number`, in its `attempt`."""

    def __init__(
        self, plan: Plan, number: int, attempt: int, environment: Mapping[str, str]
    ) -> None:
        self.plan, self.number, self.attempt = plan, number, attempt
        self.tell = Events.of(environment, f"r{number}", attempt)
        self.net = Net(plan)
        self.store = Store.of(plan, self.net, environment, self.tell)
        self.resumes = environment.get("RP_RESUME") == "1"
        self.taken: tuple[int, str] | None = None
        self.epoch, self.before, self.until = -1, set[int](), 0.0
        self.met = self.healed = self.ending = self.idle = False
        signal.signal(signal.SIGTERM, self._told)
        if attempt > 1:  # the others must have missed who we replace, or nobody would tell
            over = BEGAN + plan.silence + MARGIN
            threading.Event().wait(max(0.0, over - time.monotonic()))
        self.group = Group(timedelta(seconds=max(FEWEST, 5 * plan.silence)))
        self.healing = loopback.Healing(self.store.facts, self._take)
        self.manager = self._manager(environment["TORCHFT_LIGHTHOUSE"])

    def _manager(self, lighthouse: str) -> Any:
        loopback.keep_inside()
        self.rendezvous, port = loopback.store()
        return torchft.Manager(
            pg=self.group,
            load_state_dict=self._load,
            state_dict=self.net.state,
            min_replica_size=1,
            use_async_quorum=False,
            init_sync=False,
            rank=0,
            world_size=1,
            store_addr=loopback.HOST,
            store_port=port,
            lighthouse_addr=lighthouse,
            replica_id=f"r{self.number}",
            hostname=loopback.HOST,
            checkpoint_transport=self.healing,
        )

    # --- what others call ------------------------------------------------------------------

    def _told(self, number: int, frame: object) -> None:
        del number, frame
        self.ending = True
        if self.idle:
            raise Told

    def _take(self, step: int, digest: str) -> None:
        self.taken = (step, digest)

    def _load(self, state: Mapping[str, Any]) -> None:
        self.idle = False
        self.net.load(int(state["step"]), state)

    # --- the run ---------------------------------------------------------------------------

    def run(self) -> int:
        """Train to the end, or until SIGTERM; DrillError where the others never come."""
        self.tell("hello", pid=self.tell.pid, rank=self.number, world=self.plan.replicas)
        try:
            members = self._meet_all()
            while not self.ending:
                if self._waits(members):
                    self._again("the last steps are for all")
                    threading.Event().wait(PAUSE)
                elif self.net.step < self.plan.steps:
                    self._take_part(members)
                elif self._all_done():
                    break
                members = self._quorum()
        except Told:
            pass
        self.store.close(final=self.ending)
        if self.net.step >= self.plan.steps and self.number == min(self.group.members):
            self.tell("ended", step=self.net.step, digest=self.net.digest())
        self.manager.shutdown(wait=False)
        return 0

    def _quorum(self) -> list[int]:
        """Meet the others for a step, be healed, and say what is new; return who takes part."""
        self.healed = False
        self.idle = True
        self.manager.start_quorum()
        self.idle = False
        if self.ending:
            raise Told
        if self.healing.refused:
            raise DrillError(self.healing.refused)
        members = self.group.members
        self.epoch = self.group.quorum
        if set(members) != self.before and (self.met or len(members) == self.plan.replicas):
            self._changed(members)
        if self.taken is not None and not self.manager.errored():
            self._restored()
        return members

    def _changed(self, members: list[int]) -> None:
        """Say who is gone, if we are the first of those who stayed."""
        stayed = self.before & set(members) or ({*members} if self.taken is None else set[int]())
        gone = self.before - set(members)
        self.before = set(members)
        if self.number != min(stayed, default=-1):
            return
        names = [f"r{member}" for member in members]
        for member in sorted(gone):
            self.tell("lost", member=f"r{member}", why="silent")
        self.tell("epoch", epoch=self.epoch, participants=names, shards=self._shards(members))
        for member in sorted(gone):
            self.tell("isolated", member=f"r{member}", epoch=self.epoch)

    def _shards(self, members: list[int]) -> dict[str, list[int]]:
        every = range(self.plan.micro_shards)
        return {f"r{member}": list(every[member :: self.plan.replicas]) for member in members}

    def _restored(self) -> None:
        """Say that we are back, and with which state: one voice, so that the order is true."""
        (step, digest), name, back = self.taken or (0, ""), f"r{self.number}", not self.met
        self.taken, self.met, self.healed = None, True, True
        if self.net.step != step or self.net.digest() != digest:
            msg = f"the state of step {step} that a peer gave was not taken over whole"
            raise DrillError(msg)
        if back and self.attempt > 1:
            self.tell("spare-active", member=name, instead=name, subject="")
        peer = f"peer:r{self.group.ranked[self.healing.rank]}"
        self.tell("restore", step=step, uri=peer, fields=list(self.store.fields))
        self.tell("resynchronised", member=name, step=step, digest=digest)

    def _again(self, why: str) -> None:
        """Give this step up; torchft meets for it again."""
        self.manager.report_error(RuntimeError(why))
        self.manager.should_commit()

    def _meet_all(self) -> list[int]:
        """Wait until a peer has healed us, or all are there; return who is."""
        until = time.monotonic() + PATIENCE
        while True:
            members = self._quorum()
            if self.met:
                return members
            if len(members) == self.plan.replicas:
                self.met = True
                if not self.resumes or not self._resume(members[0]):
                    return members
            if time.monotonic() > until:
                here = ", ".join(f"r{member}" for member in members)
                msg = f"of {self.plan.replicas} replicas only {here} came in {PATIENCE:g} s"
                raise DrillError(msg)
            self._again("not all are there yet")
            threading.Event().wait(PAUSE)

    def _resume(self, first: int) -> bool:
        """Go on from the newest checkpoint, now that all are there and nobody is ahead of us."""
        uri = self.store.resume()
        if uri:
            step, replicas = self.net.step, self.plan.replicas
            self.manager.load_state_dict({"step": step, "batches_committed": step * replicas})
            self.tell("restore", step=step, uri=uri, fields=list(self.store.fields))
            if self.number == first:
                self.tell("restarted", step=step, uri=uri)
        return bool(uri)

    def _waits(self, members: list[int]) -> bool:
        """Return whether the last steps are near and somebody is missing, for LINGER at most."""
        last = self.net.step >= self.plan.steps - LAST
        if last and not self.until:
            self.until = time.monotonic() + LINGER
        missing = len(members) < self.plan.replicas
        return last and missing and time.monotonic() < self.until

    def _take_part(self, members: list[int]) -> None:
        step, began = self.net.step + 1, time.monotonic()
        names = [f"r{member}" for member in members]
        ids = [number for member in members for number in samples(self.plan, step, member)]
        self.tell("intent", epoch=self.epoch, step=step, participants=names, samples=ids)
        rows = self._reduced(step)
        seen = [n for n in range(self.plan.replicas) if float(rows[n, -1]) == 1.0]
        if not self.manager.errored() and seen != members:
            self.manager.report_error(RuntimeError(f"{seen} took part, and not {members}"))
        why = self.manager.errored()
        if not self.manager.should_commit():
            said = str(why.original_exception) if why else "the vote failed"
            if why:
                self.group.leave(why.original_exception)
            self.tell("discarded", epoch=self.epoch, step=step, why=said[:200])
            return
        self.net.advance([rows[member, :-2] for member in members])
        loss = sum(float(rows[member, -2]) for member in members) / len(members)
        fields = {"samples": ids, "participants": names, "digest": self._digest()}
        self.tell("step", step=step, loss=loss, **fields)
        if step % self.plan.every == 0 and self.number == members[0]:
            self.store.save()
        threading.Event().wait(max(0.0, began + self.plan.pace - time.monotonic()))

    def _digest(self) -> str:
        """Return the digest; the planted mistake ``lie`` tells that of no state at all."""
        digest = self.net.digest()
        return digest[::-1] if self.plan.defect == "lie" else digest

    def _reduced(self, step: int) -> Any:
        """Return [replicas, size + 2]: each one's gradient, loss, and 1.0 where it took part."""
        loss, gradient = self.net.gradient(step, self.number)
        rows = torch.zeros(self.plan.replicas, self.net.size + 2)
        rows[self.number, :-2] = gradient
        rows[self.number, -2] = loss
        rows[self.number, -1] = 1.0
        self.manager.allreduce(rows, reduce_op=ReduceOp.SUM).wait()
        return rows

    def _all_done(self) -> bool:
        """Return whether all are there and nobody had to be healed, or LINGER is over."""
        done = torch.tensor([0.0 if self.healed else 1.0])
        self.manager.allreduce(done, reduce_op=ReduceOp.SUM).wait()
        over = not self.manager.errored() and float(done) == self.plan.replicas
        self._again("the last step is done")
        if not over:
            threading.Event().wait(PAUSE)
        return over or time.monotonic() > self.until
