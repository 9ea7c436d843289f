"""How long a hall of nodes takes to be read and judged; twice the nodes take twice as long.

    python benchmarks/diagnose.py [NODES]

Each node's folder holds a kernel log of one mebibyte, mostly noise. Printed are the seconds for all
nodes with a process for each core, that time over a single process's for a tenth of the nodes, and
how judging grows from half of 100,000 incidents to all of them. The answers of one process and of
several are compared byte for byte.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rackproof.diagnostics.offline import judge_inputs
from rackproof.fixtures.offline import workers
from rackproof.harness.model import Event
from rackproof.harness.readers import Reading, read_all

WANTED = 60.0  # seconds, for 1,000 nodes on two cores
GROWTH = 2.6  # twice as many incidents: 2 is linear, 4 quadratic
SIZE = 1 << 20
CODES = (31, 13, 48, 63, 79, 119, 145, 149, 74, 94)


def node(folder: Path, number: int) -> None:
    """Write one node's folder: its kernel log."""
    draw = random.Random(number)
    at, lines, size = 1_772_424_306.0 + number, [], 0
    while size < SIZE:
        at += draw.expovariate(1 / 30)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
        said = f"docker0: port 1(veth{draw.getrandbits(28):07x}) entered blocking state"
        if draw.random() < 0.002:  # noqa: PLR2004 - some twenty a node
            code, bus = draw.choice(CODES), draw.randrange(1, 9)
            said = f"NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, pid={draw.randrange(9999)}, name=a"
        lines.append(f"{stamp}+00:00 node{number:04d} kernel: {said}\n")
        size += len(lines[-1])
    home = folder / f"node{number:04d}"
    home.mkdir(parents=True)
    (home / "kern.log").write_text("".join(lines))


def incidents(count: int, machines: int = 1000) -> list[Reading]:
    """Return readings of `machines` with `count` incidents in all, spread over a year."""
    draw = random.Random(7)
    found = []
    for machine in range(machines):
        events = []
        for line in range(count // machines):
            at = 1_772_424_306.0 + draw.random() * 365 * 86400
            subject, code = f"pci:0000:{draw.randrange(1, 9):02x}:00.0", draw.choice(CODES)
            detail = {"line": line, "pid": line}
            events.append(Event(subject, f"xid.{code}", "NVRM: Xid", at, "epoch", detail))
        found.append(Reading(Path(f"{machine:04d}.log"), "kernel-log", len(events),
                             events=tuple(events), host=f"node{machine:04d}"))  # fmt: skip
    return found


def judged(readings: Sequence[Reading]) -> tuple[float, str]:
    """Return the seconds that judging takes, and the answer."""
    start = time.perf_counter()
    answer = json.dumps(judge_inputs(readings).as_json())
    return time.perf_counter() - start, answer


def main(argv: list[str]) -> int:
    """Print the figures; 1 when a bound is not kept."""
    nodes = int(argv[0] if argv else "1000")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(nodes):
            node(folder, number)
        some = sorted(folder.iterdir())[: max(2, nodes // 10)]
        start = time.perf_counter()
        one, alone = judged(read_all(some))
        alone_seconds = time.perf_counter() - start
        same = judged(read_all(some, workers()))[1] == alone
        start = time.perf_counter()
        _, answer = judged(read_all([folder], workers()))
        seconds = time.perf_counter() - start
        roots = sum(d["role"] == "root" for d in json.loads(answer)["diagnoses"])
    print(f"{nodes} nodes of 1 MiB  {seconds:6.1f} s on {workers()} cores, {roots} roots "
          f"(wanted: 1000 in {WANTED:.0f} s)")  # fmt: skip
    print(f"one process       {alone_seconds * nodes / len(some) / seconds:6.2f} times as long")
    print(f"same answer       {same}")
    half, whole = judged(incidents(50_000))[0], judged(incidents(100_000))[0]
    print(f"100,000 incidents {whole / half:6.2f} times as long as half of them (at most {GROWTH})")
    kept = seconds <= WANTED * max(1.0, nodes / 1000) and whole / half <= GROWTH
    return 0 if kept and same and one >= 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
