"""nvbandwidth: matrices whole or cut, data that arrived wrong, and GPUs held against their like."""

import json

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read

HEAD = """nvbandwidth Version: v0.9
Built from Git version: v0.9

CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 570.99.01

"""
NAMES = {
    "link": ("device_to_device_memcpy_read_ce", "memcpy CE GPU(row) -> GPU(column)"),
    "write": ("device_to_device_memcpy_write_ce", "memcpy CE GPU(row) <- GPU(column)"),
    "h2d": ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column)"),
    "d2h": ("device_to_host_memcpy_sm", "memcpy SM CPU(row) <- GPU(column)"),
    "both": ("host_to_device_bidirectional_memcpy_ce", "memcpy CE CPU(row) <-> GPU(column)"),
    "local": ("device_local_copy", "memcpy local GPU(column)"),
    "all": ("all_to_one_read_sm", "memcpy SM All Gpus -> GPU(column) total"),
}


def devices(count, host="", bus=0x10):
    lines = [f"Device {i}: NVIDIA H100 80GB HBM3 (00000000:{bus + i:02X}:00)" for i in range(count)]
    return "\n".join(([host] if host else []) + lines) + "\n\n"


def table(test, rows):
    name, about = NAMES[test]
    width = range(len(rows[0]))
    body = [f"Running {name}.", f"{about} bandwidth (GB/s)", "  ".join(f"{i:9d}" for i in width)]
    for i, row in enumerate(rows):
        cells = ("N/A" if v is None else f"{v:.2f}" for v in row)
        body.append(f" {i}" + "".join(f"{c:>11}" for c in cells))
    total = sum(v for row in rows for v in row if v)
    return "\n".join(body) + f"\n\nSUM {name} {total:.2f}\n\n"


def matrix(count, value, low=()):
    """Return cells of `value`; `low` maps (row, column) to another one."""
    low = dict(low)
    return [[None if r == c else low.get((r, c), value + 0.01 * c) for c in range(count)]
            for r in range(count)]  # fmt: skip


def of_gpu(gpu, count, value):
    others = [i for i in range(count) if i != gpu]
    return {(gpu, i): value for i in others} | {(i, gpu): value for i in others}


@pytest.fixture
def judged(tmp_path):
    def judged(text, name="out.txt"):
        path = tmp_path / name
        path.write_text(text)
        reading = read(path)
        return reading, judge_inputs([reading])

    return judged


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


def test_a_whole_report_is_read_by_gpu_and_address(judged):
    text = HEAD + devices(4, host="node-77") + table("h2d", [[55.1, 55.2, 54.9, 55.0]])
    text += table("link", matrix(4, 391.0)) + table("local", [[1500.0, 1510.0, 1490.0, 1500.0]])
    reading, found = judged(text)
    assert (reading.kind, reading.records, reading.host) == ("nvbandwidth", 3, "node-77")
    assert reading.aliases["gpu2"] == "pci:0000:12:00.0"
    values = {(m.metric, m.subject): m.value for m in reading.measurements}
    assert values["copy.h2d.rate", "pci:0000:12:00.0"] == 54.9
    assert values["copy.local.rate", "pci:0000:11:00.0"] == 1510.0
    assert values["link.pair.rate", "pci:0000:10:00.0"] == pytest.approx(391.02)
    assert (found.verdict, found.diagnoses) == ("PASS", ())


@pytest.mark.parametrize(
    ("end", "records"),
    [
        ("      1     391.0", 0),
        ("  1     391.0   N/A", 0),
        ("  1 391.00 N/A 391.00 39", 0),
        ("", 0),
    ],
    ids=["in a row", "after a row's beginning", "in the last cell", "after the columns"],
)
def test_a_matrix_that_ends_in_the_middle_is_unknown(judged, end, records):
    name, about = NAMES["link"]
    text = HEAD + devices(4) + f"Running {name}.\n{about} bandwidth (GB/s)\n  0  1  2  3\n{end}"
    reading, found = judged(text)
    assert (reading.cut, reading.records, found.verdict) == (True, records, "UNKNOWN")
    assert not found.diagnoses


@pytest.mark.parametrize("keep", range(40, 900, 13))
def test_no_cut_passes(judged, keep):
    text = (
        HEAD + devices(4) + table("h2d", [[55.1, 5.2, 54.9, 55.0]]) + table("link", matrix(4, 390))
    )
    assert len(text) > 900
    _, found = judged(text[:keep])
    assert found.verdict in ("UNKNOWN", "FAIL")
    assert not found.diagnoses or roots(found)[0][1] == "pcie"


def test_a_number_cut_in_half_in_a_row_that_looks_whole_is_no_slow_gpu(judged):
    name, about = NAMES["h2d"]
    text = f"{HEAD}Running {name}.\n{about} bandwidth (GB/s)\n 0 1 2 3\n 0 55.10 55.20 54.90 5"
    reading, found = judged(text)
    assert (reading.cut, found.verdict) == (True, "UNKNOWN")
    assert not found.diagnoses


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([("link", matrix(8, 391.0, of_gpu(5, 8, 40.0)))], ("pci:0000:15:00.0", "nvlink", "FAIL")),
        ([("link", matrix(8, 391.0, {(3, i): 190.0 for i in range(8)}))],
         ("pci:0000:13:00.0", "nvlink", "FAIL")),
        ([("link", matrix(8, 391.0, {(2, 6): 90.0, (6, 2): 91.0}))], ("fabric", "nvlink", "FAIL")),
        ([("link", matrix(8, 391.0, {(2, 6): 90.0}))], ("fabric", "nvlink", "UNKNOWN")),
        ([("link", matrix(6, 26.0, of_gpu(1, 6, 6.0)))], ("pci:0000:11:00.0", "pcie", "UNKNOWN")),
        ([("h2d", [[55.0, 55.1, 27.0, 54.0]])], ("pci:0000:12:00.0", "pcie", "FAIL")),
        ([("d2h", [[55.0, 55.1, 54.0, 0.0]])], ("pci:0000:13:00.0", "pcie", "FAIL")),
        ([("local", [[1500.0, 700.0, 1505.0, 1499.0]])], ("pci:0000:11:00.0", "hbm", "FAIL")),
        ([("all", [[380.0, 381.0, 100.0, 379.0]])], ("pci:0000:12:00.0", "nvlink", "FAIL")),
        ([("h2d", [[55.0] * 3 + [27.0, 27.1] + [55.0] * 3])],
         ("pci:0000:13:00.0", "pcie", "UNKNOWN")),
    ],
    ids=["row and column", "row", "pair both ways", "one cell", "pairs over PCIe", "to one GPU",
         "from one GPU", "local copy", "all to one", "two of eight"],
)  # fmt: skip
def test_far_below_the_others_of_one_report(judged, tables, expected):
    size = len(tables[0][1][0])
    _, found = judged(HEAD + devices(size) + "".join(table(*t) for t in tables))
    subject, component, verdict = expected
    assert found.verdict == verdict
    assert roots(found)[0][:2] == (subject, component)


@pytest.mark.parametrize(
    "tables",
    [
        [("h2d", [[55.0] * 4 + [24.0] * 4])],
        [("link", [[None if r == c else 26.0 if (r < 4) == (c < 4) else 13.0 for c in range(8)]
                   for r in range(8)])],
        [("link", [[None if r == c else 391.0 if (r < 6) == (c < 6) else 24.0 for c in range(8)]
                   for r in range(8)])],
        [("link", matrix(8, 20.0, {(0, 1): 52.0, (1, 0): 52.0}))],
        [("link", matrix(2, 50.0, {(0, 1): 9.0}))],
        [("local", [[1500.0] * 4]), ("link", matrix(4, 26.0)), ("h2d", [[13.0] * 4])],
        [("h2d", [[None, 55.0, 55.0, 54.0]])],
        [("both", [[11.0, 30.0, 31.0, 29.0]])],
        [("h2d", [[55.0, 40.0, 54.0, 55.0]])],
    ],
    ids=["two sockets", "two sockets, pairs", "two islands", "one bridged pair", "two GPUs only",
         "unlike tests", "not measured", "crowded bus", "a little below"],
)  # fmt: skip
def test_no_fault(judged, tables):
    size = len(tables[0][1][0])
    named = devices(size).replace("H100", "H9000")  # a GPU of which nothing is published
    _, found = judged(HEAD + named + "".join(table(*t) for t in tables))
    assert (found.verdict, roots(found)) == ("PASS", [])
    unjudged = {"h2d", "link"} & {name for name, _ in tables}
    assert bool(unjudged) is any("no limit" in said for said in found.inputs[0].problems)


def test_other_models_are_no_peers(judged):
    text = HEAD + "".join(f"Device {i}: NVIDIA H100 (00000000:1{i}:00)\n" for i in range(4))
    text += "Device 4: NVIDIA T400 (00000000:14:00)\n\n" + table("h2d", [[55.0] * 4 + [6.0]])
    _, found = judged(text)
    assert found.verdict == "PASS"


def test_one_slow_sample_of_three_is_none(judged):
    good, bad = [[55.0, 55.1, 55.2, 54.0]], [[55.0, 55.1, 20.0, 54.0]]
    text = HEAD + devices(4) + table("h2d", good) + table("h2d", bad) + table("h2d", good)
    reading, found = judged(text)
    assert {m.attempt for m in reading.measurements if m.metric == "copy.h2d.rate"} == {1, 2, 3}
    assert found.verdict == "PASS"


WRONG = """Running device_to_device_memcpy_write_sm.
 Invalid value when checking the pattern at 0x7fa010000000
 Current offset : 4096
ASSERT in expression h_errorFlag == 0 in void memcmpPattern(CUdeviceptr) : /opt/nvb/memcpy.cpp:201
"""


def test_data_that_arrived_wrong_is_a_fault_of_nobody_in_particular(judged):
    reading, found = judged(HEAD + devices(4) + table("h2d", [[55.0] * 4]) + WRONG)
    assert found.verdict == "FAIL"
    assert roots(found) == [("host:unknown", "unknown", "field-diag")]
    assert "pattern" in found.diagnoses[0].because[0]
    assert reading.records == 1


@pytest.mark.parametrize(
    ("text", "verdict", "component"),
    [
        ("ERROR: [CUDA_ERROR_ECC_UNCORRECTABLE] in expression cuMemcpyAsync", "FAIL", "hbm"),
        ("ERROR: something of its own", "UNKNOWN", "unknown"),
        ("WAIVED: not enough GPUs", "UNKNOWN", None),
        ("", "UNKNOWN", None),
    ],
    ids=["ECC", "unclear", "waived only", "nothing at all"],
)
def test_no_result(judged, text, verdict, component):
    reading, found = judged(f"{HEAD}Running device_to_device_memcpy_read_ce.\n{text}\n")
    assert (reading.records, reading.worked, found.verdict) == (0, False, verdict)
    assert [d.component for d in found.diagnoses] == ([component] if component else [])


def test_processes_of_several_hosts(judged):
    text = HEAD + "".join(
        f"Process {i} (tray{i // 2}): device {i % 2}: NVIDIA GB300 (0008:0{i % 2 + 1}:00)\n"
        for i in range(8)
    )  # fmt: skip
    text += "\n" + table("link", matrix(8, 820.0, of_gpu(5, 8, 60.0)))
    _, found = judged(text)
    assert roots(found)[0] == ("host:tray2/pci:0008:02:00.0", "nvlink", "field-diag")


def as_json(cases, **more):
    return json.dumps({"nvbandwidth": {
        "CUDA Runtime Version": 12080, "Driver Version": "570.99.01",
        "GPU Device List": [f"{i}: NVIDIA B200: (00000000:{0x20 + i:x}:00)" for i in range(4)],
        "git_version": "v0.9", **more, "testcases": cases,
    }}, indent=3)  # fmt: skip


def case(test, rows):
    name, about = NAMES[test]
    cells = [["N/A" if v is None else f"{v:g}" for v in row] for row in rows]
    return {"bandwidth_description": f"{about} bandwidth (GB/s)", "bandwidth_matrix": cells,
            "name": name, "status": "Passed", "sum": 1.0}  # fmt: skip


def test_json(judged):
    waived = {"name": "device_to_host_memcpy_ce", "status": "Waived"}
    cases = [case("h2d", [[55.0, 55.1, 55.2, 20.0]]), waived, case("link", matrix(4, 700.0))]
    reading, found = judged("+ ./nvbandwidth -j\n" + as_json(cases))
    assert (reading.kind, reading.records, reading.cut) == ("nvbandwidth", 2, False)
    assert roots(found) == [("pci:0000:23:00.0", "pcie", "check-cabling")]


@pytest.mark.parametrize("share", [0.3, 0.5, 0.62, 0.7, 0.8, 0.9, 0.99])
def test_json_that_is_cut_is_unknown(judged, share):
    text = as_json([case("h2d", [[55.0, 55.1, 55.2, 55.0]]), case("link", matrix(4, 700.0))])
    reading, found = judged(text[: int(len(text) * share)])
    assert (reading.kind, reading.cut, found.verdict) == ("nvbandwidth", True, "UNKNOWN")
    assert not found.diagnoses


def test_json_with_an_error(judged):
    text = as_json([{"name": "device_to_device_memcpy_read_ce", "status": "Error",
                     "error": "Invalid value when checking the pattern at 0x7f"}])  # fmt: skip
    assert judged(text)[1].verdict == "FAIL"


@pytest.mark.parametrize(
    "text",
    [
        f"# nvbandwidth\n```\nnvbandwidth Version: v0.9\n{table('h2d', [[6.0, 7.0]])}```\n",
        "Running host checks.\nAll fine.\n",
        '{"nvbandwidth_version": 3}',
    ],
    ids=["its manual", "somebody else's", "another key"],
)
def test_not_its_report(judged, text):
    assert judged(text)[0].kind != "nvbandwidth"
