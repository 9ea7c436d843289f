"""The evidence that a message quotes: a few pieces, equal ones once."""

from rackproof.diagnostics.recovery.claims import some


def test_equal_pieces_are_said_once_and_counted():
    words = ["shelf: it struck 5 times"] * 123 + ["r0: it died"]
    assert some(words) == "shelf: it struck 5 times (123 alike); r0: it died"


def test_what_is_too_much_is_counted():
    assert some(["a", "b", "c", "d", "d", "e"]) == "a; b; c; and 2 more"
    assert some(["a", "b"]) == "a; b"
    assert some([]) == ""
