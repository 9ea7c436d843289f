"""A burn begins when the GPU has come to rest, and not before; and never waits for ever."""

import pytest

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.settle import Gate, Sample, optional, rests, settle
from rackproof.harness.errors import DeviceError, Lost, Unsupported

REST = Sample(0.0, 80.0, 40.0)
GATE = Gate(step=0.125, window=0.5, bound=10.0)


def after(samples):
    """Return what a GPU shows over time, seconds -> Sample, and how long settle() waited."""
    clock = VirtualClock()
    found = settle(lambda: samples(clock.now()), clock, clock.advance, GATE)
    return found, clock.now()


def test_a_gpu_at_rest_is_looked_at_for_one_window():
    assert after(lambda _: REST) == (None, GATE.window)


def test_the_last_burns_work_is_waited_for():
    busy = Sample(90.0, 700.0, 70.0)
    found, waited = after(lambda at: busy if at < 2.0 else Sample(0.0, 80.0, 70.0))
    assert found is None
    assert 2.0 + GATE.window <= waited < 2.0 + GATE.window + 2 * GATE.step


@pytest.mark.parametrize(
    "moving",
    [
        lambda at: Sample(0.0, 80.0 + 20.0 * at, 40.0),
        lambda at: Sample(0.0, 80.0, 40.0 + 4.0 * at),
        lambda _: Sample(50.0, 80.0, 40.0),
    ],
)
def test_what_never_rests_ends_at_the_bound_with_what_was_last_seen(moving):
    found, waited = after(moving)
    assert waited == GATE.bound
    assert found == moving(GATE.bound)


def test_sensors_that_waver_are_steady():
    one, other = Sample(3.0, 80.0, 40.0), Sample(0.0, 84.0, 41.0)
    assert rests([one, other])
    assert rests([Sample(0.0, 700.0, 60.0), Sample(0.0, 715.0, 60.0)])


def test_what_the_driver_does_not_say_holds_nobody_up():
    assert after(lambda _: Sample(None, None, None)) == (None, GATE.window)


def test_only_a_gpu_that_is_gone_is_no_missing_reading():
    def broken(error):
        def read():
            raise error

        return read

    assert optional(broken(Unsupported("no"))) is None
    assert optional(broken(DeviceError("no"))) is None
    assert optional(lambda: 7.0) == 7.0
    with pytest.raises(Lost):
        optional(broken(Lost("gone")))
