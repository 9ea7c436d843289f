"""Files of a machine in, one verdict and the right root out."""

import itertools
import json

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read, read_all

GPUS = [f"0000:{bus:02x}:00" for bus in (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)]
DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
REMAP = "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."
NO_ROWS = "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
LINK_DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00a001c6 0x0 0x0)"
PEER = "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x00000004 0x0)"


def at(seconds, message):
    return f"[{seconds:12.6f}] {message}"


def xid(seconds, gpu, code, message):
    return at(seconds, f"NVRM: Xid (PCI:{gpu}): {code}, {message}")


@pytest.fixture
def judge(tmp_path):
    def judge(*lines, name="kern.log"):
        path = tmp_path / name
        path.write_text("\n".join([at(0, "Linux version 6.8.0"), *lines]) + "\n")
        return judge_inputs([read(path)])

    return judge


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


def victims(judgement):
    return {d.subject for d in judgement.diagnoses if d.role == "victim"}


def test_a_quiet_log_passes(judge):
    found = judge(at(1, "usb 1-1: new device"))
    assert (found.verdict, found.diagnoses) == ("PASS", ())


@pytest.mark.parametrize("timeouts", [1, 2, 4])
def test_a_directive_is_told_once_however_many_faults_it_belongs_to(judge, timeouts):
    faults = [
        xid(100 + 6.5 * n, GPUS[2], 119, "pid=1, name=a, Timeout after 6s of waiting for RPC")
        for n in range(timeouts)
    ]
    last = xid(130, GPUS[2], 154, "GPU recovery action changed from 0x0 (None) to 0x1 (x)")
    (root,) = judge(*faults, last).diagnoses
    assert [why[:12] for why in root.because if why.startswith("xid.154")] == ["xid.154 once"]


CASES = {
    "79 and its directive": (
        [xid(9, GPUS[0], 79, "pid=1, GPU has fallen off the bus."),
         at(9.1, f"NVRM: GPU {GPUS[0]}.0: GPU has fallen off the bus."),
         xid(9.2, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x2 (x)")],
        "FAIL", [("pci:0000:19:00.0", "pcie", "reboot-node")]),
    "154 decides": (
        [xid(9, GPUS[0], 119, "pid=1, name=a, Timeout after 6s of waiting for RPC response"),
         xid(9.1, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x2 (x)")],
        "FAIL", [("pci:0000:19:00.0", "driver", "reboot-node")]),
    "154 turns an application fault": (
        [xid(9, GPUS[0], 31, "pid=1, name=a, MMU Fault"),
         xid(9.1, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x2 (x)")],
        "FAIL", [("pci:0000:19:00.0", "unknown", "reboot-node")]),
    "154 back to none": (
        [xid(9, GPUS[0], 154, "GPU recovery action changed from 0x1 (x) to 0x0 (None)")],
        "PASS", []),
    "48, 63 and 94 are one incident": (
        [xid(9, GPUS[0], 48, DBE), xid(9.1, GPUS[0], 63, REMAP),
         *[xid(9.2, GPUS[0], 94, f"pid=1, name=a, Ch {i:08x}") for i in range(9)],
         xid(9.4, GPUS[0], 45, "pid=1, name=a, Ch 1"), xid(9.5, GPUS[0], 43, "pid=1, Ch 2")],
        "FAIL", [("pci:0000:19:00.0", "hbm", "reset-gpu")]),
    "64 is terminal against 154": (
        [xid(9, GPUS[0], 64, NO_ROWS),
         xid(9.1, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x1 (x)")],
        "FAIL", [("pci:0000:19:00.0", "hbm", "rma")]),
    "48 in SRAM": (
        [xid(9, GPUS[0], 48, "An uncorrectable double bit error (DBE) in SRAM"),
         xid(9.1, GPUS[0], 172, "Uncorrectable SRAM error")],
        "FAIL", [("pci:0000:19:00.0", "sram", "reset-gpu")]),
    "79 over a link code": (
        [xid(9, GPUS[0], 74, "pid=1, NVLink: fatal error detected on link 3(0x1)"),
         xid(10, GPUS[0], 79, "GPU has fallen off the bus.")],
        "FAIL", [("pci:0000:19:00.0", "pcie", "reboot-node")]),
    "45 alone drives nothing": ([xid(9, GPUS[0], 45, "pid=1, name=a, Ch 1")], "PASS", []),
    "45 names the lost root": (
        [xid(9, GPUS[0], 45, "pid=1, name=a, Ch 1 caused by previous Xid 62")],
        "FAIL", [("pci:0000:19:00.0", "unknown", "reset-gpu")]),
    "45 and 154 follow a timeout": (
        [xid(9, GPUS[0], 109, "pid=1, name=a, Ch 0000000c, errorString CTX SWITCH TIMEOUT"),
         xid(9.1, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x1 (x)"),
         xid(9.2, GPUS[0], 45, "pid=1, name=a, Ch 1, caused by previous Xid 109")],
        "FAIL", [("pci:0000:19:00.0", "unknown", "reset-gpu")]),
    "45 follows an early sign": (
        [xid(9, GPUS[0], 9876, "words"), xid(9.2, GPUS[0], 45, "pid=1, name=a, Ch 1")],
        "UNKNOWN", [("pci:0000:19:00.0", "unknown", "watch")]),
    "154 after 45 alone is not the application's": (
        [xid(9, GPUS[0], 45, "pid=1, name=a, Ch 1"),
         xid(9.1, GPUS[0], 154, "GPU recovery action changed from 0x0 (None) to 0x1 (x)")],
        "FAIL", [("pci:0000:19:00.0", "unknown", "reset-gpu")]),
    "31 is the application's": (
        [xid(9, GPUS[0], 31, "pid=1, name=a, MMU Fault")],
        "PASS", [("pci:0000:19:00.0", "app", "restart-app")]),
    "13 on two GPUs is the application's": (
        [xid(9, GPUS[0], 13, "pid=1, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): x"),
         xid(39, GPUS[1], 13, "pid=1, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): x")],
        "PASS", [("host:unknown", "app", "restart-app")]),
    "13 again at one TPC is the chip's": (
        [xid(9, GPUS[0], 13, "pid=1, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): x"),
         xid(900, GPUS[0], 13, "pid=2, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 1): x")],
        "FAIL", [("pci:0000:19:00.0", "sm", "field-diag")]),
    "13 again over many TPCs is not": (
        [xid(t, GPUS[0], 13, f"pid={t}, Graphics SM Warp Exception on (GPC 1, TPC {i}, SM 0): x")
         for t in (9, 900) for i in range(6)],
        "PASS", [("pci:0000:19:00.0", "app", "restart-app")]),
    "31 again from other processes wants a test": (
        [xid(t, GPUS[0], 31, f"pid={t}, name=a, MMU Fault") for t in (9, 900)],
        "UNKNOWN", [("pci:0000:19:00.0", "unknown", "retest")]),
    "162 and 163 are expected": (
        [xid(9, GPUS[0], 162, "x"), xid(10, GPUS[0], 163, "x")], "PASS", []),
    "95 condemns": (
        [xid(9, GPUS[0], 95, "pid=1, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")],
        "FAIL", [("pci:0000:19:00.0", "hbm", "reset-gpu")]),
    "94 is contained": (
        [xid(9, GPUS[0], 94, "pid=1, Contained: LTC TAG (0x2,0x0)")],
        "FAIL", [("pci:0000:19:00.0", "hbm", "restart-app")]),
    "95 after 94 condemns": (
        [xid(9, GPUS[0], 94, "pid=1, Contained: LTC TAG (0x2,0x0)"),
         xid(9.1, GPUS[0], 95, "pid=1, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")],
        "FAIL", [("pci:0000:19:00.0", "hbm", "reset-gpu")]),
    "149 over 145 that came before it": (
        [xid(9, GPUS[1], 145, PEER), xid(9.5, GPUS[0], 149, LINK_DOWN)],
        "FAIL", [("pci:0000:19:00.0/link07", "nvlink", "reset-gpu")]),
    "a code of the future is watched": (
        [xid(9, GPUS[0], 9876, "words")], "UNKNOWN", [("pci:0000:19:00.0", "unknown", "watch")]),
    "a nonfatal link error that is to be ignored": (
        [xid(9, GPUS[0], 144, "SAW_MVB Nonfatal XC0 i0 Link 00 (0x1 0x00000004 0x0)")],
        "PASS", []),
    "a bit error warning": (
        [xid(9, GPUS[0], 149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x226 0x1 0x0)")],
        "UNKNOWN", [("pci:0000:19:00.0/link03", "nvlink", "watch")]),
    "one corrected AER": (
        [at(9, "pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=x")], "PASS", []),
    "a storm of corrected AER": (
        [at(9 + i / 10, "pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=x")
         for i in range(40)],
        "UNKNOWN", [("pci:0000:00:03.1", "pcie", "watch")]),
    "a fatal AER and the GPU behind the port": (
        [at(9, "pcieport 0000:00:03.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"),
         at(9.1, "nvidia 0000:19:00.0: AER: can't recover (no error_detected callback)")],
        "FAIL", [("pci:0000:19:00.0", "pcie", "check-cabling")]),
    "a corrected DIMM error": (
        [at(9, "EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:1)")], "PASS", []),
    "many corrected DIMM errors": (
        [at(9, "EDAC MC0: 90 CE memory read error on DIMM_A1 (channel:1)")],
        "UNKNOWN", [("host:unknown", "host", "watch")]),
    "an uncorrected DIMM error": (
        [at(9, "EDAC MC0: 1 UE memory read error on DIMM_A1 (channel:1)")],
        "FAIL", [("host:unknown", "host", "field-diag")]),
    "a disk": (
        [at(9, "I/O error, dev nvme2n1, sector 64 op 0x1:(WRITE) flags 0x0")],
        "FAIL", [("host:unknown", "storage", "field-diag")]),
    "a port that stays down": (
        [at(9, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN")],
        "FAIL", [("pci:0000:ab:00.0", "nic", "check-cabling")]),
    "a port that flaps": (
        [at(t, f"mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link {w}")
         for t, w in zip(range(9, 99, 9), itertools.cycle(["DOWN", "ACTIVE"]))],
        "FAIL", [("pci:0000:ab:00.0", "nic", "check-cabling")]),
    "a port that came back": (
        [at(9, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
         at(20, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE")],
        "UNKNOWN", [("pci:0000:ab:00.0", "nic", "watch")]),
    "two GPUs fall at once": (
        [xid(9 + i, gpu, 79, "GPU has fallen off the bus.") for i, gpu in enumerate(GPUS[:2])],
        "FAIL", [("host:unknown", "pcie", "check-power")]),
    "a fatal SXid and its Xid 74": (
        [at(9, "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"),
         xid(9.2, GPUS[0], 74, "pid=1, NVLink: fatal error detected on link 3(0x1)")],
        "FAIL", [("pci:0000:c2:00.0/link28", "nvlink", "reset-gpu")]),
    "a corrected machine check": (
        [at(9, "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: 8c00004000010091")],
        "PASS", []),
    "an uncorrected machine check": (
        [at(9, "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: bd80000000100134")],
        "FAIL", [("host:unknown", "host", "field-diag")]),
    "a cable error": (
        [at(9, "mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, x")],
        "FAIL", [("pci:0000:ab:00.0", "nic", "check-cabling")]),
    "two versions of the driver": (
        [at(9, "NVRM: API mismatch: the client has the version 570.86, but")],
        "FAIL", [("host:unknown", "driver", "update-software")]),
    "ports that go down with the machine": (
        [at(9, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
         at(10, "reboot: Restarting system")], "PASS", []),
    "a port that was down before the machine began anew": (
        [at(9, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN"),
         at(0, "Linux version 6.8.0"),
         at(9, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE")], "PASS", []),
    "a bystander of a lesser error": (
        [at(9, "pcieport 0000:00:03.1: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=x"),
         at(9.1, "nvidia 0000:19:00.0: AER: can't recover (no error_detected callback)")],
        "UNKNOWN", [("pci:0000:00:03.1", "pcie", "watch"), ("pci:0000:19:00.0", "pcie", "watch")]),
    "a fatal AER and several GPUs behind the port": (
        [at(9, "pcieport 0000:00:03.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=x"),
         *[at(9.1, f"nvidia {gpu}.0: AER: can't recover (no error_detected callback)")
           for gpu in GPUS[:4]]],
        "FAIL", [("host:unknown", "pcie", "check-cabling")]),
    "a disk that was polled in time": (
        [at(9, "nvme nvme0: I/O 5 QID 3 timeout, completion polled")], "PASS", []),
    "an SXid that is no fault": (
        [at(9, "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 10005, Non-fatal, x")], "PASS", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cases(judge, name):
    lines, verdict, expected = CASES[name]
    found = judge(*lines)
    assert roots(found) == expected
    assert found.verdict == verdict


def test_what_no_rule_ties_is_a_case_of_its_own_on_the_same_gpu(judge):
    found = judge(xid(9, GPUS[0], 63, REMAP),
                  xid(10, GPUS[0], 74, "NVLink: fatal error detected on link 3(0x1)"))  # fmt: skip
    assert {component for _, component, _ in roots(found)} == {"hbm", "nvlink"}
    assert len({d.case for d in found.diagnoses}) == 2


def test_a_sympathetic_code_a_minute_later_is_not_tied(judge):
    found = judge(xid(9, GPUS[0], 149, LINK_DOWN), xid(90, GPUS[1], 145, PEER))
    assert [s for s, *_ in roots(found)] == ["pci:0000:19:00.0/link07", "pci:0000:3b:00.0"]


def test_one_root_and_63_victims_over_16_hosts(tmp_path):
    hosts = [f"n{i:02}" for i in range(16)]
    for i, host in enumerate(hosts):
        lines = [f"2026-03-02T04:05:{6 + i % 4:02}Z {host} kernel: NVRM: Xid (PCI:{gpu}): "
                 + (f"149, {LINK_DOWN}" if (i, j) == (5, 2) else f"145, {PEER}")
                 for j, gpu in enumerate(GPUS[:4])]  # fmt: skip
        (tmp_path / f"{host}.log").write_text("\n".join(lines) + "\n")
    found = judge_inputs(read_all([tmp_path]))
    assert found.verdict == "FAIL"
    assert roots(found) == [("host:n05/pci:0000:4c:00.0/link07", "nvlink", "reset-gpu")]
    assert len(victims(found)) == 63
    assert all(d.action == "none" for d in found.diagnoses if d.role == "victim")


def test_145_everywhere_without_a_root_is_the_fabrics(judge):
    found = judge(*[xid(9, gpu, 145, PEER.replace("00000004 0x0)", "00000040 0x0)"))
                    for gpu in GPUS])  # fmt: skip
    assert [(s, c) for s, c, _ in roots(found)] == [("fabric", "fabric")]
    assert len(victims(found)) == 8


def test_several_switches_have_one_cause(judge):
    found = judge(*[
        at(9 + i, f"nvidia-nvswitch{i}: SXid (PCI:0000:c{i}:00.0): 20034, Fatal, Link 2{i} LTSSM")
        for i in range(4)
    ])  # fmt: skip
    assert [(s, c) for s, c, _ in roots(found)] == [("fabric", "fabric")]


def test_several_switches_tell_of_the_one_gpu_that_fell(judge):
    lines = [at(9, f"nvidia-nvswitch{i}: SXid (PCI:0000:c{i}:00.0): 20034, Fatal, Link 2{i} LTSSM")
             for i in range(4)]  # fmt: skip
    found = judge(*lines, xid(9.5, GPUS[0], 79, "GPU has fallen off the bus."))
    assert [s for s, *_ in roots(found)] == ["pci:0000:19:00.0"]
    assert len(victims(found)) == 4


def test_persistence(judge):
    assert judge(xid(9, GPUS[0], 64, NO_ROWS)).diagnoses[0].persistence == "persistent"
    again = judge(*[xid(t, GPUS[0], 119, "Timeout") for t in (9, 9000, 99000)])
    assert again.diagnoses[0].persistence == "intermittent"
    once = judge(xid(9, GPUS[0], 119, "Timeout"))
    assert once.diagnoses[0].persistence == "undetermined"
    boots = judge(xid(9, GPUS[0], 119, "x"), at(0, "Linux version 6.8"), xid(9, GPUS[0], 119, "x"))
    assert boots.diagnoses[0].persistence == "persistent"


def test_the_order_of_files_changes_nothing_but_the_inputs(tmp_path):
    for i, gpu in enumerate(GPUS[:3]):
        (tmp_path / f"{i}.log").write_text(
            xid(9 + i, gpu, (79, 149, 48)[i], (DBE, LINK_DOWN)[i % 2])
            + "\n"
            + xid(11, GPUS[3], 145, PEER)
            + "\n"
        )
    readings = read_all(sorted(tmp_path.iterdir()))
    answers = set()
    for order in itertools.permutations(readings):
        found = judge_inputs(order).as_json()
        assert [i["path"] for i in found.pop("inputs")] == [str(r.path) for r in order]
        answers.add(json.dumps(found))
    assert len(answers) == 1


def test_because_names_code_count_and_place(judge):
    lines = judge(*[xid(9 + i, GPUS[0], 119, "Timeout") for i in range(3)]).diagnoses[0].because
    assert lines[0].startswith("xid.119 3 times 9.000 s after boot to 11.000 s after boot "
                               "(kern.log line 2): NVRM: Xid")  # fmt: skip
