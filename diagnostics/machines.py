"""Which input belongs to which machine, and what its devices are called.

Readings come in; each gets a machine's name, "" while there is only one, and its subjects one
spelling: aliases such as ``gpu3`` become the address that another file of that machine gives.

A file's own words come first: the host that it names, then a GPU's UUID that another file has. A
file that tells neither is of the host that its own name or a folder of it is called; else of the
only host that the files beside it name, in the nearest folder that names any. What is left in one
folder is one machine, called like the folder where there are several; two sets of GPUs at the same
addresses are two machines.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from rackproof.diagnostics.naming import label, words
from rackproof.harness.readers.reading import Reading

UNKNOWN = "unknown"
_UNNAMED = "\0"
Place = tuple[str, str]


def split(subject: str) -> tuple[str | None, str]:
    """Return (host, rest) of a subject: ``host:a/pci:…`` and ``host:a`` name one, others None."""
    if not subject.startswith("host:"):
        return None, subject
    host, _, rest = subject[5:].partition("/")
    return host, rest or "host"


@dataclass(slots=True)
class Machines:
    """The machines of one call. `of` gives each reading's machine, by its index.

    `own` holds the aliases that a reading gives itself, `aliases` those of all files of a machine.
    `carried` holds what serial number was told of a place by which reading, in order of time.
    """

    of: list[str] = field(default_factory=list)
    name: str = UNKNOWN
    several: bool = False
    short: dict[str, str] = field(default_factory=dict)
    own: list[Mapping[str, str]] = field(default_factory=list)
    aliases: dict[str, dict[str, str]] = field(default_factory=dict)
    serials: dict[Place, str] = field(default_factory=dict)
    carried: dict[Place, list[tuple[int, str]]] = field(default_factory=dict)

    def place(self, index: int, subject: str) -> Place:
        """Return (machine, subject in one spelling) for a subject of reading `index`."""
        host, rest = split(subject)
        known = host is not None and self.several
        machine = self.short.get(host, host) if known and host else self.of[index]
        device, slash, tail = rest.partition("/")
        bare = device.removeprefix("nic:")
        spelled = self.own[index].get(bare) or self.aliases.get(machine, {}).get(bare, device)
        return machine, spelled + slash + tail

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
    return {name: bare if (bare := name.partition(".")[0]) in names else name for name in names}


def _hosts(reading: Reading) -> set[str]:
    seen = {event.subject for event in reading.events}
    seen |= {one.subject for one in reading.measurements}
    told = {host for subject in seen if (host := split(subject)[0])}
    return told | ({reading.host} if reading.host else set())


class _Naming:
    """The walk from what is sure to what is likely: `found` gives a reading's machine by index."""

    def __init__(self, readings: Sequence[Reading], told: Mapping[int, str]) -> None:
        self._readings = readings
        self.found = dict(told)
        self._uuids: dict[str, str] = {}
        self._at: dict[str, dict[str, str]] = defaultdict(dict)
        self._below: dict[PurePath, set[str]] = defaultdict(set)
        self._names: set[str] = set()
        for index in sorted(told, key=self._path):
            self._settle(index, told[index])

    def _path(self, index: int) -> str:
        return str(self._readings[index].path)

    def _folders(self, index: int) -> list[PurePath]:
        """Return the folders of a file, the nearest first, up to the one that the user named."""
        reading = self._readings[index]
        up = PurePath(reading.path).parents
        stop = PurePath(reading.folder) if reading.folder else None
        if stop is None or stop not in up:
            return list(up[:1])
        return list(up[: list(up).index(stop) + 1])

    def _settle(self, index: int, name: str) -> None:
        self.found[index] = name
        self._names.add(name)
        for place, uuid in sorted(self._readings[index].uuids.items()):
            self._uuids.setdefault(uuid, name)
            self._at[name].setdefault(place, uuid)
        for folder in self._folders(index):
            self._below[folder].add(name)

    def by_uuid(self, waiting: list[int]) -> list[int]:
        """Settle those that have a GPU in common with a machine; return the others."""
        left = []
        for index in sorted(waiting, key=self._path):
            uuids = self._readings[index].uuids.values()
            names = sorted({self._uuids[u] for u in uuids if u in self._uuids})
            if names:
                self._settle(index, names[0])
            else:
                left.append(index)
        return left

    def by_name(self, waiting: list[int], hosts: set[str]) -> list[int]:
        """Settle those whose path says the name of one host; return the others."""
        left, known = [], {host.lower(): host for host in hosts}
        for index in sorted(waiting, key=self._path):
            folders = self._folders(index)[:-1]
            parts = [PurePath(self._readings[index].path).name, *(f.name for f in folders)]
            name = next(
                (names.pop() for part in parts
                 if len(names := {known[w] for w in words(part) if w in known}) == 1), None
            )  # fmt: skip
            if name is None or self._clash(index, name):
                left.append(index)
            else:
                self._settle(index, name)
        return left

    def by_folder(self, waiting: list[int]) -> list[int]:
        """Settle those beside which exactly one machine is told of; return the others."""
        left, below = [], {folder: set(names) for folder, names in self._below.items()}
        for index in sorted(waiting, key=self._path):
            names = next((n for f in self._folders(index) if (n := below.get(f))), set())
            if len(names) == 1 and not self._clash(index, name := next(iter(names))):
                self._settle(index, name)
            else:
                left.append(index)
        return left

    def by_elimination(self, waiting: list[int], others: set[str]) -> None:
        """Settle the rest: with the only machine, with one another, or each for itself.

        `others` are the machines that some file tells of.
        """
        named = {r.folder for r in self._readings if r.folder}
        unnamed: dict[str, list[int]] = {}
        for index in sorted(waiting, key=self._path):
            reading = self._readings[index]
            unit = label(reading.folder, named) if reading.folder and len(named) > 1 else ""
            shared = {self._uuids[u] for u in reading.uuids.values() if u in self._uuids}
            options = sorted(shared) or ([unit] if unit else [*itertools.islice(self._names, 2)])
            if not shared and (len(options) != 1 or self._clash(index, options[0])):
                options = [f"{_UNNAMED}{len(unnamed):06d}"]
                unnamed[options[0]] = []
            self._settle(index, options[0])
            if options[0] in unnamed:
                unnamed[options[0]].append(index)
        alone = not others and len(set(self.found.values())) == 1
        names = {key: self._invented(members[0], alone=alone) for key, members in unnamed.items()}
        self.found = {index: names.get(name, name) for index, name in self.found.items()}

    def _invented(self, index: int, *, alone: bool) -> str:
        """Return a name for a machine that no file names: its folder's, else its file's."""
        reading, folders = self._readings[index], self._folders(index)
        if alone:
            return label(reading.folder, ()) if reading.folder else ""
        inner = reading.folder is not None and len(folders) > 1
        return folders[-2].name if inner else PurePath(reading.path).stem

    def _clash(self, index: int, name: str) -> bool:
        """Whether this file knows other GPUs than that machine at the same addresses."""
        mine, theirs = self._readings[index].uuids, self._at.get(name, {})
        return any(theirs.get(place, uuid) != uuid for place, uuid in mine.items())


def _named(readings: Sequence[Reading], hosts: Sequence[set[str]]) -> dict[int, str]:
    """Return the machine of each reading that tells of any, "" where there is but one."""
    told = {i: next(iter(names)) for i, names in enumerate(hosts) if len(names) == 1}
    naming = _Naming(readings, told)
    waiting = [
        i for i, reading in enumerate(readings)
        if not hosts[i] and (reading.events or reading.measurements or reading.uuids)
    ]  # fmt: skip
    everyone: set[str] = set().union(*hosts)
    left = naming.by_uuid(waiting)
    left = naming.by_name(left, everyone) if everyone else left
    left = naming.by_folder(naming.by_uuid(left))
    naming.by_elimination(naming.by_uuid(left), everyone)
    return naming.found


def _alias(readings: Sequence[Reading], result: Machines) -> None:
    """Fill the aliases: what a file gives itself, a UUID that another file has at an address."""
    uuids: dict[tuple[str, str], str] = {}
    order = sorted(range(len(readings)), key=lambda i: str(readings[i].path))
    for index in order:
        machine = result.of[index]
        result.aliases.setdefault(machine, {}).update(readings[index].aliases)
        for subject, uuid in sorted(readings[index].uuids.items()):
            if subject.startswith("pci:"):
                uuids.setdefault((machine, uuid), subject)
    for index, reading in enumerate(readings):
        result.own[index] = dict(reading.aliases) | {
            subject: known
            for subject, uuid in sorted(reading.uuids.items())
            if not subject.startswith("pci:")
            and (known := uuids.get((result.of[index], uuid))) is not None
        }
        if reading.kind.startswith(
            "nvidia-smi"
        ):  # its numbers are the machine's, a job's may differ
            aliases = result.aliases[result.of[index]]
            for subject, known in result.own[index].items():
                aliases.setdefault(subject, known)


def machines(readings: Sequence[Reading]) -> Machines:
    """Return the machines that `readings` come from."""
    told = [_hosts(reading) for reading in readings]
    short = _short(set().union(*told))
    hosts = [{short[name] for name in names} for names in told]
    found = _named(readings, hosts)
    everyone = {name for name in found.values() if name}.union(*hosts)
    several = len(everyone) > 1
    result = Machines(several=several, short=short, own=[{}] * len(readings))
    result.of = [found.get(i, "") if several else "" for i in range(len(readings))]
    if len(everyone) == 1:
        result.name = next(iter(everyone))
    _alias(readings, result)
    order = sorted(range(len(readings)), key=lambda i: (readings[i].taken or 0.0,
                                                        str(readings[i].path)))  # fmt: skip
    for index in order:
        for subject, serial in sorted(readings[index].serials.items()):
            place = result.place(index, subject)
            result.serials[place] = serial
            result.carried.setdefault(place, []).append((index, serial))
    return result
