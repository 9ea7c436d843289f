"""A job's end over several machines: one root where the fault was, victims wherever it was felt."""

import time

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read_all

DAY = "2026-11-30"
FALLEN = "{0} ada kernel: NVRM: Xid (PCI:0000:4c:00): 79, pid=7, GPU has fallen off the bus.\n"
AT = f"{DAY}T06:30:05.250000Z"
INIT = ("{0}:{1}:8 [{2}] NCCL INFO comm 0x9 rank {3} nranks 4 cudaDev {2} nvmlDev {2} busId "
        "{4}000 commId {5} - Init COMPLETE\n")  # fmt: skip
RESET = ("bob:41:8 [0] misc/socket.cc:71 NCCL WARN socketProgress: Call to recv from "
         "192.0.2.7<4101> failed : Connection reset by peer\n")  # fmt: skip
WAIT = ("ProcessGroupNCCL.cpp:640] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL("
        "SeqNum=77, OpType=ALLREDUCE, Timeout(ms)={0}000) ran for {0}007 milliseconds before "
        "timing out.\n")  # fmt: skip
ELASTIC = ("torch/distributed/elastic/multiprocessing/api.py:871] failed (exitcode: 1) "
           "local_rank: 0 (pid: 41) of binary: python\n")  # fmt: skip
STEP = " [{0}] iteration {1:6d}/ 90 | lm loss: 2.5E+00 | grad norm: 1.0 | loss scale: 1.0 |\n"
PATH = ("{0}:41:8 [0] transport/net_ib.cc:1442 NCCL WARN NET/IB : Got completion from peer "
        "192.0.2.7<4101> with status={1} opcode=0 len=0 vendor err 129 (Recv) hca mlx5_6"
        "\n")  # fmt: skip
BOB = INIT.format("bob", 41, 0, 2, "3a", "0x77aa55cc")


@pytest.fixture
def judged(tmp_path):
    """Judge files by their paths, in both orders; a file's first folder is its machine."""

    def judged(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folders = sorted({tmp_path / name.partition("/")[0] for name in files})
        readings = read_all(folders)
        found = judge_inputs(readings)
        assert judge_inputs(readings[::-1]).diagnoses == found.diagnoses
        return found

    return judged


def told(judgement, role="root"):
    return [(d.subject, d.action) for d in judgement.diagnoses if d.role == role]


ROOT = ("host:ada/pci:0000:4c:00.0", "reboot-node")
SAID = {
    "undated": BOB + RESET,
    "T": f"{DAY}T06:30:09.125000Z {RESET}",
    "blank": f"{DAY} 06:30:09,125 {RESET}",
    "brackets": f"[{DAY} 06:30:09] {RESET}",
    "pods": f"{DAY}T06:30:09.123456789Z {BOB}{DAY}T06:30:09.123456789Z {RESET}",
    "another zone": f"{DAY}T15:30:09+0900 {RESET}",
    "local time": f"[{DAY} 15:30:09,125] {RESET}",
    "elastic": f"{BOB}E1130 06:30:11.250000 40 {ELASTIC}{RESET}",
    "watchdog": f"{BOB}[rank2]:[E1130 06:40:10.500 {WAIT.format(600)}",
    "watchdog, an hour": f"{BOB}[rank2]:[E1130 07:30:11.500 {WAIT.format(3600)}",
    "between two steps": f"{BOB}{STEP.format(f'{DAY} 06:29:55', 7)}{RESET}",
}


@pytest.mark.parametrize("text", SAID.values(), ids=SAID)
def test_a_lost_connection_follows_the_gpu_that_fell(judged, text):
    found = judged({"a/kern.log": FALLEN.format(AT), "b/train.log": text})
    assert (found.verdict, told(found)) == ("FAIL", [ROOT])
    assert {subject.partition("/")[0] for subject, _ in told(found, "victim")} == {"host:bob"}


@pytest.mark.parametrize(
    "text",
    [
        f"{DAY}T09:15:05.125000Z {RESET}",
        f"{DAY} 09:22:09,125 {RESET}",
        f"{BOB}{STEP.format('2026-11-28 04:00:00', 7)}{RESET}",
        f"{BOB}[rank2]:[E1130 06:55:10.500 {WAIT.format(600)}",
    ],
    ids=["hours later", "in no zone", "days before", "waited for less"],
)
def test_what_does_not_fit_in_time_stands_for_itself(judged, text):
    found = judged({"a/kern.log": FALLEN.format(AT), "b/train.log": text})
    assert told(found)[0] == ROOT
    assert [action for _, action in told(found)[1:]] == ["retest"]


def test_among_several_faults_the_jobs_own_machine_is_the_one(judged):
    other = FALLEN.replace("ada", "eve")
    files = {
        "a/kern.log": FALLEN.format(AT), "e/kern.log": other.format(AT),
        "a/train.log": INIT.format("ada", 31, 0, 0, "4c", "0x77aa55cc"),
        "e/train.log": INIT.format("eve", 31, 0, 0, "4c", "0x11"),
        "b/train.log": BOB + RESET,
    }  # fmt: skip
    found = judged(files)
    case = next(d.case for d in found.diagnoses if d.subject == ROOT[0])
    assert {d.case for d in found.diagnoses if d.subject.startswith("host:bob")} == {case}
    assert len(told(found)) == 2
    del files["a/train.log"]
    (files["a/job.txt"],) = ("ada:31:31 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>\n",)
    assert len(told(judged(files))) == 2


def test_without_a_job_two_faults_at_once_explain_nothing(judged):
    found = judged({"a/kern.log": FALLEN.format(AT),
                    "e/kern.log": FALLEN.replace("ada", "eve").format(AT),
                    "b/train.log": f"{DAY}T06:30:09.125000Z {RESET}"})  # fmt: skip
    assert ("host:bob", "retest") in told(found)


def test_one_job_in_many_folders_has_one_root(judged):
    files = {"n00/kern.log": FALLEN.replace("ada", "n00").format(AT)}
    for n in range(8):
        head = INIT.format(f"n{n:02}", 41, 0, n, "3a" if n else "4c", "0x77aa55cc")
        files[f"n{n:02}/train.log"] = head + (
            "[rank0]: RuntimeError: CUDA error: unspecified launch failure\n" if n == 0
            else RESET.replace("bob", f"n{n:02}")
        )  # fmt: skip
    found = judged(files)
    assert told(found) == [("host:n00/pci:0000:4c:00.0", "reboot-node")]
    assert {d.case for d in found.diagnoses} == {1}
    assert any("host:n05" in line for line in found.diagnoses[0].because)


def test_a_programs_own_end_explains_its_peers(judged):
    found = judged({
        "a/train.log": INIT.format("ada", 31, 0, 0, "4c", "0x77aa55cc")
        + "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.0 GiB.\n",
        "b/train.log": BOB + RESET,
    })  # fmt: skip
    assert (found.verdict, [action for _, action in told(found)]) == ("PASS", ["restart-app"])


PORTS = "".join(
    f"CA 'mlx5_{n}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {{{n}[0]}}\n"
    f"\t\tPhysical state: {{{n}[1]}}\n\t\tRate: 400\n\t\tLink layer: InfiniBand\n"
    for n in range(8)
)
UP, DOWN = ("Active", "LinkUp"), ("Down", "Polling")
ALL_UP = PORTS.format(*[UP] * 8)
ONE_DOWN = PORTS.format(*[DOWN if n == 6 else UP for n in range(8)])
UCX = ("[1796020209.125000] [bob:41:0]  ib_mlx5_log.c:201  UCX  ERROR Transport retry count "
       "exceeded on mlx5_6:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n")  # fmt: skip
PERFTEST = (
    "                    RDMA_Write BW Test\n Dual-port       : OFF    Device         : mlx5_6\n"
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n"
)
VERBS = f"{BOB}bob: error polling CQ: transport retry counter exceeded (mlx5_6)\n"


@pytest.mark.parametrize(
    "text", [BOB + PATH.format("bob", 12), BOB + UCX, PERFTEST, VERBS],
    ids=["NCCL", "UCX", "perftest", "verbs"],
)  # fmt: skip
def test_an_unanswered_transfer_accuses_the_port_that_is_down(judged, text):
    alone = judged({"b/out.log": text, "b/ibstat.txt": ALL_UP})
    assert (alone.verdict, told(alone)) == ("FAIL", [("fabric", "check-cabling")])
    found = judged({"a/ibstat.txt": ONE_DOWN, "b/out.log": text, "b/ibstat.txt": ALL_UP})
    assert [subject.rpartition("/")[2] for subject, _ in told(found)] == ["nic:mlx5_6"]
    assert not told(found)[0][0].startswith(("host:b/", "host:bob/"))
    own = judged({"a/ibstat.txt": ALL_UP, "b/out.log": text, "b/ibstat.txt": ONE_DOWN})
    assert [s.partition("/")[0] for s, _ in told(own)] in (["host:b"], ["host:bob"])


def test_flushed_work_follows_as_well(judged):
    files = {"a/kern.log": FALLEN.format(AT), "b/train.log": BOB + PATH.format("bob", 5)}
    assert told(judged(files)) == [ROOT]


def test_one_port_has_one_case_by_both_of_its_names(judged):
    down = f"{AT} ada kernel: mlx5_core 0000:9a:00.0 ib6: Link down\n"
    found = judged({"a/kern.log": down, "a/ibstat.txt": ONE_DOWN})
    assert [subject for subject, _ in told(found)] == ["nic:mlx5_6"]
    assert told(found, "victim") == []


LAUNCH = "[rank3]: RuntimeError: CUDA error: unspecified launch failure\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (INIT.format("ada", 31, 3, 3, "4c", "0x7") + LAUNCH, 1),
        (STEP.format(f"{DAY} 06:29:55", 7) + LAUNCH, 1),
        (f"{INIT.format('ada', 31, 3, 3, '3a', '0x7')}{DAY}T06:30:06Z {LAUNCH}", 1),
        (f"{INIT.format('ada', 31, 3, 3, '3a', '0x7')}{DAY}T09:30:06Z {LAUNCH}", 2),
        ("[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n", 2),
    ],
    ids=["its GPU", "its machine", "at once", "hours later", "not by its words"],
)
def test_a_cuda_error_follows_the_fault_of_its_gpu(judged, log, expected):
    found = judged({"a/kern.log": FALLEN.format(AT), "a/train.log": log})
    assert len(told(found)) == expected


@pytest.mark.parametrize(("seconds", "victims"), [(7, 2), (59, 0)])
def test_channels_removed_on_other_gpus_are_victims(judged, seconds, victims):
    later = "".join(
        f"{DAY}T06:30:{seconds:02}Z ada kernel: NVRM: Xid (PCI:0000:{bus}:00): 45, pid=3{bus}, "
        "name=python, Ch 0000000a\n" for bus in (18, 19)
    )  # fmt: skip
    found = judged({"a/kern.log": FALLEN.format(AT) + later})
    assert len(told(found)) == 1
    assert len(told(found, "victim")) == victims


@pytest.mark.parametrize(("pid", "verdict"), [(77, "PASS"), (78, "UNKNOWN")])
@pytest.mark.parametrize("words", ["Out of memory", "Memory cgroup out of memory"])
def test_a_killed_process_is_the_kernels_by_its_number(judged, pid, verdict, words):
    kernel = f"{AT} ada kernel: {words}: Killed process 77 (python) total-vm:9kB, anon-rss:9kB\n"
    log = f"step 9 loss 2.1\nE1130 06:30:09.5 40 {ELASTIC}".replace("exitcode: 1)", "exitcode: -9)")
    found = judged({"a/kern.log": kernel, "a/train.log": log.replace("pid: 41", f"pid: {pid}")})
    assert found.verdict == verdict


def test_a_switch_is_one_case_for_its_log_its_manager_and_the_job(judged):
    found = judged({
        "a/kern.log":
            f"{AT} ada kernel: NVRM: Xid (PCI:0000:4c:00): 74, pid=7, NVLink: fatal error detected "
            "on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n"
            f"{AT} ada kernel: nvidia-nvswitch1: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 22 "
            "LTSSM Fault Up\n"
            f"{DAY}T06:30:07Z ada kernel: NVRM: Xid (PCI:0000:4c:00): 154, GPU recovery action "
            "changed from 0x0 (None) to 0x1 (GPU Reset Required)\n",
        "a/fm.log":
            "[Nov 30 2026 06:30:04] [ERROR] [tid 9] detected NVSwitch fatal error 20034 on NVSwitch"
            " physical id 1 pci 00000000:C5:00.0 port 22 with error message: LTSSM Fault Up\n",
        "a/train.log": INIT.format("ada", 31, 0, 0, "4c", "0x7")
            + "[rank0]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the "
            "execution\n",
    })  # fmt: skip
    assert [subject for subject, _ in told(found)] == ["pci:0000:c5:00.0/link22"]
    assert [subject for subject, _ in told(found, "victim")] == ["pci:0000:4c:00.0"]
    assert sum("sxid.20034" in line for line in found.diagnoses[0].because) == 1


def test_a_copy_of_a_file_is_counted_once_whatever_its_folder(judged):
    text = "[  100.123456] NVRM: Xid (PCI:0000:4c:00): 48, pid=1, DBE (double bit error)\n"
    found = judged({"a/dmesg": text, "b/dmesg": text})
    assert len(told(found)) == 1
    assert found.diagnoses[0].because[0].startswith("xid.48 once")
    assert len(found.inputs) == 2


def _seconds(judge, count):
    """Return the processor's seconds for `count` machines of one job, each with its own fault."""
    files = {}
    for n in range(count):
        host = f"h{n:04}"
        files[f"{host}/kern.log"] = FALLEN.replace("ada", host).format(AT)
        files[f"{host}/train.log"] = INIT.format(host, 41, 0, n, "3a", "0x77") + RESET.replace(
            "bob", host
        )
    judge(files)
    return files


def test_the_cost_grows_with_the_number_of_machines_and_no_faster(tmp_path):
    spent = []
    for count in (150, 600):
        root = tmp_path / str(count)
        for name, text in _seconds(lambda _: None, count).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        readings = read_all(sorted(root.iterdir()))
        turns = []
        for _ in range(3):  # the best of three: whatever else the machine does strikes one of them
            began = time.process_time()
            found = judge_inputs(readings)
            turns.append(time.process_time() - began)
        spent.append(min(turns))
        assert len(told(found)) == count
    assert spent[1] < 10 * spent[0]  # four times the machines; sixteen times were quadratic
