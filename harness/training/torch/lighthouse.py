"""torchft's lighthouse, where replicas meet, on a free port of the loopback, as a process.

In: how long a silent replica counts as there (seconds). Out: its address, in the file that is
named; it serves until SIGTERM.
"""

import argparse
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from rackproof.harness.training.torch import require_torch

HOST = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="rackproof.harness.training.torch.lighthouse")
    parser.add_argument("--silence", type=float, default=1.0, help="seconds")
    parser.add_argument("--address", type=Path, required=True, help="file to write it to")
    asked = parser.parse_args(arguments)
    require_torch()
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - takes a second

    # Before the server's threads are there: they inherit it, and the signal is left for us.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = LighthouseServer(
        bind=f"{HOST}:0",
        min_replicas=1,
        join_timeout_ms=100,
        quorum_tick_ms=10,
        heartbeat_timeout_ms=max(1, round(asked.silence * 1000)),
    )
    whole = asked.address.with_name(f".{asked.address.name}")
    whole.write_text(f"http://{HOST}:{urlsplit(server.address()).port}\n", "utf-8")
    whole.replace(asked.address)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
