"""How far a rack's meter alone moves the figures of a square wave, and when they are lost in it.

In: what the meter said while the load stood, and the figures of the GPUs' own sum. Out: nothing, or
a DeviceError. A meter's noise goes with all that the rack draws, a wave only with its GPUs: where
much else hangs on the meter, the noise alone makes ramps and lines that are none of the rack's.
"""

import math
from collections.abc import Sequence

import numpy as np

from rackproof.harness.errors import DeviceError

LINE, RAMP, LEFT = 0.1, 0.2, 0.2
"""Share of the raw figure that noise may add. The proposals of a limit lie further above it: 2/pi x
all limits is 1.1 x a healthy line, 20 ms of hold-up 1.6 x a ramp, and 0.5 is 6 x what is left."""
CLEAR = 0.05
"""Noise below this share of the raw figure loses no figure, be that as small as it will."""
SIGMAS = 3.0


def sigma(standing: Sequence[float]) -> float:
    """Return the standard deviation of one reading, W, from readings of a load that stands, W.

    From one to the next, so that a drift is no noise; 0 where there are fewer than three.
    """
    known = [watts for watts in standing if math.isfinite(watts)]
    if len(known) < 3:  # noqa: PLR2004 - one difference says nothing of how they spread
        return 0.0
    return float(np.sqrt(np.mean(np.square(np.diff(known))) / 2.0))


def of_line(sigma_w: float, samples: int) -> float:
    """Return the amplitude of a line that noise makes of so many samples, W."""
    return SIGMAS * sigma_w * math.sqrt(2.0 / max(samples, 1))


def of_ramp(sigma_w: float, step: float) -> float:
    """Return the ramp that noise makes between samples `step` s apart, W/s."""
    return 2.0 * math.sqrt(2.0) * sigma_w / step


def clear(what: str, figure: float, raw: float, noise: tuple[float, float]) -> float:
    """Return a figure of the mains that stands clear of the noise; raises DeviceError otherwise.

    `raw` is that of the GPUs alone; `noise` what the meter may add to it, and the share of `raw`
    that it may add.
    """
    most, share = noise
    drowned = most > CLEAR * raw and figure < 2.0 * most
    if most > share * raw or drowned:
        msg = f"{what} is lost in the meter's noise, which alone makes {most:.3g} of {figure:.3g}"
        raise DeviceError(msg)
    return figure
