"""A step is begun although a member is found to be gone while it is asked."""

from types import SimpleNamespace

from rackproof.harness.training.places import ACTIVE, OUT
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.round import Round


class Run:
    """A coordinator of three members, of whom those in `gone` are lost when they are written to."""

    def __init__(self, *gone):
        self.gone, self.plan, self.sent = gone, Plan(replicas=3), []
        self.step = self.epoch = 0
        self.dataset, self.diary = None, SimpleNamespace(note=lambda *_, **__: None)
        ids = tuple((shard,) for shard in range(self.plan.micro_shards))
        self.data = SimpleNamespace(batch=lambda _: (ids, None))
        everybody = {name: SimpleNamespace(name=name, state=ACTIVE) for name in ("r0", "r1", "r2")}
        self.places = SimpleNamespace(all=everybody, slots=list(everybody))
        self.places.active = list(everybody.values())
        self.round = Round(self)

    def send(self, place, what, shards=(), **_):
        if place.name in self.gone:
            place.state = OUT
            self.places.active.remove(place)
            self.round.leave(place)
        elif what == "work":
            self.sent += [(place.name, shard) for shard, _ in shards]


def test_who_is_gone_when_asked_is_left_out_and_its_work_is_done_by_others():
    run = Run("r0")
    run.round.begin()
    assert set(run.round.owners) == {"r1", "r2"}
    assert {shard for _, shard in run.sent} == set(range(run.plan.micro_shards))
    assert {name for name, _ in run.sent} == {"r1", "r2"}


def test_so_it_is_where_the_last_one_is_gone():
    run = Run("r2", "r1")
    run.round.begin()
    assert {shard for _, shard in run.sent} == set(range(run.plan.micro_shards))
    assert {name for name, _ in run.sent} == {"r0"}


def test_where_all_are_gone_nobody_is_asked():
    run = Run("r0", "r1", "r2")
    run.round.begin()
    assert run.sent == []
