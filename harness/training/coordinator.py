"""The coordinator of the reference run: ``python -m … FOLDER ATTEMPT [ABSENT…]``.

In: replicas' connections, and orders on stdin. Out: epochs of membership, work, the one ordered
reduction, and all-or-nothing commits. It owns who takes part; it keeps no weights. A step: intent
(who computes what, logged before the reduction), gradients, their mean in the order of
micro-shards, votes on the next state's digest, commit. A member that is lost before the vote is
over makes the step be repeated, with the same samples, under a new epoch. A coordinator that comes
after one that died goes on from what its members hold.
"""

import json
import math
import os
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.training import wire
from rackproof.harness.training.data import DataSet, DataState
from rackproof.harness.training.diary import Diary
from rackproof.harness.training.handover import Handover
from rackproof.harness.training.places import (
    ACTIVE,
    JOINING,
    OUT,
    WAITING,
    Place,
    Places,
    of_socket,
)
from rackproof.harness.training.replica import DATA
from rackproof.harness.training.roster import ADDRESS, Roster, write_whole
from rackproof.harness.training.round import Round

TICK = 0.02  # s between looks at who is silent
GATHER = 30.0  # s that members may take to start
FAREWELL = 60.0  # s that members may take to write their last checkpoint
STRANGERS = 64  # connections that have not said hello yet


class Coordinator:
    """The process: its sockets, the members' places, and the state of the run."""

    def __init__(self, roster: Roster, attempt: int, absent: list[str]) -> None:
        """Listen on a free port of the loopback, and say where."""
        self.roster, self.plan, self.attempt = roster, roster.plan, attempt
        self.diary = Diary(roster.folder, "coordinator", attempt)
        self.dataset = DataSet.open(roster.folder / DATA)
        self.places = Places(roster, absent)
        self.step, self.epoch, self.digest = -1, 0, ""
        self.data: DataState | None = None
        self.wanted: list[tuple[str, str]] = []  # (member, subject) that were told
        self.instead: dict[str, str] = {}
        self.round: Round | None = None
        self.handover = Handover(self)
        self.gate = roster.plan.gate or math.inf  # no step after it is begun, until told otherwise
        self.fresh = True
        self.over = False
        self.code = 0
        self._selector = selectors.DefaultSelector()
        self._strangers: dict[socket.socket, tuple[wire.Line, float]] = {}
        self._server = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._server.settimeout(0)
        self._selector.register(self._server, selectors.EVENT_READ)
        os.set_blocking(0, False)
        self._orders = b""
        self._selector.register(0, selectors.EVENT_READ)
        self._began = self._looked = time.monotonic()
        self._say_where()

    def _say_where(self) -> None:
        address = list(self._server.getsockname()[:2])
        write_whole(self.roster.folder / f"listening.{self.attempt}.json", {"": address})
        if not self.plan.proxied:
            write_whole(self.roster.folder / ADDRESS, {"": address})

    # --- the loop -------------------------------------------------------------------------------
    def run(self) -> int:
        """Serve until the last step is committed; return the exit code."""
        self.diary.note("hello", pid=os.getpid(), rank=-1, world=self.plan.replicas)
        while not self.over:
            for key, mask in self._selector.select(self._rest):
                self._ready(key.fileobj, mask)
            self._look()
            self.turn()
        self._farewell()
        return self.code

    @property
    def _rest(self) -> float:
        """How long nothing can go on, in s, unless somebody says something."""
        busy = self.round is not None and self.round.open
        if self.step < 0 or busy or self.handover.joiner is not None:
            return TICK
        return min(TICK, max(0.0, self._due - time.monotonic()))

    @property
    def _due(self) -> float:
        """When the next step may begin."""
        if self.step >= self.gate:
            return math.inf
        return 0.0 if self.round is None else self.round.began + self.plan.pace

    def _ready(self, what: Any, mask: int) -> None:
        if what is self._server:
            self._accept()
        elif what == 0:
            self._obey()
        elif what in self._strangers:
            self._greet(what)
        else:
            place = of_socket(self.places, what)
            if place is not None:
                self._hear(place, mask)

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        if len(self._strangers) >= STRANGERS:
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._strangers[connection] = (wire.Line(connection), time.monotonic())
        self._selector.register(connection, selectors.EVENT_READ)

    def _greet(self, connection: socket.socket) -> None:
        line, _ = self._strangers[connection]
        try:
            frames = line.take()
        except wire.Closed:
            self._forget(connection)
            return
        if not frames:
            return
        del self._strangers[connection]
        known = self.places.all.get(str(frames[0][0].get("name")))
        if known is not None and known.line is not None:  # it came again: the old line is dead
            self.lose(known, "closed", fence=False)
        place = self.places.greet(frames[0][0], line, time.monotonic())
        if place is None:
            line.put({"what": "leave"})
            self._forget(connection)
            return
        for head, payload in frames[1:]:
            self.take(place, head, payload)

    def _forget(self, connection: socket.socket) -> None:
        self._strangers.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()

    def _hear(self, place: Place, mask: int) -> None:
        assert place.line is not None  # noqa: S101 - found by it
        try:
            if mask & selectors.EVENT_WRITE:
                place.line.flush()
            frames = place.line.take() if mask & selectors.EVENT_READ else []
        except wire.Closed:
            self.lose(place, "closed")
            return
        place.last = time.monotonic()
        self._watch(place)
        for head, payload in frames:
            if place.state != OUT:  # what it said before may have put it out
                self.take(place, head, payload)

    def _watch(self, place: Place) -> None:
        if place.line is not None:
            both = selectors.EVENT_READ | (selectors.EVENT_WRITE if place.line.full else 0)
            self._selector.modify(place.line.socket, both)

    def send(
        self, place: Place, what: str, payload: bytes | bytearray | memoryview = b"", **more: Any
    ) -> None:
        """Send a frame to a member; one that is gone is lost."""
        if place.line is None:
            return
        try:
            place.line.put({"what": what, **more}, payload)
            self._watch(place)
        except wire.Closed:
            self.lose(place, "closed")

    def _obey(self) -> None:
        """Take orders on stdin; its end means that whoever started us is gone."""
        try:
            block = os.read(0, 1 << 16)
        except BlockingIOError:
            return
        if not block:
            os._exit(5)
        *lines, self._orders = (self._orders + block).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order.get("order") == "replace":
                self.wanted.append((str(order["member"]), str(order["subject"])))
            elif order.get("order") == "gate":
                self.gate = math.inf if order["step"] is None else int(order["step"])

    def _look(self) -> None:
        """Lose who has been silent too long; but not for our own being late."""
        now = time.monotonic()
        late, self._looked = now - self._looked, now
        for place in self.places.named(WAITING, JOINING, ACTIVE):
            if late > self.plan.silence / 2:
                place.last = now
            elif now - place.last > self.plan.silence:
                self.lose(place, "silent")
        for connection, (_, since) in list(self._strangers.items()):
            if now - since > self.plan.silence + 1.0:
                self._forget(connection)

    # --- members --------------------------------------------------------------------------------
    def lose(self, place: Place, why: str, *, fence: bool = True) -> None:
        """A member is not there any more: nothing waits for it from here on."""
        if place.state == OUT:
            return
        took_part = place.state in (ACTIVE, JOINING)
        if place.line is not None:
            self._selector.unregister(place.line.socket)
        self.places.drop(place, fence=fence)
        self.diary.note("lost", member=place.name, why=why)
        self.handover.leave(place)
        if took_part:
            self.epoch += 1
            self.diary.note("isolated", member=place.name, epoch=self.epoch)
        if self.round is not None and took_part:
            self.round.leave(place)

    def take(self, place: Place, head: dict[str, Any], payload: bytearray) -> None:
        """Take a frame of a member."""
        what = head.get("what")
        if what == "grad" and self.round is not None:
            self.round.gradient(place, head, payload)
        elif what == "vote" and self.round is not None:
            self.round.vote(place, head)
        elif what == "given":
            self.handover.given(head, payload)
        elif what == "ready":
            self.handover.ready(place, head)
        elif what == "saved" and self.round is not None:
            self.round.saved = max(self.round.saved, int(head.get("step", 0)))

    # --- the run --------------------------------------------------------------------------------
    def turn(self) -> None:
        """Go on with whatever comes next."""
        if self.step < 0:
            self._gather()
            return
        busy = self.round is not None and self.round.open
        if self.wanted:
            self._told()
        if busy and self.places.active:
            assert self.round is not None  # noqa: S101
            self.round.turn()
            return
        self._invite()
        if not self.places.active:
            self._all_lost()
            return
        if self.handover.turn():
            return
        if self.step >= self.plan.steps:
            self.diary.note("ended", step=self.step, digest=self.digest)
            self.over = True
            return
        if self.places.active and time.monotonic() >= self._due:
            if self.round is None:
                self.round = Round(self)
            self.round.begin()

    def _all_lost(self) -> None:
        """Nobody has a state any more: whoever is there, or comes, goes on from a checkpoint."""
        for place in self.places.named(JOINING):
            place.state = WAITING
        self.step, self.round, self.fresh = -1, None, False
        self._began = time.monotonic()

    def _told(self) -> None:
        """Do what the drill told: a member goes, and the spare at a subject takes its slot."""
        for member, subject in self.wanted:
            place = self.places.all.get(member)
            if place is None or member not in self.places.slots:
                continue
            waiting = [p.name for p in self.places.named(WAITING)]
            at = [n for n in waiting if self.places.all[n].seat.subject == subject]
            if not waiting:
                continue
            if place.state in (ACTIVE, JOINING):
                self.lose(place, "told")
            self.instead[(at or waiting)[0]] = member
        self.wanted.clear()

    def _invite(self) -> None:
        """Let spares that wait take the slots of members that are lost."""
        vacant = self.places.vacant()
        for place in self.places.named(WAITING):
            if place.name in self.places.slots:  # a replica that came late, or again
                place.state = JOINING
            elif place.name in self.instead or (self.plan.auto and vacant):
                instead = self.instead.pop(place.name, "") or vacant[0]
                if instead not in self.places.slots:
                    continue
                self.places.seat(place.name, instead)
                place.state = JOINING
                vacant = self.places.vacant()
                subject = place.seat.subject
                self.diary.note("spare-active", member=place.name, instead=instead, subject=subject)

    def _gather(self) -> None:
        """Wait for the members, then begin from what they hold, or from nothing."""
        here = self.places.named(WAITING)
        patience = GATHER if self.fresh else self.plan.silence
        if self.places.awaited and time.monotonic() - self._began < patience:
            return
        if self.handover.starting:
            return
        if not here:
            if time.monotonic() - self._began > GATHER * 2:
                msg = "nobody is left, and nobody comes"
                raise DrillError(msg)
            return
        top = max(place.step for place in here)
        if top >= 0:
            self._resume(here, top)
        else:
            self._start(here)

    def _resume(self, here: list[Place], top: int) -> None:
        """Go on from what members hold: those who are a commit behind get it."""
        ahead = [place for place in here if place.step == top]
        first = ahead[0].hello
        self.step, self.digest = top, str(first.get("digest"))
        self.data = DataState.read(first["data"])
        self.epoch = max(int(place.hello.get("epoch") or 0) for place in here) + 1
        for place in here:
            if place.step == top and place.hello.get("digest") == self.digest:
                place.state = ACTIVE
            elif place.hello.get("prepared") == [top, self.digest]:
                place.state = ACTIVE
                self.send(
                    place, "commit", epoch=self.epoch, step=top, digest=self.digest, loss=None,
                    samples=[], data=self.data.as_json(), save=False,
                )  # fmt: skip
        for place in self.places.active:
            if place.name not in self.places.slots and self.places.vacant():
                self.places.seat(place.name, self.places.vacant()[0])

    def _start(self, here: list[Place]) -> None:
        """Have one member begin; the others take its state."""
        if not any(place.name in self.places.slots for place in here):
            self._told()
            self._invite()
            here = [place for place in here if place.state == JOINING]
        if here:
            self.handover.start(here[0], resume=self.roster.resume or not self.fresh)

    def started(self, place: Place, head: dict[str, Any]) -> None:
        """A member has begun: its state is the run's."""
        self.step, self.digest = int(head["step"]), str(head["digest"])
        self.data = DataState.read(head["data"])
        place.state = ACTIVE
        self.epoch += 1
        if self.roster.resume or not self.fresh:
            self.diary.note("restarted", step=self.step, uri=head.get("uri") or "")
        self.fresh = False

    def _farewell(self) -> None:
        """Tell everybody that it is over, and wait until they have gone: one may still write."""
        for place in self.places.named(WAITING, JOINING, ACTIVE):
            self.send(place, "end")
        end = time.monotonic() + FAREWELL
        while (here := self.places.named(WAITING, JOINING, ACTIVE)) and time.monotonic() < end:
            for place in here:
                try:
                    if place.line is not None:
                        place.line.flush()
                        place.line.take()
                except wire.Closed:
                    self.places.drop(place, fence=True)
            self._selector.select(TICK)


def main(words: list[str]) -> int:
    """Run the coordinator: FOLDER ATTEMPT [ABSENT…]."""
    folder, attempt, absent = Path(words[0]), int(words[1]), words[2:]
    return Coordinator(Roster.load(folder), attempt, absent).run()


if __name__ == "__main__":
    processes.mortal()
    sys.exit(main(sys.argv[1:]))
