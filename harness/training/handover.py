"""State for those who have none: the first begins, others take it from a member that has it.

In: members that join. Out: members that take part, once the digest of the state that they took is
the one that was committed. Whoever takes over another state is refused. One at a time, between two
steps; what a donor gave is kept until the next step, for the next who joins.
"""

from typing import TYPE_CHECKING, Any

from rackproof.harness.training.places import ACTIVE, JOINING, OUT, Place

if TYPE_CHECKING:
    from rackproof.harness.training.coordinator import Coordinator


class Handover:
    """Who is being given a state, and by whom."""

    def __init__(self, run: "Coordinator") -> None:
        """Nobody yet."""
        self.run = run
        self.starting: Place | None = None
        self.joiner: Place | None = None
        self.donor: Place | None = None
        self.gift: tuple[int, str, dict[str, Any], bytearray] | None = None

    def start(self, place: Place, *, resume: bool) -> None:
        """Have one member begin."""
        self.starting = place
        place.state = JOINING
        self.run.send(place, "begin", resume=resume)

    def turn(self) -> bool:
        """Go on; True while somebody is being given a state."""
        if self.joiner is not None:
            return True
        joining = self.run.places.named(JOINING)
        if not joining:
            return False
        place = joining[0]
        if self.gift is not None and self.gift[0] == self.run.step:
            self.joiner = place
            self._pass_on(place)
            return True
        self.joiner, self.donor = place, self.run.places.active[-1]
        self.run.send(self.donor, "give", to=place.name)
        return True

    def given(self, head: dict[str, Any], payload: bytearray) -> None:
        """A donor's state has come: pass it on."""
        if self.joiner is None or self.donor is None:
            return
        self.gift = (int(head["step"]), self.donor.name, head["data"], payload)
        self.donor = None
        self._pass_on(self.joiner)

    def _pass_on(self, place: Place) -> None:
        if self.gift is None:
            return
        step, giver, data, payload = self.gift
        self.run.send(place, "take", payload, step=step, data=data, **{"from": giver})

    def ready(self, place: Place, head: dict[str, Any]) -> None:
        """A member says with which state it is ready."""
        if place is self.starting:
            self.starting = None
            self.run.started(place, head)
            return
        if place is not self.joiner:
            return
        self.joiner = None
        if head.get("digest") != self.run.digest or head.get("step") != self.run.step:
            self.run.diary.note("refused", member=place.name, why="its state is another one")
            self.run.lose(place, "wrong-digest")
            return
        place.state = ACTIVE
        self.run.epoch += 1
        self.run.diary.note(
            "resynchronised", member=place.name, step=self.run.step, digest=self.run.digest
        )

    def leave(self, place: Place) -> None:
        """A member is lost: it neither gives nor takes."""
        if place is self.starting:
            self.starting = None
        if place is self.joiner or place is self.donor:
            if self.joiner is not None and self.joiner.state != OUT:
                self.joiner.state = JOINING
            self.joiner = self.donor = None

    def stale(self) -> None:
        """A step is committed: what was given is of the past."""
        self.gift = None
