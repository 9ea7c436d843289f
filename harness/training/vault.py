"""A replica's checkpoints: writes them where it is told to, and reads the newest that verifies.

In: the replica's state at a commit. Out: checkpoints on its tiers, and what became of them as
happenings. The defect ``forget:FIELD`` of a plan makes a careless trainer of it: it leaves the
field out when it writes, and does without when it reads.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rackproof.harness.checkpoint import anatomy, restore, topology, writer
from rackproof.harness.checkpoint.faulty import Faulty, Order
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.training import wire
from rackproof.harness.training.data import DataState
from rackproof.harness.training.optimizer import State, from_tensors, on_host, to_tensors

if TYPE_CHECKING:
    from rackproof.harness.training.replica import Replica

DRAIN = 60.0  # s that the last checkpoint may take at the end


def _on_host(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: on_host(tensor) for name, tensor in tensors.items()}


class Vault:
    """The checkpoints of one replica."""

    def __init__(self, replica: "Replica") -> None:
        """Open nothing: a spare that is never needed never writes."""
        self._replica = replica
        self._writer: writer.Writer | None = None
        self._files = Faulty()
        self.uri = ""
        kind, _, value = replica.plan.defect.partition(":")
        self._forget = value if kind == "forget" else ""

    def bend(self) -> None:
        """Take in what storage was ordered to do; see checkpoint.faulty.Order."""
        order = self._replica.orders.pop("storage", None)
        if order is not None:
            after, seconds = int(order["after"]), float(order["seconds"])
            self._files.obey(Order(order["breaks"], order["under"], after, seconds))

    def _tell(self, body: Mapping[str, Any]) -> None:
        fields = {"form" if name == "kind" else name: value for name, value in body.items()}
        self._replica.diary.note("ckpt", **fields)
        if body.get("phase") == "committed":
            try:
                self._replica.say("saved", step=body["step"])
            except (wire.Closed, AttributeError, OSError):
                return

    def save(self) -> None:
        """Stage the present state; it is written beside the training."""
        replica = self._replica
        assert replica.state is not None  # noqa: S101 - a commit has just made it
        assert replica.data is not None  # noqa: S101
        weights, moments = to_tensors(replica.model, replica.state)
        weights, moments = (_on_host(each) for each in (weights, moments))
        plan = replica.plan
        context = anatomy.Context(
            rng={"philox": {"seed": plan.seed, "step": replica.state.step}},
            data=replica.data.as_json(),
            config={"sha256": plan.config_hash},
            topology=topology.here(plan.replicas, plan.threads),
            commit=dict(replica.roster.commit),
        )
        if self._writer is None:
            tiers = [Tier.of(text) for text in replica.roster.tiers(replica.name)]
            self._writer = writer.Writer(
                tiers, tell=self._tell, busy="skip" if plan.busy == "skip" else "wait",
                delta=plan.delta, files=self._files, leave_out=self._forget,
            )  # fmt: skip
        self._writer.save(anatomy.Snapshot(replica.state.step, weights, moments, context))

    def newest(self) -> tuple[State, DataState]:
        """Return the newest state that verifies on any tier; a CheckpointError where there is none.

        The bits are only promised where threads, BLAS and instruction set are what they were.
        """
        replica = self._replica
        tiers = [Tier.of(text) for text in replica.roster.all_tiers()]
        expect = restore.Expect(
            config_sha=replica.plan.config_hash, commit_sha=replica.roster.commit.get("sha"),
            topology=topology.here(replica.plan.replicas, replica.plan.threads),
        )  # fmt: skip
        found = restore.newest(tiers, expect=expect, lenient=bool(self._forget))
        for uri, why in found.passed_over:
            replica.diary.note("fault", uri=uri, why=why[:500], passed_over=True)
        shot = found.snapshot
        state = self._state(shot)
        data = (
            DataState.initial(replica.dataset, replica.plan)
            if self._forget == "data"
            else DataState.read(shot.context.data)
        )
        self.uri = found.uri
        replica.diary.note(
            "restore", step=state.step, uri=found.uri, promised=found.promised,
            remarks=list(found.remarks),
            fields=[name for name in anatomy.FIELDS if name != self._forget],
        )  # fmt: skip
        return state, data

    def _state(self, shot: anatomy.Snapshot) -> State:
        """Return the state; without a field, what a trainer that forgot it would go on with."""
        model = self._replica.model
        blank = State.initial(model, self._replica.plan.seed)
        weights, moments = to_tensors(model, blank)
        return from_tensors(
            model,
            shot.step,
            weights if self._forget == "weights" else shot.weights,
            moments if self._forget == "optimizer" else shot.optimizer,
        )

    def close(self) -> None:
        """Let the last checkpoint be written."""
        if self._writer is not None:
            self._writer.flush(DRAIN)
            self._writer.close()
