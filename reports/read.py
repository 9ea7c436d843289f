"""Reads a run directory back into a Record. Files of a run are untrusted: nothing is believed.

Lines that conclude (check, diagnosis, end's verdict) are never copied: the run is judged again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rackproof.diagnostics.evidence import SCHEMA, Head, Planned, Record, Settled
from rackproof.harness.errors import RecordError
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Why


def record_files(run: Path) -> list[Path]:
    """Return the record files of a run: the controller's first, then its workers' by name."""
    main = run / "record.jsonl"
    workers = sorted(p for p in run.glob("record.*.jsonl") if p.is_file() and not p.is_symlink())
    return ([main] if main.is_file() else []) + workers


def is_run(path: Path) -> bool:
    """Say whether `path` is a run directory, or its record file."""
    if path.is_dir():
        return bool(record_files(path))
    return path.name.startswith("record.") and path.suffix == ".jsonl" and path.is_file()


def fingerprint(run: Path) -> str:
    """Return the sha256 (hex) over the run's record files, name and content, in order."""
    digest = hashlib.sha256()
    for path in record_files(run):
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.isspace():
                    continue
                try:
                    body = json.loads(raw)
                except (ValueError, RecursionError):
                    cut = "cut short" if not raw.endswith(b"\n") else "unreadable"
                    problems.append(f"{path.name} line {number}: {cut}")
                    continue
                if isinstance(body, dict) and isinstance(body.get("kind"), str):
                    yield number, body
                else:
                    problems.append(f"{path.name} line {number}: not a record line")
    except OSError as error:
        problems.append(f"{path.name}: {error.strerror}")


def _head(body: dict[str, Any]) -> Head:
    if body.get("schema") != SCHEMA:
        msg = f"its schema is {body.get('schema')!r}, this version reads {SCHEMA}"
        raise RecordError(msg)
    plan = [
        Planned(
            str(p["burn"]),
            {str(sort): [str(m) for m in names] for sort, names in p["owes"].items()},
            float(p["seconds"]),
        )
        for p in body["plan"]
    ]
    links = body["links"]
    return Head(
        rack=str(body["rack"]),
        source=str(body["source"]),
        seed=int(body["seed"]),
        level=str(body["level"]),
        verb=str(body["verb"]),
        gpus={str(k): str(v) for k, v in body["gpus"].items()},
        hosts=[str(h) for h in body["hosts"]],
        links=None if links is None else int(links),
        plan=plan,
        limits=dict(body["limits"]),
        today=str(body["today"]),
        versions={str(k): str(v) for k, v in body.get("versions", {}).items()},
        absent=[str(m) for m in body.get("absent", ())],
        domain=None if body.get("domain") is None else int(body["domain"]),
    )


def _measurement(body: dict[str, Any]) -> Measurement:
    metric = metrics()[body["metric"]]
    value = body["value"]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        msg = "no value"
        raise TypeError(msg)
    if metric.unit != "text":
        value = float(value) if not isinstance(value, int) else value
    window = body.get("window")
    return Measurement(
        str(body["check"]),
        str(body["subject"]),
        metric.name,
        value,
        str(body["unit"]),
        int(body["attempt"]),
        (float(window[0]), float(window[1])) if window else None,
    )


def _missing(body: dict[str, Any]) -> Missing:
    texts = [str(body[k]) for k in ("check", "subject", "metric")]
    why = Why(body["why"])
    return Missing(*texts, why, str(body["reason"]), str(body["cure"]), int(body["attempt"]))


def _event(body: dict[str, Any]) -> Event:
    when = body.get("when")
    detail = {str(k): v for k, v in body["detail"].items() if isinstance(v, str | int | float)}
    return Event(
        str(body["subject"]),
        str(body["code"]),
        str(body["text"]),
        None if when is None else float(when),
        str(body["clock"]),
        detail,
    )


_SEEN: dict[str, Callable[[dict[str, Any]], Seen]] = {
    "measurement": _measurement,
    "missing": _missing,
    "event": _event,
}


def read_run(run: Path) -> Record:
    """Return the record of a run directory (or of its record file's directory).

    Raises RecordError when there is no record or no readable first line.
    """
    folder = run if run.is_dir() else run.parent
    problems: list[str] = []
    head: Head | None = None
    seen: list[Seen] = []
    settled: set[Settled] = set()
    ended = False
    for path in record_files(folder):
        for number, body in _lines(path, problems):
            kind = body["kind"]
            try:
                if kind == "run":
                    head = head or _head(body)
                elif kind in _SEEN:
                    seen.append(_SEEN[kind](body))
                elif kind == "settled":
                    settled.add((str(body["check"]), str(body["subject"]), int(body["attempt"])))
                elif kind == "end":
                    ended = True
            except RecordError as error:
                msg = f"{path}: {error}"
                raise RecordError(msg) from error
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                problems.append(f"{path.name} line {number}: bad {kind} line ({error})")
    if head is None:
        msg = f"{folder}: no readable run line in its record"
        raise RecordError(msg)
    return Record(head, seen, frozenset(settled), ended, tuple(problems))
