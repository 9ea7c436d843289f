"""Incidents are counted, never lines; and only what lies near can belong together."""

import random

import pytest

from rackproof.diagnostics.episodes import Said, coarse, episodes, near, told
from rackproof.diagnostics.rules.xid import meaning
from rackproof.harness.model import Event


def said(at, code=31, subject="pci:0000:19:00.0", clock="boot", **detail):
    last = detail.pop("until", at)
    detail = {"line": 1} | detail | ({} if last is None else {"last": last})
    event = Event(subject, f"xid.{code}", "text", at, clock, detail)
    return Said(event, meaning(code, {}, ""), detail.get("machine", ""), subject, "log")


def spans(found):
    return [(e.first, e.last, len(e.said)) for e in found]


def test_gaps_of_five_seconds_are_merged():
    found = episodes([said(0), said(5), said(10), said(15.1), said(99)])
    assert spans(found) == [(0, 10, 3), (15.1, 15.1, 1), (99, 99, 1)]


def test_an_event_that_goes_on_reaches_as_far_as_it_lasts():
    assert spans(episodes([said(0, until=60), said(64)])) == [(0, 64, 2)]


def test_families_places_machines_clocks_and_boots_are_told_apart():
    one = [said(0, 48), said(1, 63), said(2, 94)]
    assert len(episodes(one)) == 1
    assert len(episodes([*one, said(1, 79)])) == 2
    assert len(episodes([*one, said(1, 48, subject="pci:0000:3b:00.0")])) == 2
    assert len(episodes([*one, said(1, 48, machine="b")])) == 2
    assert len(episodes([*one, said(1, 48, clock="epoch")])) == 2
    assert len(episodes([*one, said(1, 48, boot=1)])) == 2


def test_the_lead_is_the_gravest_and_then_the_earliest():
    (only,) = episodes([said(0, 92), said(1, 63), said(2, 48), said(3, 64), said(4, 95)])
    assert only.lead.event.code == "xid.64"
    (only,) = episodes([said(1, 63), said(0, 48)])
    assert only.lead.event.code == "xid.48"


@pytest.mark.parametrize(("gap", "together"), [(30, True), (30.5, False)])
def test_thirty_seconds_are_near(gap, together):
    first, second = episodes([said(0, 149), said(gap, 145, subject="pci:0000:3b:00.0")])
    assert near(first, second) is together
    assert near(second, first) is together


def test_without_times_all_of_one_file_is_near():
    first, second = episodes([said(None, 149, clock="none"), said(None, 79, clock="none")])
    assert near(first, second)


def test_the_order_of_events_changes_nothing():
    events = [said(t, code) for t in range(0, 90, 3) for code in (31, 48, 149)]
    expected = episodes(events)
    random.Random(7).shuffle(events)
    assert episodes(events) == expected


def test_too_many_are_taken_together_and_counted():
    many = episodes([said(t * 10.0) for t in range(300)])
    assert len(many) == 300
    merged, left = coarse(many, 100)
    assert (len(merged), left, len(merged[0].said)) == (1, 0, 300)
    places = episodes([said(0, subject=f"pci:0000:{i:02x}:00.0") for i in range(120)])
    assert [len(part) if isinstance(part, list) else part for part in coarse(places, 100)] == [
        100, 20
    ]  # fmt: skip


def test_aer_tells_everything_twice():
    assert told([said(0, count=3, stage="received"), said(0, count=3, stage="reported")]) == 3
    assert told([said(0, count=3), said(1)]) == 4
