"""One link of 5,760 with 505 recoveries, five days before it takes 64 GPUs down.

The case is public (github.com/marin-community/marin issue 9086). Here the hall is made anew: 80
nodes of 4 GPUs with 18 links; what their tools and kernels would have written is judged before the
fault, and after it.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rackproof.fixtures.offline import diagnose

NODES, GPUS, LINKS = 80, 4, 18
ADDRESSES = ("0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00")
SICK, GPU, LINK = 5, 2, 7
START = datetime(2026, 3, 2, 4, 5, 6, tzinfo=UTC)
DOWN = f"NETIR_LINK_EVT Fatal XC0 i0 Link {LINK:02d} (0x00a001c6 0x0 0x0)"
PEER = "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000004 0x00000004 0x0)"


def uuid(node, gpu):
    return f"GPU-5eed0000-{node:04x}-{gpu:04x}-0000-000000000505"


def counters(node, at, recoveries):
    """What nvidia-smi nvlink -e says of one node, its four GPUs and their links."""
    lines = [at.strftime("%a %b %d %H:%M:%S %Y")]
    for gpu in range(GPUS):
        lines.append(f"GPU {gpu}: NVIDIA GB200 (UUID: {uuid(node, gpu)})")
        for link in range(LINKS):
            count = recoveries if (node, gpu, link) == (SICK, GPU, LINK) else 0
            lines += [f"\t Link {link}: Effective BER: 15e-255",
                      f"\t Link {link}: Link recovery failed events: 0",
                      f"\t Link {link}: Link recovery successful events: {count}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def kernel(node, faulty, skew=0.0):
    """The kernel log of a node whose four GPUs fault: one link falls, all others only suffer."""
    at = START + timedelta(days=5, seconds=node % 4 + skew)
    stamp = f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 gb{node:02d} kernel: "
    lines = [f"{stamp}Linux version 6.8.0"]
    for gpu, address in enumerate(ADDRESSES if faulty else ()):
        sick = (node, gpu) == (SICK, GPU)
        code, words = (149, DOWN) if sick else (145, PEER)
        lines += [f"{stamp}NVRM: GPU at PCI:{address}: {uuid(node, gpu)}",
                  f"{stamp}NVRM: Xid (PCI:{address}): {code}, {words}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def write(folder, node, name, text):
    (folder / f"gb{node:02d}").mkdir(parents=True, exist_ok=True)
    (folder / f"gb{node:02d}" / name).write_text(text)


@pytest.fixture
def before(tmp_path):
    folder = tmp_path / "hall"
    for node in range(NODES):
        write(folder, node, "nvlink.txt", counters(node, START, 505))
    return folder


def later(folder):
    for node in range(NODES):
        text = counters(node, START + timedelta(minutes=21), 508)
        write(folder, node, "nvlink-later.txt", text)


def faults(folder, skewed=()):
    for node in range(NODES):
        text = kernel(node, node < 16, 50.0 if node in skewed else 0.0)
        write(folder, node, "kern.log", text)


def roots(body):
    return [(d["subject"], d["component"], d["action"]) for d in body["diagnoses"]
            if d["role"] == "root"]  # fmt: skip


def victims(body):
    return [d["subject"] for d in body["diagnoses"] if d["role"] == "victim"]


def test_before_the_fault_the_link_is_named_and_nobody_else(before):
    body, code = diagnose([before])
    assert (body["verdict"], code) == ("UNKNOWN", 3)
    assert roots(body) == [("host:gb05/gpu2/link07", "nvlink", "watch")]
    assert victims(body) == []
    first = body["diagnoses"][0]
    assert "505" in first["because"][0]
    assert "5760" in first["because"][0]

    later(before)
    body, _ = diagnose([before])
    assert roots(body) == [("host:gb05/gpu2/link07", "nvlink", "watch")]
    assert any("3 more in 21 min" in line for line in body["diagnoses"][0]["because"])
    assert body["verdict"] == "UNKNOWN"


@pytest.mark.parametrize("skewed", [(), (3, 4, 11)], ids=["one clock", "three nodes 50 s off"])
def test_after_it_one_root_and_63_victims(tmp_path, skewed):
    folder = tmp_path / "hall"
    faults(folder, skewed)
    body, code = diagnose([folder])
    assert (body["verdict"], code) == ("FAIL", 1)
    assert roots(body) == [("host:gb05/pci:0018:01:00.0/link07", "nvlink", "reset-gpu")]
    assert len(set(victims(body))) == len(victims(body)) == 63
    assert len({d["case"] for d in body["diagnoses"]}) == 1
    assert len({s.partition("/")[0] for s, *_ in roots(body)}) == 1  # one tray to spare


def test_what_the_counters_told_before_stands_with_the_root(before):
    faults(before)
    with_counters = diagnose([before])[0]
    assert roots(with_counters) == [("host:gb05/pci:0018:01:00.0/link07", "nvlink", "reset-gpu")]
    assert any("505" in line for line in with_counters["diagnoses"][0]["because"])
    assert len(victims(with_counters)) == 63


def test_two_folders_are_peers_in_whatever_order(before, tmp_path):
    other = tmp_path / "more"
    (before / "gb79").rename(tmp_path / "gb79")
    other.mkdir()
    (tmp_path / "gb79").rename(other / "gb79")
    one, two = (diagnose(paths)[0] for paths in ([before, other], [other, before]))
    assert roots(one) == [("host:gb05/gpu2/link07", "nvlink", "watch")]
    assert json.dumps(one["diagnoses"]) == json.dumps(two["diagnoses"])
