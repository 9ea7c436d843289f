"""The acts of one step, in words; of very many alike, the first ones and their number."""

from collections.abc import Mapping, Sequence

import numpy as np

from rackproof.harness.power.dimmer.words import Act
from rackproof.harness.power.zone import Array, Places

SHOWN = 20
"""Acts of one sort and one step that are told one by one."""
Figures = Mapping[str, Array]


class Telling:
    """Collects the acts of one step."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.acts: list[Act] = []

    def plain(self, what: str, text: str, feed: str = "", job: str = "", **fields: float) -> None:
        """Tell one thing."""
        self.acts.append(Act(self.at, what, feed, job, text, fields))

    def feeds(
        self, what: str, names: Sequence[str], which: np.ndarray, text: str, figures: Figures
    ) -> None:
        """Tell it of each feed that `which` marks; `text` is filled in with its figures."""
        places = np.flatnonzero(which)
        for place in places[:SHOWN]:
            fields = {name: float(values[place]) for name, values in figures.items()}
            self.acts.append(Act(self.at, what, names[place], "", text.format(**fields), fields))
        if len(places) > SHOWN:
            short = text.partition(":")[0]
            self.plain(what, f"and {len(places) - SHOWN} feeds more: {short}",
                       more=float(len(places) - SHOWN))  # fmt: skip

    def jobs(self, what: str, names: Sequence[str], counts: Places, text: str) -> None:
        """Tell it of each job, with its number of GPUs (0: not told)."""
        places = np.flatnonzero(counts)
        for place in places[:SHOWN]:
            count = int(counts[place])
            gpus = f"{count} GPU" if count == 1 else f"{count} GPUs"
            self.plain(what, f"{gpus} {text}", job=names[place], gpus=float(count))
        if len(places) > SHOWN:
            self.plain(what, f"and {len(places) - SHOWN} jobs more: {text}",
                       more=float(len(places) - SHOWN))  # fmt: skip

    def paces(self, names: Sequence[str], which: np.ndarray, text: str, pace: int) -> None:
        """Tell it of each job that `which` marks, with its pace as a number."""
        places = np.flatnonzero(which)
        for place in places[:SHOWN]:
            self.plain("dimmer-acts", text, job=names[place], pace=float(pace))
        if len(places) > SHOWN:
            self.plain("dimmer-acts", f"and {len(places) - SHOWN} jobs more: {text}",
                       more=float(len(places) - SHOWN), pace=float(pace))  # fmt: skip
