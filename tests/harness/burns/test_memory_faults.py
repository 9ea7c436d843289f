"""Which fault model each memory test is sure to see: one table, tried on emulated and host memory.

A test is sure of a model when it sees it wherever it lies and whatever the words held before. What
it sees in some places only, it sees by luck of the data.
"""

import random

import pytest

from rackproof.harness.burns.memory import TESTS, Passes
from rackproof.harness.devices import host_plane
from rackproof.harness.devices.emulated.cells import (
    AddressAlias,
    Bridge,
    Coupling,
    FlipOnce,
    Leak,
    StuckBits,
    Transition,
)
from rackproof.harness.devices.emulated.hbm import Hbm
from rackproof.harness.errors import NotPresent

SIZE = 1 << 20
WAIT = 30.0  # seconds
ALL = set(TESTS)
MARCHES = {"inversions", "inversions8", "march", "walking", "modulo20"}


def places(count):
    """Draw pairs of words, and two bits."""
    rng = random.Random(8)
    for _ in range(count):
        one, other = (8 * n for n in rng.sample(range(SIZE // 8), 2))
        first, second = (1 << n for n in rng.sample(range(64), 2))
        yield one, other, first, second


MODELS = {
    "stuck-at": lambda a, _b, x, _y: [StuckBits(a, x, 0), StuckBits(a, x, x)],
    "transition": lambda a, _b, x, _y: [Transition(a, x, True), Transition(a, x, False)],  # noqa: FBT003
    "coupling": lambda a, b, x, _y: [Coupling(a, b, x, force, edge=x) for force in (0, x)],
    "inversion": lambda a, b, x, _y: [Coupling(a, b, x, edge=x)],
    "alias": lambda a, b, _x, _y: [AddressAlias(a, b)],
    "flip at rest": lambda a, _b, x, _y: [FlipOnce(a, x)],
    "bridge": lambda a, _b, x, y: [Bridge(a, x | y)],
    "leak": lambda a, _b, x, _y: [Leak(a, x, WAIT / 2, 0), Leak(a, x, WAIT / 2, x)],
}
SURE = {
    "stuck-at": ALL,
    "transition": MARCHES,
    "coupling": MARCHES,
    "inversion": MARCHES,
    "alias": ALL,
    "flip at rest": ALL,
    "bridge": {"walking"},
    "leak": {"fade"},
}


class Bare:
    """The memory calls of a DataPlane on a bare Hbm."""

    def __init__(self, hbm):
        self.write, self.verify, self.march, self.copy = (
            hbm.write, hbm.verify, hbm.march, hbm.copy
        )  # fmt: skip


def run(test, plane, wait):
    passes = Passes(plane, SIZE, lambda: wait(30.0) or 30.0)
    TESTS[test].work(passes, 7)
    return passes


def seen(test, fault):
    """Whether a test sees a fault in a memory without ECC, which was in use before."""
    hbm = Hbm(SIZE, ecc=False)
    hbm.plant(fault)
    return run(test, Bare(hbm), hbm.rest).miscompares > 0


@pytest.mark.parametrize("model", MODELS)
def test_the_tests_that_are_sure_of_a_model(model):
    faults = [fault for place in places(40) for fault in MODELS[model](*place)]
    assert {test for test in TESTS if all(seen(test, fault) for fault in faults)} == SURE[model]


@pytest.mark.parametrize("test", TESTS)
def test_healthy_memory_shows_nothing(test):
    hbm = Hbm(SIZE)
    passes = run(test, Bare(hbm), hbm.rest)
    assert (passes.miscompares, hbm.corrected, hbm.uncorrected) == (0, 0, 0)
    assert passes.passes == TESTS[test].whole


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("model", ["stuck-at", "transition", "flip at rest", "leak", "bridge"])
def test_one_wrong_bit_under_ecc_never_miscompares(test, model):
    place = next(places(1))
    for fault in MODELS[model](*place):
        hbm = Hbm(SIZE)
        planted = hbm.plant(fault)
        passes = run(test, Bare(hbm), hbm.rest)
        assert (passes.miscompares, hbm.uncorrected) == (0, 0)
        if test in SURE[model]:
            assert hbm.corrected > 0
        assert planted.fired or not hbm.corrected


@pytest.mark.parametrize("test", TESTS)
def test_an_alias_under_ecc_moves_no_counter(test):
    one, other, _, _ = next(places(1))
    hbm = Hbm(SIZE)
    hbm.plant(AddressAlias(one, other))
    assert run(test, Bare(hbm), hbm.rest).miscompares > 0
    assert (hbm.corrected, hbm.uncorrected) == (0, 0)


# --- the same on the kernels that a GPU runs ------------------------------------------------------
class Spoilt(host_plane.HostPlane):
    """Host memory that a fault spoils after each store."""

    def __init__(self, spoil):
        super().__init__(SIZE, chunks=2)
        self._spoil = spoil

    def write(self, lo, hi, pattern):
        super().write(lo, hi, pattern)
        self._spoil(self)

    def march(self, lo, hi, up, expect, write):
        verified = super().march(lo, hi, up, expect, write)
        self._spoil(self)
        return verified

    def copy(self, to, lo, hi):
        super().copy(to, lo, hi)
        self._spoil(self)


def stick(address, bit, value):
    """Return a spoiler that holds a bit."""

    def spoil(plane):
        plane.poke(address, plane.peek(address) & ~bit | (bit if value else 0))

    return spoil


def flip(address, bit):
    """Return a spoiler that flips a bit once."""
    left = [bit]

    def spoil(plane):
        plane.poke(address, plane.peek(address) ^ (left.pop() if left else 0))

    return spoil


@pytest.fixture
def compiled():
    try:
        host_plane.library()
    except NotPresent as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("test", TESTS)
def test_the_kernels_see_what_the_host_spoils(test):
    one, other, bit, _ = next(places(1))
    spoilers = [stick(one, bit, 0), stick(one, bit, 1), stick(other, bit, 0), stick(other, bit, 1)]
    if test != "block":  # a half that is copied over first is rewritten before it is read
        spoilers += [flip(one, bit)]
    for spoil in spoilers:
        plane = Spoilt(spoil)
        plane.claim()
        assert run(test, plane, lambda _seconds: None).miscompares > 0
        plane.release()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("test", TESTS)
def test_the_kernels_find_healthy_memory_healthy(test):
    plane = host_plane.HostPlane(SIZE, chunks=2)
    plane.claim()
    passes = run(test, plane, lambda _seconds: None)
    assert (passes.miscompares, passes.passes) == (0, TESTS[test].whole)
    plane.release()


@pytest.mark.usefixtures("compiled")
def test_what_leaks_while_it_rests_is_seen_by_fade():
    one, _, bit, _ = next(places(1))
    plane = host_plane.HostPlane(SIZE)
    plane.claim()
    leak = stick(one, bit, 0)
    assert run("fade", plane, lambda _seconds: leak(plane)).miscompares > 0
