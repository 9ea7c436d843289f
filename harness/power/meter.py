"""Who meters the feeds of a zone: a caller who tells, or the power shelves' own controllers.

In: numbers that are told, or a Host whose ``shelf.output`` is read. Out: zone.Meters. Where a
feed's rating is known, how far its breaker is strained is reckoned by the curves of breaker.toml;
where it is not, or the load cannot be read, nothing is made up: NaN.
"""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from rackproof.harness.devices.protocol import Host
from rackproof.harness.errors import DeviceError
from rackproof.harness.power.zone import Array, Layout, Meters

CHECK = "power.dimmer"  # under which a Host is asked


def unmetered(feeds: int) -> Meters:
    """Return what is known of feeds that nobody meters."""
    none = np.full(feeds, np.nan)
    return Meters(none, none.copy(), none.copy(), np.ones(feeds, dtype=bool), none.copy())


class ToldMeter:
    """Says once what it was told last: what nobody tells again is no reading."""

    def __init__(self, feeds: int) -> None:
        """Know nothing yet of so many feeds."""
        self._feeds = feeds
        self._told: Meters | None = None

    def tell(self, meters: Meters) -> None:
        """Take what is read next. Raises ValueError where it is about other feeds."""
        shapes = {np.shape(getattr(meters, name)) for name in Meters.__slots__}
        if shapes != {(self._feeds,)}:
            msg = f"meters of {shapes} for {self._feeds} feeds"
            raise ValueError(msg)
        self._told = meters

    def read(self, seconds: float) -> Meters:
        """Return what was told since the last call, or that nothing was."""
        del seconds
        told, self._told = self._told, None
        return unmetered(self._feeds) if told is None else told


class Strain:
    """The trip integrals of feeds' breakers, from their loads. `rated` in W; NaN: not known."""

    def __init__(self, layout: Layout, rated: Array) -> None:
        """Begin cold."""
        table = curves()
        kinds = ["main" if feed.partition("/")[0] == "main" else "feed" for feed in layout.feeds]
        self.rated = rated.astype(float)
        self._k, self._a, self._decay = (
            np.array([table[kind][name] for kind in kinds]) for name in ("k", "a", "decay")
        )
        self.strain = np.where(np.isfinite(rated), 0.0, np.nan)

    def trips_after(self, watts: Array) -> Array:
        """Return the seconds after which a cold breaker trips, inf at its rating and below.

        t = k / (P / rated - 1)^a; NaN where load or rating is not known.
        """
        over = watts / self.rated - 1.0
        with np.errstate(divide="ignore"):
            time = self._k / np.where(over > 0.0, over, 0.0) ** self._a
        return np.where(np.isnan(over), np.nan, time)

    def add(self, watts: Array, seconds: float) -> Array:
        """Let mean loads act for `seconds`; return in how many seconds each breaker trips then.

        Above the rating the integral grows by dt / t, below it decays exponentially. A load that
        could not be read leaves it as it is.
        """
        time = self.trips_after(watts)
        grown = self.strain + seconds / time
        cooled = self.strain * np.exp(-seconds / self._decay)
        fresh = np.where(np.isinf(time), cooled, np.minimum(grown, 1.0))
        self.strain = np.where(np.isnan(time), self.strain, fresh)
        left = np.maximum(0.0, 1.0 - self.strain)
        return np.where(np.isfinite(time), left * np.where(np.isfinite(time), time, 0.0), time)


class ShelfMeter:
    """Sums what the shelves of a feed give out. One look asks each controller anew."""

    def __init__(self, layout: Layout, host: Host, shelves: Sequence[str], rated: Array) -> None:
        """Read `shelves` (subjects such as ``rack0/power/shelf2``) for the feeds above them.

        A feed without shelves below it is NaN; `rated` is each feed's rating in W, NaN: unknown.
        """
        self._host = host
        self._of = [[s for s in shelves if s.startswith(f"{feed}/")] for feed in layout.feeds]
        self._strain = Strain(layout, rated)
        self._looks = 0
        self.problems: dict[str, str] = {}

    def read(self, seconds: float) -> Meters:
        """Return the shelves' output now; real controllers take seconds for it, at most 60."""
        self._looks += 1
        self.problems.clear()
        self._host.begin(CHECK, self._looks)
        try:
            feed = np.array([self._sum(shelves) for shelves in self._of])
        finally:
            self._host.end()
        left = self._strain.add(feed, seconds)
        alive = np.ones(len(feed), dtype=bool)
        strain = self._strain.strain.copy()
        return Meters(feed, strain, left, alive, self._strain.rated.copy())

    def _sum(self, shelves: Sequence[str]) -> float:
        read = [self._output(shelf) for shelf in shelves]
        return sum(read) if read else float("nan")

    def _output(self, shelf: str) -> float:
        try:
            return float(self._host.read("shelf.output", shelf))
        except (DeviceError, ValueError) as error:
            self.problems[shelf] = str(error)
            return float("nan")


@functools.cache
def curves() -> Mapping[str, Mapping[str, float]]:
    """Return breaker.toml's numbers: by kind of feed, then k in s, a, and decay in s."""
    text = resources.files(__package__).joinpath("breaker.toml").read_text("utf-8")
    return {
        kind: {name: float(entry["value"]) for name, entry in own.items()}
        for kind, own in tomllib.loads(text).items()
    }
