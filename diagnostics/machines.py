"""Which input belongs to which machine, and what its devices are called.

Readings come in; each gets a machine's name, "" while there is only one, and its subjects one
spelling: aliases such as ``gpu3`` become the address that another file of that machine gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.harness.readers.reading import Reading

UNKNOWN = "unknown"


def split(subject: str) -> tuple[str | None, str]:
    """Return (host, rest) of a subject: ``host:a/pci:…`` and ``host:a`` name one, others None."""
    if not subject.startswith("host:"):
        return None, subject
    host, _, rest = subject[5:].partition("/")
    return host, rest or "host"


@dataclass(slots=True)
class Machines:
    """The machines of one call. `of` gives each reading's machine, by its index."""

    of: list[str] = field(default_factory=list)
    name: str = UNKNOWN
    several: bool = False
    short: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, dict[str, str]] = field(default_factory=dict)
    serials: dict[tuple[str, str], str] = field(default_factory=dict)

    def place(self, index: int, subject: str) -> tuple[str, str]:
        """Return (machine, subject in one spelling) for a subject of reading `index`."""
        host, rest = split(subject)
        known = host is not None and self.several
        machine = self.short.get(host, host) if known and host else self.of[index]
        device, slash, tail = rest.partition("/")
        aliases = self.aliases.get(machine, {})
        device = aliases.get(device.removeprefix("nic:"), device)
        return machine, device + slash + tail

    def spelled(self, machine: str, subject: str) -> str:
        """Return the subject as the contract writes it."""
        if subject == "fabric":
            return subject
        if subject == "host":
            return f"host:{machine or self.name}"
        return f"host:{machine}/{subject}" if self.several else subject

    def serial(self, machine: str, subject: str) -> str | None:
        """Return the serial number of the device that `subject` is, or is a part of."""
        return self.serials.get((machine, subject.partition("/")[0]))


def _short(names: set[str]) -> dict[str, str]:
    """Return one name for each host: ``n17.lan`` is ``n17`` where another file calls it so."""
    return {name: label if (label := name.partition(".")[0]) in names else name for name in names}


def _hosts(reading: Reading) -> set[str]:
    told = {host for event in reading.events if (host := split(event.subject)[0])}
    return told | ({reading.host} if reading.host else set())


def _clash(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return any(other.get(place, uuid) != uuid for place, uuid in one.items())


def _nameless(readings: Sequence[Reading], names: dict[int, str | None]) -> dict[int, str]:
    """Name the machines of readings that do not tell: by a UUID in common, else by elimination.

    Two files with different GPUs at one address are two machines, then named after the files.
    """
    known: dict[str, dict[str, str]] = {}
    for index, name in names.items():
        if name is not None:
            known.setdefault(name, {}).update(readings[index].uuids)
    found = {index: name for index, name in names.items() if name is not None}
    waiting = [index for index, name in names.items() if name is None]
    for index in sorted(waiting, key=lambda i: str(readings[i].path)):
        uuids = readings[index].uuids
        shared = [n for n in sorted(known) if set(uuids.values()) & set(known[n].values())]
        if shared:
            name = shared[0]
        elif not known:
            name = ""
        elif len(known) == 1 and not _clash(uuids, next(iter(known.values()))):
            name = next(iter(known))
        else:
            name = readings[index].path.stem
        found[index] = name
        known.setdefault(name, {}).update(uuids)
    if len(known) > 1:
        found = {i: name or readings[i].path.stem for i, name in found.items()}
    return found


def machines(readings: Sequence[Reading]) -> Machines:
    """Return the machines that `readings` come from."""
    short = _short(set().union(*(_hosts(reading) for reading in readings)))
    hosts = [{short[name] for name in _hosts(reading)} for reading in readings]
    names: dict[int, str | None] = {}
    for index, reading in enumerate(readings):
        if len(hosts[index]) == 1:
            names[index] = next(iter(hosts[index]))
        elif not hosts[index] and (reading.events or reading.measurements):
            names[index] = None
    found = _nameless(readings, names)
    everyone = {name for name in found.values() if name}.union(*hosts)
    result = Machines(several=len(everyone) > 1, short=short)
    result.of = [found.get(i, "") if result.several else "" for i in range(len(readings))]
    if len(everyone) == 1:
        result.name = next(iter(everyone))
    for machine, reading in sorted(
        zip(result.of, readings, strict=True), key=lambda pair: str(pair[1].path)
    ):
        result.aliases.setdefault(machine, {}).update(reading.aliases)
    for index, reading in enumerate(readings):
        for subject, serial in sorted(reading.serials.items()):
            result.serials.setdefault(result.place(index, subject), serial)
    return result
