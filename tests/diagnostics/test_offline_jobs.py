"""Jobs and tools beside other files of their machines: one cause, told by several, is one case."""

import pytest

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS
from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.rules import job, tables
from rackproof.diagnostics.rules.bandwidth import signs
from rackproof.diagnostics.rules.tables import Rule
from rackproof.diagnostics.rules.xid import KINDS
from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers import fabricmanager, job_signs, read_all

STEP = " iteration {0:7d}/      90 | lm loss: 2.5E+00 | grad norm: 1.0 | loss scale: 1.0 |\n"
INIT = ("{0}:{1}:9 [{2}] NCCL INFO comm 0x5 rank {3} nranks 4 cudaDev {2} nvmlDev {2} "
        "busId {4}000 - Init COMPLETE\n")  # fmt: skip
WORLD = "".join(INIT.format(f"n{r // 2}", 70 + r, r % 2, r, f"{0x3A + r % 2:x}") for r in range(4))
ECC = "[rank{}]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
XID = "Nov 30 08:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE (double bit error)\n"


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


def test_the_jobs_words_and_the_kernels_are_one_case(tmp_path):
    (tmp_path / "job.out").write_text(WORLD + STEP.format(1) + ECC.format(3))
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "kern.log").write_text(XID)
    readings = read_all([tmp_path])
    found = judge_inputs(readings)
    assert roots(found) == [("host:n1/pci:0000:3b:00.0", "hbm", "reset-gpu")]
    assert {"xid.48", "cuda.ecc"} <= {line.split()[0] for line in found.diagnoses[0].because}
    assert judge_inputs(readings[::-1]).diagnoses == found.diagnoses


def test_the_bandwidth_report_of_one_gpu_and_its_name_elsewhere_are_one_machine(tmp_path):
    head = "nvbandwidth Version: v0.9\n\nbox-9\n" + "".join(
        f"Device {i}: NVIDIA X (00000000:{0x3A + i:x}:00)\n" for i in range(4)
    )
    (tmp_path / "bw.txt").write_text(
        f"{head}\nRunning host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth "
        "(GB/s)\n  0  1  2  3\n 0 55.0 55.1 20.0 54.9\n\nSUM host_to_device_memcpy_ce 185.0\n"
    )
    (tmp_path / "job.out").write_text(STEP.format(1) * 3)
    found = judge_inputs(read_all([tmp_path]))
    assert (found.verdict, roots(found)) == (
        "FAIL", [("pci:0000:3c:00.0", "pcie", "check-cabling")]
    )  # fmt: skip


def told(code, subject="host", **detail):
    row = tables.toml("training.toml")["event"][code]
    rule = Rule(row["component"], row["action"], row["family"], row["kind"])
    return Event(subject, code, code, clock="none", detail=detail), rule


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([told("cuda.ecc", "rank1", step=3), told("nccl.ib.12", step=3)], ["cuda.ecc"]),
        ([told("cuda.ecc", "rank1", step=3), told("nccl.ib.12", step=90)],
         ["cuda.ecc", "nccl.ib.12"]),
        ([told("nccl.ib.12", step=3), told("nccl.ib.5", step=3), told("job.exit", step=4)],
         ["nccl.ib.12"]),
        ([told("job.gpu_memory", step=3), told("nccl.timeout", "rank2", step=3)],
         ["job.gpu_memory"]),
        ([told("job.exit", step=3), told("nccl.timeout", "rank2", step=3)], ["nccl.timeout"]),
        ([told("nccl.late", "rank3", line=9), told("nccl.timeout", "rank2", line=2)],
         ["nccl.late"]),
        ([told("net.peer", step=3, later_steps=40)], []),
        ([told("net.peer", step=3, later_steps=0)], ["net.peer"]),
    ],
    ids=["peers of a lost GPU", "much later", "flushed work", "memory", "exit", "late", "went on",
         "did not go on"],
)  # fmt: skip
def test_what_is_left_of_the_words_of_one_log(said, left):
    assert [event.code for event, _ in job.settle(said)] == left
    assert [event.code for event, _ in job.settle(said[::-1])] == left


def test_signs_of_other_tables_pass_untouched():
    other = (Event("gpu1", "smi.lost", "smi.lost"), Rule("pcie", "reboot-node", "bus", "hardware"))
    assert job.settle([other]) == [other]


def test_bandwidths_of_other_tools_are_not_held_against_one_another():
    values = [Measurement("superbench", f"gpu{i}", "copy.h2d.rate", 50.0 - 45 * (i == 2), "GB/s")
              for i in range(4)]  # fmt: skip
    assert signs(values) == []


CODES = {code for code, _ in job_signs.WORDS}
CODES -= {"nccl.ib", "nccl.async", "smi.handle", "nvml", "job.stopped"}
CODES |= {"nccl.ib.12", "nccl.ib.5", "nccl.port", "nccl.late", "job.mistake", "job.exception",
          "job.loss_missing"}  # fmt: skip
CODES |= {code for code, _ in fabricmanager._PLAIN} - {"fm.nothing"}
CODES |= {"fm.training", "fm.degraded", "fm.error", "fm.failed", "fm.gpu.fatal", "fm.gpu.nonfatal"}
CODES |= {"nvbandwidth.wrong", "nvbandwidth.failed", "nccl-tests.wrong"}


@pytest.mark.parametrize("code", sorted(CODES))
def test_each_code_has_one_meaning_with_a_source(code):
    rows = [
        row for table in ("training.toml", "site.toml", "tools.toml")
        if (row := tables.toml(table).get("event", {}).get(code)) is not None
    ]  # fmt: skip
    assert len(rows) == 1
    assert rows[0]["component"] in COMPONENTS
    assert rows[0]["action"] in ACTIONS
    assert rows[0]["kind"] in KINDS
    assert rows[0]["source"]
