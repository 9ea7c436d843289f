"""Event logs and sensors of a controller: what stands, what is over, and what is no fault."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read
from rackproof.harness.readers.ipmi import likeness

POWER, HEAT = ("power", "check-power"), ("thermal", "check-cooling")
HOST, WATCH = ("host", "field-diag"), ("host", "watch")


def sel(*rows, day="03/04/2026"):
    """Return ipmitool's list; a row is (sensor, event[, direction])."""
    return "".join(
        f"{number:4x} | {day} | 10:{number:02d}:30 | {sensor} | {event} | {(*way, 'Asserted')[0]}\n"
        for number, (sensor, event, *way) in enumerate(rows, start=9)
    )


def judged(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text)
    found = read(path)
    judgement = judge_inputs([found])
    return found, str(judgement.verdict), [(d.component, d.action) for d in judgement.diagnoses]


@pytest.mark.parametrize(
    ("rows", "verdict", "roots"),
    [
        ([("Power Supply #0x51", "Presence detected"), ("Button #0x1", "Power Button pressed")],
         "PASS", []),
        ([("System Event #0x83", "Timestamp Clock Sync"), ("Drive Slot #0x60", "Drive Present")],
         "PASS", []),
        ([("Power Supply #0x52", "Power Supply AC lost")], "FAIL", [POWER]),
        ([("Power Supply #0x52", "Power Supply AC lost"),
          ("Power Supply #0x52", "Power Supply AC lost", "Deasserted")], "PASS", []),
        ([("Power Supply #0x52", "Power Supply AC lost"),
          ("Power Supply #0x53", "Power Supply AC lost", "Deasserted")], "FAIL", [POWER]),
        ([("Power Supply #0x52", "Failure detected ()")], "FAIL", [POWER]),
        ([("Power Supply #0x52", "Failure detected ()"),
          ("Power Supply #0x52", "Failure detected ()", "Deasserted")], "UNKNOWN",
         [("power", "watch")]),
        ([("Power Unit #0x60", "Redundancy Lost"), ("Power Unit #0x60", "Fully Redundant")],
         "UNKNOWN", [("power", "watch")]),
        ([("Power Unit #0x60", "Fully Redundant", "Deasserted")], "FAIL", [POWER]),
        ([("Voltage P12V", "Lower Critical going low")], "FAIL", [POWER]),
        ([("Voltage P12V", "Lower Non-critical going low")], "PASS", []),
        ([("Temperature CPU0", "Upper Critical going high")], "FAIL", [HEAT]),
        ([("Temperature CPU0", ("Upper Non-critical going h"
                               "igh"))], "UNKNOWN", [("thermal", "watch")]),
        ([("Fan FAN3", "Lower Critical going low")], "FAIL", [HEAT]),
        ([("Memory #0x87", "Uncorrectable ECC (DIMM_B2)")], "FAIL", [HOST]),
        ([("Memory #0x87", "Correctable ECC (DIMM_B2)")], "UNKNOWN", [WATCH]),
        ([("Drive Slot #0x60", "Drive Fault")], "FAIL", [("storage", "field-diag")]),
        ([("Drive Slot #0x60", "Predictive Failure")], "UNKNOWN", [("storage", "watch")]),
        ([("Critical Interrupt #0x3", "Bus Fatal Error")], "FAIL", [("pcie", "check-cabling")]),
        ([("Processor #0x5", "IERR")], "FAIL", [HOST]),
        ([("Watchdog2 #0xca", "Hard reset")], "UNKNOWN", [WATCH]),
    ],
    ids=lambda value: value[-1][1].split(" (")[0] if isinstance(value, list) and value
    and len(value[-1]) > 1 and isinstance(value[-1], tuple) else "",
)  # fmt: skip
def test_events(tmp_path, rows, verdict, roots):
    found, *judgement = judged(tmp_path, sel(*rows))
    assert (found.kind, found.records) == ("ipmi", len(rows))
    assert judgement == [verdict, roots]


def test_one_event_in_two_dialects_counts_once(tmp_path):
    text = "  4f | 07/08/25 | 11:12:13 CEST | Memory #0x31 | Correctable ECC (B4) | Asserted\n"
    text += "004f 07/08/25 11:12:13 MIN BIOS  Memory #31  Correctable ECC, DIMM(7) 6f [a0 00 11]\n"
    found, verdict, _ = judged(tmp_path, text)
    assert (found.records, len(found.events), verdict) == (1, 1, "UNKNOWN")
    (event,) = found.events
    assert event.at == 1751965933.0  # 2025-07-08 09:12:13 UTC: two digits of a year, and a zone


@pytest.mark.parametrize(
    "stamp", ["01/01/1970 | 00:00:41", "Pre-Init  |0000000041", "99/99/26 | 10:00:00"]
)
def test_a_clock_that_was_never_set_is_no_time(tmp_path, stamp):
    found, verdict, roots = judged(
        tmp_path, f" 1 | {stamp} | Fan #0x3 | Failure detected | Asserted\n"
    )
    assert [(e.at, e.clock) for e in found.events] == [(None, "none")]
    assert (verdict, roots) == ("FAIL", [HEAT])


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        ("CPU Temp         | 45 degrees C      | ok\nFAN1             | 9100 RPM          | ok\n",
         "PASS", []),
        ("CPU Temp         | 45 degrees C      | ok\nFAN1             | 0 RPM             | cr\n",
         "FAIL", [HEAT]),
        ("CPU Temp         | 45 degrees C      | ok\nFAN1             | no reading        | ns\n",
         "PASS", []),
        ("CPU Temp         | no reading        | ns\nFAN1             | disabled          | ns\n",
         "UNKNOWN", []),
        (("PS1 Status       | C8h | ok  | 10.1 | Presence detected\n"
         "PS2 Status       | C9h | ok  | 10.2 | Presence detected, Failure detected\n"),
         "FAIL", [POWER]),
        (("P12V             | 12.1       | Volts      | ok    | na        | 10.8      | 11.1   "
         "   | 12.9      | 13.2      | na\n"
         "Inlet Temp       | na         | degrees C  | na    | na        | na        | na     "
         "   | 40.0      | 45.0      | na\n"),
         "PASS", []),
        (("P12V             | 10.2       | Volts      | lcr   | na        | 10.8      | 11.1   "
         "   | 12.9      | 13.2      | na\n"
         "SEL              | 0x0        | discrete   | 0x0080| na        | na        | na     "
         "   | na        | na        | na\n"),
         "FAIL", [POWER]),
    ],
    ids=["sdr", "a fan stands", "one is silent", "all are silent", "elist", "sensor",
        "low voltage"],
)  # fmt: skip
def test_sensors(tmp_path, text, verdict, roots):
    found, *judgement = judged(tmp_path, text)
    assert (found.kind, found.records) == ("ipmi", 2)
    assert judgement == [verdict, roots]


@pytest.mark.parametrize(
    ("text", "verdict", "worked"),
    [("SEL has no entries\n", "PASS", True),
     ("Could not open device at /dev/ipmi0 or /dev/ipmi/0: No such file or directory\n",
      "UNKNOWN", False)],
    ids=["an empty log", "no controller"],
)  # fmt: skip
def test_nothing_to_list(tmp_path, text, verdict, worked):
    found, got, roots = judged(tmp_path, text)
    assert (found.worked, got, roots) == (worked, verdict, [])


@pytest.mark.parametrize(
    "text",
    ["| a | b | c |\n|---|---|---|\n| 1 | 2 | ok |\n", "time | level | message\n1 | 2 | 3\n",
     "[   12.000001] ipmi_si: Unable to find any System Interface(s)\n", "x | y | okay\n" * 9],
    ids=["markdown", "a log with bars", "a kernel's line", "three columns"],
)  # fmt: skip
def test_other_files_are_not_taken(text):
    assert likeness(text.encode()) == 0


def test_a_record_of_raw_bytes_alone_says_nothing(tmp_path):
    text = "004f 07/08/25 11:12:13 MIN BIOS      6f [a0 00 11]\n"
    found, verdict, _ = judged(tmp_path, text + sel(("Button #0x1", "Power Button pressed")))
    assert (found.kind, found.records, found.events, verdict) == ("ipmi", 2, (), "PASS")


VERBOSE = """SEL Record ID          : 00{}
 Record Type           : 02
 Timestamp             : 03/04/2026 05:06:0{}
 Sensor Type           : Power Supply
 Sensor Number         : c8
 Event Type            : Sensor-specific Discrete
 Event Direction       : {} Event
 Description           : Power Supply AC lost

"""


@pytest.mark.parametrize(
    ("row", "at"),
    [
        ("  2a | 03/04/2026 | 05:06:07 AM UTC | Memory DIMM_C1 | Uncorrectable ECC | Asserted", 0),
        ("  2a | 03/04/2026 | 05:06:07 PM | Memory DIMM_C1 | Uncorrectable ECC | Asserted", 43200),
        ("  2a | 03/04/2026 | 12:06:07 AM | Memory DIMM_C1 | Uncorrectable ECC | Asserted", -18000),
        ("  2a | 2026-03-04 | 05:06:07 | Memory DIMM_C1 | Uncorrectable ECC | Asserted", 0),
        ("  2a | 2026-03-04 | 05:06:07 CET | Memory DIMM_C1 | Uncorrectable ECC | Asserted", -3600),
        ("  2a | 04.03.2026 | 05:06:07 | Memory DIMM_C1 | Uncorrectable ECC | Asserted", 0),
        ("  2a | 04.03.26 | 05:06:07 +01:00 | Memory A1 | Uncorrectable ECC | Asserted", -3600),
        ("2a,03/04/2026,05:06:07,Memory DIMM_C1,Uncorrectable ECC,Asserted", 0),
        ("2a,2026-03-04,05:06:07 UTC,Memory DIMM_C1,Uncorrectable ECC,Asserted", 0),
    ],
    ids=["AM", "PM", "midnight", "ISO", "a zone", "German", "an offset", "csv", "csv and ISO"],
)  # fmt: skip
def test_times_of_all_locales(tmp_path, row, at):
    path = tmp_path / "x"
    path.write_text(row + "\n")
    found = read(path)
    (event,) = found.events
    assert (found.kind, event.code) == ("ipmi", "bmc.memory.uncorrected")
    assert event.at == 1772600767.0 + at


@pytest.mark.parametrize(
    ("ways", "codes"),
    [(("Assertion",), ["bmc.power.input"]), (("Assertion", "Deassertion"), [])],
    ids=["stands", "is over"],
)
def test_a_verbose_event_log(tmp_path, ways, codes):
    path = tmp_path / "x"
    path.write_text("".join(VERBOSE.format(f"0{i}", i, way) for i, way in enumerate(ways, 1)))
    found = read(path)
    assert (found.kind, found.records) == ("ipmi", len(ways))
    assert [event.code for event in found.events] == codes


SENSOR = "{:<16} | 0x0        | discrete   | {}| na | na | na | na | na | na\n"
SDR = "{:<16} | {} | ok\n"


@pytest.mark.parametrize(
    ("name", "bits", "code"),
    [
        ("PS2 Status", 0x01, None), ("PSU1_Status", 0x81, None), ("PS2 Status", 0x00, None),
        ("PS2 Status", 0x09, "bmc.power.input"), ("PSU 2", 0x11, "bmc.power.input"),
        ("PS1 Status", 0x03, "bmc.power.supply"), ("PS1 Status", 0x0B, "bmc.power.supply"),
        ("PS1 Status", 0x05, "bmc.power.warning"), ("PS1 Status", 0x02, None),
        ("PS Redundancy", 0x01, None), ("PS Redundancy", 0x02, "bmc.power.redundancy"),
        ("CPU1 Status", 0x80, None), ("CPU1 Status", 0x81, "bmc.cpu"), ("CPU1 Status", 0x01, None),
        ("Drive 3", 0x01, None), ("Drive 3", 0x03, "bmc.storage.drive"),
        ("Chassis Intru", 0x03, None),
    ],
)  # fmt: skip
def test_bits_of_discrete_sensors(tmp_path, name, bits, code):
    path = tmp_path / "x"
    for row in (SENSOR.format(name, f"0x{bits:02x}80"), SDR.format(name, f"0x{bits:02x}")):
        path.write_text(SDR.format("FAN7", "9000 RPM") + SDR.format("FAN8", "9000 RPM") + row)
        found = read(path)
        assert (found.kind, found.records) == ("ipmi", 3)
        assert [event.code for event in found.events] == ([code] if code else [])


def test_events_in_no_known_form_are_said(tmp_path):
    path = tmp_path / "x"
    row = "  1 | 03/04/2026 | 05:06:07 | Memory DIMM_C1 | Correctable ECC | Asserted\n"
    path.write_text(row + "  2 | the fourth of March | at noon | Memory DIMM_C1 | Bad | Asserted\n")
    found = read(path)
    assert (found.records, found.cut) == (1, True)
    assert "1 lines look like events" in found.problems[0]
    assert str(judge_inputs([found]).verdict) == "UNKNOWN"
