"""The record of a drill: what is written is read back, what is forged or cut is not believed."""

import json

import pytest

from rackproof.diagnostics.recovery.record import Course, Expected, Fact, Head
from rackproof.harness.errors import RecordError
from rackproof.harness.happening import Happening
from rackproof.reports.drill_read import fingerprint, is_drill, read_drill
from rackproof.reports.drill_record import FILE, DrillWriter

HEAD = Head(
    drill="gpu-loss", rack="gb300-nvl72", source="emulated", seed=7, layer="A", steps=10,
    plan={"steps": 10, "shape": {"width": 32}},
    expected=Expected(evicted=("r1",), detect=0.5, components=("pcie",), timeline=("fault",)),
    placement={"r0": "rack0/tray00/gpu0"}, replicas=2, checkpoint_every=5,
    versions={"rackproof": "0.1.0"}, date="2026-07-30T10:00:00+00:00",
)  # fmt: skip
SAID = [
    Happening(1.5, "r0", "hello", {"pid": 100, "kind": "of its own", "at": "too"}),
    Happening(2.25, "coordinator", "step", {"step": 1, "samples": [3, 4], "loss": 0.5}, 2),
    Happening(2.5, "drill", "injected", {"fault": "kill", "member": "r0"}),
]
READ = ("r0.1.jsonl line 4: no JSON",)
FACT = Fact("died", {"member": "r0", "pid": 100, "code": -9}, "faulted", 2.625)


def written(folder, *, end=True):
    writer = DrillWriter(folder)
    writer.head(HEAD)
    writer.begin("faulted", 1.0)
    for what in SAID:
        writer.happening("faulted", what)
    writer.fact(FACT)
    writer.finish("faulted", 3.0, READ, finished=True)
    writer.planted([{"kind": "gpu-lost", "subject": "x", "parameters": {}, "fired": 1}])
    if end:
        writer.conclude([{"id": "survived", "verdict": "PASS", "message": ""}], "PASS", "L4")
    writer.close()
    return folder / FILE


def test_what_is_written_is_read_back(tmp_path):
    written(tmp_path)
    record = read_drill(tmp_path)
    assert record.head == HEAD
    course = Course("faulted", 1.0, 3.0, finished=True, happenings=SAID, problems=READ)
    assert record.courses == {"faulted": course}
    assert record.facts == [FACT]
    assert record.planted[0]["fired"] == 1
    assert record.ended
    assert record.problems == ()


def test_fields_that_are_called_as_ours_change_nothing(tmp_path):
    written(tmp_path)
    hello = read_drill(tmp_path).courses["faulted"].happenings[0]
    assert (hello.kind, hello.at, hello.fields["kind"]) == ("hello", 1.5, "of its own")


def test_a_kill_loses_nothing_but_half_a_line(tmp_path):
    path = written(tmp_path, end=False)
    text = path.read_bytes()
    whole = text.count(b"\n")
    for cut in range(0, len(text), 37):
        path.write_bytes(text[:cut])
        lines = text[:cut].count(b"\n")
        if not lines:
            with pytest.raises(RecordError, match="no head of a drill"):
                read_drill(tmp_path)
            continue
        record = read_drill(tmp_path)
        assert not record.ended
        assert len(record.problems) == (not text[:cut].endswith(b"\n"))
        course = record.courses.get("faulted")
        seen = (len(course.happenings) if course else 0) + len(record.facts)
        assert seen == max(0, min(lines, whole - 2) - 2)


def test_two_begin_nothing_where_nothing_was_written(tmp_path):
    DrillWriter(tmp_path).close()
    assert not is_drill(tmp_path)
    with pytest.raises(RecordError, match="no head of a drill"):
        read_drill(tmp_path)


def lines_of(folder):
    return [json.loads(line) for line in (folder / FILE).read_text("utf-8").splitlines()]


def rewritten(folder, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / FILE).write_text(text, "utf-8")
    return read_drill(folder)


def with_one_more(folder, line):
    lines = lines_of(folder)
    return [*lines, {"line": len(lines) + 1, **line}]


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ({"kind": "happening", "course": "faulted", "said": {"kind": "boom", "who": "x"}}, "boom"),
        ({"kind": "happening", "course": "clean1", "said": {}}, "did not begin"),
        ({"kind": "happening", "course": "../x", "said": {}}, "one of clean1"),
        ({"kind": "happening", "course": "faulted", "said": []}, "an object"),
        ({"kind": "fact", "course": "faulted", "what": "proof", "when": 1, "fields": {}}, "one of"),
        ({"kind": "fact", "course": "faulted", "what": "died", "when": "nan", "fields": {}}, "fin"),
        ({"kind": "course", "course": "faulted", "state": "begin", "when": 1}, "a second faulted"),
        ({"kind": "course", "course": "replay", "state": "end", "when": 1}, "did not begin"),
        ({"kind": "planted", "planted": {}}, "a list"),
        ({"kind": "planted", "planted": [{"kind": "x"}]}, "no 'subject'"),
        ({"kind": "course", "course": "clean1", "state": "begin", "when": 1e300}, "a time"),
        ({"kind": "verdict"}, "of no known kind"),
        ({"kind": "trouble", "why": 3}, "a text"),
        ({"kind": "drill"}, "a second head"),
    ],
)
def test_a_forged_line_is_a_problem_and_no_exception(tmp_path, forged, said):
    written(tmp_path)
    before = read_drill(tmp_path)
    record = rewritten(tmp_path, with_one_more(tmp_path, forged))
    (problem,) = record.problems
    assert said in problem
    assert record.courses == before.courses
    assert record.facts == before.facts


def test_trouble_is_a_problem_of_the_record(tmp_path):
    written(tmp_path)
    record = rewritten(tmp_path, with_one_more(tmp_path, {"kind": "trouble", "why": "it hangs"}))
    assert record.problems == ("it hangs",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", "rackproof.drill-record/9"), ("layer", "Z"), ("mode", "any"), ("steps", 0),
        ("steps", 1 << 40), ("plan", []), ("placement", {"r0": 1}), ("seed", "7"), ("date", None),
        ("expected", {}), ("expected", {"proof": "L9"}),
    ],
)  # fmt: skip
def test_a_head_that_makes_no_sense_is_no_drill(tmp_path, field, value):
    written(tmp_path)
    first, *rest = lines_of(tmp_path)
    with pytest.raises(RecordError, match=r"drill\.jsonl"):
        rewritten(tmp_path, [{**first, field: value}, *rest])


@pytest.mark.parametrize("field", [*Expected.__dataclass_fields__])
def test_an_expectation_that_was_taken_out_is_no_weaker_drill(tmp_path, field):
    written(tmp_path)
    first, *rest = lines_of(tmp_path)
    del first["expected"][field]
    with pytest.raises(RecordError, match=field):
        rewritten(tmp_path, [first, *rest])


def test_nothing_stands_before_the_head(tmp_path):
    written(tmp_path)
    with pytest.raises(RecordError, match="no head"):
        rewritten(tmp_path, [{"kind": "end", "verdict": "PASS"}, *lines_of(tmp_path)])


def test_the_fingerprint_is_that_of_the_file(tmp_path):
    path = written(tmp_path)
    first = fingerprint(tmp_path)
    with path.open("ab") as file:
        file.write(b"\n")
    assert fingerprint(tmp_path) != first


def test_a_link_is_no_record(tmp_path):
    written(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / FILE).symlink_to(tmp_path / FILE)
    assert not is_drill(other)


# --- a copy that is not whole --------------------------------------------------------------------
def doubled(lines, at):
    return [*lines[: at + 1], *lines[at:]]


def dropped(lines, at):
    return [*lines[:at], *lines[at + 1 :]]


def swapped(lines, at):
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


def without_a_number(lines, at):
    bare = {key: value for key, value in lines[at].items() if key != "line"}
    return [*lines[:at], bare, *lines[at + 1 :]]


@pytest.mark.parametrize("accident", [doubled, dropped, swapped, without_a_number])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_line_that_is_missing_twice_there_or_elsewhere_is_known(tmp_path, accident, at):
    written(tmp_path)
    assert read_drill(tmp_path).whole
    record = rewritten(tmp_path, accident(lines_of(tmp_path), at))
    assert not record.whole
    assert [each for each in record.problems if "the record is not whole" in each]


def test_what_follows_a_line_that_is_missing_is_said_once(tmp_path):
    written(tmp_path)
    lines = dropped(dropped(lines_of(tmp_path), 6), 3)
    (problem,) = rewritten(tmp_path, lines).problems
    assert "line 4: the record is not whole: it is number 5, and 4 should follow" in problem


def test_a_record_of_before_its_lines_had_numbers_is_read(tmp_path):
    written(tmp_path)
    before = read_drill(tmp_path)
    bare = [{k: v for k, v in line.items() if k != "line"} for line in lines_of(tmp_path)]
    record = rewritten(tmp_path, bare)
    assert record == before
    assert record.whole


def test_a_record_whose_first_lines_are_gone_is_none(tmp_path):
    written(tmp_path)
    with pytest.raises(RecordError, match="no head"):
        rewritten(tmp_path, lines_of(tmp_path)[1:])
