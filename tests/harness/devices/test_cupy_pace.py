"""Work stays queued while it is watched, and is timed from the first to the last piece."""

import pytest

from rackproof.harness.devices.cupy_pace import AHEAD, TRIALS, WATCHES, Lanes, paced


@pytest.fixture
def cupy(machine):
    return machine.modules()["cupy"]


def pieces(machine):
    return sum(entry == "piece" for entry in machine.log)


def outstanding(machine):
    """Return how many recorded marks nobody has waited for."""
    marks = [e for e in machine.log if e not in ("piece", "watch")]
    recorded = {name for what, name in marks if what == "record"}
    return len(recorded - {name for what, name in marks if what == "synchronize"})


def test_work_runs_for_about_as_long_as_was_asked(machine, cupy):
    # Two events are 10 ms apart, so 3 trials are 3.3 ms each.
    train = paced(cupy, lambda: machine.log.append("piece"), 1.0)
    assert train.repeats == 300
    assert train.seconds == 0.01
    assert pieces(machine) == TRIALS + 300


def test_one_piece_runs_whatever_was_asked(machine, cupy):
    assert paced(cupy, lambda: None, 0.0).repeats == 1


def test_batches_stay_queued_while_somebody_looks(machine, cupy):
    queued = []

    def watch():
        queued.append(outstanding(machine))

    paced(cupy, lambda: machine.log.append("piece"), 2.0, watch)
    assert len(queued) == WATCHES
    # The batches ahead, and the two events around the whole train of which one is recorded.
    assert min(queued) >= AHEAD


def test_a_short_train_is_watched_once_before_its_end(machine, cupy):
    seen = []
    train = paced(cupy, lambda: None, 0.01, lambda: seen.append(outstanding(machine)))
    assert train.repeats == 3
    assert len(seen) == 1
    assert seen[0] >= 1


def test_what_a_look_raises_comes_out_after_the_queue_ran_dry(machine, cupy):
    def watch():
        machine.log.append("watch")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        paced(cupy, lambda: None, 2.0, watch)
    after = machine.log[machine.log.index("watch") + 1 :]
    assert [what for what, _ in after] == ["record", "synchronize"]


def test_two_streams_begin_together_and_end_when_both_are_done(cupy):
    waits = []

    class Stream:
        def __init__(self, name):
            self.name = self.ptr = name

        def wait_event(self, event):
            waits.append(self.name)

    lanes = Lanes([Stream("one"), Stream("two")])
    paced(cupy, lambda: None, 0.0, None, lanes)
    assert waits == ["two", "one", "two", "one"]  # of the trial, and of the train
