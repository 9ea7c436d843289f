"""A drill as a page, as JUnit, as a table and in a terminal: complete, and nothing in it obeyed."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from rackproof.diagnostics.recovery.judge import judge
from rackproof.harness.errors import SpecError
from rackproof.harness.happening import Happening
from rackproof.reports import render
from rackproof.reports.drill import Watching, conclusion
from rackproof.reports.drill_forms import as_json
from rackproof.reports.drill_read import fingerprint, read_drill
from rackproof.reports.drill_words import FELT, POWER, PROOFS, ROOTS, headline
from rackproof.reports.html.drill_drawing import (
    NARROW,
    WIDE,
    committed,
    drawing,
    lives,
    recoveries,
)
from rackproof.reports.html.drill_page import shares


def body_of(run):
    record = read_drill(run)
    return as_json(record, judge(record), run), record


def report(run, form, capsys):
    assert render.report(run, form, "-") is None
    return capsys.readouterr().out


class Parts(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.targets, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.targets += [n for n, _ in attrs if n in ("src", "href", "style") or n[:2] == "on"]

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture
def run(drill_run, tmp_path):
    return drill_run(tmp_path / "run")


def test_the_sample_is_judged_as_it_was_made(run):
    body, _ = body_of(run)
    assert (body["verdict"], body["proof"], body["restarts"]) == ("PASS", "L1", 1)
    assert body["timeline"][0]["what"] == "fault"
    assert body["timeline"][-1]["what"] == "resumed"
    assert abs(sum(share.share for share in shares(body)) - 1) < 1e-6


def test_the_page_says_all_and_names_nothing_outside(run, capsys):
    text = report(run, "html", capsys)
    parts = Parts(text)
    assert not parts.targets
    assert "script" not in parts.tags
    assert "default-src 'none'" in text
    assert parts.tags.count("svg") >= 4
    plain = re.sub(r"\s+", " ", " ".join(parts.texts))
    body, _ = body_of(run)
    for wanted in (
        "EMULATED", "Recovery drill report", headline(body), *PROOFS.values(), "required",
        "kill of replica0", "rack0/tray00/gpu0", "productive", "MTTR, fault to resumed",
        "1 restart of the whole job", "fault-fired", "train", fingerprint(run), "/run/step-10",
        "sha256sum drill.jsonl",
    ):  # fmt: skip
        assert wanted in plain, wanted


def test_hostile_text_stays_text(drill_run, tmp_path, evil, capsys):
    run = drill_run(tmp_path / "run", evil)
    page = report(run, "html", capsys)
    assert "script" not in Parts(page).tags
    assert "&lt;script&gt;" in page
    terminal = io.StringIO()
    body, record = body_of(run)
    conclusion(body, record, terminal)
    table = report(run, "csv", capsys)
    for text in (page, report(run, "junit", capsys), terminal.getvalue(), table):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_what_the_judge_says_is_what_the_forms_say(run, capsys):
    body, _ = body_of(run)
    rows = list(csv.DictReader(io.StringIO(report(run, "csv", capsys))))
    assert [(r["claim"], r["verdict"]) for r in rows] == [
        (c["id"], c["verdict"]) for c in body["claims"]
    ]
    suite = ET.fromstring(report(run, "junit", capsys)).find("testsuite")  # noqa: S314 - our own
    words = [claim["verdict"] for claim in body["claims"]]
    for name, word in (("failures", "FAIL"), ("errors", "UNKNOWN"), ("skipped", "SKIP")):
        assert int(suite.get(name)) == words.count(word)
    assert int(suite.get("tests")) == len(words)


def test_a_record_without_its_end_is_no_pass_in_any_form(run, capsys):
    path = run / "drill.jsonl"
    lines = [x for x in path.read_text("utf-8").splitlines() if json.loads(x)["kind"] != "end"]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    assert body_of(run)[0]["verdict"] == "UNKNOWN"
    assert "<title>UNKNOWN" in report(run, "html", capsys)
    assert "<error" in report(run, "junit", capsys)


@pytest.mark.parametrize("form", ["ocp", "parquet", "slurm", "kubernetes"])
def test_a_form_of_burns_is_refused_in_one_line(run, form):
    with pytest.raises(SpecError, match="which can be had as html, junit, csv"):
        render.report(run, form, "-")


def test_the_page_lies_beside_the_record(run):
    assert render.report(run, "html", None) == run / "report.html"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_what_is_drawn_lies_within_the_drawing(run, width):
    body, record = body_of(run)
    drawn = drawing(record, width)
    assert [lane.name for lane in drawn.lanes] == ["replica0"]
    assert drawn.lanes[0].ticks.count("M") == 15
    assert drawn.line.count("H") == 15  # one of them falls
    for x, y in re.findall(r"[MH]([\d.]+)[ V]([\d.]+)", drawn.line):
        assert drawn.left <= float(x) <= drawn.right <= width
        assert 0 <= float(y) <= drawn.base <= drawn.height
    assert len(drawn.faults) == len(drawn.restarts) == 1
    (one,) = recoveries(body, width)
    assert [moment.word for moment in one.moments] == [e["what"] for e in body["timeline"]]
    assert all(one.left <= m.begin <= m.end <= one.right for m in one.moments)


def test_the_page_says_over_which_time_ettr_is_reckoned(run, capsys):
    body, record = body_of(run)
    wall, course = body["wall"], record.faulted
    text = report(run, "html", capsys)
    assert f" of {wall['seconds']:.2f} s, from the first work on a step" in text
    assert f"{wall['start']:.2f} s before it and {wall['end']:.2f} s after it" in text
    whole = wall["start"] + wall["seconds"] + wall["end"]
    assert abs(whole - (course.ended - course.began)) < 1e-3
    assert "start and end of the processes included" in text
    assert "over wall time" not in text


def test_a_member_that_was_restarted_has_two_lives_and_a_gap(run):
    (lane,) = drawing(read_drill(run), WIDE).lanes
    (begin, died), (again, end) = lane.lives
    assert begin < died < again < end
    course = read_drill(run).faulted
    assert lives(read_drill(run), course, "replica0") == [(100.5, 101.11), (102.0, 103.1)]
    assert lives(read_drill(run), course, "unheard") == [(100.0, 103.2)]


def test_the_steps_fall_at_the_restore_and_never_slant(run):
    record = read_drill(run)
    line = [(round(at, 3), step) for at, step in committed(record.faulted)]
    assert line[4:7] == [(1.0, 5), (1.2, 0), (2.1, 1)]
    assert "L" not in drawing(record, WIDE).line


def test_a_restore_that_goes_no_lower_is_no_fall(run):
    course = read_drill(run).faulted
    said = [*course.happenings, Happening(100.65, "spare", "restore", {"step": 1})]
    more = replace(course, happenings=sorted(said, key=lambda what: what.at))
    assert committed(more) == committed(course)


def test_a_drill_in_which_nothing_was_run_has_a_page(run, capsys):
    path = run / "drill.jsonl"
    path.write_text(path.read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    text = report(run, "html", capsys)
    assert "was never begun" in text
    assert "<title>UNKNOWN" in text


def test_the_last_line_is_the_verdict(run):
    body, record = body_of(run)
    file = io.StringIO()
    conclusion(body, record, file)
    lines = file.getvalue().rstrip("\n").splitlines()
    assert lines[-1].startswith(
        "PASS  gpu-loss: L1, reached the last step within its budgets"
        " (no more: checkpoints: /run/step-10 has no digest of its tensors); resumed "
    )
    assert " s after the fault, 1 restart" in lines[-1]
    assert any("productive" in line for line in lines)
    assert any("fault-fired" in line for line in lines)


def test_the_plan_stands_first_and_the_timeline_comes_as_it_happens(run):
    _, record = body_of(run)
    file = io.StringIO()
    with Watching(file, run) as watching:
        watching.begins(record.head)
        plan = file.getvalue()
        watching.course("faulted", again=False)
        for what in record.faulted.happenings:
            watching.said("faulted", what)
    assert "what must hold:" in plan
    assert "started: train" in plan
    assert "at most 1 restart" in plan
    told = file.getvalue().removeprefix(plan)
    words = re.findall(r"[\d.]+ s  (\S+)", told)
    assert words[0] == "fault"
    assert "next" in words
    assert words.count("detected") == 1


def test_what_a_run_says_before_the_fault_is_no_timeline(run):
    file = io.StringIO()
    with Watching(file, run) as watching:
        watching.course("faulted", again=False)
        watching.said("faulted", Happening(1.0, "r0", "restore", {"step": 1, "uri": "peer:r1"}))
    assert "restored" not in file.getvalue()


# --- the sentence beside the verdict -------------------------------------------------------------
def said(verdict, *claims, problems=(), **steps):
    keys = ("id", "verdict", "message")
    rows = [dict(zip(keys, claim, strict=True)) for claim in claims]
    body = {"drill": "gpu-loss", "verdict": verdict, "claims": rows, "problems": problems}
    return headline({**body, "proof": "none", "proofs": [], "steps": steps, "timeline": []})


def test_it_leads_with_what_is_wrong_with_the_record():
    claims = [
        ("reached", "UNKNOWN", "3 of 9 steps"),
        ("fault-fired", "UNKNOWN", "nothing was injected"),
        ("events", "UNKNOWN", "the record has no end: killed; line 4: cut short; hold it again"),
    ]
    text = said("UNKNOWN", *claims, problems=["line 4: cut short"])
    assert text.startswith("gpu-loss: the record has no end: killed; shown")
    text = said("UNKNOWN", *claims[:2], problems=["line 4: cut short"])
    assert text.startswith("gpu-loss: fault-fired: nothing was injected (and 1 more)")


def test_a_problem_that_has_several_parts_is_told_in_whole():
    problem = "clean1: it did not come to its end (one; two)"
    claim = ("events", "UNKNOWN", f"{problem}; hold the drill again")
    assert said("UNKNOWN", claim, problems=[problem]).startswith(f"gpu-loss: {problem}; shown")


def test_it_leads_with_the_cause_and_not_with_what_came_of_it():
    claims = [
        ("timeline", "FAIL", "did not happen: resumed"),
        ("budget resume", "FAIL", "late"),
        ("reached", "FAIL", "replica0 ended with exit code 4"),
        ("proof L1", "FAIL", "reached: …"),
    ]
    text = said("FAIL", *claims)
    assert text.startswith("gpu-loss: reached: replica0 ended with exit code 4 (and 2 more)")


def test_a_run_that_began_again_from_nothing_is_called_so():
    claim = ("checkpoints", "UNKNOWN", "no checkpoint was read again")
    text = said("UNKNOWN", claim, from_nothing=True, lost=7)
    assert "gpu-loss: it began at step 1 again and lost 7 steps; checkpoints: no" in text


def test_every_claim_has_its_place_in_it(run):
    body, _ = body_of(run)
    own = {c["id"] for c in body["claims"] if not c["id"].startswith("proof ")}
    assert own - {"events"} == set(ROOTS) - {*POWER, *FELT}
