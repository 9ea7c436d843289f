"""A burn that outstays its time is left behind; its GPU is clean, and it gets nothing more."""

import threading

import pytest

from rackproof.harness.burns import Burn, Settings, execute
from rackproof.harness.burns.lease import Lease, Leased, Patience, deadline, within
from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import connect
from rackproof.harness.devices.protocol import Pattern
from rackproof.harness.errors import Lost, OverTime, TimedOut
from rackproof.harness.faults import parse_all
from rackproof.harness.model import WIDE, Event, Measurement, Missing, Why
from rackproof.harness.spec import load

RACK = load("hgx-h100")
FIRST, SECOND = RACK.gpus[0].subject, RACK.gpus[1].subject
OWES = {"gpu": ("temperature",)}
SHORT = Patience(machine=0.05, grace=0.02)
IMPATIENT = Settings("quick", 1, patience=SHORT)


@pytest.fixture
def rack():
    opened = connect(RACK, seed=1)
    yield opened
    opened.close()


def burn_of(run=None, wide=None, changes=False):  # noqa: FBT002
    return Burn("health", "a test", OWES, {"quick": 1.0}, run, wide=wide, changes=changes)


def by_subject(seen, metric):
    return {s.subject: s for s in seen if not isinstance(s, Event) and s.metric == metric}


class Stuck:
    """A burn that claims memory, sets a load, and then blocks until the test lets it go on."""

    def __init__(self):
        self.go, self.ended = threading.Event(), threading.Event()
        self.answers = []

    def __call__(self, device, _bench, notes):
        size = device.plane.claim()
        device.plane.load(1.0)
        notes.note("temperature", 50)
        self.go.wait()
        for call in (
            lambda: device.telemetry.read("temperature"),
            lambda: device.plane.write(0, size, Pattern("constant")),
            lambda: device.wait(1.0),
            lambda: device.begin("health", 9),
        ):
            try:
                self.answers.append(call())
            except TimedOut as error:
                self.answers.append(error)
        notes.note("power.average", 1)
        self.ended.set()


def test_a_burn_that_blocks_is_left_behind_and_its_gpu_is_clean(rack):
    stuck = Stuck()
    free = rack.devices[FIRST].telemetry.read("memory.free")
    seen = execute(burn_of(stuck), rack, FIRST, IMPATIENT)
    assert by_subject(seen, "temperature")[FIRST].value == 50, "what was seen stays seen"
    gap = by_subject(seen, "gpu.present")[FIRST]
    assert (gap.why, bool(gap.reason), bool(gap.cure)) == (Why.TIMED_OUT, True, True)
    device = rack.devices[FIRST]
    assert device.telemetry.read("memory.free") == free
    assert rack.backing.rack.gpus[FIRST].load == 0.0
    count = len(seen)
    stuck.go.set()
    assert stuck.ended.wait(30)
    assert all(isinstance(answer, OverTime) for answer in stuck.answers), stuck.answers
    assert len(seen) == count, "what it notes later counts nowhere"


def test_the_suite_goes_on_after_it(rack):
    stuck = Stuck()
    execute(burn_of(stuck), rack, FIRST, IMPATIENT)
    works = burn_of(lambda _d, _b, notes: notes.note("temperature", 40))
    for subject in (FIRST, SECOND):
        seen = execute(works, rack, subject, Settings("quick", 1, 2))
        assert by_subject(seen, "gpu.present")[subject].value == 1
    stuck.go.set()
    assert stuck.ended.wait(30)


def test_a_wide_burn_that_blocks_is_left_behind(rack):
    go = threading.Event()

    def wide(crew, _bench, notes):
        for subject, device in crew.devices.items():
            device.plane.claim()
            notes.note("temperature", 50, subject)
        go.wait()

    free = rack.devices[SECOND].telemetry.read("memory.free")
    seen = execute(burn_of(wide=wide), rack, WIDE, IMPATIENT)
    go.set()
    gaps = by_subject(seen, "gpu.present")
    assert set(gaps) == set(rack.devices)
    assert {gap.why for gap in gaps.values()} == {Why.TIMED_OUT}
    assert rack.devices[SECOND].telemetry.read("memory.free") == free


def test_a_burn_that_lets_time_pass_for_ever_ends_in_device_time(rack):
    def run(device, _bench, notes):
        notes.note("temperature", 50)
        while True:
            device.wait(7.0)

    settings = Settings("quick", 1, patience=Patience(factor=3.0, floor=20.0))
    device = rack.devices[FIRST]
    seen = execute(burn_of(run), rack, FIRST, settings)
    gap = by_subject(seen, "gpu.present")[FIRST]
    assert gap.why is Why.TIMED_OUT
    assert "time limit" in gap.reason
    assert 20.0 <= device.clock.now() < 100.0  # it settled before
    device.wait(1000.0)  # the limit was the burn's, not the GPU's


def test_reading_in_a_loop_does_not_swallow_the_end_of_the_time(rack):
    def run(device, _bench, notes):
        while True:
            notes.read("temperature", lambda: device.wait(5.0) or 1)

    seen = execute(burn_of(run), rack, FIRST, Settings("quick", 1, patience=Patience(floor=9.0)))
    assert by_subject(seen, "gpu.present")[FIRST].why is Why.TIMED_OUT


def test_a_wide_burn_ends_in_device_time_for_all_of_them(rack):
    def wide(crew, bench, _notes):
        while bench.now() < 1e9:
            crew.each(lambda device: device.wait(5.0))

    settings = Settings("quick", 1, patience=Patience(floor=30.0))
    seen = execute(burn_of(wide=wide), rack, WIDE, settings)
    gaps = by_subject(seen, "gpu.present")
    assert len(gaps) == len(RACK.gpus)
    assert {gap.why for gap in gaps.values()} == {Why.TIMED_OUT}


def test_planned_time_gives_the_limit():
    assert Patience().device(1.0) == 120.0
    assert Patience().device(600.0) == 3000.0


# --- settings of real GPUs -----------------------------------------------------------------------
@pytest.mark.parametrize("sort", ["run", "wide"])
def test_what_changes_real_gpus_runs_by_leave_alone(rack, sort):
    calls = []
    if sort == "run":
        burn, item = burn_of(lambda *_: calls.append(1), changes=True), FIRST
    else:
        burn, item = burn_of(wide=lambda *_: calls.append(1), changes=True), WIDE
    assert execute(burn, rack, item, Settings("quick", 1))
    assert len(calls) == 1, "an emulated rack needs no leave"
    rack.source = "real"
    before = rack.now()
    seen = execute(burn, rack, item, Settings("quick", 1))
    assert len(calls) == 1
    assert rack.now() == before
    assert all(isinstance(s, Missing) and s.why is Why.NOT_PERMITTED for s in seen)
    assert {s.cure for s in seen} == {"allow it: --allow health"}
    execute(burn, rack, item, Settings("quick", 1, allowed=("health",)))
    assert len(calls) == 2


# --- a GPU that is lost in the middle ------------------------------------------------------------
def test_a_gpu_lost_in_the_middle_of_a_wide_burn_is_its_own_trouble(rack):
    rack.backing.rack.plant(parse_all([f"gpu-lost@{FIRST}:at=0.5"], RACK, 1), 10.0)

    def wide(crew, _bench, notes):
        for _ in range(4):
            crew.each(lambda device: (device.plane.load(1.0), device.wait(3.0)))
        crew.each(lambda device: notes.note("temperature", 50, device.gpu.subject))

    seen = execute(burn_of(wide=wide), rack, WIDE, Settings("quick", 1))
    there = by_subject(seen, "gpu.present")
    assert {s: m.value for s, m in there.items()} == {s: int(s != FIRST) for s in rack.devices}
    read = by_subject(seen, "temperature")
    assert read[FIRST].why is Why.LOST
    assert all(isinstance(read[s], Measurement) for s in rack.devices if s != FIRST)


def test_a_gpu_lost_in_the_middle_of_its_item_does_not_touch_the_others(rack):
    rack.backing.rack.plant(parse_all([f"gpu-lost@{FIRST}:at=0.5"], RACK, 1), 10.0)

    def run(device, _bench, notes):
        device.plane.load(1.0)
        device.wait(12.0)
        notes.note("temperature", 50)

    for subject in (FIRST, SECOND):
        seen = execute(burn_of(run), rack, subject, Settings("quick", 1))
        lost = subject == FIRST
        assert by_subject(seen, "gpu.present")[subject].value == int(not lost)
        assert isinstance(by_subject(seen, "temperature")[subject], Missing) == lost


# --- the parts -----------------------------------------------------------------------------------
def test_work_is_done_in_time_or_raises_what_it_raised():
    done = []
    assert within(30.0, lambda: done.append(1), Lease())
    assert done == [1]

    def breaks():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        within(30.0, breaks, Lease())
    assert within(30.0, lambda: done.append(2), Lease()), "its thread goes on"


def test_one_that_is_called_in_may_put_things_back():
    lease = Lease()
    plane = Leased({"limit": 700}, lease)
    began, back = threading.Event(), []

    def work():
        try:
            began.set()
            while True:
                plane.get("limit")
        finally:
            back.append(plane.get("limit"))

    def guarded():
        with pytest.raises(OverTime):
            work()

    assert not within(0.05, guarded, lease, grace=30.0)
    assert back == [700]
    with pytest.raises(OverTime):
        plane.get("limit")


def test_a_clock_does_not_pass_its_deadline():
    clock = VirtualClock(5.0)
    clock.deadline = 9.0
    clock.advance(4.0)
    with pytest.raises(OverTime):
        clock.advance(0.1)
    assert clock.now() == 9.0
    clock.lift(8.0)
    assert clock.deadline == 9.0, "somebody else's"
    clock.lift(9.0)
    clock.advance(100.0)


def test_a_deadline_is_gone_after_the_burn(rack):
    device = rack.devices[FIRST]
    with pytest.raises(Lost), deadline([device], 3.0):
        raise Lost
    device.wait(10.0)
