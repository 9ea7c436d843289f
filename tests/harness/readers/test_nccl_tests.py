"""nccl-tests: columns of every version, what was checked, what was sent, what came out wrong."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read

SIDES = "out-of-place                       in-place"
NEW = f"""#                                                              {SIDES}
#       size         count      type   redop    root {"     time   algbw   busbw #wrong" * 2}
#        (B)    (elements)                           {"     (us)  (GB/s)  (GB/s)       " * 2}
"""
OLD = f"""#                                                     {SIDES}
#       size         count    type   redop {"     time   algbw   busbw  error" * 2}
#        (B)    (elements)                 {"     (us)  (GB/s)  (GB/s)       " * 2}
"""


def start(validation=1, ranks=4, hosts=("gpu-a",), address="0x{:02x}"):
    head = (f"# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 2(factor) iters: 20 "
            f"validation: {validation} graph: 0\n#\n# Using devices\n")  # fmt: skip
    for rank in range(ranks):
        host = hosts[rank * len(hosts) // ranks]
        local = rank % max(1, ranks // len(hosts))
        head += (f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device {local:2d} "
                 f"[{address.format(0x1A + local)}] NVIDIA H200\n")  # fmt: skip
    return head + "#\n"


def row(size, busbw, wrong="0", inside=None, columns="float     sum      -1", inplace_wrong=None):
    bus = busbw if inside is None else inside
    cells = f"{100.0:8.1f} {busbw / 1.75:7.2f} {busbw:7.2f} {wrong:>6}"
    cells += f" {100.0:8.1f} {bus / 1.75:7.2f} {bus:7.2f} {inplace_wrong or wrong:>6}"
    return f"{size:12d} {size // 4:12d}   {columns} {cells}\n"


def end(mean, bounds="0 OK"):
    return f"# Out of bounds values : {bounds}\n# Avg bus bandwidth    : {mean:g}\n#\n"


ROWS = row(1 << 20, 100.0) + row(1 << 21, 200.0) + row(1 << 22, 300.0)


@pytest.fixture
def judged(tmp_path):
    def judged(text):
        path = tmp_path / "nccl.log"
        path.write_text(text)
        reading = read(path)
        return reading, judge_inputs([reading])

    return judged


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


@pytest.mark.parametrize(
    "text",
    [
        start() + NEW + ROWS + end(200),
        start(address="0000:{:02X}:00") + NEW + ROWS + end(200),
        "NCCL version 2.21.5+cuda12.4\n" + start() + NEW + ROWS + end(200),
        start() + NEW + row(1 << 20, 90.0, columns="bfloat16            ") + end(90),
        start() + NEW + row(1 << 20, 90.0, columns="half    none       2") + end(90),
        "".join(f"[1,0]<stdout>:{x}\n" for x in (start() + NEW + ROWS + end(200)).split("\n")),
        start() + NEW + row(1 << 20, 90.0, inplace_wrong="N/A") + end(90),
        start() + OLD + row(1 << 20, 90.0, "3e-07", columns="float     sum") + end(90),
        start() + NEW + ROWS + "gpu-a:4000:4100 [0] NCCL INFO Launch mode Parallel\n" + end(200),
        start() + NEW + ROWS + end(200) + NEW + ROWS + end(200),
    ],
    ids=["new columns", "whole addresses", "version first", "no redop", "root", "mpirun",
         "in-place not checked", "old columns with error bounds", "INFO among the rows", "twice"],
)  # fmt: skip
def test_a_healthy_run_passes(judged, text):
    reading, found = judged(text)
    assert (reading.kind, reading.problems, reading.cut) == ("nccl-tests", (), False)
    assert (found.verdict, found.diagnoses) == ("PASS", ())
    best = [m.value for m in reading.measurements if m.metric == "link.collective.rate"]
    assert best[0] in (90.0, 300.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (start() + NEW + ROWS, "summary"),
        (start() + NEW + ROWS[:-30], "summary"),
        (start() + NEW, "did not start"),
        (start(), "did not start"),
        (start() + NEW + row(1 << 20, 100.0) + "...\n" + row(1 << 22, 300.0) + end(200), "missing"),
        (start() + NEW + row(1 << 22, 300.0) + end(200), "mean"),
        (start(0) + NEW + row(1 << 20, 100.0, "N/A") + end(100), "not checked"),
        (start(0) + OLD + row(1 << 20, 100.0, "N/A", columns="float sum") + end(100), "checked"),
        (start(ranks=1) + NEW + row(1 << 25, 0.0, inplace_wrong="N/A") + end(0), "was sent"),
        (start() + NEW + "gpu-a: Test NCCL failure common.cu:958 'internal error'\n", "not start"),
    ],
    ids=["no summary", "cut in a row", "no row", "no table", "rows left out", "rows lost", "-c 0",
         "-c 0, old columns", "one rank", "does not start"],
)  # fmt: skip
def test_what_says_nothing_of_the_machine_is_unknown(judged, text, problem):
    reading, found = judged(text)
    assert found.verdict == "UNKNOWN"
    assert any(problem in said for said in reading.problems), reading.problems


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        (start() + NEW + row(1 << 20, 100.0) + row(1 << 21, 100.0, "12") + end(100, "24 FAILED"),
         "host:gpu-a"),
        (start() + NEW + row(1 << 20, 100.0) + row(1 << 21, 100.0, "0", inplace_wrong="7"),
         "host:gpu-a"),
        (start() + OLD + row(1 << 20, 90.0, "2e+01", columns="float  sum") + end(90, "2 FAILED"),
         "host:gpu-a"),
        (start(hosts=("gpu-a", "gpu-b")) + NEW + row(1 << 20, 100.0, "1") + end(100, "2 FAILED"),
         "fabric"),
        (NEW + row(1 << 20, 100.0, "5"), "host:unknown"),
    ],
    ids=["both sides", "in place only, cut", "old columns", "two hosts", "a table alone"],
)  # fmt: skip
def test_wrong_elements_fail_whoever_it_was(judged, text, subject):
    _, found = judged(text)
    assert (found.verdict, roots(found)) == ("FAIL", [(subject, "unknown", "field-diag")])


ECC = "gpu-a:4002:4102 [2] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'\n"
PATH = ("gpu-b:4003:4103 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        "192.0.2.7<40001> with status=12 opcode=0 len=0 vendor err 129 hca mlx5_4\n")  # fmt: skip


@pytest.mark.parametrize(
    ("said", "hosts", "expected"),
    [
        (ECC, ("gpu-a",), ("pci:0000:1c:00.0", "hbm", "reset-gpu")),
        (PATH, ("gpu-a", "gpu-b"), ("fabric", "fabric", "check-cabling")),
        (ECC + PATH, ("gpu-a", "gpu-b"), ("host:gpu-b/pci:0000:1a:00.0", "hbm", "reset-gpu")),
    ],
    ids=["ECC", "network", "the network follows the ECC error"],
)
def test_the_cause_among_the_rows(judged, said, hosts, expected):
    text = start(hosts=hosts, address="0000:{:02x}:00") + NEW + row(1 << 20, 100.0) + said
    if len(hosts) > 1 and "Cuda" in said:
        text = text.replace("gpu-a:4002", "gpu-b:4002")
    _, found = judged(text + "gpu-a: Test NCCL failure common.cu:958 'unhandled cuda error'\n")
    assert (found.verdict, roots(found)) == ("FAIL", [expected])


@pytest.mark.parametrize(
    "text",
    [
        "# nccl-tests\n\nRun it as below.\n```\n" + NEW + ROWS + "```\n",
        "import sys\nHEADER = '''\n" + NEW + "'''\n",
    ],
    ids=["a manual", "a program"],
)
def test_not_its_output(judged, text):
    assert judged(text)[0].kind != "nccl-tests"
