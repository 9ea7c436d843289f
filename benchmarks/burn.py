"""How long a cold quick burn takes, and how it grows with the rack; as shares of what is allowed.

In: the command line as a user has it. Out: three ratios; one above 1 is too much, and ends with 1.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

COMMAND = [sys.executable, "-c", "from rackproof.cli import main; main()"]
SECONDS, MEGABYTES = 10.0, 600.0  # for gb300-nvl72 on two cores
FACTOR, GROWTH = 8, 9.0  # a rack so many times larger may cost so many times as much
RUNS = 3


def larger_rack(folder: Path) -> Path:
    """Write gb300-nvl72 with eight times the trays, as a rack of its own; return its path."""
    text = resources.files("rackproof.harness").joinpath("racks/gb300-nvl72.toml").read_text()
    text = re.sub(
        r"(?m)^(count|domain) = (\d+)", lambda m: f"{m[1]} = {int(m[2]) * FACTOR}", text
    ).replace('name = "gb300-nvl72"', 'name = "eight-times"')
    path = folder / "eight.toml"
    path.write_text(text, "utf-8")
    return path


def burn(rack: str, folder: Path, number: int) -> tuple[float, float]:
    """Burn `rack` in a cold child; return its seconds and its peak of memory in MB."""
    out = folder / f"{Path(rack).stem}-{number}"
    options = ["burn", rack, "--level", "quick", "--json", "--seed", "7", "--out", str(out)]
    begun = time.perf_counter()
    with (folder / "answer").open("wb") as answer:
        child = subprocess.Popen([*COMMAND, *options], stdout=answer, stderr=answer, cwd=folder)
        _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"burn {rack} ended with {child.returncode}: {(folder / 'answer').read_text()}")
    return seconds, usage.ru_maxrss / 1024


def best(rack: str, folder: Path) -> tuple[float, float]:
    """Return the best seconds and the worst memory of a few burns."""
    seconds, memory = zip(*(burn(rack, folder, n) for n in range(RUNS)), strict=True)
    return min(seconds), max(memory)


def main() -> int:
    """Burn one rack and one eight times larger, and print the ratios."""
    with tempfile.TemporaryDirectory(prefix="rackproof-bench-") as name:
        folder = Path(name)
        seconds, memory = best("gb300-nvl72", folder)
        large, _ = best(str(larger_rack(folder)), folder)
    ratios = {
        f"quick burn, of {SECONDS:g} s": seconds / SECONDS,
        f"its memory, of {MEGABYTES:g} MB": memory / MEGABYTES,
        f"a rack {FACTOR} times larger, of {GROWTH:g} times the time": large / seconds / GROWTH,
    }
    for what, ratio in ratios.items():
        print(f"{ratio:6.2f}  {what}")
    return int(max(ratios.values()) > 1)


if __name__ == "__main__":
    sys.exit(main())
