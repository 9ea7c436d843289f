"""How fast a kernel log is read, as a ratio to `grep -c Xid` over the same file; and its memory.

    python benchmarks/kernel_log.py [MEBIBYTES]

A log of a busy node is made in a temporary folder: mostly noise, some Xids. Printed are MB/s of
grep, of the reader (24 signatures and more, recognising included), the ratio, and the growth of the
reader's peak memory from a tenth of the file to the whole.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WANTED = 0.35
CHILD = (
    "import re, sys; from pathlib import Path; from rackproof.harness.readers import read;"
    "read(Path(sys.argv[1]));"
    "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
)


def line(draw: random.Random, number: int) -> str:
    """Return one line of the log."""
    kind = draw.random()
    if kind < 0.0001:  # noqa: PLR2004 - one line in ten thousand
        bus = draw.randrange(1, 250)
        return f"NVRM: Xid (PCI:0000:{bus:02x}:00): 31, pid=12, name=python3, MMU Fault"
    if kind < 0.3:  # noqa: PLR2004
        return f"IPv6: ADDRCONF(NETDEV_CHANGE): cali{draw.getrandbits(48):012x}: link becomes ready"
    if kind < 0.6:  # noqa: PLR2004
        return "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context"
    if kind < 0.8:  # noqa: PLR2004
        return f"docker0: port 1(veth{draw.getrandbits(28):07x}) entered blocking state"
    return f'audit: type=1400 audit(1.2:{number}): apparmor="ALLOWED" operation="open" name="/proc"'


def write(path: Path, size: int) -> None:
    """Write a log of about `size` bytes, always the same."""
    draw, written, number = random.Random(1), 0, 0
    with path.open("w") as file:
        while written < size:
            number += 1
            written += file.write(f"[{number * 0.013:12.6f}] {line(draw, number)}\n")


def best(run: Callable[[], object]) -> float:
    """Return the shortest of three runs in seconds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak(path: Path) -> float:
    """Return the peak memory in MiB of a child that reads `path`."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
    )
    return int(done.stdout) / 1024


def main(argv: list[str]) -> int:
    """Print the figures; 1 when the ratio is below WANTED."""
    from rackproof.harness.readers import read  # noqa: PLC0415 - its import is not measured

    size = int(argv[0] if argv else "200") << 20
    grep = shutil.which("grep")
    if grep is None:
        print("grep is not installed: nothing to compare with")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        whole, tenth = Path(folder, "whole.log"), Path(folder, "tenth.log")
        write(whole, size)
        write(tenth, size // 10)
        # Into a pipe: with /dev/null grep stops at the first hit.
        command = [grep, "-c", "Xid", str(whole)]
        theirs = best(lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE))
        ours = best(lambda: read(whole))
        length = whole.stat().st_size / 1e6
        print(f"grep -c Xid  {length / theirs:7.0f} MB/s")
        print(f"kernel_log   {length / ours:7.0f} MB/s")
        print(f"ratio        {theirs / ours:7.2f} (wanted {WANTED})")
        print(f"peak memory  {peak(whole) - peak(tenth):+7.1f} MiB from a tenth to the whole")
    return 0 if theirs / ours >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
