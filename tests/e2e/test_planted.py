"""Every planted kind gives its row of the contract's table, and accuses nobody else."""

import pytest

GPU = "rack0/tray00/gpu3"
# fault, who is named, verdict, components, persistence, actions ("" = any)
ROWS = [
    ("hbm-stuck-bit@{gpu}", GPU, "hbm", "persistent", ""),
    ("hbm-stuck-bit@{gpu}:count=2,bits=2", GPU, "hbm", "persistent", ""),
    ("hbm-bit-flip@{gpu}", GPU, "hbm", "transient", ""),
    ("hbm-address-alias@{gpu}", GPU, "hbm", "persistent", ""),
    ("hbm-uncorrectable@{gpu}", GPU, "hbm", "persistent", ""),
    ("row-remap-pending@{gpu}", GPU, "hbm", "", "reset-gpu"),
    ("row-remap-failure@{gpu}", GPU, "hbm", "persistent", "field-diag rma"),
    ("ecc-storm@{gpu}", GPU, "hbm", "persistent", ""),
    ("sm-sdc@{gpu}", GPU, "sm", "persistent", ""),
    ("slow-gpu@{gpu}", GPU, "sm unknown", "persistent", ""),
    ("gpu-lost@{gpu}", GPU, "pcie host unknown", "persistent", ""),
    ("gpu-missing@{gpu}", GPU, "pcie host unknown", "persistent", ""),
    ("wrong-sku@{gpu}", GPU, "host unknown", "persistent", ""),
    ("nvlink-down@{gpu}/link07", f"{GPU}/link07", "nvlink", "persistent", ""),
    ("nvlink-degraded@{gpu}/link07", f"{GPU}/link07", "nvlink", "persistent", "check-cabling"),
    ("nvswitch-down@rack0/switch02", "rack0/switch02", "nvswitch", "persistent", "field-diag"),
    ("fabric-unhealthy@{gpu}", GPU, "fabric", "", ""),
    ("pcie-downtrain@{gpu}", GPU, "pcie", "persistent", "check-cabling"),
    ("thermal-throttle@{gpu}", GPU, "thermal", "persistent", ""),
    ("power-brake@{gpu}", GPU, "power", "persistent", ""),
    ("power-cap-out-of-band@{gpu}", GPU, "power", "persistent", "check-power"),
    ("power-brake@rack0/tray00/host", "rack0/tray00/host", "power", "persistent", "check-power"),
]


@pytest.mark.parametrize(
    ("fault", "who", "component", "lasting", "action"),
    ROWS,
    ids=[row[0].partition("@")[0] + f"-{n}" for n, row in enumerate(ROWS)],
)
def test_a_planted_fault_gives_its_row(cli, fault, who, component, lasting, action):
    answer = cli("burn", "hgx-h100", "--plant", fault.format(gpu=GPU), "--seed", "11", "--json")
    body = answer.json
    assert answer.code == 1
    assert body["verdict"] == "FAIL"
    assert [p["fired"] > 0 for p in body["planted"]] == [True]
    roots = [d for d in body["diagnoses"] if d["role"] == "root"]
    assert [d["subject"] for d in roots] == [who]
    assert roots[0]["component"] in component.split()
    assert not lasting or roots[0]["persistence"] == lasting
    assert not action or roots[0]["action"] in action.split()
    assert roots[0]["because"]
    assert answer.accused() == {who}


def test_a_missing_sensor_accuses_nobody(cli):
    answer = cli("burn", "hgx-h100", "--plant", f"sensor-missing@{GPU}", "--seed", "3", "--json")
    assert answer.code == 3
    assert answer.json["verdict"] == "UNKNOWN"
    assert answer.json["planted"][0]["fired"] > 0
    assert answer.accused() == set()
    assert answer.json["subjects"] == {"PASS": 7, "FAIL": 0, "UNKNOWN": 1}
    unknown = [c for c in answer.json["checks"] if c["metric"] == "temperature"]
    assert unknown
    assert all(c["message"] and c["cure"] for c in unknown)


def test_two_faults_are_told_apart(cli):
    plants = ("--plant", "hbm-stuck-bit@rack0/tray00/gpu1", "--plant", "sm-sdc@rack0/tray00/gpu6")
    answer = cli("burn", "hgx-h100", *plants, "--seed", "5", "--json")
    roots = {d["subject"]: d["component"] for d in answer.json["diagnoses"]}
    assert roots == {"rack0/tray00/gpu1": "hbm", "rack0/tray00/gpu6": "sm"}
    assert answer.accused() == set(roots)


def test_a_stuck_bit_is_not_found_by_looking_at_the_inventory(cli):
    words = ("--plant", f"hbm-stuck-bit@{GPU}", "--only", "inventory", "--seed", "5", "--json")
    answer = cli("burn", "hgx-h100", *words)
    assert (answer.code, answer.json["verdict"]) == (0, "PASS")
    assert answer.json["planted"][0]["fired"] == 0


def test_the_place_of_a_question_mark_is_drawn_from_the_seed(cli):
    words = ("burn", "hgx-h100", "--plant", "sm-sdc@?", "--only", "gemm", "--json", "--seed")
    places = [cli(*words, seed).json["planted"][0]["subject"] for seed in ("1", "1", "2", "3", "4")]
    assert places[0] == places[1]
    assert len(set(places)) > 1


def test_a_brake_on_a_whole_tray_is_the_hosts_once(cli):
    words = ("--plant", "power-brake@rack0/tray11/host", "--seed", "3", "--json")
    answer = cli("burn", "gb300-nvl72", *words)
    roots = [d for d in answer.json["diagnoses"] if d["role"] == "root"]
    victims = [d for d in answer.json["diagnoses"] if d["role"] == "victim"]
    assert [(d["subject"], d["component"], d["action"]) for d in roots] == [
        ("rack0/tray11/host", "power", "check-power")
    ]
    assert {d["subject"] for d in victims} == {f"rack0/tray11/gpu{n}" for n in range(4)}
    assert {(d["case"], d["action"]) for d in victims} == {(roots[0]["case"], "none")}
    assert answer.accused() == {"rack0/tray11/host"}


@pytest.mark.parametrize("metric", ["power", "clock", "ecc"])
def test_a_missing_reading_of_any_sort_is_no_pass(cli, metric):
    words = ("--plant", f"sensor-missing@{GPU}:metric={metric}", "--seed", "3", "--json")
    answer = cli("burn", "hgx-h100", *words)
    assert (answer.code, answer.json["verdict"], answer.accused()) == (3, "UNKNOWN", set())
    assert answer.json["subjects"]["UNKNOWN"] == 1


def test_a_wrong_part_is_named_and_not_its_links(cli):
    answer = cli("burn", "hgx-b200", "--plant", f"wrong-sku@{GPU}", "--seed", "1", "--json")
    assert answer.accused() == {GPU}
    assert answer.json["diagnoses"][0]["component"] == "host"
