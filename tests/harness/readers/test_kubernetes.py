"""Kubernetes: conditions whose bad value depends on the type, Xids in messages, counts of GPUs."""

import json
from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Measurement
from rackproof.harness.readers import read
from rackproof.harness.readers.kubernetes import likeness
from rackproof.harness.readers.reading import Reading

OLD = "2019-01-02T03:04:05Z"
ADDRESS = "PCI:0000:5a:00.0"


def judged(tmp_path, text):
    path = tmp_path / "x"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    found = read(path)
    judgement = judge_inputs([found])
    roots = [(d.subject, d.component, d.action) for d in judgement.diagnoses if d.role == "root"]
    return found, str(judgement.verdict), roots


def condition(sort, status, reason="R", message="m"):
    return {"type": sort, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": OLD, "lastTransitionTime": OLD}  # fmt: skip


def node(*conditions, name="n1", **status):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": list(conditions), **status}}  # fmt: skip


def describe(*conditions, name="n1", more=""):
    rows = "".join(
        f"  {c['type']:<20} {c['status']:<7} Wed, 02 Jan 2019 03:04:05 +0000   "
        f"Wed, 02 Jan 2019 03:04:05 +0000   {c['reason']:<28} {c['message']}\n"
        for c in conditions
    )
    head = "  Type   Status  LastHeartbeatTime   LastTransitionTime   Reason   Message\n"
    return f"Name:               {name}\nConditions:\n{head}{rows}{more}"


def as_yaml(*conditions, name="n1"):
    items = "".join(
        f'  - lastHeartbeatTime: "{OLD}"\n    lastTransitionTime: "{OLD}"\n'
        f"    message: {c['message']}\n"
        f'    reason: {c["reason"]}\n    status: "{c["status"]}"\n    type: {c["type"]}\n'
        for c in conditions
    )
    return f"apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\nstatus:\n  conditions:\n{items}"


FORMS = {"json": node, "describe": describe, "yaml": as_yaml}
CASES = [
    (condition("Ready", "True"), "PASS", []),
    (condition("Ready", "False"), "UNKNOWN", [("host:n1", "host", "retest")]),
    (condition("Ready", "False", "KubeletNotReady", "PLEG is not healthy: pleg was last seen"),
     "UNKNOWN", [("host:n1", "host", "retest")]),
    (condition("Ready", "Unknown"), "UNKNOWN", [("host:n1", "host", "retest")]),
    (condition("MemoryPressure", "False"), "PASS", []),
    (condition("MemoryPressure", "True"), "UNKNOWN", [("host:n1", "host", "watch")]),
    (condition("ReadonlyFilesystem", "True"), "FAIL", [("host:n1", "storage", "field-diag")]),
    (condition("GpuHealthy", "True"), "PASS", []),
    (condition("GpuHealthy", "False"), "FAIL", [("host:n1", "unknown", "field-diag")]),
    (condition("GpuNvlinkWatch", "True", "GpuNvlinkWatchIsNotHealthy"), "FAIL",
     [("host:n1", "nvlink", "check-cabling")]),
    (condition("GpuNvlinkWatch", "False", "GpuNvlinkWatchIsHealthy"), "PASS", []),
    (condition("GpuMemWatch", "True", "NotHealthy", f"GPU:3 {ADDRESS} Detected XID 48 for GPU 3"),
     "FAIL", [("pci:0000:5a:00.0", "hbm", "reset-gpu")]),
    (condition("GpuMemWatch", "True", "NotHealthy", f"GPU:3 {ADDRESS} Detected XID 31 for GPU 3"),
     "PASS", [("pci:0000:5a:00.0", "app", "restart-app")]),
    (condition("XidCriticalError", "True", '{"79":true}'), "FAIL",
     [("host:n1", "pcie", "reboot-node")]),
    (condition("KernelDeadlock", "False", "KernelHasNoDeadlock"), "PASS", []),
    (condition("SomethingOfOurs", "True"), "UNKNOWN", [("host:n1", "unknown", "retest")]),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("one", "verdict", "roots"), CASES,
    ids=[f"{c['type']} {c['status']} {c['message'][-18:]}" for c, *_ in CASES],
)  # fmt: skip
def test_conditions_in_all_forms(tmp_path, form, one, verdict, roots):
    if form == "yaml" and one["reason"].startswith("{"):
        one = one | {"reason": f"'{one['reason']}'"}
    found, *judgement = judged(tmp_path, FORMS[form](one, condition("PIDPressure", "False")))
    assert (found.kind, found.records, found.host) == ("kubernetes", 2, "n1")
    assert judgement == [verdict, roots]


def test_a_condition_in_two_forms_counts_once(tmp_path):
    one = condition("GpuMemWatch", "True", "NotHealthy", f"{ADDRESS} Detected XID 48 for GPU 3")
    found, _, _ = judged(tmp_path, describe(one) + "---\n" + as_yaml(one))
    (event,) = found.events
    assert (event.code, event.at) == ("xid.48", 1546398245.0)
    assert found.aliases == {"gpu3": "pci:0000:5a:00.0"}


def test_several_nodes_are_told_apart(tmp_path):
    ill = node(condition("GpuMemWatch", "True", "NotHealthy", f"{ADDRESS} XID 48"), name="n2")
    listed = {"kind": "List", "items": [node(condition("Ready", "True")), ill]}
    _, verdict, roots = judged(tmp_path, listed)
    assert (verdict, roots) == ("FAIL", [("host:n2/pci:0000:5a:00.0", "hbm", "reset-gpu")])


@pytest.mark.parametrize(
    ("offered", "verdict", "roots"),
    [("8", "PASS", []), ("7", "FAIL", [("host:n1", "unknown", "field-diag")]),
     ("0", "UNKNOWN", [("host:n1", "driver", "retest")])],
    ids=["all", "one is not offered", "none is offered"],
)  # fmt: skip
def test_gpus_that_are_not_offered(tmp_path, offered, verdict, roots):
    ready = condition("Ready", "True")
    document = node(ready, capacity={"nvidia.com/gpu": "8", "cpu": "192"},
                    allocatable={"nvidia.com/gpu": offered, "cpu": "191"})  # fmt: skip
    assert list(judged(tmp_path, document)[1:]) == [verdict, roots]
    text = describe(ready, more=f"Capacity:\n  cpu:  192\n  nvidia.com/gpu:  8\nAllocatable:\n"
                                f"  cpu:  191\n  nvidia.com/gpu:  {offered}\n")  # fmt: skip
    assert list(judged(tmp_path, text)[1:]) == [verdict, roots]


EVENTS = (
    "Events:\n  Type     Reason   Age   From   Message\n  ----     ------   ----  ----   -------\n"
)


@pytest.mark.parametrize(
    ("row", "verdict", "roots"),
    [
        ("  Warning  Unhealthy  3m (x9 over 2h)  kubelet  Readiness probe failed\n", "PASS", []),
        ("  Normal   NodeNotReady  40d  kubelet  Node n1 status: NodeNotReady\n", "PASS", []),
        ("  Warning  XidError   5m   health-monitor   GPU 2 Xid 79, fallen off the bus\n", "FAIL",
         [("gpu2", "pcie", "reboot-node")]),
        ("  Warning  OOMKilling   5m   kernel-monitor   Memory cgroup out of memory\n", "PASS",
         [("host:n1", "app", "restart-app")]),
    ],
    ids=["a pod's probe", "long over", "an Xid", "out of memory"],
)  # fmt: skip
def test_events(tmp_path, row, verdict, roots):
    text = describe(condition("Ready", "True"), more=EVENTS + row)
    assert list(judged(tmp_path, text)[1:]) == [verdict, roots]


@pytest.mark.parametrize(
    ("taint", "verdict"),
    [("nvidia.com/gpu=present:NoSchedule", "PASS"),
     ("node.kubernetes.io/unschedulable:NoSchedule", "PASS"),
     ("example.com/gpu-unhealthy:NoSchedule", "UNKNOWN")],
)  # fmt: skip
def test_taints(tmp_path, taint, verdict):
    text = f"Taints:             {taint}\n" + describe(condition("Ready", "True"))
    assert judged(tmp_path, text)[1] == verdict


def test_a_table_of_nodes(tmp_path):
    text = ("NAME   STATUS                     ROLES    AGE   VERSION\n"
            "n1     Ready                      <none>   90d   v1.33.1\n"
            "n2     NotReady,SchedulingDisabled   <none>   90d   v1.33.1\n")  # fmt: skip
    found, verdict, roots = judged(tmp_path, text)
    assert (found.records, verdict, roots) == (2, "UNKNOWN", [("host:n2", "host", "retest")])
    assert [event.text for event in found.events] == ["STATUS NotReady,SchedulingDisabled"]


UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
PLACE = "pci:0000:5a:00.0"
KLOG = "I0304 05:06:07.123456       1 "


@pytest.mark.parametrize(
    "words", ["XidCriticalError: Xid=79 on", "Processing event XidCriticalError=79 on"]
)
def test_a_device_plugin_knows_a_gpu_by_its_uuid(tmp_path, words):
    text = (f"{KLOG}server.go:200] device plugin of 'nvidia.com/gpu'\n"
            f"{KLOG}health.go:160] {words} Device={UUID}; marking device as unhealthy.\n"
            f"{KLOG}server.go:245] 'nvidia.com/gpu' device marked unhealthy: {UUID}\n")  # fmt: skip
    found, verdict, roots = judged(tmp_path, text)
    assert (found.records, verdict) == (3, "FAIL")
    assert roots == [("gpu-01234567", "pcie", "reboot-node")]
    listed = Reading(Path("q"), "nvidia-smi-q", 1, uuids={PLACE: UUID},
                     measurements=(Measurement("q", PLACE, "gpu.name", "H", "text"),))  # fmt: skip
    (root,) = judge_inputs([found, listed]).diagnoses
    assert root.subject == PLACE


@pytest.mark.parametrize(
    ("said", "verdict", "roots"),
    [(("Events:[] Conditions:[{Type:KernelDeadlock Status:False Transition:2019-01-02 Reason:Fine "
      "Message:kernel is well}]}"), "PASS", []),
     (("Events:[] Conditions:[{Type:ReadonlyFilesystem Status:True Transition:2019-01-02 Reason:Ro "
      "Message:remounted}]}"), "FAIL", [("host:unknown", "storage", "field-diag")]),
     ((f"Events:[{{Severity:warn Reason:X Message:NVRM: Xid ({ADDRESS}): 79, GPU has fallen off"
      " the bus.}] Conditions:[]}"), "FAIL", [("pci:0000:5a:00.0", "pcie", "reboot-node")])],
    ids=["well", "a condition", "an Xid"],
)  # fmt: skip
def test_the_log_of_node_problem_detector(tmp_path, said, verdict, roots):
    text = (f"{KLOG}problem_detector.go:77] Problem detector started\n"
            f"{KLOG}log_monitor.go:160] New status: &{{Source:kernel-monitor {said}\n")  # fmt: skip
    assert list(judged(tmp_path, text)[1:]) == [verdict, roots]


HOOK = "error running hook #0: nvidia-container-cli: detection error: nvml error: "


@pytest.mark.parametrize("form", ["get", "json"])
@pytest.mark.parametrize(
    ("reason", "message", "verdict", "part"),
    [("Failed", HOOK + "gpu is lost: unknown", "FAIL", ("pcie", "reboot-node")),
     ("Failed", HOOK + "driver not loaded: unknown", "UNKNOWN", ("driver", "retest")),
     ("UnexpectedAdmissionError", ("Allocate failed due to requested number of devices unavailable "
      "for nvidia.com/gpu. Requested: 4, Available: 3, which is unexpected"), "UNKNOWN",
      ("unknown", "retest")),
     ("UnexpectedAdmissionError", ("Allocate failed due to requested number of devices unavailable "
      "for nvidia.com/gpu. Requested: 4, Available: 0, which is unexpected"), "UNKNOWN",
      ("driver", "retest")),
     ("Failed", "Error: ImagePullBackOff", "PASS", None),
     ("UnexpectedAdmissionError", ("requested number of devices unavailable for example.com/fpga."
      " Requested: 2, Available: 1, which is unexpected"), "PASS", None)],
    ids=["lost", "no driver", "one too few", "none", "an image", "no GPU"],
)  # fmt: skip
def test_a_pods_event_tells_of_its_node(tmp_path, form, reason, message, verdict, part):
    text = (f"LAST SEEN   TYPE      REASON     OBJECT      MESSAGE\n"
            f"4m          Warning   {reason}   pod/job-0   {message}\n"
            "4m          Normal    NodeReady  node/n5     Node n5 is ready\n")  # fmt: skip
    event = {"kind": "Event", "involvedObject": {"kind": "Pod", "name": "job-0"},
             "reason": reason, "message": message, "source": {"host": "n4"}}  # fmt: skip
    document = {"kind": "List", "items": [event], "metadata": {"selfLink": "node"}}
    _, told, roots = judged(tmp_path, text if form == "get" else document)
    where = "host:unknown" if form == "get" else "host:n4"
    assert (told, roots) == (verdict, [(where, *part)] if part else [])


@pytest.mark.parametrize("form", ["describe", "json", "yaml"])
@pytest.mark.parametrize(
    ("label", "total", "verdict", "part"),
    [(8, 8, "PASS", None), (8, 7, "UNKNOWN", "unknown"), (8, 0, "UNKNOWN", "driver"),
     (8, 32, "PASS", None)],
    ids=["as many", "one is lost", "none", "shared by time"],
)  # fmt: skip
def test_gpus_fewer_than_the_label_counts(tmp_path, form, label, total, verdict, part):
    ready, count = condition("Ready", "True"), {"nvidia.com/gpu": str(total)}
    document = node(ready, capacity=count, allocatable=count)
    document["metadata"]["labels"] = {"nvidia.com/gpu.count": str(label)}
    text = f"Labels:       a=b\n              nvidia.com/gpu.count={label}\n"
    listed = f"Capacity:\n  nvidia.com/gpu:  {total}\nAllocatable:\n  nvidia.com/gpu:  {total}\n"
    described = describe(ready, more=listed).replace("\nCond", f"\n{text}Cond")
    labels = f"  labels:\n    nvidia.com/gpu.count: '{label}'\n"
    capacity = f"  capacity:\n    nvidia.com/gpu: '{total}'\n"
    yaml = as_yaml(ready).replace("  name:", f"{labels}  name:")
    yaml = yaml.replace("  conditions:", f"{capacity}  conditions:")
    texts = {"json": document, "describe": described, "yaml": yaml}
    _, told, roots = judged(tmp_path, texts[form])
    assert (told, roots) == (verdict, [("host:n1", part, "retest")] if part else [])


@pytest.mark.parametrize(
    ("state", "roots"),
    [("Running", []), ("Init:CrashLoopBackOff", [("host:unknown", "driver", "retest")])],
)
def test_pods_are_no_machines_state(tmp_path, state, roots):
    text = ("NAME                            READY   STATUS     RESTARTS       AGE\n"
            "nvidia-cuda-validator-a1b2c     0/1     Completed  0              9d\n"
            f"nvidia-driver-daemonset-d3e4f   0/1     {state}    9 (4m ago)     9d\n")  # fmt: skip
    found, verdict, told = judged(tmp_path, text)
    assert (found.kind, found.records, verdict, told) == ("kubernetes", 2, "UNKNOWN", roots)
    assert found.problems


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(node(condition("Ready", "True")))[:-60],
        '{"kind": "Node", "lastTransitionTime": 3}',
    ],
    ids=["cut", "of the wrong sorts"],
)
def test_what_was_not_read_does_not_pass(tmp_path, text):
    assert judged(tmp_path, text)[1] == "UNKNOWN"


@pytest.mark.parametrize(
    "text",
    ["Ready  True  yes\n", "type: Ready\nstatus: True\n", '{"items": [{"status": "Ready"}]}',
     "I0304 05:06:07.123456 1 main.go:3] hello\n"],
    ids=["a table", "some YAML", "some JSON", "a log of klog"],
)  # fmt: skip
def test_other_files_are_not_taken(text):
    assert likeness(text.encode()) == 0
