"""ocp(record, judgement) -> lines: a run as OCP Test & Validation output, version 2.0.

One JSON object a line (github.com/opencomputeproject/ocp-diag-core, json_spec). A burn is a step:
each run of each check is a measurement with the limit that decided as its validators, and what
could not be judged is an error. The last step holds one diagnosis for each part: FAIL for whom the
judgement accuses, UNKNOWN for what was not judged and for victims, whose root is named. So nobody
who reads diagnoses alone condemns a victim.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.attribution import accused
from rackproof.diagnostics.checks import Check, serials_of
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Limit
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.model import Value
from rackproof.reports.words import headline, visible

VERSION = {"major": 2, "minor": 0}
UNSTAMPED = "1970-01-01T00:00:00Z"
_SOFTWARE = {"driver": "SYSTEM", "cuda": "SYSTEM", "vbios": "FIRMWARE"}
Body = dict[str, Any]


@dataclass(slots=True)
class _Stream:
    """Numbers the artifacts; all carry the time at which the record says that they happened."""

    first: str
    last: str
    number: int = 0

    def line(self, body: Mapping[str, Any], *, early: bool = False) -> str:
        stamp = self.first if early else self.last
        whole = {**body, "sequenceNumber": self.number, "timestamp": stamp}
        self.number += 1
        return json.dumps(whole, allow_nan=False)

    def run(self, name: str, body: Mapping[str, Any], *, early: bool = False) -> str:
        return self.line({"testRunArtifact": {name: body}}, early=early)

    def step(self, number: int, name: str, body: Mapping[str, Any]) -> str:
        return self.line({"testStepArtifact": {"testStepId": str(number), name: body}})


def ocp(record: Record, judgement: Judgement, span: tuple[str, str] | None = None) -> Iterator[str]:
    """Yield the artifacts, one line each without its end. `span`: the record's first and last time.

    Times are those of the record: the same run gives the same lines.
    """
    first, last = (_zulu(stamp) for stamp in span or (UNSTAMPED, UNSTAMPED))
    stream = _Stream(first, last)
    yield stream.line({"schemaVersion": VERSION}, early=True)
    yield stream.run("testRunStart", _start(record), early=True)
    steps: dict[str, list[Check]] = {planned.burn: [] for planned in record.head.plan}
    for check in judgement.checks:
        steps.setdefault(check.id, []).append(check)
    for number, (burn, checks) in enumerate(steps.items()):
        for name, body in _step(burn, checks):
            yield stream.step(number, name, body)
    for name, body in _diagnoses(record, judgement):
        yield stream.step(len(steps), name, body)
    for problem in judgement.problems:
        yield stream.run("error", {"symptom": "record-not-whole", "message": visible(problem),
                                   "softwareInfoIds": []})  # fmt: skip
    yield stream.run("log", {"severity": "INFO", "message": visible(headline(judgement))})
    yield stream.run("testRunEnd", _end(judgement.verdict))


def _zulu(stamp: str) -> str:
    return stamp.replace("+00:00", "Z")


def _start(record: Record) -> Body:
    head = record.head
    parameters = {"rack": head.rack, "seed": head.seed, "level": head.level, "verb": head.verb,
                  "burns": [planned.burn for planned in head.plan]}  # fmt: skip
    return {
        "name": "rackproof",
        "version": visible(head.versions.get("rackproof", "unknown")),
        "commandLine": visible(f"rackproof {head.verb} {head.rack}"),
        "parameters": parameters,
        "dutInfo": {
            "dutInfoId": visible(head.rack),
            "platformInfos": [{"info": visible(f"{head.source} rack {head.rack}")}],
            "softwareInfos": [_software(n, v) for n, v in sorted(head.versions.items())],
            "hardwareInfos": list(_hardware(record)),
            "metadata": {"source": head.source, "date": head.today},
        },
    }


def _software(name: str, version: str) -> Body:
    sort = _SOFTWARE.get(name, "APPLICATION")
    return {"softwareInfoId": visible(name), "name": visible(name), "version": visible(version),
            "softwareType": sort}  # fmt: skip


def _hardware(record: Record) -> Iterator[Body]:
    head, serials = record.head, serials_of(record)
    around = [s for sort, own in head.around.items() if sort != "link" for s in own]
    for subject in dict.fromkeys([*head.gpus, *head.hosts, *around, "fabric"]):
        own = {"hardwareInfoId": visible(subject), "name": head.gpus.get(subject, "") or subject}
        own["location"] = own["hardwareInfoId"]
        if serial := serials.get(subject):
            own["serialNumber"] = visible(serial)
        yield own


def _placed(record_part: str) -> Body:
    """Return the keys that say which part a subject is: its hardware, and a link as its bus."""
    gpu = gpu_of(record_part)
    if gpu == record_part:
        return {"hardwareInfoId": visible(gpu)}
    link = record_part.rpartition("/")[2]
    return {"hardwareInfoId": visible(gpu), "subcomponent": {"type": "BUS", "name": link}}


def _validators(limit: Limit | None) -> list[Body]:
    if limit is None:
        return []
    name = visible(f"{limit.layer}: {limit.source}")
    bounds = (("EQUAL", limit.equal), ("GREATER_THAN_OR_EQUAL", limit.low),
              ("LESS_THAN_OR_EQUAL", limit.high))  # fmt: skip
    return [
        {"name": name, "type": sort, "value": _plain(bound)}
        for sort, bound in bounds if bound is not None
    ]  # fmt: skip


def _plain(value: Value) -> Value:
    """Return a value as JSON has it: infinities and NaN as words."""
    if isinstance(value, str):
        return visible(value)
    return value if value - value == 0 else str(value)


def _step(burn: str, checks: Sequence[Check]) -> Iterator[tuple[str, Body]]:
    yield "testStepStart", {"name": visible(burn)}
    for check in checks:
        for attempt, value in zip(check.attempts, check.runs, strict=True):
            if value is not None:
                yield "measurement", _measurement(check, attempt, value)
        if check.verdict is Verdict.UNKNOWN:
            cure = f"; cure: {check.cure}" if check.cure else ""
            said = f"{check.subject} {check.metric}: {check.message}{cure}"
            yield "error", {"symptom": "not-judged", "message": visible(said),
                            "softwareInfoIds": []}  # fmt: skip
    verdicts = {check.verdict for check in checks}
    if not checks or verdicts == {Verdict.SKIP}:
        status = "SKIP"
    else:
        status = "ERROR" if Verdict.UNKNOWN in verdicts else "COMPLETE"
    yield "testStepEnd", {"status": status}


def _measurement(check: Check, attempt: int, value: Value) -> Body:
    body: Body = {"name": check.metric, "value": _plain(value)}
    if check.unit not in ("", "text"):
        body["unit"] = check.unit
    metadata: Body = {"run": attempt, "verdict": str(check.verdict)}
    if check.waiver is not None:
        waiver = check.waiver
        metadata["waived"] = visible(f"by {waiver.owner} until {waiver.until}: {waiver.reason}")
    return {**body, "validators": _validators(check.limit), **_placed(check.subject),
            "metadata": metadata}  # fmt: skip


def _diagnoses(record: Record, judgement: Judgement) -> Iterator[tuple[str, Body]]:
    """Yield the last step: each root in full, then each other part by its own verdict."""
    yield "testStepStart", {"name": "diagnosis"}
    roots = [d for d in judgement.diagnoses if d.role == "root"]
    victims = {d.subject: d for d in judgement.diagnoses if d.role == "victim"}
    of_case = {d.case: d.subject for d in roots}
    for root in roots:
        said = "; ".join((f"case {root.case}, {root.action}", *root.because))
        verdict = f"{root.component}-{root.persistence}"
        yield "diagnosis", {"verdict": verdict, "type": "FAIL", "message": visible(said),
                            **_placed(root.subject)}  # fmt: skip
    told = {root.subject for root in roots}
    blamed = set(accused(judgement)) - told
    for subject, checks in _by_part(record, judgement.checks).items():
        if victim := victims.get(subject) or victims.get(gpu_of(subject)):
            said = f"follows {of_case.get(victim.case, 'another part')}"
            body = {"verdict": "victim", "type": "UNKNOWN", "message": visible(said)}
        elif subject in blamed:
            body = {"verdict": "out-of-limits", "type": "FAIL"}
        elif subject in told:
            continue
        else:
            own = roll_up(c.verdict for c in checks if c.waiver is None)
            word = "UNKNOWN" if own is not Verdict.PASS else "PASS"
            body = {"verdict": f"rackproof-{word.lower()}", "type": word}
        yield "diagnosis", {**body, **_placed(subject)}
    yield "testStepEnd", {"status": "COMPLETE"}


def _by_part(record: Record, checks: Iterable[Check]) -> dict[str, list[Check]]:
    """Return the checks that are not SKIP by part: a link's that is within limits are its GPU's."""
    found: dict[str, list[Check]] = {subject: [] for subject in record.head.gpus}
    parts: dict[str, list[Check]] = defaultdict(list, found)
    for check in checks:
        if check.verdict is not Verdict.SKIP:
            failed = check.verdict is Verdict.FAIL and check.waiver is None
            parts[check.subject if failed else gpu_of(check.subject)].append(check)
    return dict(parts)


def _end(verdict: Verdict) -> Body:
    if verdict is Verdict.UNKNOWN or verdict is Verdict.SKIP:
        return {"status": "ERROR", "result": "NOT_APPLICABLE"}
    return {"status": "COMPLETE", "result": str(verdict)}
