"""Public threads in which somebody found out what it was, each as a few lines of our own.

The number is the thread's. What a thread could only tell by trying (another card, an older driver)
is not in a log: there, nobody innocent may be accused, and the action must not be a swap.
"""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read_all

A, B, C, D = "0000:19:00", "0000:3b:00", "0000:9b:00", "0000:cb:00"
PEER = "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x00000004 0x0)"
DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00a001c6 0x0 0x0)"
SWAPS = {"swap-to-spare", "move-to-spare-rack", "rma", "field-diag"}


def xid(day, gpu, code, words, host="n1", second=0.0):
    stamp = f"2026-03-{day:02}T04:05:{6 + second:09.6f}Z {host} kernel: "
    return host, f"{stamp}NVRM: Xid (PCI:{gpu}): {code}, {words}"


def boot(day, host="n1"):
    return host, f"2026-03-{day:02}T04:00:00.000000Z {host} kernel: Linux version 6.8.0"


def mmu(pid):
    return (
        f"pid={pid}, name=python3, Ch 1, MMU Fault: ENGINE GRAPHICS faulted @ 0x7f_1000. FAULT_PDE"
    )


def warp(pid, gpc):
    return (
        f"pid={pid}, name=a, Graphics SM Warp Exception on (GPC {gpc}, TPC 1, SM 0): Illegal Inst"
    )


REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
RPC = "pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU"
FALLEN = "pid=1, GPU has fallen off the bus."
NO_ROWS = "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"
DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
# lines, verdict, the place of the root, its components, whether the action may be a swap
SCENARIOS = {
    "S01 a driver's RPC times out": (
        [xid(2, A, 119, RPC)], "FAIL", f"pci:{A}.0", {"driver"}, False),
    "S02 page faults on many hosts over days": (
        [xid(d, A, 31, mmu(d), f"n{d}") for d in (2, 5, 9)], "PASS", "", {"app"}, False),
    "S03 a browser's page fault": (
        [xid(2, A, 31, mmu(7))], "PASS", f"pci:{A}.0", {"app"}, False),
    "S04 a page fault that wants a reboot": (
        [xid(2, A, 31, mmu(7)), xid(2, A, 154, REBOOT, second=1)],
        "FAIL", f"pci:{A}.0", {"driver", "unknown"}, False),
    "S05 the firmware falls silent, contexts follow": (
        [xid(2, A, 119, RPC), xid(2, A, 109, "pid=1, CTX SWITCH TIMEOUT", second=2),
         xid(2, A, 8, "pid=1, Channel 1", second=3), xid(2, A, 154, REBOOT, second=4)],
        "FAIL", f"pci:{A}.0", {"driver"}, False),
    "S07 again after each suspend": (
        [xid(d, A, 119, RPC) for d in (2, 5, 9)], "FAIL", f"pci:{A}.0", {"driver"}, True),
    "S12 off the bus over and over": (
        [line for d in (2, 9, 16, 23) for line in (boot(d), xid(d, A, 79, FALLEN))],
        "FAIL", f"pci:{A}.0", {"pcie", "power", "host"}, True),
    "S15 one node of many fails in each run": (
        [line for d in (2, 3, 4, 5, 6) for line in (boot(d), xid(d, B, 48, DBE))]
        + [boot(2, "n2"), boot(2, "n3")], "FAIL", f"host:n1/pci:{B}.0", {"hbm"}, True),
    "S20 one link, 63 peers": (
        [xid(2, gpu, 149 if (h, gpu) == (3, B) else 145, DOWN if (h, gpu) == (3, B) else PEER,
             f"n{h}", h / 4) for h in range(16) for gpu in (A, B, C, D)],
        "FAIL", f"host:n3/pci:{B}.0/link07", {"nvlink"}, True),
    "S23 149 here, 145 there, on and on": (
        [xid(d, gpu, 149 if gpu == C else 145, DOWN if gpu == C else PEER)
         for d in (2, 5, 9) for gpu in (A, B, C, D)],
        "FAIL", f"pci:{C}.0/link07", {"nvlink"}, True),
    "S24 an illegal instruction on seven nodes": (
        [xid(d, A, 13, warp(d, d % 6), f"n{d}") for d in range(2, 9)],
        "PASS", "", {"app"}, False),
    "S25 a page fault on both ranks": (
        [xid(2, gpu, 31, mmu(pid)) for pid, gpu in ((7, A), (8, B))],
        "PASS", "host:n1", {"app"}, False),
    "S26 a class error at a race's start": (
        [xid(2, A, 69, "pid=7, name=game, Class Error: ChId 0001")],
        "PASS", f"pci:{A}.0", {"app", "driver"}, False),
    "S27 a code outside of the catalogue": (
        [xid(2, A, 999, "pid=7, words")], "UNKNOWN", f"pci:{A}.0", {"unknown"}, False),
    "S28 over many units": (
        [xid(2, A, 13, warp(7, g), second=g / 10) for g in range(6)],
        "PASS", f"pci:{A}.0", {"app"}, False),
    "S29 no rows are left": (
        [xid(2, A, 64, NO_ROWS)], "FAIL", f"pci:{A}.0", {"hbm"}, True),
    "S30 peers fault, and no GPU's link fell": (
        [xid(2, gpu, 145, PEER) for gpu in (A, B, C, D)],
        "UNKNOWN", "fabric", {"fabric", "nvswitch"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(tmp_path, name):
    lines, verdict, place, components, swap = SCENARIOS[name]
    for host, line in lines:
        with (tmp_path / f"{host}.log").open("a") as file:
            file.write(line + "\n")
    found = judge_inputs(read_all([tmp_path]))
    roots = [d for d in found.diagnoses if d.role == "root"]
    assert {d.component for d in roots} <= components
    assert found.verdict == verdict
    assert roots
    if place:
        assert [d.subject for d in roots] == [place]
    assert swap or not {d.action for d in roots} & SWAPS


def test_what_comes_again_at_one_node_is_more_than_once(tmp_path):
    lines = SCENARIOS["S15 one node of many fails in each run"][0]
    (tmp_path / "n1.log").write_text("\n".join(line for host, line in lines if host == "n1"))
    (root,) = judge_inputs(read_all([tmp_path])).diagnoses
    assert root.persistence in ("persistent", "intermittent")
