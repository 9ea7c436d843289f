"""What answers to a step's micro-shards are worth."""

import pytest

from rackproof.harness.training.ballot import Ballot, Suspicion

RIGHT, WRONG, OTHER = (bytearray(text) for text in (b"right", b"wrong", b"other"))


def asked(shards=(0,), audited=(), members="abc"):
    """Return a ballot in which each micro-shard was asked of as many members as it needs."""
    ballot = Ballot(shards, audited)
    while missing := ballot.missing():
        for shard, known in missing:
            ballot.ask(shard, next(name for name in members if name not in known))
    return ballot


def say(ballot, member, what=RIGHT, *, shard=0, finite=True, bad=()):
    ballot.answer(shard, (member, what, 1.0, finite), bad)


def test_one_answer_is_enough_where_nothing_is_audited():
    ballot = asked()
    say(ballot, "a")
    assert ballot.done
    assert ballot.chosen()[0][0] == "a"
    assert ballot.suspicions == []


def test_gradients_come_in_the_order_of_micro_shards_whoever_was_first():
    ballot = Ballot([0, 1, 2])
    for shard, name in ((2, "a"), (0, "b"), (1, "a")):
        ballot.ask(shard, name)
        say(ballot, name, bytearray([shard]), shard=shard)
    assert [bytes(answer[1]) for answer in ballot.chosen()] == [b"\0", b"\1", b"\2"]


def test_two_equal_answers_settle_an_audited_one():
    ballot = asked(audited=[0])
    say(ballot, "a")
    assert not ballot.done
    say(ballot, "b")
    assert ballot.done
    assert ballot.suspicions == []


@pytest.mark.parametrize("order", ["abc", "bac", "bca"])
def test_a_third_answer_says_who_was_wrong(order):
    ballot = Ballot([0], [0])
    said = {"a": WRONG, "b": RIGHT, "c": RIGHT}
    for name in order:
        ballot.ask(0, name)
    for name in order:
        say(ballot, name, said[name])
    if not ballot.done:
        assert ballot.missing()
    assert bytes(ballot.chosen()[0][1]) == bytes(RIGHT)


def test_two_that_differ_ask_for_a_third_and_the_odd_one_is_suspect():
    ballot = asked(audited=[0])
    say(ballot, "a", WRONG)
    say(ballot, "b")
    assert not ballot.done
    ((shard, known),) = ballot.missing()
    assert (shard, known) == (0, frozenset("ab"))
    ballot.ask(0, "c")
    say(ballot, "c")
    assert ballot.done
    assert ballot.suspicions == [Suspicion("a", 0, "differs")]


def test_three_that_all_differ_settle_nothing():
    ballot = asked(audited=[0])
    say(ballot, "a", WRONG)
    say(ballot, "b")
    ballot.ask(0, "c")
    say(ballot, "c", OTHER)
    assert not ballot.done
    assert ballot.missing()
    assert ballot.suspicions == []


def test_of_two_members_the_one_that_does_not_say_it_again_is_suspect():
    ballot = asked(audited=[0], members="ab")
    say(ballot, "a", WRONG)
    say(ballot, "b")
    for name in "ab":
        ballot.ask(0, name)
        say(ballot, name)
    assert ballot.done
    assert {each.member for each in ballot.suspicions} == {"a"}


def test_a_nan_that_another_member_does_not_have_makes_the_first_suspect():
    ballot = asked()
    say(ballot, "a", WRONG, finite=False, bad=[7])
    ((shard, known),) = ballot.missing()
    ballot.ask(shard, "b")
    assert "a" in known
    say(ballot, "b")
    assert ballot.done
    assert ballot.suspicions == [Suspicion("a", 0, "nan")]
    assert not ballot.poisoned


def test_a_nan_on_two_members_is_the_samples():
    ballot = asked()
    say(ballot, "a", WRONG, finite=False, bad=[7])
    ballot.ask(0, "b")
    say(ballot, "b", WRONG, finite=False, bad=[7])
    assert not ballot.done
    assert ballot.poisoned == {7}
    assert ballot.suspicions == []


def test_what_nobody_was_asked_is_dropped():
    ballot = asked()
    say(ballot, "c")
    assert not ballot.done
    say(ballot, "a", shard=9)
    assert not ballot.done


def test_what_a_lost_member_was_asked_is_missing_again():
    ballot = asked(shards=(0, 1))
    say(ballot, "a", shard=0)
    ballot.leave("a", forget=True)
    assert [shard for shard, _ in ballot.missing()] == [0, 1]
    assert not ballot.waits_for("a")
