"""The past follows the serial number, and only what came before counts."""

import pytest

from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.retest.history import MONTH, Ledger, told_by

DAY = 86400.0


@pytest.mark.parametrize(
    ("asked", "past"),
    [
        (("A", 100 * DAY, "new"), (2, 99 * 24.0)),
        (("A", 90 * DAY, "second"), (1, 89 * 24.0)),
        (("A", 2 * DAY, "second"), (1, MONTH)),
        (("A", DAY + 600.0, "new"), None),
        (("A", 1.0, "new"), None),
        (("B", 100 * DAY, "new"), None),
        ((None, 100 * DAY, "new"), None),
        (("A", None, "new"), None),
    ],
    ids=["two-before", "not-its-own", "a-month-at-least", "the-same-hour", "the-first",
         "another-part", "no-serial", "no-time"],
)  # fmt: skip
def test_what_came_before(asked, past):
    ledger = Ledger.of(
        [("A", DAY, "first"), ("A", 90 * DAY, "second"), (None, DAY, "x"), ("A", None, "y")]
    )
    assert ledger.before(asked) == past
    assert ledger.pasts([asked]) == ({asked[0]: past} if past else {})


def test_a_run_tells_of_its_roots_once_each():
    root = Diagnosis("g", "hbm", "persistent", "rma", 1, ("x",), serial="A")
    victim = Diagnosis("h", "hbm", "persistent", "none", 1, ("x",), "victim", serial="B")
    other = Diagnosis("h", "sm", "persistent", "none", 2, ("x",), serial=None)
    assert told_by([root, root, victim, other], "1970-01-03", "run") == [("A", 2 * DAY, "run")]
