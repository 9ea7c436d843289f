"""How fast a kernel log is read, as a ratio to `grep -c Xid` over the same file; and its memory.

    python benchmarks/kernel_log.py [MEBIBYTES]

A log of a busy node is made in a temporary folder: mostly noise, and every signature that the
reader knows. Printed are MB/s of grep and of the reader (recognising included), the ratio, and how
much more memory twice the file costs, mapped pages not counted. The same for one endless line.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WANTED = 0.35
FLAT = 200.0  # MiB
RARE = 0.0002
CHILD = (
    "import re, sys; from pathlib import Path; from rackproof.harness.readers import read;"
    "found = read(Path(sys.argv[1]));"
    "text = Path('/proc/self/status').read_text();"
    "print(*(int(re.search(key + r':\\s+(\\d+)', text)[1]) for key in ('VmHWM', 'RssFile')))"
)
# One of each: without the stamp. {bus} is drawn.
SIGNS = """NVRM: Xid (PCI:0000:{bus}:00): 31, pid=12, name=python3, MMU Fault
NVRM: Xid (PCI:0000:{bus}:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00a001c6 0x0 0x0)
NVRM: GPU at PCI:0000:{bus}:00: GPU-5eed0000-0000-0000-0000-0000000000{bus}
NVRM: GPU Board Serial Number: 16500000{bus}
NVRM: GPU 0000:{bus}:00.0: GPU has fallen off the bus.
NVRM: GPU 0000:{bus}:00.0: RmInitAdapter failed! (0x24:0xffff:1234)
NVRM: GPU 0000:{bus}:00.0: GPU does not have the necessary power cables connected.
NVRM: API mismatch: the client has the version 570.1, but
nvidia-nvswitch0: SXid (PCI:0000:{bus}:00.0): 20034, Fatal, Link 28 LTSSM Fault Up
pcieport 0000:{bus}:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer
pcieport 0000:{bus}:01.0: AER: Corrected error received: 0000:{bus}:00.0
nvidia 0000:{bus}:00.0: AER: can't recover (no error_detected callback)
EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:1)
EDAC MC0: 1 UE memory read error on DIMM_A1 (channel:1)
mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: 8c00004000010091
{{1}}[Hardware Error]: event severity: corrected
Memory failure: 0x12345: recovery action for dirty page: Recovered
I/O error, dev nvme2n1, sector 64 op 0x1:(WRITE) flags 0x0
Buffer I/O error on dev nvme2n1, logical block 0
critical medium error, dev sdb, sector 64
EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2
EXT4-fs (nvme0n1p2): Remounting filesystem read-only
nvme nvme0: controller is down; will reset: CSTS=0xffffffff
mlx5_core 0000:{bus}:00.0 mlx5_5: Port: 1 Link DOWN
mlx5_core 0000:{bus}:00.0: Port module event[error]: module 0, Cable error, x
pcieport 0000:{bus}:01.0: pciehp: Slot(1): Link Down
watchdog: BUG: soft lockup - CPU#1 stuck for 22s!
CPU1: Core temperature above threshold, cpu clock throttled
Out of memory: Killed process 123 (python3)
rtc_cmos 00:02: setting system clock to 2026-03-02T04:05:06 UTC (1772424306)""".splitlines()


def line(draw: random.Random, number: int) -> str:
    """Return one line of the log."""
    kind = draw.random()
    if kind < RARE:
        return draw.choice(SIGNS).format(bus=f"{draw.randrange(1, 250):02x}")
    if kind < 0.3:  # noqa: PLR2004
        return f"IPv6: ADDRCONF(NETDEV_CHANGE): cali{draw.getrandbits(48):012x}: link becomes ready"
    if kind < 0.6:  # noqa: PLR2004
        return "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context"
    if kind < 0.8:  # noqa: PLR2004
        return f"docker0: port 1(veth{draw.getrandbits(28):07x}) entered blocking state"
    return f'audit: type=1400 audit(1.2:{number}): apparmor="ALLOWED" operation="open" name="/proc"'


def block(size: int) -> Iterator[str]:
    """Yield the lines of a log of about `size` bytes, always the same."""
    draw, written, number = random.Random(1), 0, 0
    while written < size:
        number += 1
        text = f"[{number * 0.013:12.6f}] {line(draw, number)}\n"
        written += len(text)
        yield text


def write(path: Path, size: int) -> None:
    """Write a log of about `size` bytes: the same 64 MiB, with clocks that begin anew."""
    part = "".join(block(min(size, 64 << 20))).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(part)


def best(run: Callable[[], object]) -> float:
    """Return the shortest of three runs in seconds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak(path: Path) -> float:
    """Return the peak memory in MiB of a child that reads `path`, mapped files not counted."""
    command = [sys.executable, "-c", CHILD, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    most, mapped = (int(number) / 1024 for number in done.stdout.split())
    return most - mapped


def main(argv: list[str]) -> int:
    """Print the figures; 1 when the ratio is below WANTED, or the memory is not flat."""
    from rackproof.harness.readers import read  # noqa: PLC0415 - its import is not measured

    size = int(argv[0] if argv else "200") << 20
    grep = shutil.which("grep")
    if grep is None:
        print("grep is not installed: nothing to compare with")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        whole, nothing = Path(folder, "whole.log"), Path(folder, "nothing.log")
        write(whole, size)
        write(nothing, 1 << 16)
        # Into a pipe: with /dev/null grep stops at the first hit.
        command = [grep, "-c", "Xid", str(whole)]
        theirs = best(lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE))
        ours = best(lambda: read(whole))
        length = whole.stat().st_size / 1e6
        print(f"grep -c Xid  {length / theirs:7.0f} MB/s")
        print(f"kernel_log   {length / ours:7.0f} MB/s")
        print(f"ratio        {theirs / ours:7.2f} (wanted {WANTED})")
        least, cost = peak(nothing), peak(whole) - peak(nothing)
        print(f"memory       {cost:+7.1f} MiB for {length:.0f} MB (at most {FLAT:.0f})")
        whole.write_bytes(b"[    1.000000] ")
        with whole.open("ab") as file:
            for _ in range(size >> 20):
                file.write(b"NVRM: Xid (PCI:0000:19:00): 31, " * (1 << 15))
        endless = peak(whole) - least
        print(f"one line     {endless:+7.1f} MiB for {size >> 20} MiB (at most {FLAT:.0f})")
    return 0 if theirs / ours >= WANTED and max(cost, endless) <= FLAT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
