"""The drills of the power zone on the racks that have one; the Dimmer on, and off."""

import pytest

from rackproof.diagnostics.drills import power
from rackproof.diagnostics.drills.table import DRILLS
from rackproof.fixtures.drill import hold, rack_of
from rackproof.fixtures.power_notes import Notes
from rackproof.fixtures.power_rack import TICK_S, PowerRack
from rackproof.fixtures.stage import Asked, Silence
from rackproof.harness.spec import load

SEED = 11
RACKS = ("gb200-nvl72", "gb300-nvl72", "catalina")
SIX = [
    "overload-detected", "dimmer-acts", "bbu-cbu-respond", "bess-utility-coordinate",
    "power-ramped", "continued",
]  # fmt: skip
CRITERIA = [f"DD{number}" for number in range(1, 14)]


def held(drill, folder, rack, seed=SEED, **more):
    found = hold(Asked(drill, rack_of(drill, rack), seed, folder, **more), Silence())
    told = [f"{each.verdict} {each.id}: {each.message}" for each in found.recovery.claims]
    return found.recovery.as_json(), "\n".join([found.remark, *told])


@pytest.mark.slow
@pytest.mark.parametrize("rack", RACKS)
def test_power_dim_shows_all_of_its_criteria(tmp_path, rack):
    body, told = held(DRILLS["power-dim"], tmp_path / "run", rack)
    assert (body["verdict"], body["proof"], body["restarts"]) == ("PASS", "L4", 0), told
    judged = {claim["id"].partition(" ")[0]: claim["verdict"] for claim in body["claims"]}
    assert [judged[each] for each in CRITERIA] == ["PASS"] * 13, told
    words = [moment["what"] for moment in body["timeline"]]
    assert words[:6] == SIX
    assert len(words) % 6 == 0
    assert body["ledger"]["dimmed"] > 0.01
    assert sum(body["ledger"].values()) == pytest.approx(1.0)
    control = next(claim for claim in body["claims"] if claim["id"].startswith("DD12"))
    assert "tripped after" in control["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rack"),
    [
        ("ac-loss", "catalina"),
        ("utility-ramp", "gb300-nvl72"),
        ("sensor-loss", "gb200-nvl72"),
        ("coolant-loss", "catalina"),
        ("coolant-loss", "gb300-nvl72"),
    ],
)
def test_a_drill_of_one_event_passes(tmp_path, name, rack):
    body, told = held(DRILLS[name], tmp_path / "run", rack)
    assert (body["verdict"], body["proof"]) == ("PASS", "L4"), told


@pytest.mark.slow
@pytest.mark.parametrize(("number", "rack"), list(enumerate(RACKS)))
def test_drawn_events_end_without_a_trip_or_a_cap_and_with_the_same_bits(tmp_path, number, rack):
    """Ten on each rack, thirty in all; `make prove` draws a thousand."""
    body, told = held(power.random_events(number, 10), tmp_path / "run", rack)
    assert (body["verdict"], body["proof"]) == ("PASS", "L4"), told


def tripped(rack, folder, cut, within):
    """Lower a rack's limit with nobody there to act; return when its breaker trips, in seconds."""
    with PowerRack(load(rack), SEED, folder, ()) as house:
        house.advance(20.0)
        house.note(Notes(lambda **_: None, "control", house.jobs))
        feed = house.racks()[0]
        watts = (1.0 - cut) * house.steady(feed)
        begun = house.now
        house.limit(feed, watts)
        while feed not in house.house.tripped and house.now - begun < within:
            house.advance(4 * TICK_S)
        return house.now - begun if feed in house.house.tripped else None


@pytest.mark.parametrize("rack", RACKS)
def test_with_the_dimmer_off_the_same_event_trips_the_breaker(tmp_path, rack):
    assert tripped(rack, tmp_path / "lower", power.SMALL, 600.0) is not None
    assert tripped(rack, tmp_path / "higher", -0.1, 60.0) is None


@pytest.mark.parametrize(
    ("name", "rack", "why"),
    [
        ("power-dim", "hgx-h100", "no power shelves"),
        ("coolant-loss", "hgx-h200", "cooled by air"),
    ],
)
def test_what_a_rack_cannot_hold_is_refused(cli, name, rack, why):
    found = cli("drill", name, rack, "--json")
    assert found.code == 2
    assert why in found.err


def test_too_few_steps_are_refused_with_the_number_that_is_needed(cli, tmp_path):
    found = cli("drill", "utility-ramp", "--steps", "20", "--out", str(tmp_path / "run"))
    assert found.code == 2
    assert "needs at least" in found.err


def test_a_command_cannot_be_dimmed(cli):
    found = cli("drill", "power-dim", "--", "true")
    assert found.code == 2
    assert "cannot be held on a command" in found.err


def test_the_drills_are_listed(cli):
    found = cli("list", "drills", "--json").json
    names = [item["name"] for item in found["items"]]
    assert names[-5:] == ["power-dim", "ac-loss", "utility-ramp", "sensor-loss", "coolant-loss"]
