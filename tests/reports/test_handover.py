"""What a scheduler is told: nodes of roots are drained, nodes of victims are not, text is safe."""

import json
import shlex

import pytest

from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.harness.errors import SpecError
from rackproof.reports.handover import (
    CONDITION,
    SILENT,
    kubernetes,
    of_files,
    of_run,
    renames,
    slurm,
)


def entry(subject, case=1, role="root", component="hbm", action="swap-to-spare"):
    made = Diagnosis(subject, component, "persistent", action if role == "root" else "none", case,
                     ("xid.64 once",), role, serial="1650012345678")  # fmt: skip
    return made.as_json()


def body(*entries, verdict="FAIL"):
    return {"verdict": verdict, "diagnoses": list(entries), "inputs": []}


def drained(handover):
    """Return (node, reason) of each line, as a shell would take it apart."""
    found = []
    for line in slurm(handover).splitlines():
        if not line.startswith("#"):
            words = shlex.split(line)
            assert words[:2] == ["scontrol", "update"]
            assert words[3] == "State=DRAIN"
            found.append(tuple(w.partition("=")[2] for w in (words[2], words[4])))
    return found


def conditions(handover):
    """Return {node: its condition}."""
    told = json.loads(kubernetes(handover))
    assert told["kind"] == "List"
    found = {}
    for item in told["items"]:
        (condition,) = item["status"]["conditions"]
        assert condition["type"] == CONDITION
        found[item["metadata"]["name"]] = condition
    return found


def test_a_run_drains_the_tray_of_its_root_alone(run_of, failing) -> None:
    told = of_run(*run_of(failing()), {}, "2026-11-30T10:00:00Z")
    ((node, reason),) = drained(told)
    assert node == "rack0-tray00"
    assert reason.startswith("hbm gpu1 ")
    status = {name: c["status"] for name, c in conditions(told).items()}
    assert status == {"rack0-tray00": "False", "rack0-tray01": "Unknown"}
    unknown = conditions(told)["rack0-tray01"]
    assert unknown["reason"] == "NotJudged"
    assert "thermal.margin not judged" in unknown["message"]
    assert unknown["lastHeartbeatTime"] == "2026-11-30T10:00:00Z"


def test_a_healthy_run_drains_nobody_and_every_node_is_true(run_of, case) -> None:
    told = of_run(*run_of(case()), renames(["rack0/tray00=n-17"]))
    assert slurm(told) == ""
    found = conditions(told)
    assert {name: c["status"] for name, c in found.items()} == {
        "n-17": "True",
        "rack0-tray01": "True",
    }
    assert found["n-17"]["reason"] == "WithinLimits"


def test_a_record_that_is_not_whole_makes_no_node_healthy(run_of, case) -> None:
    found = conditions(of_run(*run_of(case(ended=False)), {}))
    assert {c["status"] for c in found.values()} == {"Unknown"}


def test_victims_are_unknown_and_never_drained() -> None:
    told = of_files(
        body(
            entry("host:n07/pci:0009:01:00.0/link03", component="nvlink", action="field-diag"),
            *(entry(f"host:n{k:02d}/pci:0008:01:00.0", role="victim") for k in range(8, 12)),
        ),
        {},
    )
    ((node, reason),) = drained(told)
    assert node == "n07"
    assert reason.startswith("nvlink pci:0009:01:00.0/link03 field-diag")
    found = conditions(told)
    assert found["n07"]["status"] == "False"
    assert [found[f"n{k:02d}"]["status"] for k in range(8, 12)] == ["Unknown"] * 4
    assert "suffers from host:n07/pci:0009:01:00.0/link03" in found["n08"]["message"]


@pytest.mark.parametrize(
    ("component", "action", "status", "lines"),
    [
        ("hbm", "rma", "False", 1),
        ("pcie", "check-cabling", "False", 1),
        ("hbm", "watch", "Unknown", 0),
        ("unknown", "retest", "Unknown", 0),
        ("app", "restart-app", "Unknown", 0),
        ("driver", "update-software", "False", 0),
    ],
)
def test_status_and_drain_follow_the_action(component, action, status, lines) -> None:
    told = of_files(body(entry("host:a/pci:0000:01:00.0", component=component, action=action)), {})
    assert conditions(told)["a"]["status"] == status
    assert len(drained(told)) == lines


def test_a_root_outside_of_every_node_drains_none_and_is_told(run_of, case) -> None:
    told = of_files(body(entry("fabric", component="fabric"), entry("host:a", case=2)), {})
    assert [node for node, _ in drained(told)] == ["a"]
    assert "# fabric fabric persistent: swap-to-spare (outside of every node" in slurm(told)
    assert "outside of the node: fabric (fabric)" in conditions(told)["a"]["message"]


def test_one_machine_without_a_name_takes_the_one_given_or_asks_for_it() -> None:
    nameless = body(entry("pci:0000:41:00.0"))
    assert drained(of_files(nameless, renames(["gpu-17"])))[0][0] == "gpu-17"
    with pytest.raises(SpecError, match="--node NAME"):
        of_files(nameless, {})
    healthy = conditions(of_files(body(verdict="PASS"), renames(["gpu-17"])))["gpu-17"]
    assert (healthy["status"], healthy["message"]) == ("Unknown", SILENT)
    cut = of_files(body(verdict="UNKNOWN"), renames(["gpu-17"]))
    assert conditions(cut)["gpu-17"]["status"] == "Unknown"


@pytest.mark.parametrize(
    "pair", ["", "a b", "n;reboot", "x=y=z", "tray00=n1", "rack0/tray00=", 'n"', "-n", "n\n"],
    ids=repr,
)  # fmt: skip
def test_what_is_no_node_name_is_refused(pair) -> None:
    with pytest.raises(SpecError, match="--node"):
        renames([pair])


def test_a_tray_that_the_run_lacks_is_refused(run_of, case) -> None:
    with pytest.raises(SpecError, match="rack0/tray77"):
        of_run(*run_of(case()), renames(["rack0/tray77=n1"]))


EVIL = ('"; reboot; "', "$(reboot)", "`reboot`", "a\nb", "x'y\\", "\u202e")


@pytest.mark.parametrize("evil", EVIL, ids=repr)
def test_text_of_a_log_reaches_no_shell(evil) -> None:
    odd = entry("host:a/pci:0000:01:00.0", component="hbm") | {"serial": evil}
    told = of_files(body(odd), {})
    ((node, reason),) = drained(told)
    assert node == "a"
    assert not set(reason) & set("\"'`$\\\n\u202e")


@pytest.mark.parametrize("evil", EVIL, ids=repr)
def test_a_host_name_of_a_log_reaches_no_shell(evil) -> None:
    told = of_files(body(entry(f"host:{evil}/pci:0000:01:00.0")), {})
    assert drained(told) == []
    (line,) = slurm(told).splitlines()
    assert line.startswith("# ")
    assert "is no node name: hbm" in line


def test_one_name_for_several_machines_is_refused_and_files_name_their_own() -> None:
    two = body(entry("host:n07/pci:0009:01:00.0")) | {"inputs": [{"host": "n07"}, {"host": "n08"}]}
    with pytest.raises(SpecError, match="n07, n08"):
        of_files(two, renames(["x"]))
    named = body(entry("pci:0009:01:00.0")) | {"inputs": [{"host": "n07.lan"}, {"host": "n07"}]}
    assert [node for node, _ in drained(of_files(named, {}))] == ["n07"]
    found = conditions(of_files(two, {}))
    assert {name: c["status"] for name, c in found.items()} == {"n07": "False", "n08": "Unknown"}
    assert "# n08, no drain: its files hold no sign" in slurm(of_files(two, {}))


def test_what_is_believed_is_not_handed_over() -> None:
    odd = entry("host:a/pci:0000:01:00.0")
    odd["because"] = ["xid.64 once", "belief: transient 0.5", "what would tell more: a soak"]
    message = conditions(of_files(body(odd), {}))["a"]["message"]
    assert "xid.64 once" in message
    assert "belief" not in message
    assert "soak" not in message
