"""Slurm: states and reasons of nodes, accounts of jobs, logs; a note accuses nobody."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read
from rackproof.harness.readers.hostlist import MOST, hosts
from rackproof.harness.readers.slurm import likeness


def judged(tmp_path, text):
    path = tmp_path / "x"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read(path)
    judgement = judge_inputs([found])
    roots = [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]
    return found, str(judgement.verdict), roots, len(judgement.diagnoses) - len(roots)


@pytest.mark.parametrize(
    ("text", "names", "more"),
    [
        ("n1", ["n1"], 0),
        ("n[08-11,3],login-1", ["n08", "n09", "n10", "n11", "n3", "login-1"], 0),
        ("n[1-2]-ib0", ["n1-ib0", "n2-ib0"], 0),
        ("n[0-99999999]", None, 100_000_000 - MOST),
        ("n[" + ",".join(["0-999999999"] * 150) + "]", None, 150 * 10**9 - MOST),
        ("n[5-1]", [], 0),
        ("n[1-2", [], 0),
        ("[1-2]", [], 0),
        ("", [], 0),
    ],
    ids=["one", "padded", "a tail", "too many", "far too many", "backwards", "open", "no name",
         "none"],
)  # fmt: skip
def test_lists_of_hosts_are_bounded(text, names, more):
    found, rest = hosts(text)
    assert rest == more
    assert found == names if names is not None else len(found) == MOST


HEAD = "[root@head ~]$ sinfo -R\nREASON               USER      TIMESTAMP           NODELIST\n"
ROW = "{:<20.20} {:<9} {} {}\n"
AT = "2026-03-04T05:06:07"


@pytest.mark.parametrize(
    ("reason", "verdict", "component", "action"),
    [
        ("Xid 79 on GPU 2", "FAIL", "pcie", "reboot-node"),
        ("Xid 31 on GPU 2", "PASS", "app", "restart-app"),
        ("Not responding", "UNKNOWN", "host", "retest"),
        ("Low RealMemory", "UNKNOWN", "host", "retest"),
        ("Kill task failed", "UNKNOWN", "host", "watch"),
        ("Node unexpectedly rebooted", "UNKNOWN", "host", "watch"),
        ("gres/gpu count reported lower", "UNKNOWN", "pcie", "retest"),
        ("NHC: check_hw_ib mlx5_3", "UNKNOWN", "nic", "retest"),
        ("bad PSU", "UNKNOWN", "power", "retest"),
        ("ticket 4711", "UNKNOWN", "unknown", "retest"),
    ],
)
def test_a_reason_is_read_and_is_no_measurement(tmp_path, reason, verdict, component, action):
    found, got, roots, _ = judged(tmp_path, HEAD + ROW.format(reason, "slurm", AT, "n07"))
    assert (found.kind, found.records, got) == ("slurm", 1, verdict)
    assert [root[1:] for root in roots] == [(component, action)]


@pytest.mark.parametrize(
    "reason", ["planned maintenance", "reboot ASAP", "none", "firmware upgrade"]
)
def test_plans_are_no_faults(tmp_path, reason):
    found, verdict, roots, _ = judged(tmp_path, HEAD + ROW.format(reason, "root", AT, "n[01-04]"))
    assert (found.records, verdict, roots) == (4, "PASS", [])


def test_dozens_of_nodes_in_one_second_are_one_cause(tmp_path):
    text = HEAD + ROW.format("Not responding", "slurm", AT, "n[001-040]")
    text += ROW.format("Not responding", "slurm", "2026-03-01T00:00:00", "n077")
    found, verdict, roots, victims = judged(tmp_path, text)
    assert (found.records, verdict, victims) == (41, "UNKNOWN", 40)
    assert roots == [("host:unknown", "host", "retest"), ("host:n077", "host", "retest")]


def test_two_nodes_in_one_second_stand_for_themselves(tmp_path):
    _, _, roots, victims = judged(
        tmp_path, HEAD + ROW.format("Low RealMemory", "slurm", AT, "n[1-2]")
    )
    assert ([subject for subject, _, _ in roots], victims) == (["host:n1", "host:n2"], 0)


LONG = (
    "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\n"
)
NODE = "{:<10} 1 {:<9} {:>11} 128 2:64:1 2063000 0 1 (null) {}\n"


def test_a_node_in_two_partitions_counts_once(tmp_path):
    rows = [("n1", "gpu*", "idle", "none"), ("n1", "all", "idle", "none"),
            ("n2", "gpu*", "down*", "Not responding"),
            ("n2", "all", "down*", "Not responding")]  # fmt: skip
    text = LONG + "".join(NODE.format(*row) for row in rows)
    found, verdict, roots, _ = judged(tmp_path, text)
    assert (found.records, verdict) == (2, "UNKNOWN")
    assert roots == [("host:n2", "host", "retest")]


@pytest.mark.parametrize(
    ("state", "verdict"),
    [("idle", "PASS"), ("mixed", "PASS"), ("maint", "PASS"), ("planned", "PASS"), ("idle~", "PASS"),
     ("drained", "UNKNOWN"), ("down", "UNKNOWN"), ("idle*", "UNKNOWN"), ("fail", "UNKNOWN")],
)  # fmt: skip
def test_states_without_a_reason(tmp_path, state, verdict):
    _, got, _, _ = judged(tmp_path, LONG + NODE.format("n1", "gpu", state, "none"))
    assert got == verdict


FEWER = "gres/gpu count reported lower than configured"
SHOW = (
    "NodeName=n{0} Arch=x86_64 CoresPerSocket=64\n   Gres=gpu:h200:8\n   State={1} Weight=1\n"
    "   BootTime=2026-01-01T00:00:00\n{2}\n"
)


@pytest.mark.parametrize(
    ("reason", "verdict", "roots"),
    [
        ("", "PASS", []),
        (f"   Reason={FEWER} (7 < 8) [slurm@{AT}]\n",
         "FAIL", [("host:n2", "pcie", "reboot-node")]),
        (f"   Reason={FEWER} (0 < 8) [slurm@{AT}]\n",
         "UNKNOWN", [("host:n2", "driver", "retest")]),
        ("   Reason=new cable next week: maintenance [eve@2026-03-04T05:06:07]\n", "PASS", []),
    ],
    ids=["no reason", "a GPU is lost", "no GPU at all", "a plan"],
)  # fmt: skip
def test_records_of_nodes(tmp_path, reason, verdict, roots):
    state = "IDLE+DRAIN" if reason else "IDLE"
    text = SHOW.format(1, "ALLOCATED", "") + SHOW.format(2, state, reason)
    found, *judgement, _ = judged(tmp_path, text)
    assert found.records == 2
    assert judgement == [verdict, roots]


def sacct(delimiter, *rows):
    columns = ["JobID", "State", "Comment", "ExitCode", "NodeList", "End"]
    return "\n".join(delimiter.join(row) for row in [columns, *rows]) + "\n"


JOBS = [("1", "FAILED", "", "1:0", "n1", AT), ("2", "TIMEOUT", "", "0:0", "n1", AT),
        ("3", "CANCELLED by 7", "", "0:9", "n[1-9]", AT),
        ("4", "COMPLETED", "", "0:0", "n1", AT)]  # fmt: skip


@pytest.mark.parametrize("delimiter", ["|", "|#", ";", ",", "\t"])
def test_failed_jobs_are_no_faults(tmp_path, delimiter):
    found, verdict, roots, _ = judged(tmp_path, sacct(delimiter, *JOBS))
    assert (found.kind, found.records, found.cut, verdict, roots) == ("slurm", 4, False, "PASS", [])


@pytest.mark.parametrize(
    ("nodes", "subject"),
    [("n7", "host:n7"), ("n[1-9]", "host:unknown"), ("None assigned", "host:unknown")],
)
def test_a_node_that_failed_under_a_job(tmp_path, nodes, subject):
    text = sacct("|", *JOBS, ("5", "NODE_FAIL", "", "0:0", nodes, AT),
                 ("5.0", "NODE_FAIL", "", "0:0", nodes, AT))  # fmt: skip
    _, verdict, roots, _ = judged(tmp_path, text)
    assert (verdict, roots) == ("UNKNOWN", [(subject, "host", "watch")])


def test_a_record_over_several_lines_is_one(tmp_path):
    text = sacct("|#", ("1", "FAILED", "first\nsecond\n\nfourth", "1:0", "n1", AT), *JOBS)
    found, verdict, _, _ = judged(tmp_path, text)
    assert (found.records, found.cut, verdict) == (5, False, "PASS")


def test_a_record_that_was_broken_off_is_cut(tmp_path):
    found, verdict, _, _ = judged(tmp_path, sacct("|", *JOBS)[: -len(AT) - 5])
    assert (found.records, found.cut, verdict) == (3, True, "UNKNOWN")


def test_bytes_that_are_no_text(tmp_path):
    text = (
        sacct("|", *JOBS, ("5", "FAILED", "???", "1:0", "n1", AT))
        .encode()
        .replace(b"???", b"\xff\xc3\x28")
    )
    found, verdict, _, _ = judged(tmp_path, text)
    assert (found.records, verdict) == (5, "PASS")


LOG = "[2026-03-04T05:{:02d}:00.123] {}\n"


@pytest.mark.parametrize(
    ("lines", "verdict", "roots"),
    [
        (["sched: Allocate JobId=7 NodeList=n1", "error: Nodes n1 not responding"], "UNKNOWN",
         [("host:n1", "host", "retest")]),
        (["error: Nodes n1 not responding", "Node n1 now responding"], "PASS", []),
        (["_job_complete: JobId=7 WTERMSIG 9", "error: slurm_receive_msg: Zero Bytes"], "PASS", []),
        (["update_node: node n1 reason set to: GPU 3 fell off", "debug: x"], "UNKNOWN",
         [("host:n1", "unknown", "retest")]),
        ([("error: Setting node n1 state to DRAIN with reason:gres/gpu count reported lower than "
          "configured (7 < 8)"), "debug: x"], "FAIL", [("host:n1", "pcie", "reboot-node")]),
        (["error: Detected 1 oom_kill event in StepId=7.0", "debug: x"], "PASS",
         [("host:unknown", "app", "restart-app")]),
    ],
    ids=["silent", "silent for a while", "jobs", "a note", "a GPU is lost", "out of memory"],
)  # fmt: skip
def test_logs_of_the_daemons(tmp_path, lines, verdict, roots):
    text = "".join(LOG.format(*pair) for pair in enumerate(lines))
    found, *judgement, _ = judged(tmp_path, text)
    assert (found.kind, found.records) == ("slurm", len(lines))
    assert judgement == [verdict, roots]


@pytest.mark.parametrize(
    "text",
    ["squeue says State and JobID\n", "[2026-03-04 05:06:07] INFO: error: x\n" * 9,
     "NODE LIST of the party\n", "import slurm\n# JobID | State\n",
     '{"JobID": 1, "State": "FAILED", "Elapsed": 3}\n'],
    ids=["prose", "a log", "a heading", "source", "JSON"],
)  # fmt: skip
def test_other_files_are_not_taken(text):
    assert likeness(text.encode()) == 0


def test_great_lists_fit_into_memory(tmp_path):
    """Each row names a hundred million nodes: they are counted and not made."""
    text = HEAD + ROW.format("Not responding", "slurm", AT, "n[0-99999999]") * 50
    found, verdict, _, _ = judged(tmp_path, text)
    assert (found.records > MOST, verdict) == (True, "UNKNOWN")


DAEMON = "[2026-03-04T05:06:07.123] slurmd version 24.05.1 started\n[2026-03-04T05:06:08.123] {}\n"
CUSTOM = "error: gpu/nvml: something that nobody has written down: Unknown"


@pytest.mark.parametrize(
    ("said", "verdict", "roots"),
    [
        ("fatal: can't stat gres.conf file /dev/nvidia2: No such file or directory", "UNKNOWN",
         [("host:unknown", "unknown", "retest")]),
        ("error: Waiting for gres.conf file /dev/nvidia2", "UNKNOWN",
         [("host:unknown", "unknown", "retest")]),
        ("fatal: Unable to bind listen port (6818): Address already in use", "UNKNOWN",
         [("host:unknown", "host", "retest")]),
        ("error: gpu/nvml: Failed to get device handle for GPU 5: GPU is lost", "FAIL",
         [("gpu5", "pcie", "reboot-node")]),
        ("error: Unable to determine the device handle for GPU 0000:5A:00.0: Unknown Error",
         "FAIL", [("pci:0000:5a:00.0", "pcie", "reboot-node")]),
        ("error: gpu/nvml: Failed to get the device handle for a reason of its own", "UNKNOWN",
         [("host:unknown", "unknown", "retest")]),
        (CUSTOM, "UNKNOWN", [("host:unknown", "unknown", "retest")]),
        ("error: Failed to initialize NVML: Driver/library version mismatch", "FAIL",
         [("host:unknown", "driver", "update-software")]),
        ("error: [job 77] prolog failed status=1:0", "UNKNOWN",
         [("host:unknown", "host", "retest")]),
        ("error: rpc_epilog: epilog for job 77 failed", "UNKNOWN",
         [("host:unknown", "host", "retest")]),
        ("error: health_check failed: rc:256 output:nhc: check_fs_mount: /scratch is not mounted",
         "UNKNOWN", [("host:unknown", "storage", "retest")]),
        (("[77.0] error: *** STEP 77.0 STEPD TERMINATED ON n7 AT 2026-03-04T05:06:08 DUE TO JOB NOT"
         " ENDING WITH SIGNALS ***"), "UNKNOWN", [("host:n7", "host", "watch")]),
        (("error: validate_node_specs: Prolog or job env setup failure on node n7, draining the"
         " node"), "UNKNOWN", [("host:n7", "host", "retest")]),
        ("validate_node_specs: Node n7 unexpectedly rebooted boot_time=1 last response=2",
         "UNKNOWN", [("host:n7", "host", "watch")]),
        ("error: _slurm_rpc_submit_batch_job: Invalid generic resource (gres) specification",
         "PASS", []),
        ("[77.batch] error: couldn't chdir to `/data/gpu/run': No such file: going to /tmp", "PASS",
         []),
        ("[77.batch] error: *** JOB 77 ON gpu-07 CANCELLED AT 2026-03-04T05:06:08 ***", "PASS", []),
        ("error: Unable to register: Unable to contact slurm controller (connect failure)", "PASS",
         []),
        ("error: Security violation, uid 1000 asks for node nvidia-07 in partition gpu", "PASS",
         []),
    ],
)  # fmt: skip
def test_an_error_that_names_gpus_never_passes(tmp_path, said, verdict, roots):
    found, got, told, _ = judged(tmp_path, DAEMON.format(said))
    assert (found.kind, found.records, got, told) == ("slurm", 2, verdict, roots)
    assert all(event.detail["line"] == 2 for event in found.events)


def test_a_table_with_bars(tmp_path):
    text = (f"REASON|USER|TIMESTAMP|NODELIST\nNHC: check_hw_ib: no port | root|{AT}|n[07-08]\n"
            f"planned maintenance|root|{AT}|n09\n")  # fmt: skip
    found, verdict, roots, _ = judged(tmp_path, text)
    assert (found.kind, found.records, verdict) == ("slurm", 3, "UNKNOWN")
    assert roots == [("host:n07", "nic", "retest"), ("host:n08", "nic", "retest")]


def test_the_only_node_gives_its_name(tmp_path):
    one = "NodeName=n7 Arch=x86_64 State=IDLE\n"
    assert judged(tmp_path, one)[0].host == "n7"
    assert judged(tmp_path, one + "\nNodeName=n8 Arch=x86_64 State=IDLE\n")[0].host is None
