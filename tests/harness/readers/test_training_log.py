"""A training job's log: steps, numbers, launchers' prefixes, the cause among many messengers."""

import tracemalloc

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read


def step(n, loss="2.5E+00", grad="1.1", skipped=0, nans=0):
    lm = f" lm loss: {loss} |" if loss else ""
    return (f" iteration {n:8d}/     900 | consumed samples: {n * 64:9d} | elapsed time per step "
            f"(ms): 812.5 | learning rate: 1.0E-04 | global batch size:   64 |{lm} loss scale: 1 |"
            f" grad norm: {grad} | number of skipped iterations: {skipped:3d} | number of nan "
            f"iterations: {nans:3d} |\n")  # fmt: skip


STEPS = "".join(step(n) for n in range(1, 6))
WATCHDOG = ("[E1130 08:00:01.5 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank {0}] Process "
            "group watchdog thread terminated with exception: {1}\n")  # fmt: skip
ECC = "CUDA error: uncorrectable ECC error encountered"
TIMEOUT = ("[rank{0}]:[E1130 08:10:01.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught "
           "collective operation timeout: WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=8) "
           "ran for 600010 milliseconds before timing out.\n")  # fmt: skip
PATH = ("{0}:77:78 [3] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer "
        "198.51.100.9<42> with {1} opcode 0 len 0 vendor err 129 (Recv) localGid "
        "2001:db8:1::5 remoteGids2001:db8:1::9\n")  # fmt: skip
EVENT = "n1:77:78 [3] net_ib.cc:90 NCCL WARN NET/IB : mlx5_2:1 Got async event : port {}\n"
EXIT = "[2026-11-30 08:11:00,001] [ERROR] [launch.py:325:main] ['x'] exits with return code = {}\n"


@pytest.fixture
def judged(tmp_path):
    def judged(text):
        path = tmp_path / "job.log"
        path.write_text(text)
        reading = read(path)
        return reading, judge_inputs([reading])

    return judged


def roots(judgement):
    return [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]


HEALTHY = {
    "Megatron": STEPS,
    "DeepSpeed": "".join(
        f"[2026-11-30 08:00:0{n},120] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, "
        "skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]\n" for n in range(1, 6)),
    "Hugging Face": "".join(
        f"{{'loss': 2.{n}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.{n}}}\n"
        for n in range(1, 6)),
    "torchtitan": "".join(
        f"[rank0]:[titan] 2026-11-30 08:00:0{n},001 - root - INFO - step:  {n}  loss:  8.1  "
        "grad_norm:  1.2  memory:  40.1GiB\n" for n in range(1, 6)),
    "NeMo": "".join(
        f"Training epoch 0, iteration {n}/99 | lr: 1e-05 | global_step: {n} | "
        "reduced_train_loss: 10.4 | train_step_timing in s: 3.1\n" for n in range(1, 6)),
    "loss scale is searched": step(1, "", "inf", 1) + step(2, "", "nan", 1) + STEPS,
    "exits with 0": STEPS + EXIT.format(0),
    "retries before it goes on": "RuntimeError: [3] Connection refused, next try\n" + STEPS,
    "checks that find nothing": STEPS + "INFO: 0 uncorrectable ECC errors, 0 illegal memory\n",
    "stamped": STEPS.replace(" iteration", " [2026-11-30 08:00:00.123456] iteration"),
    "a container's": STEPS.replace(" iteration", "2026-11-30T08:00:00.123456789Z  iteration"),
    "a pod's": STEPS.replace(" iteration", "[pod/job-worker-1/pytorch]  iteration"),
    "nanoGPT": "".join(
        f"iter {n}: loss 6.{n}031, time 81.33ms, mfu 41.20%\n" for n in range(1, 6)),
    "PyTorch's example": "".join(
        f"Epoch: [{n}][  1/99]\tTime  0.123 ( 0.62)\tData  0.1 ( 0.3)\tLoss 6.9{n}e+00 (6.96e+00)"
        "\tAcc@1   0.00 (  0.10)\n" for n in range(1, 6)),
    "bare": "".join(f"step {n} loss 2.{n}\n" for n in range(1, 6)) + "Training finished\n",
    "with bars": "".join(f"step {n}/9 | loss 2.{n} | lr 3e-4\n" for n in range(1, 6)),
    "of epochs": "".join(f"epoch 0 step {n} loss 2.{n} lr 3e-4\n" for n in range(1, 6)),
    "Lightning": "".join(
        f"Epoch {n}:  42%|####      | 42/100 [00:51<01:10,  1.2it/s, v_num=2, train_loss=2.{n}0]\n"
        for n in range(1, 6)),
    "out of time": STEPS + "slurmstepd: error: *** STEP 31.0 ON n1 CANCELLED AT "
        "2026-11-30T08:00:00 DUE TO TIME LIMIT ***\n" + EXIT.format(-9),
    "for another job": STEPS + "slurmstepd: error: *** JOB 31 ON n1 CANCELLED AT "
        "2026-11-30T08:00:00 DUE TO PREEMPTION ***\nsrun: error: n1: task 0: Terminated\n",
    "asked to end": STEPS + "torch.distributed.elastic.multiprocessing.api.SignalException: "
        "Process 31 got signal: 15\n",
    "infinite words": STEPS + "INFO: nan_to_num is used for inference, info: none\n",
}  # fmt: skip


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_progress_and_no_sign_of_a_fault_passes(judged, text):
    reading, found = judged(text)
    assert (reading.kind, reading.worked) == ("training-log", True)
    assert (found.verdict, found.diagnoses) == ("PASS", ())
    steps = next(m.value for m in reading.measurements if m.metric == "job.steps")
    assert steps in (5, 7)


def test_no_progress_and_no_sign_is_unknown(judged):
    text = "n1:5:6 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>\n" * 5
    reading, found = judged(text)
    assert (reading.kind, reading.worked, found.verdict) == ("training-log", False, "UNKNOWN")


@pytest.mark.parametrize(
    ("text", "expected", "verdict"),
    [
        (f"RuntimeError: {ECC}\n" + WATCHDOG.format(3, ECC), ("rank3", "hbm", "reset-gpu"), "FAIL"),
        (f"[default1]:[rank9]:{WATCHDOG.format(9, ECC)}", ("rank9", "hbm", "reset-gpu"), "FAIL"),
        (f"[1,5]<stdout>:RuntimeError: {ECC}\n", ("rank5", "hbm", "reset-gpu"), "FAIL"),
        (f"(Worker pid=7, ip=192.0.2.7) [rank4]: {ECC}\n", ("rank4", "hbm", "reset-gpu"), "FAIL"),
        ("n1: NVRM: Xid (PCI:0000:5A:00): 48, pid=9, DBE (double bit error) has occurred\n",
         ("pci:0000:5a:00.0", "hbm", "reset-gpu"), "FAIL"),
        (f" 7: RuntimeError: {ECC}\n", ("rank7", "hbm", "reset-gpu"), "FAIL"),
        ("[rank2]: torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected\n",
         ("rank2", "nvlink", "reset-gpu"), "FAIL"),
        ("RuntimeError: CUDA error: system not yet initialized\n",
         ("host:unknown", "fabric", "reboot-node"), "FAIL"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered\n",
         ("host:unknown", "app", "restart-app"), "PASS"),
        ("RuntimeError: CUDA error: device-side assert triggered\n",
         ("host:unknown", "app", "restart-app"), "PASS"),
        ("RuntimeError: CUDA error: unspecified launch failure\n",
         ("host:unknown", "app", "restart-app"), "PASS"),
        ("RuntimeError: CUDA error: the launch timed out and was terminated\n",
         ("host:unknown", "app", "restart-app"), "PASS"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.0 GiB.\n",
         ("host:unknown", "app", "restart-app"), "PASS"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.\n" + EXIT.format(-9),
         ("host:unknown", "app", "restart-app"), "PASS"),
        (EXIT.format(-9), ("host:unknown", "unknown", "retest"), "UNKNOWN"),
        ("OSError: [Errno 28] No space left on device: '/ckpt/iter_5'\n" + EXIT.format(1),
         ("host:unknown", "storage", "watch"), "UNKNOWN"),
        ("saving checkpoint at iteration 5 to /ckpt\n" + EXIT.format(1),
         ("host:unknown", "unknown", "retest"), "UNKNOWN"),
        ("RuntimeError: CUDA error: unknown error\n",
         ("host:unknown", "unknown", "retest"), "UNKNOWN"),
        ("KeyError: 'layers'\n" + EXIT.format(1), ("host:unknown", "app", "restart-app"), "PASS"),
        ("WARNING: Second rerun\nERROR: Possible persistent error!\n",
         ("host:unknown", "sm", "field-diag"), "FAIL"),
        (PATH.format("n1", "status=12") + PATH.format("n1", "status=5"),
         ("fabric", "fabric", "check-cabling"), "FAIL"),
        (PATH.format("n1", "error 12,"), ("fabric", "fabric", "check-cabling"), "FAIL"),
        (PATH.format("n1", "status=5"), ("host:n1", "unknown", "retest"), "UNKNOWN"),
        (PATH.format("n1", "error 5,"), ("host:n1", "unknown", "retest"), "UNKNOWN"),
        (PATH.format("n1", "status=12").replace("(Recv)", "(Recv) hca mlx5_7"),
         ("fabric", "fabric", "check-cabling"), "FAIL"),
        ("".join(PATH.format(n, "status=12") for n in ("n1", "n2", "n3")),
         ("fabric", "fabric", "check-cabling"), "FAIL"),
        (EVENT.format("error"), ("nic:mlx5_2", "nic", "check-cabling"), "FAIL"),
        (EVENT.format("active"), None, "PASS"),
    ],
    ids=["ECC told twice", "ECC behind prefixes", "mpirun", "Ray", "Xid shown", "srun", "NVLink",
         "no fabric manager",
         "illegal access", "assert", "launch failure", "launch timeout", "GPU memory", "RAM",
         "killed by whom", "disk full", "exit at a checkpoint", "CUDA unknown", "mistake", "SDC",
         "12 then 5", "12, old words", "5 alone", "5, old words", "12 with its NIC", "from three",
         "port error", "port active"],
)  # fmt: skip
def test_the_cause_of_the_end(judged, text, expected, verdict):
    _, found = judged(STEPS + text)
    assert found.verdict == verdict
    assert roots(found) == ([expected] if expected else [])


FOLLOWERS = "".join((
    TIMEOUT.format(1, 50), TIMEOUT.format(2, 50), PATH.format("n1", "status=12"),
    "[rank4]: torch.distributed.DistBackendError: NCCL error: remote process exited\n",
    "[rank5]: RuntimeError: [6] is setting up NCCL communicator: Connection refused\n",
    "[rank6]: RuntimeError: CUDA error: an illegal memory access was encountered\n",
    EXIT.format(1), "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
))  # fmt: skip


@pytest.mark.parametrize("order", ["before", "after"])
def test_what_stands_at_the_step_of_a_cause_follows_from_it(judged, order):
    cause = WATCHDOG.format(3, ECC)
    text = STEPS + (cause + FOLLOWERS if order == "before" else FOLLOWERS + cause)
    _, found = judged(text)
    assert (found.verdict, roots(found)) == ("FAIL", [("rank3", "hbm", "reset-gpu")])


def test_what_comes_many_steps_later_does_not(judged):
    text = STEPS + "ValueError: a worker's, and caught\n" + STEPS + TIMEOUT.format(1, 9)
    _, found = judged(text)
    assert found.verdict == "UNKNOWN"
    assert ("rank1", "unknown", "retest") in roots(found)


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({0: 7, 1: 7, 3: 7}, "rank2"),
        ({0: 7, 1: 7, 2: 6, 3: 7}, "rank2"),
        ({0: 7}, "rank0"),
        ({0: 7, 3: 7}, "host:unknown"),
        ({0: 7, 1: 7, 2: 7, 3: 7}, "host:unknown"),
    ],
    ids=["one did not wait", "one waited elsewhere", "one told", "two told", "all waited"],
)
def test_a_timeout_is_told_by_those_who_wait(judged, waits, expected):
    text = STEPS + "world_size=4\n" + "".join(TIMEOUT.format(*wait) for wait in waits.items())
    _, found = judged(text)
    assert (found.verdict, roots(found)) == ("UNKNOWN", [(expected, "unknown", "retest")])


@pytest.mark.parametrize(
    "text",
    [
        step(6, grad="nan"),
        step(6, loss="nan"),
        step(6, loss="-Infinity"),
        step(6, loss=""),
        step(6, nans=2),
        step(6, grad="nan").replace(" | ", " |\n"),
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.9}\n",
        "[rank0]:[titan] 2026-11-30 08:00:01,1 - root - INFO - step: 6  loss:  nan  grad_norm: 1\n",
        "ERROR: Rank 5, iteration 6: found NaN in local forward loss calculation\n",
        "Epoch 6:  42%|####   | 42/100 [00:51<01:10,  1.2it/s, v_num=2, train_loss=nan.0]\n",
        "iter 6: loss nan, time 81.33ms, mfu 41.20%\n",
    ],
    ids=["gradient", "loss", "infinite", "loss missing", "counted", "over several lines", "mapping",
         "torchtitan", "in words", "padded", "after a blank"],
)  # fmt: skip
def test_numbers_that_are_none_are_watched(judged, text):
    _, found = judged(STEPS + text)
    assert found.verdict == "UNKNOWN"
    assert [(c, a) for _, c, a in roots(found)] == [("data", "watch")]


def test_a_nan_on_one_rank_alone_points_at_the_rank(judged):
    line = "[rank{}]: step {}: loss = {}, grad_norm = 0.5\n"
    text = "".join(line.format(r, n, "nan" if (r, n) == (3, 4) else 2.5)
                   for n in range(5) for r in range(8))  # fmt: skip
    _, found = judged(text)
    assert (found.verdict, roots(found)) == ("UNKNOWN", [("rank3", "unknown", "retest")])


LOST = "pcie", "reboot-node"
NVML = "n1:7:8 [3] misc/nvmlwrap.cc:99 NCCL WARN nvmlDeviceGetHandleByIndex({}) failed: {}\n"
HANDLE = "Unable to determine the device handle for GPU 0000:5A:00.0: {}\n"


@pytest.mark.parametrize(
    ("text", "expected", "verdict"),
    [
        ("srun: error: Node failure on n7\n", ("host:n7", "host", "retest"), "UNKNOWN"),
        ("slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-30T08:00:00 DUE TO NODE "
         "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\nsrun: error: Node failure on n7\n"
         + TIMEOUT.format(1, 5), ("host:n7", "host", "retest"), "UNKNOWN"),
        (HANDLE.format("GPU is lost.  Reboot the system to recover this GPU"),
         ("pci:0000:5a:00.0", *LOST), "FAIL"),
        (HANDLE.format("Unknown Error") + EXIT.format(1), ("pci:0000:5a:00.0", *LOST), "FAIL"),
        (NVML.format(3, "GPU is lost"), ("gpu3", *LOST), "FAIL"),
        (NVML.format(3, "Unknown Error"), ("gpu3", "unknown", "retest"), "UNKNOWN"),
        ("srun: error: n1: task 3: Killed\n", ("host:unknown", "unknown", "retest"), "UNKNOWN"),
        ("srun: error: n1: task 3: Out Of Memory\n", ("host:unknown", "app", "restart-app"),
         "PASS"),
    ],
    ids=["node", "node by name", "lost", "unknown error", "NVML lost", "NVML unknown", "killed",
         "RAM"],
)  # fmt: skip
def test_what_schedulers_and_tools_say_in_its_log(judged, text, expected, verdict):
    _, found = judged(STEPS + text)
    assert (found.verdict, roots(found)) == (verdict, [expected])


def test_that_a_scheduler_ended_it_tells_nothing_of_a_machine(judged):
    _, found = judged("slurmstepd: error: *** STEP 31.0 ON n1 CANCELLED AT 2026-11-30T08:00:00 "
                      "DUE TO TIME LIMIT ***\n" * 3)  # fmt: skip
    assert found.verdict == "UNKNOWN"


MORNING = 1796025600.0  # 2026-11-30T08:00:00Z
AFTER = "[rank1]: RuntimeError: Connection reset by peer\n"


@pytest.mark.parametrize(
    ("line", "at", "clock"),
    [
        ("2026-11-30T08:00:00.25Z " + AFTER, MORNING + 0.25, "epoch"),
        ("2026-11-30 08:00:00,250 " + AFTER, MORNING + 0.25, "epoch"),
        ("[2026-11-30 08:00:00] " + AFTER, MORNING, "epoch"),
        ("2026-11-30T09:30:00+0130 " + AFTER, MORNING, "epoch"),
        ("[rank1]:[E1130 08:00:00.5 x.cpp:1] " + AFTER, (334 * 24 + 8) * 3600 + 0.5, "calendar"),
        ("[1796025600.250] [n1:7:0] " + AFTER, MORNING + 0.25, "epoch"),
        ("2026-13-30T08:00:00Z " + AFTER, None, "none"),
        ("E9999 08:00:00.5 x.cpp:1] " + AFTER, None, "none"),
        (AFTER, None, "none"),
    ],
    ids=["T", "blank", "brackets", "zone", "glog", "seconds", "no month", "no day", "none"],
)  # fmt: skip
def test_when_a_line_was_said(judged, line, at, clock):
    (event, *_), _ = judged(STEPS + line)[0].events, None
    assert (event.at, event.clock) == (at, clock)


def test_a_stamp_without_a_year_lies_near_those_that_have_one(judged):
    text = STEPS.replace(" iteration", " [2027-01-01 00:00:01] iteration")
    (event,) = judged(f"{text}[rank1]:[E1231 23:59:59.0 x.cpp:1] {AFTER}")[0].events
    assert (event.at, event.clock) == (1798761599.0, "epoch")


def test_a_line_without_a_stamp_lies_between_its_neighbours(judged):
    stamped = [step(n).replace(" iter", f" [2026-11-30 08:00:0{n}] iter") for n in (1, 2)]
    (event,) = judged(STEPS + stamped[0] + AFTER + stamped[1])[0].events
    assert (event.detail["after"], event.detail["until"]) == (MORNING + 1, MORNING + 2)


def test_what_was_waited_for_and_which_job_it_is(judged):
    text = (STEPS + "n1:5:6 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.1<0>\n"
            "  run_id           : train-7\n  run_id : none\n" + INIT.format("n1", 5, 0, 0, "1a")
            + "[rank0]: Connection closed by peer [::ffff:192.0.2.9]:4242\n"
            + TIMEOUT.format(1, 5))  # fmt: skip
    reading, _ = judged(text)
    assert [e.detail["waited"] for e in reading.events if e.code == "nccl.timeout"] == [600.01]
    assert reading.job.names == {"comm 0xa1", "run train-7"}
    assert (reading.job.addresses, reading.job.peers) == ({"192.0.2.1"}, {"192.0.2.9"})


INIT = ("{0}:{1}:99 [{2}] NCCL INFO ncclCommInitRank comm 0x55 rank {3} nranks 16 cudaDev {2} "
        "nvmlDev {2} busId {4}000 commId 0xa1 - Init COMPLETE\n")  # fmt: skip
WORLD = "".join(INIT.format(f"n{r // 8}", 500 + r, r % 8, r, f"{26 + r % 8:x}") for r in range(16))
TABLE = "  host      : nb\n  rank      : 6 (local_rank: 2)\n  exitcode  : 1 (pid: 9)\n"
MAPPING = ("na: [2026-11-30 08:00:00,1] [INFO] [launch.py:9:main] global_rank_mapping=defaultdict("
           "<class 'list'>, {'na': [0, 1, 2, 3], 'nb': [4, 5, 6, 7]})\n")  # fmt: skip


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (WORLD + STEPS + f"[rank12]: RuntimeError: {ECC}\n", "host:n1/pci:0000:1e:00.0"),
        (WORLD + STEPS + f"n0:503:1 [3] enqueue.cc:1 NCCL WARN Cuda failure '{ECC[12:]}'\n",
         "host:n0/pci:0000:1d:00.0"),
        (MAPPING + STEPS + f"nb: [rank6]: RuntimeError: {ECC}\n", "host:nb/gpu2"),
        (f"[rank6]: RuntimeError: {ECC}\n" + TABLE, "rank6"),
    ],
    ids=["communicator", "NCCL's own process", "rank mapping", "local rank is no GPU"],
)  # fmt: skip
def test_where_a_rank_runs(judged, log, expected):
    _, found = judged(log)
    assert roots(found) == [(expected, "hbm", "reset-gpu")]


def test_a_record_cut_short_at_the_end_is_unknown(judged):
    reading, found = judged(STEPS + step(6)[:120])
    assert (reading.cut, found.verdict) == (True, "UNKNOWN")


@pytest.mark.parametrize(
    "text",
    [
        'import torch\n\n\ndef main():\n    raise RuntimeError("CUDA error: x")\n',
        "# Errors\n\nYou may see\n```\nRuntimeError: CUDA error: uncorrectable ECC error\n```\n",
        "<html>\n<body>\n[rank0]: RuntimeError: CUDA error: x\n</body>\n",
        "The loss was 3, and the training was stopped.\n",
        "[  100.000001] NVRM: Xid (PCI:0000:5a:00): 48, pid=1, DBE\n",
    ],
    ids=["program", "manual", "web page", "prose", "kernel log"],
)
def test_not_a_jobs_log(judged, text):
    assert judged(text)[0].kind != "training-log"


def test_memory_stays_flat_and_repeats_are_counted(tmp_path):
    path = tmp_path / "big.log"
    line = "[rank1]: RuntimeError: CUDA error: unknown error\n"
    noise = "INFO some words of a data loader that nobody asked for\n" * 20
    with path.open("w") as file:
        file.write(STEPS)
        for _ in range(40):
            file.write((line + noise) * 600)
    tracemalloc.start()
    reading = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(e.code, e.detail["count"]) for e in reading.events] == [("cuda.other", 24_000)]
    assert path.stat().st_size > 25 << 20
    assert peak < 8 << 20


@pytest.mark.parametrize("end", ["\r", " "], ids=["progress bar", "endless line"])
def test_what_stands_deep_in_one_line_is_read(tmp_path, end):
    path = tmp_path / "line.log"
    bar = f"Epoch 0: 5/100 [00:01<00:19, loss=2.31]{end}" * 20_000
    path.write_text(STEPS + bar + f"[rank3]: RuntimeError: {ECC}{end}" + bar)
    reading = read(path)
    assert [e.code for e in reading.events] == ["cuda.ecc"]
    assert reading.records == 6
    assert judge_inputs([reading]).verdict == "FAIL"
