"""A rack as it ought to be: its trays, GPUs, switches, power and cooling, from a TOML file.

In: the name of a shipped rack, or the path of a TOML file. Out: a frozen RackSpec, or one
SpecError that says what is wrong, where, and what is due. Trays are numbered from 00 in each
rack, in the file's order; nobody numbers them by hand.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

from rackproof.harness import rackfile
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.model import WIDE, Gpu, Tray, sort_of
from rackproof.harness.skus import Sku, sku

AIR = "air"
"""Cooling of which a rack has no part of its own: each server's fans."""


@dataclass(frozen=True, slots=True)
class Power:
    """Power of one rack: shelves, what each gives, and what no cap can lower.

    `bbu`, `cbu` and `bess` say whether there is a store of that sort, or its energy in kJ.
    """

    shelves: int = 0
    shelf_kw: float | None = None
    uncappable_kw: float | None = None
    bbu: bool | float = False
    cbu: bool | float = False
    bess: bool | float = False


@dataclass(frozen=True, slots=True)
class RackSpec:
    """One NVLink domain with all that feeds it: one rack, two (catalina), or one HGX node.

    `emulation` holds assumed values that only the emulator uses; no limit rests on them.
    `links_per_gpu` is None where nobody knows it. `switches` are all racks' ASICs, as subjects.
    """

    name: str
    generation: str
    source: str
    identity: str
    trays: tuple[Tray, ...]
    switches: tuple[str, ...]
    links_per_gpu: int | None
    domain: int
    sku: Sku
    power: Power
    cooling: str
    spares: int
    file: str
    digest: str
    emulation: Mapping[str, float | str] = field(hash=False)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, in order of rack, tray and index."""
        return tuple(gpu for tray in self.trays for gpu in tray.gpus)

    @property
    def racks(self) -> int:
        """How many racks it spans."""
        return max(tray.rack for tray in self.trays) + 1

    @property
    def emulated(self) -> bool:
        """Whether no silicon stands behind it."""
        return self.source == "emulated"

    @property
    def links(self) -> int:
        """How many NVLinks a GPU has: known, else assumed for the emulator, else 0."""
        return self.links_per_gpu or int(self.emulation.get("nvlink_links", 0))

    def assumed(self, name: str) -> float | str | None:
        """Return what the emulator takes for `name`, a key of rackfile.EMULATION, or None.

        The file's [emulation] table wins over the SKU's constant. Never a basis for a limit.
        """
        if name in self.emulation:
            return self.emulation[name]
        if name not in rackfile.EMULATION:
            msg = f"unknown emulation value {name!r}{nearest(name, rackfile.EMULATION)}"
            raise KeyError(msg)
        constant = None if name in rackfile.EMULATION_ONLY else self.sku.known(name)
        return None if constant is None else constant.value

    def gpu(self, subject: str) -> Gpu:
        """Return the GPU of that subject; a SpecError that names the nearest when there is none."""
        for gpu in self.gpus:
            if gpu.subject == subject:
                return gpu
        close = nearest(subject[:60], [gpu.subject for gpu in self.gpus])
        msg = f"{self.name} has no GPU {subject[:60]!r}{close}"
        raise SpecError(msg)

    def of_sort(self, sort: str) -> list[str]:
        """Return the subjects of a sort, in the rack's order; none for an unknown sort."""
        match sort:
            case "gpu":
                return [gpu.subject for gpu in self.gpus]
            case "link":
                return [gpu.link(number) for gpu in self.gpus for number in range(self.links)]
            case "host":
                return [tray.host for tray in self.trays]
            case "switch":
                return list(self.switches)
            case "fabric":
                return [WIDE]
            case _:
                return [subject for subject in self.subjects() if sort_of(subject) == sort]

    def subjects(self) -> Iterator[str]:
        """Yield every subject: GPUs, links, hosts, NICs, switches, power, cooling, the fabric."""
        for tray in self.trays:
            for gpu in tray.gpus:
                yield gpu.subject
                yield from (gpu.link(number) for number in range(self.links))
            yield tray.host
            base = tray.host.removesuffix("/host")
            yield from (f"{base}/nic{number}" for number in range(tray.nics or 0))
        yield from self.switches
        for rack in range(self.racks):
            if self.power.shelves:
                yield f"rack{rack}/power"
            yield from (f"rack{rack}/power/shelf{n}" for n in range(self.power.shelves))
            if self.cooling != AIR:
                yield f"rack{rack}/cooling"
        yield "fabric"


def load(name_or_path: str) -> RackSpec:
    """Return the rack of a shipped name, or of a file when it contains / or ends in .toml."""
    if "/" in name_or_path or os.sep in name_or_path or name_or_path.endswith(".toml"):
        return build(rackfile.read(Path(name_or_path)), name_or_path)
    names = [name for name, _ in _shipped_files()]
    if name_or_path not in names:
        raise SpecError(_no_such_rack(name_or_path, names))
    raw = dict(_shipped_files())[name_or_path]
    return build(raw, f"racks/{name_or_path}.toml")


def shipped() -> list[tuple[str, str]]:
    """Return the racks that come with rackproof: (name, one line about it)."""
    return [(name, summary(build(raw, f"racks/{name}.toml"))) for name, raw in _shipped_files()]


def summary(spec: RackSpec) -> str:
    """Return one line about a rack."""
    trays, racks = len(spec.trays), spec.racks
    where = f"{trays} tray{'s' * (trays > 1)}" + (f" in {racks} racks" if racks > 1 else "")
    what = f"{len(spec.gpus)} x {spec.sku.text('name') or spec.sku.key.upper()}"
    return f"{what}, {where}, {len(spec.switches)} NVSwitch ASICs, {spec.cooling}, {spec.source}"


def select(spec: RackSpec, glob: str) -> tuple[str, ...]:
    """Return the subjects that match a shell pattern (* also matches /); none is a SpecError."""
    found = tuple(subject for subject in spec.subjects() if fnmatchcase(subject, glob))
    if not found:
        example = spec.gpus[0].subject
        msg = f"nothing in {spec.name} matches {glob[:60]!r}; a GPU is written {example}"
        raise SpecError(msg)
    return found


def _shipped_files() -> list[tuple[str, bytes]]:
    folder = resources.files("rackproof.harness").joinpath("racks")
    files = [f for f in folder.iterdir() if f.name.endswith(".toml")]
    files.sort(key=lambda f: f.name)
    return [(f.name.removesuffix(".toml"), f.read_bytes()) for f in files]


def _no_such_rack(name: str, names: list[str]) -> str:
    if name == "local":
        return "local stands for this machine's own GPUs and is no rack file; nothing to load"
    hint = nearest(name[:60], names) or f"; shipped: {', '.join(names)}"
    for candidate in (name, f"{name}.toml"):
        if name.isprintable() and 0 < len(name) < 200 and Path(candidate).is_file():  # noqa: PLR2004
            return f"no rack is called {name!r}, but there is a file: write ./{candidate}"
    return f"no rack is called {name[:60]!r}{hint}; a file's path contains / or ends in .toml"


def build(raw: bytes, file: str) -> RackSpec:
    """Return the rack that the TOML in `raw` describes; messages call it `file`."""
    tables = rackfile.parse(raw, file)
    head, fabric = tables["rack"], tables.get("fabric", {})
    try:
        part = sku(tables["gpu"]["sku"])
        trays = _trays(tables["tray"], part.key)
        gpus = sum(len(tray.gpus) for tray in trays)
        links = _links(fabric, part)
        domain = _domain(fabric, gpus)
        spares = _spares(tables.get("spares", {}), len(trays))
    except SpecError as error:
        msg = f"{rackfile.shown(file)}: {error}"
        raise SpecError(msg) from None
    racks = max(tray.rack for tray in trays) + 1
    return RackSpec(
        name=head["name"],
        generation=head.get("generation", ""),
        source=head["source"],
        identity=head.get("identity", head["name"]),
        trays=trays,
        switches=tuple(
            f"rack{rack}/switch{n:02d}"
            for rack in range(racks)
            for n in range(fabric.get("switches", 0))
        ),
        links_per_gpu=links,
        domain=domain,
        sku=part,
        power=Power(**tables.get("power", {})),
        cooling=tables.get("cooling", {}).get("kind", "air"),
        spares=spares,
        file=file,
        digest=hashlib.sha256(raw).hexdigest(),
        emulation=tables.get("emulation", {}),
    )


def _trays(tables: list[dict[str, Any]], key: str) -> tuple[Tray, ...]:
    total = sum(table["count"] for table in tables)
    if total > rackfile.MAX_TRAYS:
        msg = f"[[tray]] count: {total} trays in all; at most {rackfile.MAX_TRAYS}"
        raise SpecError(msg)
    used = {table.get("rack", 0) for table in tables}
    if used != set(range(len(used))):
        gap = min(set(range(max(used))) - used)
        msg = f"[[tray]] rack: racks count from 0, and no [[tray]] is of rack {gap}"
        raise SpecError(msg)
    trays: dict[int, list[Tray]] = {rack: [] for rack in sorted(used)}
    for table in tables:
        rack = table.get("rack", 0)
        for _ in range(table["count"]):
            number = len(trays[rack])
            place = f"rack{rack}/tray{number:02d}"
            gpus = tuple(
                Gpu(f"{place}/gpu{index}", rack, number, index, key)
                for index in range(table["gpus"])
            )
            nics, rate = table.get("nics"), table.get("nic_rate")
            trays[rack].append(Tray(rack, number, gpus, table.get("cpus"), nics, rate))
    return tuple(tray for rack in trays.values() for tray in rack)


def _links(fabric: dict[str, Any], part: Sku) -> int | None:
    said, known = fabric.get("links_per_gpu"), part.number("nvlink_links")
    if said is not None and known is not None and said != known:
        msg = f"[fabric] links_per_gpu: is {said}, and a {part.key} has {known:g}; leave it out"
        raise SpecError(msg)
    if said is not None:
        return int(said)
    return None if known is None else int(known)


def _domain(fabric: dict[str, Any], gpus: int) -> int:
    domain = int(fabric.get("domain", gpus))
    if domain > gpus:
        msg = f"[fabric] domain: is {domain}, and the trays hold {gpus} GPUs"
        raise SpecError(msg)
    return domain


def _spares(table: dict[str, Any], trays: int) -> int:
    spares = int(table.get("trays", 0))
    if spares >= trays:
        msg = f"[spares] trays: is {spares}, and there are {trays} trays: none would be left"
        raise SpecError(msg)
    return spares
