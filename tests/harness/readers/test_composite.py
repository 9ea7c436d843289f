"""A file that holds the output of several tools is read part by part; no part is dropped."""

import gzip
from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import composite, read, read_all
from rackproof.harness.readers.marks import REPORT

XID = "NVRM: Xid (PCI:0000:6b:00): 79, pid=811, name=train, GPU has fallen off the bus."
QUIET = "[    7.250001] usb 2-1: new SuperSpeed USB device number 3 using xhci_hcd\n" * 4
SICK = QUIET + f"[ 8811.500001] {XID}\n"
LINKS = "GPU 0: NVIDIA H200 (UUID: GPU-77770000-1111-2222-3333-444455556666)\n" + "".join(
    f"\t Link {link}: 26.562 GB/s\n" for link in range(17)
) + "\t Link 17: <inactive>\n"  # fmt: skip
CSV = (
    "index, uuid, temperature.gpu, ecc.errors.uncorrected.volatile.total\n"
    "0, GPU-77770000-1111-2222-3333-444455556666, 41, 0\n"
)
PORT = (
    "CA 'mlx5_2'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n"
    "\t\tPhysical state: Disabled\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
)
AT = "ops@n31:~$ "
RULE = "\n" + "_" * 44 + "\n\n"


def samples(name):
    return (Path(__file__).parents[2] / "samples" / f"{name}.txt").read_text()


QUERY, TABLE = samples("nvidia-smi-q"), samples("nvidia-smi-table")


def report(*sections, whole=True):
    head = f"{REPORT.decode()}.  Please include this file\n\nuname: Linux n31 6.8.0 #1 SMP x86_64\n"
    end = ["End of NVIDIA bug report log file.\n"] if whole else []
    return RULE.join([head, *sections, *end])


@pytest.fixture
def put(tmp_path):
    def put(text, name="mixed", pack=bytes):
        path = tmp_path / name
        path.write_bytes(pack(text.encode()))
        return path

    return put


def told(found):
    return {(event.subject, event.code) for event in found.events}


TOGETHER = {
    "query-then-log": (QUERY + SICK, ["nvidia-smi-q", "kernel-log"]),
    "table-then-log": (TABLE + SICK, ["nvidia-smi-table", "kernel-log"]),
    "log-then-table": (SICK + TABLE, ["kernel-log", "nvidia-smi-table"]),
    "log-then-query": (SICK + QUERY, ["kernel-log", "nvidia-smi-q"]),
    "session": (
        f"{AT}nvidia-smi -q\n{QUERY}\n{AT}sudo dmesg\n{SICK}{AT}ibstat\n{PORT}",
        ["nvidia-smi-q", "kernel-log", "ib"],
    ),
    "root's session": (
        f"# nvidia-smi -q\n{QUERY}\n# dmesg | tail\n{SICK}", ["nvidia-smi-q", "kernel-log"],
    ),
    "traced": (f"+ nvidia-smi -q\n{QUERY}\n+ dmesg\n{SICK}", ["nvidia-smi-q", "kernel-log"]),
    "banners": (f"=== nvidia-smi -q ===\n{QUERY}\n=== dmesg ===\n{SICK}",
                ["nvidia-smi-q", "kernel-log"]),
    "tail of two": (f"==> /var/log/kern.log <==\n{QUIET}\n==> /var/log/kern.log.1 <==\n{SICK}",
                    ["kernel-log", "kernel-log"]),
    "three": (CSV + LINKS + SICK, ["nvidia-smi-csv", "nvidia-smi-nvlink", "kernel-log"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_what_stands_behind_another_tools_output_is_read(put, name):
    text, kinds = TOGETHER[name]
    path = put(text)
    found = read(path)
    assert ([part.kind for part in found.parts], found.kind) == (kinds, kinds[0])
    assert ("pci:0000:6b:00.0", "xid.79") in told(found)
    judged = judge_inputs(read_all([path]))
    assert judged.verdict is Verdict.FAIL
    assert [entry["path"] for entry in judged.as_json()["inputs"]] == [str(path)]
    (line,) = (e.detail["line"] for e in found.events if e.code == "xid.79")
    assert text.splitlines()[line - 1].endswith(XID)


def test_a_csv_and_the_links_behind_it_are_two_readings(put):
    first, second = read(put(CSV + LINKS)).parts
    assert (first.kind, second.kind) == ("nvidia-smi-csv", "nvidia-smi-nvlink")
    assert first.records == second.records == 1
    assert not first.cut


@pytest.mark.parametrize(
    "text", [QUERY, TABLE, CSV, LINKS, f"ops@n31:~$ nvidia-smi -q\n{QUERY}", QUIET]
)
def test_one_tools_output_has_no_parts(put, text):
    found = read(put(text))
    assert (found.parts, found.kind != "unrecognised") == ((), True)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_a_bug_report_is_read_section_by_section(put, pack):
    text = report(
        "*** /etc/issue\nUbuntu 24.04 LTS", f"/usr/bin/nvidia-smi --query\n\n{QUERY}",
        f"*** /var/log/kern.log\n{QUIET}", "/usr/bin/lspci -vvv\n\n00:00.0 Host bridge: x",
        f"/bin/dmesg\n\n{SICK}", "/usr/bin/journalctl -b -0 _COMM=Xorg\n\n-- No entries --",
    )  # fmt: skip
    path = put(text, pack=pack)
    found = read(path)
    assert [part.kind for part in found.parts] == ["nvidia-smi-q", "kernel-log", "kernel-log"]
    assert found.host == "n31"
    assert not found.cut
    assert judge_inputs(read_all([path.parent])).verdict is Verdict.FAIL


def test_dmesg_and_syslog_of_one_report_are_counted_once(put):
    text = report(
        f"*** /var/log/kern.log\nMay  4 05:06:07 n31 kernel: [ 8811.500001] {XID}",
        f"/usr/bin/journalctl -k\n\nMay 04 05:06:07 n31 kernel: {XID}",
    )
    (root,) = judge_inputs([read(put(text))]).diagnoses
    assert "xid.79 once" in root.because[0]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        pytest.param(report(f"/bin/dmesg\n\n{QUIET}"), Verdict.PASS, id="whole"),
        pytest.param(report(f"/bin/dmesg\n\n{QUIET}", whole=False), Verdict.UNKNOWN, id="cut"),
        pytest.param(report(f"/bin/dmesg\n\n{SICK}", whole=False), Verdict.FAIL, id="cut and sick"),
        pytest.param(report("*** /etc/issue\nUbuntu"), Verdict.UNKNOWN, id="nothing known"),
    ],
)
def test_a_bug_report_that_breaks_off_does_not_pass(put, text, verdict):
    assert judge_inputs([read(put(text))]).verdict is verdict


def test_what_is_too_long_to_part_is_cut_and_said(put, monkeypatch):
    monkeypatch.setattr(composite, "LIMIT", 1 << 12)
    found = read(put(QUIET * 40 + TABLE))
    assert found.cut
    lead = TABLE.splitlines().index(next(x for x in TABLE.splitlines() if "NVIDIA-SMI" in x))
    assert f"line {160 + lead + 1}: what begins there is not read" in found.problems[-1]


def test_two_machines_parts_do_not_mix(put):
    for host, bus in (("n1", "6b"), ("n2", "6c")):
        uuid = f"GPU-{bus * 4}-0000-0000-0000-000000000000"
        put(f"{CSV.replace('GPU-77770000-1111-2222-3333-444455556666', uuid)}"
            f"May  4 05:06:07 {host} kernel: {XID.replace('6b', bus)}\n", host)  # fmt: skip
    found = judge_inputs(read_all([put(QUIET, "quiet").parent]))
    assert {d.subject for d in found.diagnoses} == {
        "host:n1/pci:0000:6b:00.0", "host:n2/pci:0000:6c:00.0"
    }  # fmt: skip
