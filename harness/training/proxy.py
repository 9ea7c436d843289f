"""The ways between members and the coordinator, where they can be made slow or be cut.

``python -m … FOLDER NAME…``: a port of the loopback for each member, whose bytes go to the
coordinator and back, each block as late as ordered. In: orders on stdin, ``{"member", "delay",
"cut"}``. When stdin ends, so do we.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from rackproof.harness.launch import processes
from rackproof.harness.training.roster import ADDRESS, write_whole

BLOCK = 1 << 16
QUEUE = 256  # blocks under way in one direction: beyond it the sender waits, as on a real line


class Way:
    """One member's way: its delay, and whether it is cut."""

    def __init__(self, folder: Path) -> None:
        """An open, fast way to the newest coordinator."""
        self.folder = folder
        self.delay = 0.0
        self.cut = False
        self._writers: list[asyncio.StreamWriter] = []

    def sever(self) -> None:
        """Close all that is open."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, both ways, until either end closes."""
        if self.cut:
            writer.transport.abort()
            return
        known = sorted(
            self.folder.glob("listening.*.json"), key=lambda path: int(path.name.split(".")[1])
        )
        try:
            newest = known.pop()
            host, port = json.loads(newest.read_text("utf-8"))[""]
            there, back = await asyncio.open_connection(host, port)
        except (OSError, IndexError):  # no coordinator yet, or none any more: the member asks again
            writer.transport.abort()
            return
        self._writers += [writer, back]
        both = [self._carry(reader, back), self._carry(there, writer)]
        await asyncio.wait(
            [asyncio.ensure_future(each) for each in both], return_when=asyncio.FIRST_COMPLETED
        )
        writer.transport.abort()
        back.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Pass blocks on, each when it is due; order is kept, and many are under way at once."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE)
        pump = asyncio.ensure_future(_pump(queue, sink))
        with contextlib.suppress(OSError):
            while block := await source.read(BLOCK):
                await queue.put((loop.time() + self.delay, block))
        await queue.put((loop.time() + self.delay, b""))
        await pump


async def _pump(queue: "asyncio.Queue[tuple[float, bytes]]", sink: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due, block = await queue.get()
        if (wait := due - loop.time()) > 0:
            await asyncio.sleep(wait)
        if not block:
            return
        with contextlib.suppress(OSError):
            sink.write(block)
            await sink.drain()


async def _orders(ways: dict[str, Way]) -> None:
    """Obey stdin to its end."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order: dict[str, Any] = json.loads(line)
        way = ways[str(order["member"])]
        way.delay, way.cut = float(order["delay"]), bool(order["cut"])
        if way.cut:
            way.sever()
        sys.stdout.write("done\n")
        sys.stdout.flush()
    os._exit(5)


async def _main(folder: Path, names: list[str]) -> None:
    ways = {name: Way(folder) for name in names}
    addresses: dict[str, list[Any]] = {}
    servers = []
    for name, way in ways.items():
        server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
        addresses[name] = list(server.sockets[0].getsockname()[:2])
        servers.append(server)
    write_whole(folder / ADDRESS, addresses)
    await _orders(ways)


if __name__ == "__main__":
    processes.mortal()
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2:]))
