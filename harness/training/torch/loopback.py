"""torchft on the loopback alone, without pickle.

By itself torchft's manager, its store and its checkpoint server listen on all interfaces, and
healing unpickles what a peer sends. Here the store gets a socket of ours, the manager's server is
bound to 127.0.0.1, gloo is told to take the loopback, and healing sends safetensors whose digest is
checked. In: a Net and what of it must agree. Out: what `torchft.Manager` wants.
"""

import http.server
import json
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torchft.manager
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch.distributed import TCPStore

from rackproof.harness.errors import DrillError
from rackproof.harness.training.torch.net import digest

HOST = "127.0.0.1"
LONGEST = 1 << 32  # bytes of a state that is healed from
WAIT = 10.0  # seconds until a peer's state must be there


def keep_inside() -> None:
    """Have gloo and the manager's server use the loopback; call it before the first Manager.

    torchft has no option for its server's address: the constructor that its module names is
    replaced by one that differs in this alone.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    original = torchft.manager.ManagerServer

    def server(**given: Any) -> Any:
        return original(**{**given, "bind": f"{HOST}:0", "hostname": HOST})

    torchft.manager.ManagerServer = server


def store() -> tuple[Any, int]:
    """Return a store of torch on a free port of the loopback, and the port."""
    listening = socket.create_server((HOST, 0))
    port = int(listening.getsockname()[1])
    made = TCPStore(
        HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )
    return made, port


def unpacked(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a peer told of its state, and the state; DrillError for anything else."""
    try:
        length = int.from_bytes(body[:8], "little")
        told = json.loads(json.loads(body[8 : 8 + length])["__metadata__"]["told"])
        return dict(told), load(body)
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        msg = f"a peer gave what is no state ({error})"
        raise DrillError(msg) from error


class Healing:
    """Hands our state to peers that are behind, and takes theirs: torchft's checkpoint transport.

    `facts` must agree between the two, or the state is refused, and `refused` says why: torchft
    would ask again for ever. `taken` is called with the step and the digest of a state that we
    took, `rank` says of whom.
    """

    def __init__(self, facts: Mapping[str, Any], taken: Callable[[int, str], None]) -> None:
        self.facts, self.taken, self.rank = dict(facts), taken, -1
        self.refused = ""
        self._served: dict[str, bytes] = {}
        self._there = threading.Condition()
        self._server = http.server.ThreadingHTTPServer((HOST, 0), self._answer())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self) -> type[http.server.BaseHTTPRequestHandler]:
        served, there = self._served, self._there

        class Answer(http.server.BaseHTTPRequestHandler):
            timeout = WAIT

            def do_GET(self) -> None:
                # A peer may ask before torchft has told us that it will.
                with there:
                    there.wait_for(lambda: self.path in served, WAIT)
                    body = served.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                """Say nothing: what happens is told by events."""

        return Answer

    def metadata(self) -> str:
        """Return where our state can be had."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def send_checkpoint(
        self, dst_ranks: Sequence[int], step: int, state_dict: Any, timeout: timedelta
    ) -> None:
        """Keep a copy of our state for peers; it stays until the next one is asked for."""
        del dst_ranks, timeout
        state = {name: tensor.clone() for name, tensor in state_dict["user"]["default"].items()}
        told = {**self.facts, **state_dict["torchft"], "digest": digest(step, state)}
        body = save(state, {"told": json.dumps(told, sort_keys=True)})
        with self._there:
            self._served.clear()
            self._served[f"/{step}"] = body
            self._there.notify_all()

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        """Return a peer's state; DrillError where it does not verify, or is of another run."""
        self.rank = src_rank
        if not metadata.startswith(f"http://{HOST}:"):
            msg = f"a state is taken from {HOST} only, not from {metadata[:80]}"
            raise DrillError(msg)
        where, within = f"{metadata}/{step}", timeout.total_seconds()
        with urllib.request.urlopen(where, timeout=within) as answer:  # noqa: S310 - http, as seen
            told, state = unpacked(answer.read(LONGEST))
        self.refused = next(
            (
                f"the peer's {name} is {told.get(name)!r}, and ours {value!r}: not taken"
                for name, value in self.facts.items()
                if told.get(name) != value
            ),
            "",
        )
        if not self.refused and (digest(step, state) != told["digest"] or told["step"] != step):
            self.refused = f"the state of step {step} that a peer gave is not what its digest says"
        if self.refused:
            raise DrillError(self.refused)
        self.taken(step, told["digest"])
        own = {"step": told["step"], "batches_committed": told["batches_committed"]}
        return {"user": {"default": state | {"step": step}}, "torchft": own}

    def disallow_checkpoint(self) -> None:
        """Nothing to do: what is served is a copy."""

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - torchft's signature
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        if wait:
            self._thread.join()
