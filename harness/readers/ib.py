"""InfiniBand and RoCE ports as their tools print them: state, rate, counters, modules, bandwidth.

ibstat, ibstatus, ibv_devinfo, rdma link, perfquery, sysfs counters as grep prints them, mlxlink,
perftest and ibdiagnet; several in one file. Names of ports come in any order, and a port that is
down keeps a rate that means nothing. Counters are totals since somebody cleared them: no rate.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

from rackproof.harness.model import Measurement
from rackproof.harness.readers import ib_counters, ib_tools
from rackproof.harness.readers.ib_ports import Port, Ports
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "ib"
LIMIT = 32 << 20
LINE_LIMIT = 512
_UP = frozenset(("active", "activedefer", "active_defer"))


def _measured(port: Port, *, several: bool) -> list[Measurement]:
    """Return what is known of a port; without a state nothing is."""
    subject = f"nic:{port.device}" + (f"/port{port.number}" if several else "")
    texts = (("ib.port.state", port.state), ("ib.port.physical", port.physical),
             ("ib.port.layer", port.layer), ("ib.port.model", port.model))  # fmt: skip
    found = [Measurement(KIND, subject, name, value, "text") for name, value in texts if value]
    if port.state in _UP and port.rate is not None:
        found.append(Measurement(KIND, subject, "ib.port.rate", port.rate, "Gb/s"))
    if port.state in _UP and port.width is not None:
        found.append(Measurement(KIND, subject, "ib.port.width", port.width, "lanes"))
    return found


def _rates(ports: Sequence[Port]) -> list[str]:
    """Say where active ports of one link layer and model run at several rates: too few to judge."""
    alike: dict[tuple[str, str], dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in ports:
        if port.state in _UP and port.rate is not None:
            alike[port.layer, port.model][port.rate].append(port.device)
    found = []
    for rates in alike.values():
        if len(rates) > 1:
            told = (f"{', '.join(names[:4])}{' …' if len(names) > 4 else ''} at {rate:g} Gb/s"  # noqa: PLR2004
                    for rate, names in sorted(rates.items()))  # fmt: skip
            found.append(
                f"like ports run at several rates, which may be meant so: {'; '.join(told)}"
            )
    return found


def read(source: Source) -> Reading:
    """Read a report of ports; what belongs to none of the tools is passed over."""
    ports, counters, tools = Ports(), ib_counters.Counters(), ib_tools.Reports()
    text = source.whole(LIMIT).decode("utf-8", "replace")
    for number, whole in enumerate(text.splitlines(), start=1):
        line = whole[:LINE_LIMIT].rstrip()
        if not (ports.take(line) or counters.take(line)):
            tools.take(line, number)
    problems = [*source.problems, *counters.problems(), *tools.problems]
    known = [port for port in ports.all() if port.state]
    silent = len(ports.all()) - len(known)
    if silent:
        problems.append(f"{silent} ports are named, and nothing is said of their state")
    problems += _rates(known)
    several = ports.several()
    measured = [m for p in known for m in _measured(p, several=p.device in several)]
    measured += counters.measured() + tools.measured()
    records = len(known) + counters.records() + tools.records
    cut = source.cut or bool(silent) or ports.promised() > len(known)
    return Reading(
        source.path, KIND, records, tuple(map(plain, problems)), tuple(tools.events),
        tuple(measured), cut=cut, worked=bool(records) and not tools.idle(),
    )  # fmt: skip


_MARKS = (
    re.compile(rb"^CA '[\w.\-]{1,64}'\s*$", re.MULTILINE),
    re.compile(rb"^Infiniband device '[\w.\-]{1,64}' port \d{1,3} status:", re.MULTILINE),
    re.compile(rb"^hca_id:\s{1,8}[\w.\-]{1,64}\s*$", re.MULTILINE),
    re.compile(rb"^# Port (?:extended )?counters: Lid \d", re.MULTILINE),
    re.compile(rb"^/sys/(?:class/infiniband|devices/[\w/:.\-]{1,200}/infiniband)/[\w.\-]{1,64}/"
               rb"ports/\d{1,3}/(?:hw_)?counters/\w{1,64}:\s?\d", re.MULTILINE),
    re.compile(rb"^(?:link |\d{1,3}/\d{1,3}: )[\w.\-]{1,64}/\d{1,3}:? .{0,80}?\bstate [A-Z_]{2,16} "
               rb"physical_state [A-Z_]{2,24}", re.MULTILINE),
    re.compile(rb"^ {10,40}(?:RDMA_Write|RDMA_Read|Send|Write|Read)[\w ()\-]{0,40} "
               rb"(?:BW|Latency|Bi-?Directional)\b", re.MULTILINE),
    re.compile(rb"^#bytes {1,8}#iterations {1,8}(?:BW peak|t_min)", re.MULTILINE),
    re.compile(rb"^(?:Effective|Symbol|Raw) (?:Physical )?BER {0,40}:", re.MULTILINE),
    re.compile(rb"^-[EWI]- .{0,120}(?:\bGUID\b|lid=|\bport\b|[Ff]abric|Subnet)", re.MULTILINE),
)  # fmt: skip
_PAIRS = tuple(
    (re.compile(one, re.MULTILINE), re.compile(other, re.MULTILINE))
    for one, other in (
        (rb"^Module Info\s*$", rb"^Rx Power Current \[dBm\] {0,40}:"),
        (rb"^Operational Info\s*$", rb"^Physical state {0,40}:"),
        (rb"^Temperature \[C\] {0,40}: ", rb"^Voltage \[mV\] {0,40}: "),
        (rb"^SymbolErrorCounter:\.{2}", rb"^Port\w{3,30}:\.{2}"),
        (rb"^\s{1,16}Physical state: \w", rb"^\s{1,16}Link layer: \w"),
        (rb"^\s{1,16}phys state: {1,16}\d: \w", rb"^\s{1,16}link_layer: "),
    )
)


def likeness(head: bytes) -> float:
    """Return 0.9 for the headings that only these tools write, else 0."""
    head = head[: 1 << 16]
    sure = any(mark.search(head) for mark in _MARKS)
    return 0.9 if sure or any(a.search(head) and b.search(head) for a, b in _PAIRS) else 0.0


READER = Reader(KIND, "ibstat, ibstatus, perfquery, sysfs counters, mlxlink, perftest, rdma link",
                likeness, read)  # fmt: skip
