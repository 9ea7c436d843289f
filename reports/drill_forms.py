"""A drill in other forms: the contract's JSON, JUnit, CSV. Nothing is decided here.

In: the record and what was judged of it. Out: plain values, or text. In JUnit a claim is a case:
FAIL is <failure>, UNKNOWN <error>, SKIP <skipped>.
"""

import csv as csv_module
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from rackproof.diagnostics.recovery.judge import Recovery
from rackproof.diagnostics.recovery.record import DrillRecord
from rackproof.diagnostics.verdict import Verdict
from rackproof.reports.drill_words import headline, proven
from rackproof.reports.junit import COUNTED, TAGS
from rackproof.reports.words import visible

COLUMNS = ("drill", "claim", "verdict", "message")


def as_json(record: DrillRecord, recovery: Recovery, run: Path, remark: str = "") -> dict[str, Any]:
    """Return the contract's JSON of `drill`. `remark` says why it went no further than it did."""
    head, body = record.head, dict(recovery.as_json())
    more: dict[str, Any] = {
        "rack": head.rack,
        "source": head.source,
        "seed": head.seed,
        "layer": head.layer,
        "record": str(run.absolute()),
        "problems": list(record.problems),
    }
    if remark:
        more["remark"] = remark
    told = {"schema": "rackproof.drill/1", "drill": head.drill}
    return {**told, **body, **{key: more[key] for key in more if key not in body}}


def junit(body: Mapping[str, Any], record: DrillRecord, fingerprint: str) -> str:
    """Return the document: one suite, a case for each claim."""
    suite = ET.Element("testsuite", name=visible(f"drill {body['drill']}"), time="0")
    properties = ET.SubElement(suite, "properties")
    pairs = [
        ("verdict", body["verdict"]),
        ("proof", proven(body)),
        ("source", record.head.source),
        ("rack", record.head.rack),
        ("seed", record.head.seed),
        ("date", record.head.date),
        ("headline", headline(body)),
        ("record sha256", fingerprint),
    ]
    for name, value in pairs:
        ET.SubElement(properties, "property", name=name, value=visible(str(value)))
    for claim in body["claims"]:
        _case(suite, body["drill"], claim)
    root = ET.Element("testsuites", name="rackproof")
    for element in (suite, root):
        element.set("tests", str(len(suite.findall("testcase"))))
        for tag, word in COUNTED.items():
            element.set(word, str(len(suite.findall(f"testcase/{tag}"))))
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, drill: str, claim: Mapping[str, Any]) -> None:
    name = visible(claim["id"])
    case = ET.SubElement(suite, "testcase", classname=f"drill.{drill}", name=name, time="0")
    tag = TAGS.get(Verdict(claim["verdict"]))
    if tag is not None:
        found = ET.SubElement(case, tag, message=visible(claim["message"]))
        if tag != "skipped":
            found.set("type", claim["verdict"])


def csv(body: Mapping[str, Any]) -> str:
    """Return the claims as a table; what a spreadsheet would take for a formula is none here."""
    out = io.StringIO()
    writer = csv_module.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for claim in body["claims"]:
        cells = (body["drill"], claim["id"], claim["verdict"], claim["message"])
        writer.writerow([_plain(str(cell)) for cell in cells])
    return out.getvalue()


def _plain(cell: str) -> str:
    text = visible(cell)
    return f"'{text}" if text[:1] in "=+-@" else text
