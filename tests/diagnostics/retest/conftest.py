"""What any case can begin with, and what retests of it can show."""

from collections.abc import Sequence

from hypothesis import strategies as st

from rackproof.diagnostics.diagnosis import COMPONENTS
from rackproof.diagnostics.retest.belief import Belief, begin, update
from rackproof.diagnostics.retest.model import Outcome, Signs, Test

KINDS = ("terminal", "hardware", "driver", "watch", "app", "sympathetic")


@st.composite
def outcomes(draw, tests=tuple(Test)):
    """Draw what a retest of one of `tests` showed."""
    test = draw(st.sampled_from(tests))
    runs = draw(st.integers(0, 44))
    struck = draw(st.integers(0, runs))
    stayed = draw(st.integers(0, runs)) if test is Test.SWAP else 0
    return Outcome(test, runs, struck, stayed)


SIGNS = st.builds(
    Signs,
    component=st.sampled_from(COMPONENTS),
    kind=st.sampled_from(KINDS),
    family=st.sampled_from(("", "memory", "slow", "link")),
    prior=st.floats(0, 1),
    failed=st.integers(0, 44),
    passed=st.integers(0, 44),
    incidents=st.integers(1, 20),
    alike=st.integers(0, 71),
    earlier=st.none() | st.integers(0, 50),
    hours=st.floats(0, 50_000),
    burn_seconds=st.floats(1, 3600),
)
TRIES = st.lists(outcomes(), max_size=5)


def believed(signs: Signs, tried: Sequence[Outcome]) -> Belief:
    belief = begin(signs)
    for outcome in tried:
        belief = update(belief, outcome)
    return belief
