"""History follows the serial number; what stays when the GPU goes is the slot's."""

from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers import Reading, read

GPU, OTHER = "pci:0000:19:00.0", "pci:0000:3b:00.0"
DAY = 86400.0
UUID = "GPU-5eed0000-0000-0000-0000-000000000001"


def snapshot(serial, taken, place=GPU, **more):
    one = Measurement("x", place, "remap.pending", 0, "flag")
    return Reading(Path(f"smi-{place[9:11]}-{taken}"), "nvidia-smi-q", 1, measurements=(one,),
                   serials={place: serial}, taken=taken, **more)  # fmt: skip


def log(*events):
    seen = [Event(place, f"xid.{code}", "NVRM: Xid", at, "epoch", {"line": i + 1})
            for i, (place, code, at) in enumerate(events)]  # fmt: skip
    return Reading(Path("kern.log"), "kernel-log", len(seen), events=tuple(seen))


EXCHANGED = (snapshot("A", 10 * DAY), snapshot("B", 20 * DAY))


@pytest.mark.parametrize(
    ("code", "component", "action"),
    [(79, "pcie", "check-cabling"), (149, "nvlink", "check-cabling"), (48, "host", "field-diag")],
)
def test_what_both_gpus_had_is_the_slots(code, component, action):
    (root,) = judge_inputs([*EXCHANGED, log((GPU, code, 9 * DAY), (GPU, code, 21 * DAY))]).diagnoses
    assert (root.subject, root.component, root.action) == (GPU, component, action)
    assert root.serial is None
    assert root.because[0] == "it stays with the place: seen there with each of A, B"


@pytest.mark.parametrize(
    "events",
    [[(GPU, 79, 21 * DAY), (GPU, 79, 25 * DAY)], [(GPU, 79, 9 * DAY), (OTHER, 79, 21 * DAY)],
     [(GPU, 79, 15 * DAY), (GPU, 79, 21 * DAY)], [(GPU, 31, 9 * DAY), (GPU, 31, 21 * DAY)]],
    ids=["the new one alone", "at another place", "unknown which", "the application's"],
)  # fmt: skip
def test_what_only_one_had_is_its_own(events):
    found = judge_inputs([*EXCHANGED, log(*events)])
    assert all("stays" not in d.because[0] for d in found.diagnoses)
    assert all(d.component in ("pcie", "app") for d in found.diagnoses)


def test_a_serial_number_and_a_uuid_are_not_two_gpus():
    known = (snapshot("A", 10 * DAY), replace(snapshot("", 20 * DAY), serials={},
                                              uuids={GPU: "GPU-1"}))  # fmt: skip
    found = judge_inputs([*known, log((GPU, 79, 9 * DAY), (GPU, 79, 21 * DAY))])
    assert "stays" not in found.diagnoses[0].because[0]


def test_one_log_may_hold_the_exchange_itself(tmp_path):
    lines = []
    for day, uuid in ((2, UUID), (9, UUID.replace("5eed", "7eed"))):
        stamp = f"2026-03-{day:02}T04:05:06Z n1 kernel: NVRM:"
        lines += [f"{stamp} GPU at PCI:0000:19:00: {uuid}",
                  f"{stamp} Xid (PCI:0000:19:00): 79, GPU has fallen off the bus."]  # fmt: skip
    path = tmp_path / "kern.log"
    path.write_text("\n".join(lines) + "\n")
    (root,) = judge_inputs([read(path)]).diagnoses
    assert (root.component, root.action) == ("pcie", "check-cabling")
    assert "stays with the place" in root.because[0]
