"""What the tables of the page say, as plain rows. Nothing is decided here.

In: a record and its judgement. Out: dictionaries for the templates, every row once: findings that
differ in their place alone stand in one row with the places in short.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime

from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Limit, from_record
from rackproof.diagnostics.peers import gather, peer_limits
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.burns.table import BURNS
from rackproof.harness.metrics import metrics
from rackproof.reports.html.evidence import IDENTITY, identities
from rackproof.reports.retests import retesting, showed, what
from rackproof.reports.rows import LAYERS, Row
from rackproof.reports.words import ACTIONS, COMPONENTS, PERSISTENCES, bounds, counted, places

SURE = 0.995  # from here on a rounded share would read 100%
MOST_RETESTS = 100
MOST_REASONS = 12  # of one diagnosis; the record holds them all


def ran(record: Record, judgement: Judgement, span: tuple[str, str] | None) -> list[Row]:
    """Return what was run on what, as labels and values."""
    head = record.head
    skus = Counter(head.gpus.values())
    began, ended = map(_moment, span) if span else (f"{head.today} (time of day not given)", "")
    if not record.ended:
        last = f"; last line {ended}" if ended else ""
        ended = f"no end: the run was cut short or is still going{last}"
    share = f"{judgement.judged} of {counted(judgement.planned, 'check')} judged"
    rows = [
        ("Rack", head.rack),
        ("Source", head.source),
        ("GPUs", ", ".join(f"{n} × {sku}" for sku, n in skus.items()) or "none"),
        ("Hosts", str(len(head.hosts))),
        ("NVLinks per GPU", "not known" if head.links is None else str(head.links)),
        ("NVLink domain", "not known" if head.domain is None else counted(head.domain, "GPU")),
        ("Run", f"{head.verb}, level {head.level}"),
        ("Seed", str(head.seed)),
        ("Began", began),
        ("Ended", ended or "not given"),
        ("Coverage", share),
        *((f"Version of {name}", text) for name, text in head.versions.items()),
    ]
    return [{"label": label, "value": value} for label, value in rows]


def _moment(text: str) -> str:
    """Return an ISO time as a person writes it, in UTC; what is none stays as it is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def coverage(record: Record, judgement: Judgement) -> list[Row]:
    """Return, by burn: planned, judged, and how many of each verdict."""
    by_burn: dict[str, Counter[str]] = {p.burn: Counter() for p in record.head.plan}
    for check in judgement.checks:
        word = "waived" if check.waiver else str(check.verdict)
        by_burn.setdefault(check.id, Counter())[word] += 1
    planned = {p.burn: p for p in record.head.plan}
    rows = []
    for burn, count in by_burn.items():
        of = planned.get(burn)
        total = sum(count.values()) - count["SKIP"]
        rows.append({
            "burn": burn,
            "about": BURNS[burn].summary if burn in BURNS else "",
            "on": ", ".join(
                counted(len(record.head.subjects(sort)), sort if sort != "gpu" else "GPU")
                for sort in (of.owes if of else ())
            ),
            "seconds": of.seconds if of else None,
            "planned": total,
            "judged": total - count["UNKNOWN"],
            **{word: count[word] for word in ("PASS", "FAIL", "UNKNOWN", "SKIP", "waived")},
        })  # fmt: skip
    return rows


def not_run(record: Record) -> list[Row]:
    """Return the burns that were not run: left out of the plan, or not possible on this rack."""
    head = record.head
    return [
        {
            "burn": burn,
            "about": BURNS[burn].summary if burn in BURNS else "",
            "how": how,
            "reason": reason,
        }
        for how, burns in (("left out", head.left_out), ("not on this rack", head.skipped))
        for burn, reason in burns.items()
    ]


def limits(record: Record, judgement: Judgement) -> tuple[list[Row], list[Row]]:
    """Return (limits, golden values) in force, with how many checks each decided."""
    decided = Counter(c.limit for c in judgement.checks if c.limit is not None)
    stated = from_record(record.head.limits).limits
    peers = peer_limits(record.head, gather(record))
    found: list[tuple[Limit, str]] = [(limit, _scope(limit)) for limit in stated]
    found += [(peers[key], " ".join(part for part in (key[0], key[2]) if part)) for key in peers]
    rows = [
        {
            "metric": limit.metric,
            "bounds": bounds(limit),
            "scope": scope,
            "layer": LAYERS.get(limit.layer, limit.layer),
            "source": limit.source,
            "decided": decided[limit],
            "golden": limit.layer == "user" and limit.equal is not None,
        }
        for limit, scope in found
    ]
    order = {name: number for number, name in enumerate(metrics())}
    rows.sort(key=lambda row: order[str(row["metric"])])
    return _scopes([r for r in rows if not r["golden"]]), [r for r in rows if r["golden"]]


def _scope(limit: Limit) -> str:
    return " ".join(part for part in (limit.sku, limit.subject) if part and part != "*")


def _scopes(rows: Sequence[Row]) -> list[Row]:
    """Merge limits that differ in their place alone, such as the GPU count of every host."""
    same: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[k] for k in ("metric", "bounds", "layer", "source"))
        same.setdefault(key, []).append(row)
    merged = []
    for group in same.values():
        scopes = [str(r["scope"]) for r in group if r["scope"]]
        where = places(scopes) if all("/" in s for s in scopes) else scopes
        decided = sum(r["decided"] for r in group) if len(group) == 1 else group[0]["decided"]
        if len(group) > 1:
            decided = sum({str(r["scope"]): r["decided"] for r in group}.values())
        merged.append({**group[0], "scope": ", ".join(where), "decided": decided})
    return merged


def waivers(record: Record, judgement: Judgement) -> list[Row]:
    """Return all waivers, those whose date is over too, and how many FAILs each covers."""
    today = date.fromisoformat(record.head.today)
    covers = Counter(c.waiver for c in judgement.checks if c.waiver is not None)
    return [
        {
            "check": waiver.check,
            "on": waiver.subject or f"serial {waiver.serial}",
            "owner": waiver.owner,
            "until": str(waiver.until),
            "reason": waiver.reason,
            "expired": today > waiver.until,
            "covers": covers[waiver],
        }
        for waiver in from_record(record.head.limits).waivers
    ]


def cases(diagnoses: Sequence[Diagnosis]) -> list[Row]:
    """Return the diagnoses by case: the root in plain words, then its victims in short."""
    victims: dict[int, list[str]] = {}
    for diagnosis in diagnoses:
        if diagnosis.role != "root":
            victims.setdefault(diagnosis.case, []).append(diagnosis.subject)
    return [
        {
            "case": root.case,
            "subject": root.subject,
            "part": gpu_of(root.subject),
            "serial": root.serial,
            "component": COMPONENTS.get(root.component, root.component),
            "persistence": root.persistence,
            "lasting": PERSISTENCES.get(root.persistence, root.persistence),
            "action": root.action,
            "next": ACTIONS.get(root.action, root.action),
            "confidence": f"{root.confidence:.0%}" if root.confidence < SURE else "over 99%",
            "because": root.because[:MOST_REASONS],
            "more": max(len(root.because) - MOST_REASONS, 0),
            "victims": places(victims.get(root.case, ())),
            "victim_count": len(victims.get(root.case, ())),
        }
        for root in sorted(diagnoses, key=lambda d: d.case)
        if root.role == "root"
    ]


def retests(record: Record, judgement: Judgement) -> Row | None:
    """Return what was run beyond the plan; None where no budget was given for it."""
    told = retesting(record, judgement)
    if told is None:
        return None
    rows = [
        {"subject": row.subject, "what": what(row), "showed": showed(row)}
        for row in told.rows[:MOST_RETESTS]
    ]
    return {"total": told.total, "rows": rows, "more": len(told.rows) - len(rows)}


def gpus(record: Record, judgement: Judgement) -> list[Row]:
    """Return every GPU with its identity and verdict."""
    known = identities(record)
    return [
        {
            "subject": gpu,
            "sku": sku,
            "verdict": str(judgement.subjects.get(gpu, Verdict.UNKNOWN)),
            **{name.partition(".")[2]: known.get(gpu, {}).get(name, "–") for name in IDENTITY},
        }
        for gpu, sku in record.head.gpus.items()
    ]
