"""junit(record, judgement, name) -> str: the verdicts as JUnit XML, for a CI that shows tests.

One case for each burn on each subject; a link's checks belong to its GPU. FAIL is <failure>,
UNKNOWN is <error>, SKIP is <skipped>; a waived FAIL is a passed case that says so. A record with
problems, or without its end, adds a case of its own, so that no cut run looks whole.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.reports.retests import retesting, showed, what
from rackproof.reports.words import bounds, counted, headline, remarks, shown, visible

MOST_LINES = 100  # of one case; the record holds them all
TAGS = {Verdict.FAIL: "failure", Verdict.UNKNOWN: "error", Verdict.SKIP: "skipped"}
COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def line_of(check: Check) -> str:
    """Return one check in one line: what was read, against what, and by whose word."""
    runs = ", ".join(shown(v) for v in check.runs) or "no reading"
    parts = [f"{check.verdict} {check.subject} {check.metric}: {runs}"]
    if check.unit not in ("text", "flag") and check.runs:
        parts[0] += f" {check.unit}"
    if check.limit is not None:
        parts.append(f"limit {bounds(check.limit)} ({check.limit.layer}: {check.limit.source})")
    if check.verdict is not Verdict.FAIL:
        parts.append(check.message)
    if check.cure:
        parts.append(f"cure: {check.cure}")
    if check.waiver is not None:
        waiver = check.waiver
        parts.append(f"waived by {waiver.owner} until {waiver.until}: {waiver.reason}")
    return visible("; ".join(part for part in parts if part))


def _properties(parent: ET.Element, pairs: Sequence[tuple[str, str]]) -> None:
    body = ET.SubElement(parent, "properties")
    for name, value in pairs:
        ET.SubElement(body, "property", name=visible(name), value=visible(value))


def _lines(checks: Sequence[Check]) -> str:
    lines = [line_of(check) for check in checks[:MOST_LINES]]
    more = len(checks) - MOST_LINES
    return "\n".join([*lines, f"and {more} more, in the record"] if more > 0 else lines)


def _case(suite: ET.Element, burn: str, subject: str, checks: Sequence[Check]) -> None:
    case = ET.SubElement(suite, "testcase", classname=visible(burn), name=visible(subject),
                         time="0")  # fmt: skip
    held = [c for c in checks if c.waiver is not None]
    if held:
        _properties(case, [(f"waived {c.metric}", line_of(c)) for c in held])
    own = [c for c in checks if c.waiver is None]
    verdict = roll_up(c.verdict for c in own)
    if own and all(c.verdict is Verdict.SKIP for c in own):
        verdict = Verdict.SKIP
    elif not own:
        verdict = Verdict.PASS
    if verdict is not Verdict.PASS:
        bad = [c for c in own if c.verdict is not Verdict.PASS]
        bad.sort(key=lambda c: c.verdict is not Verdict.FAIL)
        of_verdict = [c for c in bad if c.verdict is verdict]
        metrics = ", ".join(dict.fromkeys(c.metric for c in of_verdict))
        message = visible(f"{counted(len(of_verdict), 'check')} {verdict}: {metrics}")
        found = ET.SubElement(case, TAGS[verdict], message=message)
        if verdict is not Verdict.SKIP:
            found.set("type", str(verdict))
        found.text = _lines(bad)
    if held:
        said = ET.SubElement(case, "system-out")
        said.text = f"passed by waiver, and FAIL without it\n{_lines(held)}"


def _retests(record: Record, judgement: Judgement) -> list[tuple[str, str]]:
    """Return the retests as properties; none where there was no budget for them."""
    told = retesting(record, judgement)
    if told is None:
        return []
    rows = [(f"retest {n}", f"{row.subject}: {what(row)}: {showed(row)}")
            for n, row in enumerate(told.rows[:MOST_LINES], 1)]  # fmt: skip
    return [("retests", told.total), *rows]


def _suite(record: Record, judgement: Judgement, name: str, fingerprint: str) -> ET.Element:
    head = record.head
    suite = ET.Element("testsuite", name=visible(name), time="0")
    counts = judgement.counts
    _properties(suite, [
        ("verdict", str(judgement.verdict)),
        ("source", head.source),
        ("rack", head.rack),
        ("seed", str(head.seed)),
        ("level", head.level),
        ("date", head.today),
        ("planned", str(judgement.planned)),
        ("judged", str(judgement.judged)),
        *((f"gpus {word}", str(counts[word])) for word in counts),
        *((f"version of {part}", text) for part, text in head.versions.items()),
        ("headline", headline(judgement)),
        *_retests(record, judgement),
        *((f"left out {burn}", why) for burn, why in head.left_out.items()),
        *((f"not on this rack {burn}", why) for burn, why in head.skipped.items()),
        *([("record sha256", fingerprint)] if fingerprint else []),
    ])  # fmt: skip
    return suite


def junit(record: Record, judgement: Judgement, name: str, fingerprint: str = "") -> str:
    """Return the document. `name` is that of the run, `fingerprint` its record's sha256.

    Characters that XML cannot hold are written as ⟨U+XXXX⟩.
    """
    suite = _suite(record, judgement, name, fingerprint)
    cases: dict[tuple[str, str], list[Check]] = {}
    for check in judgement.checks:
        cases.setdefault((check.id, gpu_of(check.subject)), []).append(check)
    for (burn, subject), checks in cases.items():
        _case(suite, burn, subject, checks)
    if judgement.problems:
        case = ET.SubElement(suite, "testcase", classname="record", name="whole", time="0")
        error = ET.SubElement(case, "error", type="UNKNOWN", message="the record is not whole")
        error.text = "\n".join(visible(problem) for problem in judgement.problems[:MOST_LINES])
    if remarks(judgement):
        said = ET.SubElement(suite, "system-out")
        said.text = visible(f"{judgement.verdict}  {headline(judgement)}")
    root = ET.Element("testsuites", name="rackproof")
    for element in (suite, root):
        element.set("tests", str(len(suite.findall("testcase"))))
        for tag, word in COUNTED.items():
            element.set(word, str(len(suite.findall(f"testcase/{tag}"))))
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
