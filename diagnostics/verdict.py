"""The verdict algebra: PASS < UNKNOWN < FAIL, SKIP is neutral, and nothing looked at is UNKNOWN."""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What is said of one check, one subject or one run."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIP = "SKIP"

    @property
    def exit_code(self) -> int:
        """The CLI's exit code for it: 0, 1 or 3. A run in which all is SKIP judged nothing: 3."""
        return {"PASS": 0, "FAIL": 1}.get(self.value, 3)


_RANK = {Verdict.PASS: 0, Verdict.UNKNOWN: 1, Verdict.FAIL: 2}


def roll_up(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of them; of none, or of SKIPs alone, UNKNOWN."""
    looked = [v for v in verdicts if v is not Verdict.SKIP]
    return max(looked, key=_RANK.__getitem__, default=Verdict.UNKNOWN)
