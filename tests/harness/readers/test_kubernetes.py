"""Kubernetes: conditions whose bad value depends on the type, Xids in messages, counts of GPUs."""

import json

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read
from rackproof.harness.readers.kubernetes import likeness

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
    (condition("Ready", "False"), "FAIL", [("host:n1", "host", "reboot-node")]),
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
    assert (found.records, verdict, roots) == (2, "FAIL", [("host:n2", "host", "reboot-node")])


def test_a_daemons_log(tmp_path):
    text = ("I0304 05:06:07.123456       1 server.go:200] device plugin of 'nvidia.com/gpu'\n"
            "I0304 05:06:08.123456       1 health.go:160] XidCriticalError: Xid=79 on Device="
            "GPU-01234567-89ab-cdef-0123-456789abcdef; marking device as unhealthy.\n")  # fmt: skip
    found, verdict, roots = judged(tmp_path, text)
    assert (found.records, verdict) == (2, "FAIL")
    assert [root[1:] for root in roots] == [("pcie", "reboot-node")]


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
