"""From a truth to Readings: what the readers would have given of the machines' logs.

In: a truth, a world, a Generator. Out: Readings, with lines lost, clocks apart and noise as the
world has it. The product sees these and nothing else of the incident.
"""

from collections import defaultdict
from pathlib import PurePosixPath
from typing import Any, cast

import numpy as np

from rackproof.diagnostics.evaluation import sorts
from rackproof.diagnostics.evaluation.script import Detail, Line, Script
from rackproof.diagnostics.evaluation.truth import Place, Truth, subject
from rackproof.diagnostics.evaluation.worlds import World
from rackproof.harness.model import Event
from rackproof.harness.readers import Reading

BEGIN = 1_790_000_000.0  # seconds since the epoch; any will do
_BETWEEN = (5400.0, 21600.0)  # further incidents follow after one and a half to six hours
_HEALTHY_LINES = 400
_NO_CARD = frozenset(("host-memory", "nic"))  # no burn of a GPU sees these
_SYMPATHY = frozenset(("nvlink", "switch", "fallen"))


def _noise(script: Script, truth: Truth, most: float) -> None:
    """Add what a healthy machine writes too, on other GPUs of the same machine."""
    host = truth.home[0]
    others = [subject(gpu) for gpu in script.site.gpus if subject(gpu) != truth.home[1]]
    for _ in range(int(script.rng.poisson(most))):
        place: Place = (host, str(script.rng.choice(others)))
        what = script.rng.integers(3)
        if what == 0:
            address = place[1].removeprefix("pci:")
            said = f"nvidia {address}: PCIe Bus Error: severity=Corrected, type=Physical Layer"
            script.add(place, "aer.corrected", said, {"stage": "reported"})
        elif what == 1:
            said = "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#1_DIMM#3 (channel:3 slot:0)"
            detail: Detail = {"count": 1, "device": "CPU_SrcID#1_DIMM#3"}
            script.add((host, "host"), "edac.ce", said, detail)
        else:
            script.removed(place)


def script_of(truth: Truth, world: World, rng: np.random.Generator) -> Script:
    """Return all that is written of a truth in a world, before any of it is lost."""
    script = Script(truth.site, rng)
    spoken = world.channel or truth.sort.name in _NO_CARD
    for _ in range(truth.incidents):
        if spoken:
            sorts.write(script, truth)
        else:
            sorts.unlogged(script, truth)
        if spoken and truth.sort.name in _SYMPATHY and rng.random() < world.storms:
            sorts.storm(script, truth)
        script.start += float(rng.uniform(*_BETWEEN))
    if world.channel:
        script.start = float(rng.uniform(0.0, 60.0))
        _noise(script, truth, world.noise)
    return script


def _kept(script: Script, lost: float, rng: np.random.Generator) -> list[Line]:
    """Return the lines that arrive: at least one, since nobody asks about what nobody saw."""
    lines = sorted(script.lines, key=lambda line: line.after)
    arrives = rng.random(len(lines)) >= lost
    return [line for line, there in zip(lines, arrives, strict=True) if there] or lines[:1]


def _event(line: Line, number: int, late: float) -> Event:
    at = round(BEGIN + line.after + late, 6)
    detail = {"count": 1, **line.detail, "line": number, "last": at}
    return Event(line.subject, line.code, line.message, at, "epoch", detail)


def readings(truth: Truth, world: World, rng: np.random.Generator) -> list[Reading]:
    """Return what is read of one incident: a log of each machine that wrote, and burns' reports.

    Of a rack a neighbour's log comes along, where nothing happened.
    """
    script = script_of(truth, world, rng)
    by_host: dict[str, list[Line]] = defaultdict(list)
    home = truth.home[0]
    at = truth.site.hosts.index(home)
    for host in {home, truth.site.hosts[(at + 1) % len(truth.site.hosts)]}:
        by_host[host] = []
    for line in _kept(script, world.lost, rng):
        by_host[line.host].append(line)
    found = []
    for host in sorted(by_host):
        late = float(rng.normal(0.0, world.skew)) if truth.site.wide else 0.0
        events = tuple(_event(line, 100 + n, late) for n, line in enumerate(by_host[host]))
        path = cast("Any", PurePosixPath(f"{host}/kern.log"))
        found.append(
            Reading(path, "kernel-log", _HEALTHY_LINES + len(events), (), events, host=host)
        )
    return found + [_tool(place, code) for place, code in script.tools[:1]]


def _tool(place: Place, code: str) -> Reading:
    """Return what a burn or the job reported, once."""
    host, gpu = place
    burn = code.startswith("dcgm.")
    kind, name = ("dcgm-diag-json", "dcgm.json") if burn else ("training-log", "job.log")
    event = Event(gpu, code, f"{code}: it failed", clock="none", detail={"count": 1, "line": 1})
    path = cast("Any", PurePosixPath(f"{host}/{name}"))
    return Reading(path, kind, 1, (), (event,), host=host)
