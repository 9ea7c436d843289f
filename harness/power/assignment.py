"""What a controller of power is given: a rack, its feeds and jobs, and where changes are written.

In: an Assignment, as one process has it. Out: the same in another, by way of JSON. Whatever makes
no sense there is a ValueError that says what.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rackproof.harness.devices.attached import Source
from rackproof.harness.power.dimmer.settings import Bridge, Settings
from rackproof.harness.power.dimmer.words import Job
from rackproof.harness.power.lines import Object, packed, unpacked
from rackproof.harness.power.zone import TOP, Layout, Places

MOST = 1 << 16
"""GPUs or feeds of one controller."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One rack for one controller.

    `uuids` has one of each GPU, None where it never said who it is. `folder` is where changes are
    written down: for an emulated rack wherever its owner likes; None for real GPUs, whose journal
    is the one of all rackproof runs. With `told` the controller's time is that of its requests,
    beginning `at`; else it is the machine's. `adopt` takes over what a killed controller left
    changed, instead of putting it back first. With `reckon` a feed that nobody meters is taken to
    carry its fixed load and what its GPUs draw.
    """

    source: Source
    uuids: Mapping[str, str | None]
    layout: Layout
    jobs: tuple[Job, ...]
    settings: Settings = field(default_factory=Settings)
    folder: Path | None = None
    seed: int = 0
    told: bool = True
    at: float = 0.0
    adopt: bool = False
    reckon: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be meant; a ValueError."""
        if self.source.state is not None and self.folder is None:
            msg = "an emulated rack's changes are written down in a folder that is handed in"
            raise ValueError(msg)
        if missing := [gpu for gpu in self.layout.gpus if gpu not in self.uuids]:
            msg = f"{missing[0]}: nobody says which GPU this is"
            raise ValueError(msg)
        if not math.isfinite(self.at):
            msg = f"a controller cannot begin at {self.at} s"
            raise ValueError(msg)

    def to_json(self) -> Object:
        """Return it for a line."""
        layout, settings = self.layout, self.settings
        names = [each.name for each in dataclasses.fields(settings)]
        stores = {feed: dataclasses.asdict(own) for feed, own in settings.bridges.items()}
        return {
            "library": _text(self.source.library),
            "state": _text(self.source.state),
            "uuids": dict(self.uuids),
            "layout": {
                "gpus": list(layout.gpus),
                "feeds": list(layout.feeds),
                "feed_of": layout.feed_of.tolist(),
                "parent": layout.parent.tolist(),
                "fixed": packed(layout.fixed),
            },
            "jobs": [_job_to_json(job) for job in self.jobs],
            "settings": {name: getattr(settings, name) for name in names} | {"bridges": stores},
            "folder": _text(self.folder),
            "seed": self.seed,
            "told": self.told,
            "at": self.at,
            "adopt": self.adopt,
            "reckon": self.reckon,
        }

    @classmethod
    def from_json(cls, body: Object) -> "Assignment":
        """Return what `to_json` was made of; else ValueError, LookupError or TypeError."""
        layout = _layout(body["layout"])
        settings = dict(body["settings"])
        stores = {feed: Bridge(**own) for feed, own in settings.pop("bridges", {}).items()}
        return cls(
            source=Source(_path(body["library"]), _path(body["state"])),
            uuids={str(s): None if u is None else str(u) for s, u in body["uuids"].items()},
            layout=layout,
            jobs=tuple(_job(each, len(layout.gpus)) for each in body["jobs"]),
            settings=Settings(**settings, bridges=stores),
            folder=_path(body["folder"]),
            seed=int(body["seed"]),
            told=bool(body["told"]),
            at=float(body["at"]),
            adopt=bool(body["adopt"]),
            reckon=bool(body["reckon"]),
        )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _path(text: object) -> Path | None:
    return None if text is None else Path(str(text))


def _job_to_json(job: Job) -> Object:
    return {
        "name": job.name,
        "gpus": job.gpus.tolist(),
        "priority": job.priority,
        "floor": job.floor,
        "period": job.period,
    }


def _job(body: Mapping[str, Any], gpus: int) -> Job:
    places = _places(body["gpus"], "gpus", 0, gpus)
    return Job(
        str(body["name"]),
        places,
        int(body["priority"]),
        float(body["floor"]),
        float(body["period"]),
    )


def _layout(body: Mapping[str, Any]) -> Layout:
    gpus, feeds = (tuple(map(str, body[name])) for name in ("gpus", "feeds"))
    for names, what in ((gpus, "gpus"), (feeds, "feeds")):
        if not 0 < len(names) <= MOST or len(set(names)) < len(names):
            msg = f"layout.{what}: 1 to {MOST} names are needed, each once"
            raise ValueError(msg)
    feed_of = _places(body["feed_of"], "layout.feed_of", 0, len(feeds))
    parent = _places(body["parent"], "layout.parent", TOP, len(feeds))
    if len(feed_of) != len(gpus) or len(parent) != len(feeds):
        msg = "layout: feed_of has a place for each GPU, parent one for each feed"
        raise ValueError(msg)
    if (parent >= np.arange(len(feeds))).any():
        msg = "layout.parent: parents stand before their children"
        raise ValueError(msg)
    return Layout(gpus, feeds, feed_of, parent, unpacked(body["fixed"], len(feeds)))


def _places(values: object, what: str, low: int, end: int) -> Places:
    listed = values if isinstance(values, list) else None
    if listed is None or any(type(n) is not int or not low <= n < end for n in listed):
        msg = f"{what}: whole numbers from {low} to below {end} are needed"
        raise ValueError(msg)
    return np.array(listed, dtype=np.intp)
