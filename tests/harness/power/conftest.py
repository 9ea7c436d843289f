"""An emulated node whose state lies in a file, and what a controller of its power is given."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rackproof.harness.devices import connect, source_of
from rackproof.harness.devices.attached import uuids_of
from rackproof.harness.power.assignment import Assignment
from rackproof.harness.power.dimmer import Job, Settings
from rackproof.harness.power.keeper import Keeper
from rackproof.harness.power.zone import TOP, Layout, Meters
from rackproof.harness.spec import load

GPUS, HIGH, LOW, FIXED = 8, 700.0, 200.0, 2000.0
LOOK = """
import sys
from pathlib import Path
from rackproof.harness.devices.attached import Source, attach
rack = attach(Source(Path(sys.argv[1]), Path(sys.argv[2])), {u: u for u in sys.argv[3:]})
for telemetry in rack.telemetry.values():
    print(telemetry.power_limits().requested)
"""


class Node:
    """Eight H100s behind one feed, at full load unless told otherwise; time is told, in steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bench = connect(load("hgx-h100"), seed=1, state_dir=folder)
        self.rows = self.bench.backing.rack.driver.rows
        self.gpus = tuple(self.bench.devices)
        self.journal = folder / "journal"
        self.at = 100.0
        self.wants = np.full(GPUS, HIGH)
        self.keepers: list[Keeper] = []

    def assignment(self, **how: object) -> Assignment:
        layout = Layout(
            self.gpus, ("rack0/power",), np.zeros(GPUS, dtype=np.intp), np.array([TOP]),
            np.array([FIXED]),
        )  # fmt: skip
        half = GPUS // 2
        jobs = (
            Job("low", np.arange(half), 1, LOW, 0.0),
            Job("high", np.arange(half, GPUS), 2, LOW, 0.0),
        )
        given = {
            "source": source_of(self.bench), "uuids": uuids_of(self.bench), "layout": layout,
            "jobs": jobs, "settings": Settings(jitter=0.0), "folder": self.journal,
            "at": self.at, "seed": 1,
        }  # fmt: skip
        return Assignment(**(given | how))

    def start(self, **how: object) -> Keeper:
        self.keepers.append(Keeper.start(self.assignment(**how)))
        return self.keepers[-1]

    def power(self) -> np.ndarray:
        """Return what each GPU draws under its limit, W."""
        return np.minimum(self.wants, self.rows["limit_requested_mw"] / 1e3)

    def meters(self) -> Meters:
        """Return the feed as this load makes it."""
        one = np.ones(1)
        load = FIXED + float(self.power().sum())
        return Meters(one * load, one * 0.0, one * np.inf, one > 0, one * np.nan)

    def passes(self, seconds: float) -> None:
        self.at += seconds
        self.rows["energy_mj"] += np.rint(self.power() * seconds * 1e3).astype("u8")

    def ticks(self, keeper: Keeper, seconds: float, every: float = 0.5) -> list:
        """Let time pass with a tick each half second; return what came of them."""
        found = []
        for _ in range(round(seconds / every)):
            self.passes(every)
            found.append(keeper.tick(self.at, self.meters()))
        return found

    def dimmed(self, **how: object) -> Keeper:
        """Return a controller that has capped the GPUs."""
        keeper = self.start(**how)
        keeper.limit("rack0/power", 6000.0, at=self.at, why="a test")
        self.ticks(keeper, 40.0)
        assert (self.requested() < HIGH).any()
        return keeper

    def requested(self) -> np.ndarray:
        return self.rows["limit_requested_mw"] / 1e3

    def elsewhere(self) -> list[float]:
        """Return the requested limits as another process reads them through NVML."""
        source = source_of(self.bench)
        uuids = filter(None, uuids_of(self.bench).values())
        words = [sys.executable, "-c", LOOK, str(source.library), str(source.state), *uuids]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        return [float(line) for line in done.stdout.split()]

    def files(self) -> list[Path]:
        return list(self.journal.glob("*.jsonl"))

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.close()
        self.bench.close()


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.close()
