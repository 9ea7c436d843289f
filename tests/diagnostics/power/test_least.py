"""The header of a record asks for what its drill shows: less is UNKNOWN, and never PASS."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.drills.power import DRILLS
from rackproof.diagnostics.power.least import EVENTS_OF, LEAST, lacks
from rackproof.diagnostics.power.record import EVENTS
from rackproof.diagnostics.recovery.judge import judge
from tests.diagnostics.power.drill import drill, recorded

NAME = "utility-ramp"


class Asked(Exception):
    """Ends a drill where it has said what it is held for."""


class Stage:
    """The stage of a drill that is not held."""

    due = ()

    def sized(self, plan):
        return plan

    def expect(self, expected):
        self.due = expected.power
        raise Asked


def due_of(each):
    stage = Stage()
    with pytest.raises(Asked):
        each.hold(stage)
    return stage.due


@pytest.mark.parametrize("each", DRILLS, ids=lambda each: each.name)
def test_the_table_holds_what_each_drill_asks_for(each):
    assert {*LEAST[each.name]} == {*due_of(each)}
    assert lacks(each.name, due_of(each)) == []
    parts = [name for name in LEAST[each.name] if not name.startswith("DD") and name != "cooling"]
    assert parts
    for part in parts:
        assert {*EVENTS_OF[part]} <= {*EVENTS}


@pytest.fixture(scope="module")
def record():
    found = recorded(*drill((NAME,), tuple(n for n in LEAST[NAME] if n != NAME)))
    return replace(found, head=replace(found.head, drill=NAME))


def asked(record, due):
    expected = replace(record.head.expected, power=tuple(due))
    return replace(record, head=replace(record.head, expected=expected))


def test_all_that_is_due_passes(record):
    assert str(judge(record).verdict) == "PASS"


@pytest.mark.parametrize("gone", [*LEAST[NAME]])
def test_one_thing_less_is_unknown(record, gone):
    found = judge(asked(record, [each for each in record.head.expected.power if each != gone]))
    assert str(found.verdict) == "UNKNOWN"
    said = next(claim for claim in found.claims if claim.id == "power-header")
    assert f"does not ask for {gone}" in said.message


def test_nothing_asked_for_and_nothing_told_is_unknown(record):
    bare = asked(record, ())
    assert str(judge(bare).verdict) == "UNKNOWN"
    facts = [fact for fact in bare.facts if fact.what != "power"]
    assert str(judge(replace(bare, facts=facts)).verdict) == "UNKNOWN"


def test_a_drill_of_no_known_name_asks_for_something(record):
    own = replace(record, head=replace(record.head, drill="of-mine"))
    assert str(judge(own).verdict) == "PASS"
    assert str(judge(asked(own, ())).verdict) == "UNKNOWN"


def test_power_facts_of_another_course_are_none(record):
    facts = [replace(f, course="clean1") if f.what == "power" else f for f in record.facts]
    found = judge(replace(record, facts=facts))
    assert str(found.verdict) == "UNKNOWN"
    last = max(place for place, fact in enumerate(record.facts) if fact.what == "power")
    one = [replace(f, course="clean1") if n == last else f for n, f in enumerate(record.facts)]
    assert str(judge(replace(record, facts=one)).verdict) == "UNKNOWN"
