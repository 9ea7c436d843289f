"""Broken files in number: a million inputs that no reader may choke on.

In: how many, and from which seed on. Each seed draws a sample of tests/samples, breaks it (cut,
flipped, stuffed, spliced with another, packed, cut again) and has it read and judged. Out:
docs/proof/readers.md with the counts by kind and the memory; exit 1 when one raised, took longer
than its limit, or gave a PASS from a file that was cut, not read, or whose tool did no work.
`--only SEED` shows one input and what became of it.
"""

import argparse
import gzip
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rackproof import __version__
from rackproof.diagnostics.offline import judge_inputs
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.readers import READERS, UNRECOGNISED, Reading, read

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "samples"
PAGE = ROOT / "docs" / "proof" / "readers.md"
BATCH = 2000
LIMIT = 10.0  # s for one input of some kilobytes: nothing but a hang takes so long
MEMORY = 400  # MiB of one process
LARGEST = 200_000  # bytes of one input
STUFF = (
    b"\0", b"\0" * 700, b"\xff\xfe", b"\x1f\x8b", b"\x1b[31m", b"\r", b"\r\n", b"\t", b"\n\n",
    b"NVRM: Xid (", b"(PCI:", b"AER: ", b"{1}[Hardware Error]: ", b"<!ENTITY", b"--\n", b"{", b"]}",
    b'"', b"N/A", b"[Unknown Error]", b"nan", b"-inf", b"1e999", b"-1", b"0", b"4294967295",
    b"18446744073709551615", b"9223372036854775794", b"99999999999999999999999", b"65535",
    b"gpu-[0-99999999]", b"host:../../etc/passwd", b"\xe2\x80\xae", b" " * 3000, b"9" * 400,
    "ſİ١٢٣二月".encode(), b"rank999999999", b"GPU 99999999", b": : :", b"|#||", b"%s%n",
)  # fmt: skip


def samples() -> dict[str, bytes]:
    """Return the samples by kind."""
    return {path.stem: path.read_bytes() for path in sorted(SAMPLES.glob("*.txt"))}


def broken(seed: int, known: dict[str, bytes]) -> tuple[str, bytes]:
    """Return (the sample's kind, the bytes) of one input."""
    draw = random.Random(seed)
    kind = draw.choice(list(known))
    data = bytearray(known[kind])
    for _ in range(draw.randint(1, 8)):
        _break(data, draw, known)
        del data[LARGEST:]
    packed = bytes(data)
    how = draw.random()
    if how < 0.04:  # noqa: PLR2004 - shares of what users have
        packed = gzip.compress(packed, 1, mtime=0)
    elif how < 0.08:  # noqa: PLR2004
        packed = packed.decode("utf-8", "replace").encode("utf-16")
    return kind, packed[: draw.randint(0, len(packed))] if draw.random() < 0.15 else packed  # noqa: PLR2004


def _break(data: bytearray, draw: random.Random, known: dict[str, bytes]) -> None:
    """Break `data` once, at a place and in a way that is drawn."""
    at = draw.randint(0, len(data))
    way = draw.randrange(7)
    if way == 0:
        del data[at : at + draw.choice((1, 3, 20, 200))]
    elif way == 1 and at < len(data):
        data[at] = draw.randrange(256)
    elif way == 2:  # noqa: PLR2004
        data[at:at] = draw.choice(STUFF)
    elif way == 3:  # noqa: PLR2004
        data[at:at] = data[at : at + draw.randint(1, 300)] * draw.choice((1, 2, 9, 90))
    elif way == 4:  # noqa: PLR2004
        data[at:] = draw.choice(list(known.values()))[draw.randint(0, 400) :]
    elif way == 5:  # noqa: PLR2004 - a number becomes another
        _renumber(data, at, draw)
    else:  # two lines change places
        lines = bytes(data).splitlines(keepends=True)
        if len(lines) > 1:
            a, b = draw.randrange(len(lines)), draw.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            data[:] = b"".join(lines)


def _renumber(data: bytearray, at: int, draw: random.Random) -> None:
    place = next((i for i in range(at, len(data)) if 48 <= data[i] <= 57), None)  # noqa: PLR2004
    if place is not None:
        data[place : place + 1] = draw.choice((b"0", b"7", b"-3", b"999999999999", b"1.5e308", b""))


def wrong(found: Reading, verdict: Verdict) -> str:
    """Say what is wrong with a judgement, or nothing."""
    if verdict is not Verdict.PASS:
        return ""
    if found.kind == UNRECOGNISED:
        return "PASS from what was not recognised"
    if found.cut or not found.worked or not found.records:
        return "PASS from what was cut, or did no work"
    return ""


@dataclass
class Tally:
    """What became of a batch: verdicts by kind read, failures, the slowest, the memory."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)
    memory: float = 0.0

    def add(self, other: "Tally") -> None:
        """Take another batch in."""
        self.counts += other.counts
        self.failures += other.failures
        self.slowest = max(self.slowest, other.slowest)
        self.memory = max(self.memory, other.memory)


def batch(first: int, count: int) -> Tally:
    """Read and judge the inputs of `count` seeds."""
    tally, known = Tally(), samples()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "input")
        for seed in range(first, first + count):
            _, data = broken(seed, known)
            path.write_bytes(data)
            began = time.perf_counter()
            try:
                found = read(path)
                verdict = judge_inputs([found]).verdict
            except Exception:  # noqa: BLE001 - whatever it is, it is the finding
                last = traceback.format_exc(limit=-2).strip().replace("\n", " / ")
                tally.failures.append(f"seed {seed}: {last}")
                continue
            took = time.perf_counter() - began
            tally.slowest = max(tally.slowest, (took, seed))
            tally.counts[found.kind, str(verdict)] += 1
            if problem := wrong(found, verdict):
                tally.failures.append(f"seed {seed}: {problem}")
            if took > LIMIT:
                tally.failures.append(f"seed {seed}: took {took:.1f} s")
    tally.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return tally


def page(tally: Tally, inputs: int, first: int) -> str:
    """Return the page: counts by kind, then what failed."""
    kinds = [reader.kind for reader in READERS] + [UNRECOGNISED]
    rows = [
        f"| {kind} | " + " | ".join(f"{tally.counts[kind, word]:,}"
                                    for word in ("PASS", "FAIL", "UNKNOWN")) + " |"
        for kind in kinds
    ]  # fmt: skip
    failed = [f"- {line}" for line in tally.failures[:50]] or ["None."]
    about = (
        f"{inputs:,} inputs, seeds {first} to {first + inputs - 1}, rackproof {__version__},"
        f" {datetime.now(UTC):%Y-%m-%d}. Each is one of our own samples (tests/samples), broken:"
        " cut, flipped, stuffed, spliced with another, packed, cut again; it is read and judged as"
        " `rackproof diagnose` does."
    )
    result = (
        f"Raised, hung or passed wrongly: **{len(tally.failures)}**."
        f" Memory of one process: {tally.memory:.0f} MiB at most (allowed: {MEMORY})."
    )
    return "\n".join([
        "# Broken files", "",
        "Generated by `benchmarks/prove_readers.py`, part of `make prove`.", "",
        about, "", result, "",
        "| read as | PASS | FAIL | UNKNOWN |", "|---|---|---|---|", *rows, "",
        "A PASS is of a file that was recognised, read to its end, and held no sign of a fault.",
        "", "## What failed", "", *failed, "",
    ])  # fmt: skip


def _batches(inputs: int, first: int) -> Iterator[tuple[int, int]]:
    for start in range(0, inputs, BATCH):
        yield first + start, min(BATCH, inputs - start)


def _show(seed: int) -> int:
    kind, data = broken(seed, samples())
    sys.stdout.buffer.write(data)
    tally = batch(seed, 1)
    print(f"\n-- {kind}, {len(data)} bytes: {dict(tally.counts)} {tally.failures}")
    return 1 if tally.failures else 0


def main(say: Callable[[str], None] = print) -> int:
    """Run the inputs in two processes and write the page; 1 where anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="SEED")
    parser.add_argument("--page", type=Path, default=PAGE)
    wanted = parser.parse_args()
    if wanted.only is not None:
        return _show(wanted.only)
    tally = Tally()
    with ProcessPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        parts = list(zip(*_batches(wanted.inputs, wanted.first), strict=True))
        for number, part in enumerate(pool.map(batch, *parts), 1):
            tally.add(part)
            if number % 25 == 0:
                say(f"{number * BATCH:,} inputs, {len(tally.failures)} failures")
    if tally.memory > MEMORY:
        tally.failures.append(f"memory: {tally.memory:.0f} MiB")
    wanted.page.write_text(page(tally, wanted.inputs, wanted.first), "utf-8")
    say(f"{wanted.inputs:,} inputs: {len(tally.failures)} failures; see {wanted.page}")
    for line in tally.failures[:10]:
        say(line)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
