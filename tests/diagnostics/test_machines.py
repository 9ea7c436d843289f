"""Which file is of which machine, and what its devices are then called."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.diagnostics.machines import machines
from rackproof.diagnostics.naming import label, words
from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers import Reading

GPU = "pci:0000:19:00.0"


def file(path, host=None, folder=None, uuid=None, **more):
    """A file with a sick GPU in it, so that its subject is told."""
    event = Event(GPU, "xid.64", "NVRM: Xid", 9.0, "epoch", {"line": 1})
    uuids = {GPU: uuid} if uuid else {}
    return Reading(Path(path), "kernel-log", 1, events=(event,), host=host, uuids=uuids,
                   folder=Path(folder) if folder else None, named=not folder, **more)  # fmt: skip


def names(*readings):
    return machines(readings).of


CASES = {
    "one folder that names nobody is one machine": (
        [file("r/a", folder="r"), file("r/s/b", folder="r")], ["", ""]),
    "two hosts in one folder": (
        [file("r/a", "n1", "r"), file("r/b", "n2", "r")], ["n1", "n2"]),
    "a file beside those of one host": (
        [file("r/x/a", "n1", "r"), file("r/x/b", folder="r"), file("r/y/a", "n2", "r")],
        ["n1", "n1", "n2"]),
    "a GPU that another host is known to have": (
        [file("r/x/a", "n1", "r", "GPU-1"), file("r/y/b", folder="r", uuid="GPU-1"),
         file("r/y/a", "n2", "r", "GPU-2")], ["n1", "n1", "n2"]),
    "a file that is called like a host": (
        [file("r/a", "n1", "r"), file("r/c", "n2", "r"), file("r/smi_n2.txt", folder="r")],
        ["n1", "n2", "n2"]),
    "a folder that is called like a host": (
        [file("r/a", "n1", "r"), file("r/c", "n2", "r"), file("r/n2/smi.txt", folder="r")],
        ["n1", "n2", "n2"]),
    "two folders that name nobody are two machines": (
        [file("r/a", folder="r"), file("s/a", folder="s")], ["r", "s"]),
    "two folders of one name": (
        [file("x/log/a", folder="x/log"), file("y/log/a", folder="y/log")], ["x-log", "y-log"]),
    "a folder that names a host, and one that does not": (
        [file("r/a", "n1", "r"), file("r/b", folder="r"), file("s/a", folder="s")],
        ["n1", "n1", "s"]),
    "other GPUs at the same addresses are another machine": (
        [file("r/x/a", folder="r", uuid="GPU-1"), file("r/y/a", folder="r", uuid="GPU-2"),
         file("r/y/b", folder="r", uuid="GPU-2")], ["x", "y", "y"]),
    "a host by its short and its full name": (
        [file("r/a", "n1", "r"), file("r/b", "n1.example.org", "r"), file("r/c", "n2", "r")],
        ["n1", "n1", "n2"]),
    "another GPU in a host that is named is an exchange, and no other machine": (
        [file("r/a", "n1", "r", "GPU-1"), file("r/b", "n1", "r", "GPU-2")], ["", ""]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_whose_a_file_is(name):
    readings, expected = CASES[name]
    assert names(*readings) == expected
    for order in itertools.permutations(range(len(readings))):
        assert names(*(readings[i] for i in order)) == [expected[i] for i in order]


def test_host_is_written_on_all_or_on_none():
    one = judge_inputs([file("r/a", "n1", "r")])
    assert [d.subject for d in one.diagnoses] == [GPU]
    two = judge_inputs([file("r/a", "n1", "r"), file("s/a", "n2", "s")])
    assert [d.subject for d in two.diagnoses] == [f"host:n1/{GPU}", f"host:n2/{GPU}"]


def test_a_machine_that_no_file_names_is_called_like_its_folder():
    heat = Event("host", "kernel.panic", "Kernel panic", 9.0, "epoch", {"line": 1})
    reading = replace(file("cases/tray07/a", folder="cases/tray07"), events=(heat,))
    assert [d.subject for d in judge_inputs([reading]).diagnoses] == ["host:tray07"]


def test_an_index_becomes_an_address_by_its_uuid_and_keeps_its_link():
    log = file("a", "n1", uuid="GPU-1")
    links = Reading(
        Path("b"), "nvidia-smi-nvlink", 1, uuids={"gpu3": "GPU-1"}, host="n1",
        measurements=(Measurement("x", "gpu3/link05", "nvlink.active", 0, "links"),),
    )  # fmt: skip
    known = machines([log, links])
    assert known.place(1, "gpu3/link05") == ("", f"{GPU}/link05")


def test_each_file_of_a_machine_may_number_its_gpus_in_its_own_way():
    one = file("a", "n1", aliases={"gpu0": "pci:0000:19:00.0"})
    two = file("b", "n1", aliases={"gpu0": "pci:0000:3b:00.0"})
    known = machines([one, two])
    assert [known.place(i, "gpu0")[1] for i in (0, 1)] == ["pci:0000:19:00.0", "pci:0000:3b:00.0"]


def test_what_the_serial_is_does_not_depend_on_the_order():
    older = file("b", "n1", serials={GPU: "1"}, taken=10.0)
    newer = file("a", "n1", serials={GPU: "2"}, taken=20.0)
    answers = {json.dumps([d.as_json() for d in judge_inputs(order).diagnoses])
               for order in ([older, newer], [newer, older])}  # fmt: skip
    assert len(answers) == 1
    assert machines([newer, older]).serial("", f"{GPU}/link03") == "2"


@pytest.mark.parametrize(
    ("name", "word"),
    [("gb05.log", "gb05"), ("gb05-smi.txt", "gb05"), ("smi_gb05.log.gz", "gb05"),
     ("kern.log-rack-7.txt", "rack-7"), ("rack-7", "rack-7")],
)  # fmt: skip
def test_words_of_a_files_name(name, word):
    assert word in words(name)


def test_a_label_is_as_short_as_it_can_be():
    others = [Path("x/log"), Path("y/log"), Path("z")]
    assert [label(p, others) for p in others] == ["x-log", "y-log", "z"]
    assert label(Path(), ()) == "unknown"
