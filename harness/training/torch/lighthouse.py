"""torchft's lighthouse, where replicas meet, on a free port of the loopback, as a process.

In: how long a silent replica counts as there (seconds). Out: its address, in the file that is
named; it serves until SIGTERM.
"""

import argparse
import importlib.machinery
import importlib.util
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rackproof.harness.training.torch import require_torch

HOST = "127.0.0.1"
JOIN = 20_000  # ms that who still has a heartbeat is waited for: slow is not lost


def server_class() -> Any:
    """Return torchft's LighthouseServer, from its extension alone where that can be found.

    The package imports torch, which takes a second and 200 MB that a lighthouse has no use for.
    """
    found = importlib.util.find_spec("torchft")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            file = Path(place) / f"_torchft{suffix}"
            if file.is_file():
                loader = importlib.machinery.ExtensionFileLoader("torchft._torchft", str(file))
                spec = importlib.util.spec_from_loader("torchft._torchft", loader)
                if spec is not None:
                    module = importlib.util.module_from_spec(spec)
                    loader.exec_module(module)
                    return module.LighthouseServer
    from torchft.coordination import LighthouseServer  # noqa: PLC0415 - with all of torch

    return LighthouseServer


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="rackproof.harness.training.torch.lighthouse")
    parser.add_argument("--silence", type=float, default=1.0, help="seconds")
    parser.add_argument("--address", type=Path, required=True, help="file to write it to")
    asked = parser.parse_args(arguments)
    require_torch()
    made = server_class()
    # Before the server's threads are there: they inherit it, and the signal is left for us.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    server = made(
        bind=f"{HOST}:0",
        min_replicas=1,
        join_timeout_ms=JOIN,
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
