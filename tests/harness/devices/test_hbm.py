"""Each fault model of the sparse HBM shows what it must, and nothing on healthy memory."""

import itertools

import pytest

from rackproof.harness.devices.emulated import secded
from rackproof.harness.devices.emulated.cells import (
    AddressAlias,
    Coupling,
    FlipOnce,
    StuckBits,
    Transition,
    Uncorrectable,
)
from rackproof.harness.devices.emulated.hbm import UNWRITTEN, Hbm
from rackproof.harness.devices.protocol import Mismatch, Pattern, Verified

GIB = 2**30
ALL = 2**64 - 1
ZEROS, ONES = Pattern("constant"), Pattern("constant", invert=True)
OWN = Pattern("address")
KINDS = [
    *(Pattern("constant", seed, invert) for seed in (0, 1, 0x55 * 0x0101_0101_0101_0101)
      for invert in (False, True)),
    *(Pattern("address", seed, invert) for seed in (0, 24) for invert in (False, True)),
    *(Pattern("random", seed, invert) for seed in (1, 2) for invert in (False, True)),
    UNWRITTEN,
]  # fmt: skip


def test_three_wrong_bits_may_be_miscorrected_silently():
    silent = 0
    for bits in itertools.islice(itertools.combinations(range(64), 3), 2000):
        data, outcome = secded.decode(secded.encode(0) ^ sum(1 << b for b in bits))
        silent += outcome is secded.Outcome.CORRECTED and data != 0
    assert silent > 0


def test_a_healthy_288_gib_memory_passes_and_an_unwritten_one_does_not():
    hbm = Hbm(288 * GIB)
    unwritten = hbm.verify(0, hbm.size, ZEROS)
    assert unwritten.words == unwritten.miscompares == 36 * GIB
    assert [m.address for m in unwritten.first] == list(range(0, 512, 8))
    for pattern in KINDS:
        hbm.write(0, hbm.size, pattern)
        assert hbm.verify(0, hbm.size, pattern) == Verified(36 * GIB, 0)
    assert (hbm.corrected, hbm.uncorrected, list(hbm.incidents)) == (0, 0, [])


def test_ranges_do_not_pile_up():
    hbm = Hbm(GIB)
    for i in range(1000):
        hbm.write(4096 * i, 4096 * (i + 1), OWN)
    assert hbm._layout.starts == [0, 4096 * 1000]
    hbm.write(0, GIB, ZEROS)
    assert hbm._layout.starts == [0]


@pytest.mark.parametrize("pattern", KINDS, ids=str)
def test_one_stuck_bit_under_ecc_is_corrected_and_never_miscompares(pattern):
    hbm = Hbm(GIB)
    planted = [hbm.plant(StuckBits(8 * 1000, 1 << 17, value)) for value in (0,)]
    hbm.write(0, GIB, pattern)
    assert hbm.verify(0, GIB, pattern).miscompares == 0
    assert hbm.corrected == planted[0].fired  # seen exactly where the data disagree
    hbm.write(0, GIB, Pattern(pattern.kind, pattern.seed, not pattern.invert))
    hbm.verify(0, GIB, Pattern(pattern.kind, pattern.seed, not pattern.invert))
    assert hbm.corrected == planted[0].fired == 1


def test_one_stuck_bit_without_ecc_miscompares():
    hbm = Hbm(GIB, ecc=False)
    hbm.plant(StuckBits(8 * 1000, 1 << 17))
    hbm.write(0, GIB, ONES)
    verified = hbm.verify(0, GIB, ONES)
    assert verified.first == (Mismatch(8000, ALL, ALL ^ 1 << 17),)
    assert hbm.corrected == 0


def test_two_stuck_bits_are_an_incident_and_come_back_as_stored():
    hbm = Hbm(GIB)
    planted = hbm.plant(Uncorrectable(4096, 0b11))
    hbm.write(0, GIB, ZEROS)
    assert hbm.verify(0, GIB, ZEROS).miscompares == 0
    assert planted.fired == hbm.uncorrected == 0  # the data agree with what is stuck
    hbm.write(0, GIB, ONES)
    assert hbm.verify(0, GIB, ONES).first == (Mismatch(4096, ALL, ALL ^ 0b11),)
    assert planted.fired == hbm.uncorrected == 1
    assert [(i.address, i.kind) for i in hbm.incidents] == [(4096, "uncorrected")]


def test_a_flip_strikes_once_after_the_next_store():
    hbm = Hbm(GIB)
    hbm.write(0, GIB, OWN)
    planted = hbm.plant(FlipOnce(64, 1))
    hbm.verify(0, GIB, OWN)
    assert planted.fired == hbm.corrected == 0
    hbm.write(0, GIB, OWN)
    hbm.verify(0, GIB, OWN)
    hbm.verify(0, GIB, OWN)  # nothing was written back: it is corrected again
    assert (planted.fired, hbm.corrected) == (1, 2)
    hbm.write(0, GIB, OWN)
    hbm.verify(0, GIB, OWN)
    assert (planted.fired, hbm.corrected) == (1, 2)


def test_an_alias_is_seen_by_own_address_and_not_by_a_constant():
    hbm = Hbm(GIB)
    planted = hbm.plant(AddressAlias(1 << 20, 1 << 25))
    hbm.write(0, GIB, ONES)
    assert hbm.verify(0, GIB, ONES).miscompares == planted.fired == 0
    hbm.write(0, GIB, OWN)
    assert hbm.verify(0, GIB, OWN).first == (Mismatch(1 << 20, 1 << 20, 1 << 25),)
    assert planted.fired == 1
    assert hbm.corrected == hbm.uncorrected == 0  # the cell holds a good code word


def test_a_march_finds_an_alias_by_order():
    hbm = Hbm(GIB)
    hbm.plant(AddressAlias(1 << 20, 1 << 25))
    hbm.write(0, GIB, ZEROS)
    assert hbm.march(0, GIB, True, ZEROS, ONES).first == (Mismatch(1 << 25, 0, ALL),)  # noqa: FBT003
    assert hbm.march(0, GIB, False, ONES, ZEROS).first == (Mismatch(1 << 20, ALL, 0),)  # noqa: FBT003


def test_a_transition_fault_needs_its_own_transition():
    hbm = Hbm(GIB, ecc=False)
    planted = hbm.plant(Transition(128, 1 << 5, rising=True))
    hbm.write(0, GIB, ZEROS)
    assert hbm.verify(0, GIB, ZEROS).miscompares == 0
    hbm.write(0, GIB, ONES)
    assert hbm.verify(0, GIB, ONES).first == (Mismatch(128, ALL, ALL ^ 1 << 5),)
    assert planted.fired == 1


def test_coupling_is_seen_by_the_march_that_reads_the_victim_after_the_aggressor():
    hbm = Hbm(GIB, ecc=False)
    hbm.plant(Coupling(aggressor=8, victim=1 << 20, mask=1, force=1, edge=1 << 3))
    hbm.write(0, GIB, ZEROS)
    assert hbm.verify(0, GIB, ZEROS).miscompares == 0
    assert hbm.march(0, GIB, True, ZEROS, ONES).first == (Mismatch(1 << 20, 0, 1),)  # noqa: FBT003


def test_a_lifted_fault_leaves_the_memory_well():
    hbm = Hbm(GIB)
    planted = hbm.plant(StuckBits(8, 1))
    alias = hbm.plant(AddressAlias(64, 128))
    hbm.write(0, GIB, ONES)
    hbm.lift(planted)
    hbm.lift(alias)
    hbm.write(0, GIB, OWN)
    assert hbm.verify(0, GIB, OWN) == Verified(GIB // 8, 0)
    assert hbm.corrected == 0
    assert planted.fired == 1
    assert hbm.planted == []


def test_the_dense_window_holds_any_content_and_patterns_write_over_it():
    hbm = Hbm(GIB)
    hbm.write(0, GIB, OWN)
    content = bytes(range(256)) * 16
    hbm.poke(4096, content)
    assert hbm.peek(4096, 4096) == content
    assert hbm.verify(0, GIB, OWN).miscompares == 512
    with pytest.raises(ValueError, match="window"):
        hbm.poke(2**21, content)
    hbm.write(0, GIB, OWN)
    hbm.poke(2**21, content)
    assert hbm.peek(2**21, 4096) == content


@pytest.mark.parametrize(
    "fault",
    [
        StuckBits(GIB, 1),
        StuckBits(4, 1),
        StuckBits(0, 0),
        StuckBits(0, 1 << 72),
        Uncorrectable(0, 1),
        AddressAlias(8, 8),
        Coupling(8, 8, 1),
    ],
    ids=str,
)
def test_a_fault_without_meaning_is_refused(fault):
    hbm = Hbm(GIB)
    with pytest.raises(ValueError, match=r"needs|no range"):
        hbm.plant(fault)


def test_a_range_beyond_the_memory_is_refused():
    with pytest.raises(ValueError, match="no range"):
        Hbm(GIB).write(0, GIB + 8, ZEROS)
