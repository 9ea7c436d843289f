"""The fabric manager's log: harmless failures, NVSwitch errors, links that do not train, NMX-C."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read, read_all

STAMP = "[Mar 03 2026 10:15:{:02d}] [{}] [tid 9001] {}\n"


def log(*said):
    lines = [STAMP.format(0, "INFO", "Fabric Manager version 575.0 is running in bare metal mode")]
    lines += [STAMP.format(i, level, text) for i, (level, text) in enumerate(said, start=1)]
    return "".join(lines)


@pytest.fixture
def judged(tmp_path):
    def judged(text, name="fm.log"):
        path = tmp_path / name
        path.write_text(text)
        reading = read(path)
        return reading, judge_inputs([reading])

    return judged


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


NOTHING = ("request to query NVSwitch device information from NVSwitch driver failed with error:"
           "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]")  # fmt: skip


@pytest.mark.parametrize(
    "date",
    ["Apr 07 03:04:05", "7 avr. 03:04:05", "4月 07 03:04:05", "2026-04-07T03:04:05+02:00",
     "апр 07 03:04:05"],
    ids=["English", "French", "Chinese", "ISO", "Russian"],
)  # fmt: skip
def test_no_nvswitch_is_no_fault_whatever_systemd_calls_it(judged, date):
    said = [
        "systemd[1]: Starting NVIDIA fabric manager service...",
        f"nv-fabricmanager[812]: {NOTHING}",
        'nvidia-fabricmanager-start.sh[811]: "/usr/bin/nv-fabricmanager" failed! Exit code: 1',
        "systemd[1]: nvidia-fabricmanager.service: Control process exited, status=1/FAILURE",
        "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
    ]
    reading, found = judged("".join(f"{date} pcie-box-3 {line}\n" for line in said))
    assert (reading.kind, reading.records, reading.host) == ("fabricmanager", 5, "pcie-box-3")
    assert (found.verdict, found.diagnoses) == ("UNKNOWN", ())  # nothing was looked at
    assert "no NVSwitch" in reading.problems[0]


def test_no_nvswitch_is_neutral_beside_what_was_looked_at(tmp_path):
    (tmp_path / "fm").write_text(f"Apr 07 03:04:05 n1 nv-fabricmanager[812]: {NOTHING}\n" * 2)
    (tmp_path / "sdr").write_text("FAN1 | 9000 RPM | ok\nFAN2 | 9000 RPM | ok\n")
    assert judge_inputs(read_all([tmp_path])).verdict == "PASS"


def test_nothing_to_do_is_no_excuse_where_there_were_switches(judged):
    said = [
        "nv-fabricmanager[811]: detected system topology is based on DGX/HGX H100",
        f"nv-fabricmanager[812]: {NOTHING}",
        "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
    ]
    _, found = judged("".join(f"Apr 07 03:04:05 n1 {line}\n" for line in said))
    assert (found.verdict, roots(found)) == ("UNKNOWN", [("host:n1", "fabric", "retest")])


UUID = "GPU-89abcdef-0123-4567-89ab-cdef01234567"


@pytest.mark.parametrize(
    ("said", "verdict", "expected"),
    [
        (("detected NVSwitch fatal error 20034 on NVSwitch physical id 1 pci 00000000:4A:00.0 port"
         " 21 with error message: LTSSM"), "FAIL",
         [("pci:0000:4a:00.0/link21", "nvlink", "reset-gpu")]),
        (("detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci 00000000:4A:00.0 "
         "physical id 1 port 21"), "UNKNOWN", [("pci:0000:4a:00.0/link21", "nvswitch", "watch")]),
        (f"detected NVLink fatal error on GPU index 5 gpu uuid {UUID} link 13", "FAIL",
         [("gpu5/link13", "nvlink", "reset-gpu")]),
        (("following NVLink connections are not trained: NVSwitch physical id 1 port 33 <--> GPU "
         "physical id 6 port 7"), "FAIL", [("gpu6/link07", "nvlink", "check-cabling")]),
    ],
    ids=["a switch", "a switch, not fatal", "a GPU", "not trained"],
)  # fmt: skip
def test_an_error_is_at_the_switch_or_gpu_and_its_link(judged, said, verdict, expected):
    reading, found = judged(log(("ERROR", said)))
    assert (found.verdict, roots(found)) == (verdict, expected)
    assert reading.uuids == ({"gpu5": UUID} if UUID in said else {})


def test_a_physical_id_is_the_gpu_that_an_earlier_line_tells(judged):
    text = log(
        ("WARNING", f"GPU physical id: 6 uuid:{UUID} pci: 00000000:5B:00.0 no NVLink link state"),
        ("ERROR", ("NVLink connections are not trained: NVSwitch physical id 1 port 3 <--> GPU "
                  "physical id 6 port 7")))  # fmt: skip
    _, found = judged(text)
    assert roots(found)[0] == ("pci:0000:5b:00.0/link07", "nvlink", "check-cabling")


def test_a_service_that_fails_and_does_not_say_why_is_unknown(judged):
    text = "Apr 07 03:04:05 n3 systemd[1]: nvidia-fabricmanager.service: Failed with result 'x'.\n"
    text += "Apr 07 03:04:05 n3 nv-fabricmanager[2]: Connected to 1 node.\n"
    reading, found = judged(text)
    assert (reading.kind, found.verdict) == ("fabricmanager", "UNKNOWN")
    assert roots(found) == [("host:n3", "fabric", "retest")]


GOOD = "Successfully configured all the available NVSwitches to route GPU NVLink traffic."


@pytest.mark.parametrize(
    "said",
    [
        ("INFO", GOOD),
        ("INFO", "GPU degraded mode count: 0"),
        ("INFO", "fabric manager received port down event on switch with GUID 0x1, and port num 4"),
        ("WARNING", "no degraded NVSwitch was found"),
        ("WARNING", "0 GPUs are degraded"),
        ("INFO", "link training failed before it was retried"),
        ("INFO", "multicast group 3 is freed."),
    ],
    ids=["configured", "none degraded", "port event", "none, loud", "0 GPUs", "news", "noise"],
)  # fmt: skip
def test_a_healthy_log_passes(judged, said):
    reading, found = judged(log(said, ("INFO", GOOD)))
    assert (reading.kind, reading.records) == ("fabricmanager", 3)
    assert (found.verdict, found.diagnoses) == ("PASS", ())


SWITCH = "detected NVSwitch {} error {} on fid 0 on NVSwitch pci 00000000:C3:00.0 physical id 2"


@pytest.mark.parametrize(
    ("said", "expected", "verdict"),
    [
        (("ERROR", SWITCH.format("fatal", 20034) + " port 41"),
         ("pci:0000:c3:00.0/link41", "nvlink", "reset-gpu"), "FAIL"),
        (("ERROR", SWITCH.format("non-fatal", 22013) + " port 41"), None, "PASS"),
        (("ERROR", SWITCH.format("non-fatal", 12028) + " port 41"),
         ("pci:0000:c3:00.0/link41", "nvswitch", "watch"), "UNKNOWN"),
        (("ERROR", "detected number of NVSwitches don't match with any supported system topology"),
         ("host:unknown", "nvswitch", "field-diag"), "FAIL"),
        (("ERROR", "NVLink training failed for GPU pci bus id 00000000:4E:00.0 port 7"),
         ("pci:0000:4e:00.0/link07", "nvlink", "check-cabling"), "FAIL"),
        (("ERROR", "access NVLink initialization failed on GPU 5"),
         ("gpu5", "nvlink", "check-cabling"), "FAIL"),
        (("WARNING", "partition id 3 is degraded"),
         ("host:unknown", "fabric", "field-diag"), "FAIL"),
        (("WARNING", "GPU 0 is degraded"), ("gpu0", "fabric", "field-diag"), "FAIL"),
        (("ERROR", "driver interface version 570.1 don't match with driver version 575.2"),
         ("host:unknown", "driver", "update-software"), "FAIL"),
        (("ERROR", "failed to find the GPU handle 77 in the multicast team request setup 5"),
         ("host:unknown", "fabric", "watch"), "UNKNOWN"),
        (("WARNING", "Trunk port failure detected for switch GUID 0xa1 slot 7 port number 61"),
         ("fabric", "nvlink", "check-cabling"), "FAIL"),
        (("WARNING", "compute node 4 health is NMX_GPU_HEALTH_DEGRADED_BW"),
         ("host:unknown", "fabric", "field-diag"), "FAIL"),
        (("ERROR", "IMEX connection to node 3 lost"),
         ("host:unknown", "fabric", "retest"), "UNKNOWN"),
        (("ERROR", "something that no table knows"),
         ("host:unknown", "fabric", "watch"), "UNKNOWN"),
    ],
    ids=["fatal", "to be ignored", "non-fatal", "topology", "training, address",
         "training, index", "partition", "GPU 0",
         "versions", "handle", "trunk", "NMX-C health", "IMEX", "unlisted error"],
)  # fmt: skip
def test_what_it_says_is_wrong(judged, said, expected, verdict):
    _, found = judged(log(said, ("INFO", "going on")))
    assert found.verdict == verdict
    assert roots(found) == ([expected] if expected else [])


BLOCK = """[Mar 03 2026 10:16:0{n}] [ERROR] [tid 7] Fabric Manager detected {kind} error on :
moduleId : 2
nodeId : 11
partitionId : 7
gpuGuid : 0xAB{n}
portNum : 9
errorCode : 0x06
"""


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("GPU NVL Fatal", "FAIL"), ("GPU NVL Non Fatal", "UNKNOWN"), ("stale GPU NVL Fatal", "PASS")],
)
def test_errors_of_gpus_told_over_several_lines(judged, kind, verdict):
    text = log() + BLOCK.format(n=1, kind=kind) + BLOCK.format(n=2, kind=kind)
    reading, found = judged(text + STAMP.format(9, "INFO", "going on"))
    assert len(reading.events) == 2
    assert "nodeId 11" in reading.events[0].text
    assert "portNum 9" in reading.events[1].text
    assert found.verdict == verdict


def test_the_same_error_in_the_kernels_log_is_one_case(tmp_path):
    (tmp_path / "fm.log").write_text(log(("ERROR", SWITCH.format("fatal", 20034) + " port 41")))
    (tmp_path / "kern.log").write_text(
        "[  100.000001] nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 41 LTSSM\n"
    )
    found = judge_inputs(read_all([tmp_path]))
    assert len([d for d in found.diagnoses if d.role == "root"]) == 1


def test_repeats_are_one_event_with_a_count(judged):
    text = log(*[("ERROR", SWITCH.format("non-fatal", 12028) + " port 3")] * 50)
    reading, _ = judged(text)
    assert [(e.code, e.detail["count"]) for e in reading.events] == [("sxid.12028", 50)]


@pytest.mark.parametrize(
    "text",
    [
        "Apr 07 03:04:05 n3 sshd[1]: session opened\n" * 30
        + f"Apr 07 03:04:05 n3 nv-fabricmanager[2]: {GOOD}\n",
        "The fabric manager said `detected NVSwitch fatal error 20034` to us.\n",
    ],
    ids=["a system's whole log", "prose"],
)
def test_not_its_log(judged, text):
    assert judged(text)[0].kind != "fabricmanager"
