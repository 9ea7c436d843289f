"""What stands around emulated GPUs: healthy figures, clocks of their own, and planted faults."""

import pytest

from rackproof.fixtures.plant import plant
from rackproof.harness.devices import connect
from rackproof.harness.faults import parse_all
from rackproof.harness.spec import build, load

RACK = build(
    b"""
[rack]
name = "site"
source = "emulated"
[[tray]]
count = 2
gpus = 2
nics = 2
[[tray]]
rack = 1
count = 1
gpus = 2
nics = 4
nic_rate = 200
[gpu]
sku = "gb300"
[fabric]
switches = 2
[power]
shelves = 3
uncappable_kw = 6
[cooling]
kind = "flc"
""",
    "site.toml",
)
SHELVES = [f"rack0/power/shelf{n}" for n in range(3)]
NIC, OTHER = "rack0/tray01/nic1", "rack0/tray00/nic0"
COOLING = "rack0/cooling"


@pytest.fixture
def stand():
    """``stand("nic-flap@...", seed=3)``: a bench with these faults, and their account."""
    made = []

    def stood(*texts, seed=7, fired=None):
        bench = connect(RACK, seed=seed)
        made.append(bench)
        return bench, plant(bench, parse_all(texts, RACK, seed), horizon_s=20.0, fired=fired)

    yield stood
    for bench in made:
        bench.close()


def watch(bench, metric, subject, attempt=1, check="platform", at=0.0):
    """Read, wait, and read again in a run of its own; return by how much it rose."""
    host = bench.around
    host.begin(check, attempt, at)
    before = host.read(metric, subject)
    host.wait(1.5)
    after = host.read(metric, subject)
    host.end()
    return after - before


def ask(bench, *keys, attempt=1, at=0.0):
    host = bench.around
    host.begin("platform", attempt, at)
    found = [host.read(*key) for key in keys]
    host.end()
    return found


# --- healthy -------------------------------------------------------------------------------------
def test_ports_have_the_rate_of_the_gpus_they_serve_or_of_the_file(stand):
    bench, _ = stand()
    assert ask(bench, ("nic.speed", NIC), ("nic.speed", "rack1/tray00/nic3")) == [800, 200]


def test_shelves_share_what_the_rack_draws(stand):
    bench, _ = stand()
    idle = 6000 + 4 * 180.4
    for watts in ask(bench, *(("shelf.output", shelf) for shelf in SHELVES)):
        assert watts == pytest.approx(idle / 3, rel=0.01)


def test_a_load_is_seen_at_the_shelves_and_goes_with_it(stand):
    bench, _ = stand()
    device = bench.devices["rack0/tray00/gpu0"]
    device.begin("power.steady", 1)
    (idle,) = ask(bench, ("shelf.output", SHELVES[0]))
    device.plane.load(1.0)
    device.wait(5.0)
    (busy,) = ask(bench, ("shelf.output", SHELVES[0]))
    device.end()
    assert 250 < busy - idle < 450  # a third of what one GPU takes more
    assert ask(bench, ("shelf.output", SHELVES[0])) == [idle]
    assert ask(bench, ("shelf.output", "rack1/power/shelf0"))[0] < idle


def test_what_is_said_depends_on_seed_run_and_subject_alone(stand):
    keys = [("shelf.output", SHELVES[0]), ("cooling.flow", COOLING), ("cooling.supply", COOLING)]
    one, two, other = stand()[0], stand()[0], stand(seed=8)[0]
    ask(two, ("nic.flaps", OTHER))
    ask(two, *reversed(keys), attempt=2)
    assert ask(one, *keys) == ask(two, *keys)
    assert ask(one, *keys, attempt=2) != ask(one, *keys)
    assert ask(other, *keys) != ask(one, *keys)


def test_counters_begin_above_zero_somewhere_and_stand_still():
    bench = connect(load("hgx-h100"), seed=1)
    nics = bench.spec.of_sort("nic")
    assert any(ask(bench, *(("nic.flaps", nic) for nic in nics)))
    assert [watch(bench, "nic.flaps", nic) for nic in nics] == [0] * 8
    bench.close()


# --- faults --------------------------------------------------------------------------------------
def test_the_others_carry_what_a_lost_supply_gave(stand):
    bench, planted = stand(f"psu-loss@{SHELVES[1]}")
    healthy, _ = stand()
    keys = [("shelf.output", shelf) for shelf in SHELVES]
    shares = [a / b for a, b in zip(ask(bench, *keys), ask(healthy, *keys), strict=True)]
    assert shares == pytest.approx([18 / 17, 15 / 17, 18 / 17])
    read = [(m, s) for s in SHELVES for m in ("shelf.health", "shelf.supplies.bad")]
    assert ask(bench, *read) == ["ok", 0, "warning", 1, "ok", 0]
    assert planted.fired == [2]


def test_a_flap_is_one_drop_in_a_run_and_on_no_other_port(stand):
    bench, planted = stand(f"nic-flap@{NIC}:rate=1")
    assert [watch(bench, "nic.flaps", NIC, n) for n in (1, 2)] == [1, 1]
    assert [watch(bench, "nic.flaps", nic, 3) for nic in (OTHER, "rack0/tray01/nic0")] == [0, 0]
    assert ask(bench, ("nic.link", NIC)) == [1]
    assert planted.fired == [2]


def test_a_flap_that_nobody_looks_for_has_not_fired(stand):
    bench, planted = stand(f"nic-flap@{NIC}:rate=1")
    assert watch(bench, "nic.link", NIC) == 0
    ask(bench, ("nic.flaps", NIC))  # no time passes in the run
    watch(bench, "nic.flaps", OTHER)
    assert planted.fired == [0]


def test_the_runs_that_a_flap_strikes_in_are_those_of_the_run_alone(stand):
    def strikes(order, nic=NIC):
        bench, _ = stand(f"nic-flap@{NIC}")
        return {n: watch(bench, "nic.flaps", nic, n) for n in order}

    once = strikes(range(1, 41))
    assert 4 <= sum(once.values()) <= 22
    assert strikes(range(40, 0, -1)) == once


def test_once_is_over_after_the_run_that_felt_it(stand):
    bench, planted = stand(f"nic-flap@{NIC}:rate=1,lasts=once")
    assert [watch(bench, "nic.flaps", NIC, n) for n in (1, 2, 3)] == [1, 0, 0]
    assert planted.fired == [1]
    resumed, after = stand(f"nic-flap@{NIC}:rate=1,lasts=once", fired=[1])
    assert watch(resumed, "nic.flaps", NIC) == 0
    assert after.fired == [1]


def test_seconds_are_those_of_the_parts_own_clock(stand):
    bench, _ = stand(f"psu-loss@{SHELVES[0]}:lasts=10")
    key = ("shelf.supplies.bad", SHELVES[0])
    assert [ask(bench, key, attempt=n, at=at) for n, at in ((1, 0), (2, 9.5), (3, 10))] == [
        [1], [1], [0],
    ]  # fmt: skip
    assert ask(bench, key, attempt=4, at=0) == [0]  # time does not go back


def test_the_cooling_of_one_rack_stops_and_not_of_the_other(stand):
    bench, planted = stand(f"coolant-loss@{COOLING}")
    names = ("cooling.health", "cooling.pumps.bad", "cooling.flow", "cooling.leak")
    assert ask(bench, *((name, COOLING) for name in names)) == ["critical", 2, 0.0, 0]
    other = ask(bench, *((name, "rack1/cooling") for name in names))
    assert (other[0], other[1], other[3]) == ("ok", 0, 0)
    assert other[2] > 1
    assert planted.fired[0] >= 1


@pytest.mark.parametrize("rack", ["gb300-nvl72", "catalina"])
def test_the_coolant_can_be_stopped_and_started(rack):
    bench = connect(load(rack), seed=1)
    unit = bench.backing.rack.facility.cooling(COOLING)
    unit.stop()
    assert ask(bench, ("cooling.flow", COOLING)) == [0.0]
    unit.start()
    assert ask(bench, ("cooling.health", COOLING)) == ["ok"]
    with pytest.raises(TypeError):
        bench.backing.rack.facility.cooling("rack0/power/shelf0")
    bench.close()
