"""The matrix as a person reads it: every row, what was wrong with the command to repeat it."""

import io

import pytest

from rackproof.reports import matrix


def row(fault="hbm-stuck-bit", **changed):
    right = {
        "fault": fault, "subject": "rack0/tray00/gpu3", "planted": 1, "verdict": "PASS",
        "detected": 1, "attributed": 1, "component_right": 1, "persistence_right": 1,
        "by": ["memory.address", "memory.march"], "wrong": [], "seconds": 0.42, "innocents": [],
        "burn": ["hgx-h100", "--seed", "3", "--plant", f"{fault}@rack0/tray00/gpu3"],
    }  # fmt: skip
    return right | changed


WRONG = row(
    "sm-sdc", verdict="FAIL", component_right=0, persistence_right=0, wrong=["component hbm"]
)
SKIPPED = {"fault": "coolant-loss", "planted": 0, "skip": "air-cooled", "verdict": "SKIP"}
LATER = {"fault": "psu-loss", "planted": 0, "verdict": "UNKNOWN", "wrong": ["not in this version"]}


def body(*rows, **changed):
    usual = {
        "schema": "rackproof.qualify/1", "verdict": "PASS", "rack": "hgx-h100", "gpus": 8,
        "seed": 3, "level": "acceptance", "matrix": list(rows or (row(),)), "false_alarms": 0,
        "runs": 1, "sees": {"gpu": ["health", "memory.march"], "link": ["health"]}, "seconds": 1.5,
    }  # fmt: skip
    return usual | changed


def shown(answer):
    file = io.StringIO()
    matrix.conclusion(answer, None, file)
    return file.getvalue()


def test_the_verdict_is_the_last_line():
    last = shown(body()).rstrip().splitlines()[-1]
    assert last.startswith("PASS  1 of 1 planted kind right")
    assert "0 false alarms among 8 GPUs" in last


def test_each_kind_has_a_line_and_each_mistake_its_command():
    text = shown(body(row(), WRONG, SKIPPED, LATER, verdict="FAIL", false_alarms=1))
    lines = text.splitlines()
    (line,) = [line for line in lines if line.startswith("hbm-stuck-bit")]
    assert line.split() == [
        "hbm-stuck-bit", "yes", "yes", "yes", "yes", "0.4", "memory.address", "memory.march",
    ]  # fmt: skip
    assert any(line.startswith("coolant-loss") and "air-cooled" in line for line in lines)
    assert any(line.startswith("psu-loss") and "not in this version" in line for line in lines)
    (line,) = [line for line in lines if line.startswith("sm-sdc")]
    assert line.split()[1:5] == ["yes", "yes", "NO", "NO"]
    assert "sm-sdc@rack0/tray00/gpu3: component hbm" in text
    assert "rackproof burn hgx-h100 --seed 3 --plant sm-sdc@rack0/tray00/gpu3" in text
    assert "1 of 2 planted kinds right, 1 that the platform cannot have" in text
    assert "1 that cannot be planted yet, 1 false alarm" in text


def test_the_head_says_which_burns_were_run_and_which_kinds_with_all():
    text = " ".join(shown(body(row(full={"agrees": 1}), row("sm-sdc"))).split())
    assert "Burns for a fault on a gpu: health memory." in text
    assert "With all burns as well, drawn by the seed: hbm-stuck-bit." in text
    assert "Every run had all burns" in shown(body(sees={}))


def test_the_page_has_a_row_a_kind_and_the_commands():
    page = matrix.page(body(row(), WRONG, SKIPPED), ["Written today."])
    assert page.startswith("# Detection matrix of hgx-h100\n\nWritten today.\n")
    assert (
        "| hbm-stuck-bit | rack0/tray00/gpu3 | yes | yes | yes | yes |"
        " memory.address, memory.march | 0.4 |"
    ) in page
    assert "| coolant-loss | air-cooled | – |" in page
    assert "- sm-sdc: component hbm" in page
    assert page.count("rackproof burn hgx-h100") == 2


@pytest.mark.parametrize("text", ["\x1b[31mred", "\u202ereversed"])
def test_a_path_of_a_users_rack_is_not_obeyed(text):
    assert text not in shown(body(row(wrong=["x"], burn=[text])))
