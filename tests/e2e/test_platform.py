"""The burn `platform`, end to end: healthy racks pass; a fault around the GPUs names its part."""

import pytest

from rackproof.diagnostics.checks import outside
from rackproof.diagnostics.limits import from_record
from rackproof.fixtures.selection import Wish, choose
from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.devices import connect
from rackproof.harness.model import Measurement

RACKS = ("gb300-nvl72", "catalina", "hgx-h100")
# fault, rack, component, action: the subject is that of the fault
ROWS = [
    ("psu-loss@rack0/power/shelf5", "gb300-nvl72", "power", "check-power"),
    ("psu-loss@rack1/power/shelf0", "catalina", "power", "check-power"),
    ("nic-flap@rack0/tray00/nic5:rate=1", "hgx-h100", "nic", "check-cabling"),
    ("nic-flap@rack1/tray17/nic1:rate=1", "catalina", "nic", "check-cabling"),
    ("coolant-loss@rack0/cooling", "gb300-nvl72", "thermal", "check-cooling"),
    ("coolant-loss@rack1/cooling", "catalina", "thermal", "check-cooling"),
]


def burn(cli, rack, *words):
    return cli("burn", rack, "--only", "platform", "--json", *words)


@pytest.mark.parametrize(("fault", "rack", "component", "action"), ROWS)
def test_a_fault_around_the_gpus_is_that_of_its_part(cli, fault, rack, component, action):
    answer = burn(cli, rack, "--plant", fault, "--seed", "4")
    subject = fault.partition("@")[2].partition(":")[0]
    assert (answer.code, answer.json["verdict"]) == (1, "FAIL")
    assert answer.json["planted"][0]["fired"] >= 3
    assert answer.accused() == {subject}
    (root,) = [d for d in answer.json["diagnoses"] if d["role"] == "root"]
    assert (root["component"], root["action"]) == (component, action)
    assert root["persistence"] == "persistent"


@pytest.mark.parametrize("seed", range(6))
def test_a_flap_that_comes_and_goes_is_found_in_the_runs_that_it_strikes(cli, seed):
    answer = burn(cli, "hgx-h100", "--plant", "nic-flap@?", "--seed", str(seed))
    (planted,) = answer.json["planted"]
    if planted["fired"]:
        assert (answer.code, answer.accused()) == (1, {planted["subject"]})
        assert {c["metric"] for c in answer.json["checks"]} == {"nic.flaps"}
    else:
        assert (answer.code, answer.accused()) == (0, set())


def test_air_has_no_coolant_to_lose_and_a_node_no_shelf(cli):
    for fault in ("coolant-loss@?", "psu-loss@?"):
        answer = burn(cli, "hgx-h100", "--plant", fault)
        assert answer.code == 2
        assert "cannot have it" in answer.err


def test_workers_find_what_one_process_finds(cli, tmp_path):
    plants = ("--plant", "nic-flap@?", "--plant", "psu-loss@?:rate=0.5", "--plant", "nic-flap@?")
    words = (
        "burn",
        "gb300-nvl72",
        "--only",
        "platform",
        *plants,
        "--seed",
        "6",
        "--json",
    )
    one = cli(*words, "--out", str(tmp_path / "one")).json
    two = cli(*words, "--out", str(tmp_path / "two"), "-n", "2").json
    for key in ("verdict", "planted", "checks", "diagnoses", "coverage"):
        assert one[key] == two[key], key


@pytest.mark.parametrize("rack", RACKS)
def test_healthy_racks_pass_whatever_the_seed(rack):
    for seed in range(20):
        choice = choose(Wish(rack=rack, seed=seed, level="quick", only=("platform",)))
        limits = from_record(choice.head.limits)
        bench = connect(choice.spec, seed=seed)
        try:
            settings = Settings("quick", seed)
            items = choice.head.items(choice.head.plan[0])
            seen = [s for i in items for s in execute(BURNS["platform"], bench, i, settings)]
        finally:
            bench.close()
        read = [s for s in seen if isinstance(s, Measurement)]
        assert len(read) == len(seen)  # nothing is missing
        assert outside(choice.head, limits, read) == []


def test_a_run_of_it_is_judged_whole(cli):
    answer = burn(cli, "catalina", "--seed", "9", "--level", "acceptance")
    assert (answer.code, answer.json["verdict"]) == (0, "PASS")
    assert answer.json["coverage"]["planned"] == answer.json["coverage"]["judged"] > 400
    assert answer.json["checks"] == []
