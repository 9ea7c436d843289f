"""What a person reads: the plane first, the verdict last, and nothing of a record obeyed."""

import io
import os
import re
from pathlib import Path

import pytest

from rackproof.harness.model import Event, Missing, Why
from rackproof.reports import terminal

RUN = Path("rackproof-runs/a-run")
ESCAPE = "\x1b[2J[bold red]owned[/]\u202e"


class Screen(io.StringIO):
    """A terminal of 80 columns."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def concluded(run_of, case, **options) -> str:
    file = io.StringIO()
    _, judgement = run_of(case)
    terminal.conclusion(judgement, RUN, file, **options)
    return file.getvalue()


def last(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


@pytest.mark.parametrize(("source", "word"), [("emulated", "EMULATED"), ("real", "REAL")])
def test_the_first_line_says_what_stands_there(run_of, case, source, word) -> None:
    record, _ = run_of(case(source=source, trays=None))
    file = io.StringIO()
    terminal.head(record.head, RUN, file, plants=2)
    first, *rest = file.getvalue().splitlines()
    assert word in first
    assert "gb300-nvl72" in first
    assert "72 × gb300" in first
    assert any(line.startswith("memory.march") and "72 GPUs" in line for line in rest)
    assert "2 faults planted on purpose" in rest
    assert rest[-1] == "378 items in all, 8 s of device time per GPU"
    assert all(len(line) <= 80 for line in rest)


def test_the_verdict_is_the_last_line(run_of, case, failing) -> None:
    assert last(concluded(run_of, case())) == "PASS  8 of 8 GPUs pass"
    assert last(concluded(run_of, failing())) == (
        "FAIL  5 of 8 GPUs pass, 2 fail, 1 is unknown: rack0/tray00/gpu1 (hbm), "
        "rack0/tray00/gpu3/link07–08 (nvlink); 1 waived"
    )
    cut = case(ended=False)
    assert last(concluded(run_of, cut)) == "UNKNOWN  8 of 8 GPUs pass; the run has no end"


def test_findings_stand_beside_limit_source_and_what_to_do(run_of, failing) -> None:
    text = concluded(run_of, failing())
    flat = re.sub(r"\s+", " ", text)
    assert "rack0/tray00/gpu1 memory.march ecc.corrected.delta 63 errors, limit ≤ 0 errors" in flat
    assert "swap-to-spare: Take it out of use and put a spare in its place." in flat
    assert "the sensor gave no reading cure: read it with another tool" in flat
    assert "waived by ops@example.org until 2099-01-31: coolant valve is on order" in flat
    assert "serial 1650000000001" in flat
    assert str(RUN) in flat


def test_thousands_of_failures_are_twenty_lines_and_a_count(run_of, case) -> None:
    record, _ = run_of(case(trays=None))
    hot = {("health", gpu, "temperature"): [120.0 + n] for n, gpu in enumerate(record.head.gpus)}
    text = concluded(run_of, case(trays=None, runs=hot))
    assert "and 52 more, see rackproof-runs/a-run" in text
    assert len(text.splitlines()) < 400
    whole = concluded(run_of, case(trays=None, runs=hot), everything=True)
    assert "and 52 more" not in whole
    assert len(whole.splitlines()) > 6930


def test_lines_fit_and_subjects_stay_whole(run_of, failing) -> None:
    text = concluded(run_of, failing(trays=None))
    *body, _, verdict = text.rstrip("\n").split("\n")
    assert max(len(line) for line in body) <= 80
    assert "rack0/tray00/gpu3/link07–08" in verdict


def test_text_of_a_record_is_not_obeyed(run_of, case) -> None:
    gap = Missing("health", "rack0/tray00/gpu0", "temperature", Why.NO_READING, ESCAPE, ESCAPE)
    events = [Event("rack0/tray00/gpu0", "xid.79", ESCAPE)]
    hostile = case(missing=[gap], events=events, problems=[ESCAPE])
    for file in (io.StringIO(), Screen()):
        _, judgement = run_of(hostile)
        terminal.conclusion(judgement, RUN, file)
        text = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())  # our own colours
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "⟨U+001B⟩[2J[bold red]owned[/]⟨U+202E⟩" in text


def test_colours_only_on_a_terminal_and_not_under_no_color(run_of, failing, monkeypatch) -> None:
    _, judgement = run_of(failing())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen, pipe = Screen(), io.StringIO()
    terminal.conclusion(judgement, RUN, screen)
    terminal.conclusion(judgement, RUN, pipe)
    assert "\x1b[1;31mFAIL" in screen.getvalue()
    assert "\x1b" not in pipe.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Screen()
    terminal.conclusion(judgement, RUN, plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain.getvalue())


def test_another_encoding_gets_ascii(run_of, failing) -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    _, judgement = run_of(failing())
    terminal.conclusion(judgement, RUN, file)
    text = raw.getvalue().decode("ascii")
    assert "limit <= 0 errors" in text
    assert "link07-08" in text


def test_the_bar_waits_two_seconds_and_needs_a_terminal(run_of, case) -> None:
    record, _ = run_of(case())
    now = [0.0]
    for file, drawn in ((Screen(), True), (io.StringIO(), False)):
        now[0] = 0.0
        with terminal.Progress(record.head, file, lambda: now[0]) as bar:
            now[0] = 1.9
            bar.advance("inventory", "rack0/tray00/gpu0")
            assert file.getvalue() == ""
            now[0] = 2.1
            bar.advance("memory.march", "[red]rack0/tray00/gpu1\x1b[2J")
            assert ("2/42" in file.getvalue()) is drawn
            assert "\x1b[2J" not in file.getvalue()


BODY = {
    "schema": "rackproof.diagnosis/1",
    "verdict": "FAIL",
    "inputs": [
        {"path": "kern.log", "kind": "kernel-log", "records": 412, "problems": ["line 88: cut"]},
        {"path": f"x{ESCAPE}", "kind": "unrecognised", "records": 0, "problems": []},
    ],
    "diagnoses": [
        {"subject": "host:n1/pci:0000:41:00.0", "serial": None, "component": "pcie",
         "persistence": "undetermined", "role": "root", "case": 1, "action": "reboot-node",
         "confidence": 0.5, "because": ["xid.79 x1"]},
        {"subject": "host:n1/pci:0000:42:00.0", "serial": None, "component": "app",
         "persistence": "undetermined", "role": "victim", "case": 1, "action": "none",
         "confidence": 0.5, "because": ["pci:0000:41:00.0 is the root"]},
    ],
}  # fmt: skip


def told(body) -> str:
    file = io.StringIO()
    terminal.diagnosis_conclusion(body, file)
    return file.getvalue()


def test_a_diagnosis_of_files_is_told_with_its_verdict_last() -> None:
    text = told(BODY)
    assert "kern.log: kernel-log, 412 records" in text
    assert "line 88: cut" in text
    assert "reboot-node: Drain the node" in text
    assert "1 other part failed because of it" in text
    assert "\x1b" not in text
    assert last(text) == "FAIL  2 inputs: host:n1/pci:0000:41:00.0 (pcie, reboot-node)"


@pytest.mark.parametrize(
    ("verdict", "kind", "end"),
    [
        ("PASS", "kernel-log", "PASS  1 input: no sign of a fault"),
        ("UNKNOWN", "unrecognised", "UNKNOWN  1 input: nothing was recognised"),
        ("UNKNOWN", "kernel-log", "UNKNOWN  1 input: not all could be judged"),
    ],
)
def test_files_without_a_diagnosis(verdict, kind, end) -> None:
    entry = {"path": "a", "kind": kind, "records": 1, "problems": []}
    assert last(told({"verdict": verdict, "inputs": [entry], "diagnoses": []})) == end


def test_every_word_of_the_contract_has_a_sentence() -> None:
    from rackproof.diagnostics import diagnosis  # noqa: PLC0415
    from rackproof.reports import words  # noqa: PLC0415

    assert set(words.ACTIONS) == set(diagnosis.ACTIONS)
    assert set(words.COMPONENTS) == set(diagnosis.COMPONENTS)
    assert set(words.PERSISTENCES) == set(diagnosis.PERSISTENCES)
    assert os.linesep not in "".join(words.ACTIONS.values())
