"""OCP output, held against the published model: ocptv rebuilds each line and writes it again."""

import dataclasses
import enum
import json
import typing

import ocptv.output.objects as published
import pytest
from ocptv.output.emit import ArtifactEmitter

from rackproof.diagnostics.attribution import accused
from rackproof.reports.ocp import ocp

SPAN = ("2026-11-30T10:00:00.125+00:00", "2026-11-30T10:03:09.500+00:00")


def candidates(hint):
    """Return the types that a type hint allows, Optional and Union taken apart."""
    if typing.get_origin(hint) is typing.Union:
        return [one for arg in typing.get_args(hint) for one in candidates(arg)]
    return [hint]


def rebuilt(body, kind, hardware):
    """Return the published dataclass `kind` with what `body` says; KeyError for a field unknown."""
    values, left = {}, dict(body)
    for field in dataclasses.fields(kind):
        name = field.metadata.get("spec_field")
        choices = [c for c in candidates(field.type) if hasattr(c, "SPEC_OBJECT")]
        if name is None:
            found = [c for c in choices if c.SPEC_OBJECT in left]
            values[field.name] = None
            if found:
                inner = left.pop(found[0].SPEC_OBJECT)
                values[field.name] = value_of(inner, found[0], hardware)
        else:
            raw = left.pop(name, None)
            values[field.name] = raw if raw is None else value_of(raw, field.type, hardware)
    assert not left, f"{kind.__name__} knows nothing of {sorted(left)}"
    return kind(**values)


def value_of(raw, hint, hardware):
    """Return `raw` as the type that a field of the model wants."""
    (first, *_) = candidates(hint)
    if isinstance(raw, list):
        (inner,) = typing.get_args(first)
        return [value_of(each, inner, hardware) for each in raw]
    if first is published.HardwareInfo and isinstance(raw, str):
        return hardware[raw]
    if first is published.Metadata:
        return published.Metadata(raw)
    if isinstance(first, type) and issubclass(first, enum.Enum):
        return first(raw)
    return rebuilt(raw, first, hardware) if dataclasses.is_dataclass(first) else raw


def again(line, hardware):
    """Return one line as the published emitter writes what it says."""
    body = json.loads(line)
    for name in ("sequenceNumber", "timestamp"):
        body.pop(name)
    ((name, inner),) = body.items()
    kind = {"schemaVersion": published.SchemaVersion, "testRunArtifact": published.RunArtifact,
            "testStepArtifact": published.StepArtifact}[name]  # fmt: skip
    made = rebuilt(inner, kind, hardware)
    if isinstance(getattr(made, "impl", None), published.RunStart):
        hardware |= {info.id: info for info in made.impl.dut_info.hardware_infos}
    return {name: json.loads(ArtifactEmitter._serialize(made))}, {name: inner}


@pytest.fixture
def lines_of(run_of):
    """`lines_of(case)` gives the judgement and the lines, each parsed."""

    def build(case):
        record, judgement = run_of(case)
        return judgement, list(ocp(record, judgement, SPAN))

    return build


@pytest.mark.parametrize("which", ["healthy", "failing", "cut"])
def test_the_published_model_reads_every_line_and_writes_the_same(
    lines_of, case, failing, which
) -> None:
    chosen = {"healthy": case(), "failing": failing(), "cut": case(ended=False, only=("health",))}
    hardware: dict[str, object] = {}
    _, lines = lines_of(chosen[which])
    assert len(lines) > 100
    for line in lines:
        written, ours = again(line, hardware)
        assert written == ours


def artifacts(lines, sort):
    bodies = [json.loads(line) for line in lines]
    inner = [b.get("testStepArtifact", b.get("testRunArtifact", {})) for b in bodies]
    return [body[sort] for body in inner if sort in body]


def test_numbers_and_times_are_in_order_and_the_run_begins_and_ends(lines_of, failing) -> None:
    _, lines = lines_of(failing())
    bodies = [json.loads(line) for line in lines]
    assert [b["sequenceNumber"] for b in bodies] == list(range(len(bodies)))
    assert bodies[0]["schemaVersion"] == {"major": 2, "minor": 0}
    stamps = [b["timestamp"] for b in bodies]
    assert stamps[0] == "2026-11-30T10:00:00.125Z"
    assert stamps == sorted(stamps)
    assert artifacts(lines, "testRunEnd") == [{"status": "COMPLETE", "result": "FAIL"}]
    starts, ends = artifacts(lines, "testStepStart"), artifacts(lines, "testStepEnd")
    assert len(starts) == len(ends) == 6
    assert starts[-1] == {"name": "diagnosis"}


def test_a_diagnosis_fails_whom_the_judgement_accuses_and_nobody_else(lines_of, failing) -> None:
    judgement, lines = lines_of(failing())

    def part(body):
        sub = body.get("subcomponent")
        return body["hardwareInfoId"] + (f"/{sub['name']}" if sub else "")

    told = artifacts(lines, "diagnosis")
    assert sorted({part(d) for d in told if d["type"] == "FAIL"}) == accused(judgement)
    unknown = {part(d) for d in told if d["type"] == "UNKNOWN"}
    assert "rack0/tray01/gpu2" in unknown
    assert "rack0/tray01/gpu0" not in unknown  # waived: within limits but for what was waived


def test_limits_are_validators_and_waivers_and_gaps_are_told(lines_of, failing) -> None:
    _, lines = lines_of(failing())
    hot = [m for m in artifacts(lines, "measurement")
           if m["name"] == "temperature" and "waived" in m["metadata"]]  # fmt: skip
    assert [m["value"] for m in hot] == [84.0, 85.0, 84.5]
    assert hot[0]["unit"] == "C"
    (validator,) = hot[0]["validators"]
    assert (validator["type"], validator["value"]) == ("LESS_THAN_OR_EQUAL", 80)
    assert validator["name"] == "user: site rule 12"
    (error,) = artifacts(lines, "error")
    assert error["symptom"] == "not-judged"
    assert "rack0/tray01/gpu2 thermal.margin" in error["message"]
    assert "cure: read it with another tool" in error["message"]


def test_unknown_is_no_result_and_a_cut_record_says_so(lines_of, case) -> None:
    _, lines = lines_of(case(ended=False))
    assert artifacts(lines, "testRunEnd") == [{"status": "ERROR", "result": "NOT_APPLICABLE"}]
    assert {e["symptom"] for e in artifacts(lines, "error")} == {"record-not-whole"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
def test_a_value_that_json_lacks_is_a_word(lines_of, case, value) -> None:
    key = ("gemm.fp32", "rack0/tray00/gpu0", "gemm.fp32.rate")
    _, lines = lines_of(case(runs={key: [value] * 3}))
    odd = [m["value"] for m in artifacts(lines, "measurement")
           if m["name"] == "gemm.fp32.rate" and isinstance(m["value"], str)]  # fmt: skip
    assert odd == [str(value)] * 3


def test_text_from_outside_cannot_forge_a_line(lines_of, case) -> None:
    evil = (
        'x"}\n{"testRunArtifact": {"testRunEnd": {"status": "COMPLETE", "result": "PASS"}}}\u202e'
    )
    _, lines = lines_of(case(text={"gpu.serial": evil}, problems=(evil,)))
    assert all("\n" not in line and "\u202e" not in line for line in lines)
    assert len(artifacts(lines, "testRunEnd")) == 1
