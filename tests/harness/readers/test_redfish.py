"""Redfish: health at the part and not at its parents, readings and thresholds, leaks, logs."""

import json

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read
from rackproof.harness.readers.redfish import likeness

POWER, HEAT = ("host:unknown", "power", "check-power"), ("host:unknown", "thermal", "check-cooling")


def part(sort, path, health="OK", state="Enabled", **more):
    """Return a resource of the type `sort` at `path` below /redfish/v1."""
    return {
        "@odata.id": f"/redfish/v1/{path}", "@odata.type": f"#{sort}.v1_5_0.{sort}",
        "Id": path.rpartition("/")[2], "Name": path.rpartition("/")[2],
        "Status": {"State": state, "Health": health}, **more,
    }  # fmt: skip


def sensor(reading, health="OK", kind="Temperature", state="Enabled", **limits):
    thresholds = {name: {"Reading": value} for name, value in limits.items()}
    return part("Sensor", f"Chassis/1/Sensors/s{reading}", health, state, Reading=reading,
                ReadingType=kind, Thresholds=thresholds)  # fmt: skip


def entry(message, severity="Critical", number=1, **more):
    return {"@odata.id": f"/redfish/v1/Systems/1/LogServices/SEL/Entries/{number}",
            "@odata.type": "#LogEntry.v1_9_0.LogEntry", "Id": str(number), "Severity": severity,
            "Created": f"2026-03-04T05:06:{number:02d}Z", "Message": message, **more}  # fmt: skip


def judged(tmp_path, *documents):
    path = tmp_path / "x"
    path.write_text(
        "\n[root@b1 ~]$ curl -k https://bmc/redfish/v1\n".join(map(json.dumps, documents))
    )
    found = read(path)
    judgement = judge_inputs([found])
    roots = [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]
    return found, str(judgement.verdict), roots


PSU = "Chassis/1/PowerSubsystem/PowerSupplies/PSU"
SUPPLIES = [part("PowerSupply", f"{PSU}{n}") for n in range(3)]
SICK = part("PowerSupply", f"{PSU}3", "Critical")
CHASSIS = part("Chassis", "Chassis/1", "Critical")


@pytest.mark.parametrize(
    ("documents", "verdict", "roots"),
    [
        pytest.param(SUPPLIES, "PASS", [], id="all well"),
        pytest.param([*SUPPLIES, SICK], "FAIL", [POWER], id="one critical"),
        pytest.param([{"Members": [*SUPPLIES, SICK], "@odata.type": "#C.C"}], "FAIL", [POWER],
                     id="in a collection"),
        pytest.param([CHASSIS, SICK, part("PowerSubsystem", "Chassis/1/PowerSubsys"
                                                            "tem", "Critical")],
                     "FAIL", [POWER], id="rolled up twice, counted once"),
        pytest.param([part("ComputerSystem", "Systems/1", "Critical"),
                      part("Processor", "Systems/1/Processors/GPU_3", "Critical")], "FAIL",
                     [("gpu3", "unknown", "field-diag")], id="a GPU, and its system"),
        pytest.param([CHASSIS], "FAIL", [("host:unknown", "unknown", "field-diag")],
                     id="a parent alone"),
        pytest.param([part("Chassis", "Chassis/1") | {"Status": {
            "State": "Enabled", "Health": "OK", "HealthRollup": "Warning"}}], "UNKNOWN",
                     [("host:unknown", "unknown", "retest")], id="a part that is not in the file"),
        pytest.param([part("PowerSupply", f"{PSU}4", "Critical", "Absent")], "PASS", [],
                     id="an empty place"),
        pytest.param([*SUPPLIES, part("PowerSupply", f"{PSU}5", None, "Disabled")], "UNKNOWN",
                     [("host:unknown", "power", "watch")], id="a supply that is disabled"),
        pytest.param([part("PowerSupply", f"{PSU}6", LineInputStatus="LossOfInput")], "FAIL",
            [POWER],
                     id="no input"),
        pytest.param([part("Fan", "Chassis/1/ThermalSubsystem/Fans/2", "Warning")], "UNKNOWN",
                     [("host:unknown", "thermal", "watch")], id="a warning"),
        pytest.param([part("LeakDetector", "Chassis/1/ThermalSubsystem/LeakDetection/LeakDetec"
                                           "tors/2",
                           DetectorState="Critical")], "FAIL", [HEAT], id="a leak"),
        pytest.param([part("LeakDetector", "Chassis/1/x/2", DetectorState="OK")], "PASS", [],
                     id="no leak"),
        pytest.param([part("Memory", "Systems/1/Memory/DIMM_A2", "Critical")], "FAIL",
                     [("host:unknown", "host", "field-diag")], id="a DIMM"),
        pytest.param([part("Memory", "Systems/1/Memory/GPU_2_DRAM_0", "Critical")], "FAIL",
                     [("gpu2", "hbm", "field-diag")], id="a GPU's memory"),
        pytest.param([part("Port", "Systems/1/Processors/GPU_5/Ports/NVLin"
                                   "k_7", "Critical")], "FAIL",
                     [("gpu5", "nvlink", "check-cabling")], id="a link"),
        pytest.param([part("Drive", "Systems/1/Storage/1/Drives/4", "Critical"),
                      part("Storage", "Systems/1/Storage/1", "Critical")], "FAIL",
                     [("host:unknown", "storage", "field-diag")], id="a drive"),
    ],
)  # fmt: skip
def test_health(tmp_path, documents, verdict, roots):
    found, *judgement = judged(tmp_path, *documents)
    assert found.kind == "redfish"
    assert judgement == [verdict, roots]


@pytest.mark.parametrize(
    ("one", "verdict", "silent"),
    [
        (sensor(41.5, UpperCritical=90, LowerCritical=5), "PASS", 0),
        (sensor(93, UpperCritical=90), "FAIL", 0),
        (sensor(93, UpperCritical=None), "PASS", 0),
        (sensor(93, UpperCritical=0, LowerCritical=0), "PASS", 0),
        (sensor(None, UpperCritical=90), "UNKNOWN", 1),
        (sensor(None, None, state="Absent", UpperCritical=90), "PASS", 0),
        (sensor(255), "UNKNOWN", 1),
        (sensor(10.1, kind="Voltage", LowerCritical=10.8), "FAIL", 0),
        (sensor(0, kind="Power"), "PASS", 0),
    ],
    ids=["inside", "too hot", "no limit", "limits not set", "null", "absent", "a byte of all ones",
         "too low", "zero watts"],
)  # fmt: skip
def test_readings(tmp_path, one, verdict, silent):
    found, got, _ = judged(tmp_path, one)
    assert (got, len(found.missing)) == (verdict, silent)


def test_the_older_power_and_thermal(tmp_path):
    old = {"@odata.id": "/redfish/v1/Chassis/1/Thermal", "Temperatures": [
        {"Name": "CPU", "ReadingCelsius": 99, "UpperThresholdCriti"
                                              "cal": 95, "Status": {"State": "Enabled"}},
        {"Name": "GPU", "ReadingCelsius": None, "Status": {"State": "Absent"}}], "Fans": [
        {"Name": "F1", "Reading": 40, "Status": {"State": "Enabled", "Health": "OK"}}]}  # fmt: skip
    found, *judgement = judged(tmp_path, old)
    assert found.records == 3
    assert judgement == ["FAIL", [HEAT]]


@pytest.mark.parametrize(
    ("entries", "verdict", "roots"),
    [
        ([entry("Log cleared.", "OK"), entry("Power button pressed.", "OK", 2)], "PASS", []),
        ([entry("Power supply PSU2 has failed.")], "FAIL", [POWER]),
        ([entry("Power supply PSU2 has failed.", Resolved=True)], "UNKNOWN",
         [("host:unknown", "power", "watch")]),
        ([entry("Power supply PSU2 input lost.", "Warning"),
          entry("Power supply PSU2 input lost has been cleared.", "OK", 2)], "PASS", []),
        ([entry("GPU 3 reported Xid 79.")], "FAIL", [("gpu3", "pcie", "reboot-node")]),
        ([entry("GPU 3 reported Xid 31.")], "PASS", [("gpu3", "app", "restart-app")]),
        ([entry("Something that no table knows.")], "UNKNOWN",
         [("host:unknown", "unknown", "retest")]),
        ([entry("A certificate will expire.", "Warning")], "PASS", []),
    ],
    ids=["no faults", "a supply", "resolved", "taken back", "Xid 79", "Xid 31", "unknown",
        "a note"],
)  # fmt: skip
def test_logs(tmp_path, entries, verdict, roots):
    found, *judgement = judged(
        tmp_path, {"Members": list(reversed(entries)), "@odata.type": "#C.C"}
    )
    assert found.records == len(entries)
    assert judgement == [verdict, roots]


@pytest.mark.parametrize(
    "created", ["1970-01-01T00:00:07Z", "soon", None, 9e99, "9999-99-99T00:00:00Z"]
)
def test_nonsense_is_no_time(tmp_path, created):
    found, verdict, _ = judged(tmp_path, entry("PSU1 failed.", Created=created))
    assert [(e.at, e.clock) for e in found.events] == [(None, "none")]
    assert verdict == "FAIL"


@pytest.mark.parametrize(
    "text",
    ["", '{"Members": [{"@odata.id": "/redfish/v1/Chassis/1"}]}',
     '{"error": {"@Message.ExtendedInfo": [{"MessageId": "Base.1.0.NoValidSession"}]}}',
     json.dumps(SUPPLIES[0])[:-40], json.dumps({"a": SUPPLIES[0]["@odata.id"]}) + "[" * 99_999],
    ids=["nothing", "links alone", "refused", "cut", "too deep"],
)  # fmt: skip
def test_what_was_not_read_does_not_pass(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    assert judge_inputs([read(path)]).verdict == "UNKNOWN"


def test_a_system_names_its_host_and_a_gpu_its_serial(tmp_path):
    system = part("ComputerSystem", "Systems/1", HostName="n17")
    gpu = part(
        "Processor", "Systems/1/Processors/GPU_SXM_4", "Critical", SerialNumber="1650000000001"
    )
    found, verdict, roots = judged(tmp_path, system, gpu)
    assert (found.host, found.serials) == ("n17", {"gpu-sxm4": "1650000000001"})
    assert (verdict, roots) == ("FAIL", [("gpu-sxm4", "unknown", "field-diag")])


@pytest.mark.parametrize(
    "text", ['{"Status": {"Health": "OK"}}', "see /redfish/v1/Chassis for more\n", '{"@odata": 1}']
)
def test_other_files_are_not_taken(text):
    assert likeness(text.encode()) == 0


def test_one_sensor_of_many_may_be_silent(tmp_path):
    assert judged(tmp_path, sensor(None), sensor(40))[1] == "PASS"


def dell(message, way, number, **more):
    severity = "OK" if way == "Deassert" else "Critical"
    return entry(message, severity, number, EntryCode=way, SensorType="Power Supply", **more)


@pytest.mark.parametrize(
    ("entries", "verdict", "action"),
    [
        ([dell("The power input for power supply 1 is lost.", "Assert", 1, SensorNumber=77),
          dell("Power supply 1 is operating normally.", "Deassert", 2, SensorNumber=77)],
         "PASS", None),
        ([dell("Power supply 1 failed.", "Assert", 1, SensorNumber=77),
          dell("Power supply 1 is operating normally.", "Deassert", 2, SensorNumber=77)],
         "UNKNOWN", "watch"),
        ([dell("Power supply 1 failed.", "Assert", 1, SensorNumber=77),
          dell("Power supply 2 is operating normally.", "Deassert", 2, SensorNumber=78)],
         "FAIL", "check-power"),
        ([dell("Power supply 1 is operating normally.", "Deassert", 1, SensorNumber=77),
          dell("Power supply 1 failed.", "Assert", 2, SensorNumber=77)], "FAIL", "check-power"),
        ([dell("The power input for power supply 1 is lost.", "Assert", 1),
          dell("The input power for power supply 1 has been restored.", "Deassert", 2)],
         "PASS", None),
        ([dell("The power input for power supply 1 is lost.", "Assert", 1),
          dell("The input power for power supply 2 has been restored.", "Deassert", 2)],
         "FAIL", "check-power"),
    ],
    ids=["input is back", "is well again", "another one", "failed again", "by its words",
         "another by its words"],
)  # fmt: skip
def test_a_supply_that_is_well_again(tmp_path, entries, verdict, action):
    _, got, roots = judged(tmp_path, {"Members": entries, "@odata.type": "#C.C"})
    assert (got, [root[2] for root in roots]) == (verdict, [action] if action else [])


ORIGIN = {"OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/B/Processors/GPU_SXM_6"}}
ECC = "The GPU has detected errors of type 'Uncorrectable {}ECC Error'."


@pytest.mark.parametrize(
    ("message", "root"),
    [("Errors of type 'XID 79: fallen off the bus'.", ("gpu-sxm6", "pcie", "reboot-node")),
     (ECC.format(""), ("gpu-sxm6", "hbm", "field-diag")),
     (ECC.format("SRAM "), ("gpu-sxm6", "sram", "field-diag"))],
)  # fmt: skip
def test_an_entry_is_at_its_origin(tmp_path, message, root):
    found, verdict, roots = judged(tmp_path, entry(message, Links=ORIGIN))
    assert (verdict, roots) == ("FAIL", [root])
    assert found.events[0].text.startswith("GPU_SXM_6: ")


@pytest.mark.parametrize("what", ["", "SRAM "])
def test_a_processors_ecc_error_is_its_memorys(tmp_path, what):
    gpu = part("Processor", "Systems/B/Processors/GPU_SXM_6", "Critical", ProcessorType="GPU")
    gpu |= {"Name": "Processor"}
    gpu["Status"]["Conditions"] = [{"Message": ECC.format(what)}]
    found, _, roots = judged(tmp_path, gpu)
    assert roots == [("gpu-sxm6", "sram" if what else "hbm", "field-diag")]
    assert found.events[0].text.startswith("Processor GPU_SXM_6: ")


@pytest.mark.parametrize(
    ("rows", "verdict", "roots"),
    [({"RowRemappingFailed": True}, "FAIL", [("gpu-sxm6", "hbm", "rma")]),
     ({"RowRemappingFailed": False, "RowRemappingPending": True}, "FAIL",
      [("gpu-sxm6", "hbm", "reset-gpu")]),
     ({"RowRemappingFailed": False, "RowRemapping": {"UncorrectableRowRemappingCount": 1}},
      "PASS", [])],
    ids=["failed", "pending", "well"],
)  # fmt: skip
def test_metrics_of_a_gpus_memory(tmp_path, rows, verdict, roots):
    metrics = {
        "@odata.id": "/redfish/v1/Systems/B/Memory/GPU_SXM_6_DRAM_0/MemoryMetrics",
        "@odata.type": "#MemoryMetrics.v1_7_0.MemoryMetrics", "Oem": {"Nvidia": rows},
    }  # fmt: skip
    found, *judgement = judged(tmp_path, metrics)
    assert (found.records, judgement) == (1, [verdict, roots])
