"""Files: a boot that did not help, hours between, and earlier cases of the part are evidence."""

from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Event
from rackproof.harness.readers.reading import Reading

PCI, HOUR = "pci:0000:3b:00.0", 3600.0
START = 1_790_000_000.0
DBE = "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) in the framebuffer"


def xid(at, code=48, clock="epoch", text=DBE, **detail):
    return Event(PCI, f"xid.{code}", f"Xid {code}: {text}", at=at, clock=clock, detail=detail)


def reading(*events, name="kern.log", serial="1650000042"):
    return Reading(
        path=Path(name), kind="kernel-log", records=100, events=tuple(events),
        serials={PCI: serial} if serial else {},
    )  # fmt: skip


def root_of(*readings, told=()):
    (root,) = judge_inputs(readings, told).diagnoses
    return root


@pytest.mark.parametrize(
    ("events", "persistence", "action"),
    [
        ([xid(START)], "undetermined", "reset-gpu"),
        ([xid(START), xid(START + 60)], "undetermined", "reset-gpu"),
        ([xid(START + n * 5 * HOUR) for n in range(4)], "intermittent", "field-diag"),
        ([xid(100.0, clock="boot", boot=n) for n in range(2)], "persistent", "field-diag"),
        ([xid(START, 64, text="Row Remapper Error")], "persistent", "rma"),
        ([xid(START + n * 5 * HOUR, 31, text="pid=7, name=train, MMU Fault") for n in (0, 1)],
         "transient", "restart-app"),
    ],
    ids=["once", "one-incident", "hours-apart", "again-after-a-boot", "terminal", "app"],
)  # fmt: skip
def test_what_one_file_shows(events, persistence, action):
    root = root_of(reading(*events))
    assert (root.persistence, root.action) == (persistence, action)
    assert any(line.startswith("belief: ") for line in root.because)


def test_the_drivers_own_directive_decides_whatever_came_before():
    again = [xid(100.0 + n, clock="boot", boot=n) for n in range(2)]
    asks = Event(PCI, "xid.154", "Xid 154: GPU recovery action changed", at=101.5, clock="boot",
                 detail={"boot": 1, "action": 1})  # fmt: skip
    assert root_of(reading(*again, asks)).action == "reset-gpu"


def test_a_part_that_keeps_coming_back_is_a_lemon():
    told = [("1650000042", START - n * 240 * HOUR, f"run{n}") for n in range(1, 5)]
    root = root_of(reading(xid(START)), told=told)
    assert "4 earlier cases of this serial number in 960 h" in root.because
    assert (root.persistence, root.action) == ("intermittent", "field-diag")
    other = root_of(reading(xid(START), serial="1650000043"), told=told)
    assert (other.persistence, other.action) == ("undetermined", "reset-gpu")
    assert not any("earlier cases" in line for line in other.because)


def test_confidence_is_that_of_the_component():
    sure = root_of(reading(xid(START, 64, text="Row Remapper Error")))
    shaky = root_of(reading(xid(START, 74, text="NVLink: fatal error detected on link 2")))
    assert 0.9 < sure.confidence <= 1.0
    assert 0.5 < shaky.confidence < sure.confidence
