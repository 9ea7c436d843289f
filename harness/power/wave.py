"""Square waves of load, and when to look at the power so that nothing aliases.

In: a frequency and a duty. Out: a plan of edges and samples, in seconds after the wave's start. A
power sensor may hold its value for SENSOR_S, so two samples are at least that far apart; a wave is
sampled at evenly spread phases, in cycle after cycle where its period is shorter than that
(equivalent time), and the distance of samples stays away from whole multiples of SENSOR_S.
"""

from dataclasses import dataclass

SENSOR_S = 0.1
"""Longest period of an NVML power sensor that is assumed: 100 ms."""
COINCIDES = 0.02
"""Samples this near to a multiple of SENSOR_S, relative, could beat with the sensor."""
FREQUENCIES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DUTIES = (0.3, 0.5, 0.7)
PHASES = {0.1: 16, 0.2: 16, 0.5: 16}
"""Samples of a period where it is long; FEW else."""
FEW = 8
HALF = 0.5
LEAD_S = 2.0
LEADS = (1.0, 2.0, 5.0)
"""Waves of half duty and these frequencies, in Hz, go on for LEAD_S before they are looked at.

By then a sensor that averages over a second has forgotten what was before, and so has a store,
since all waves of one duty, and so of one mean, come one after the other.
"""
HIGH, LOW, SAMPLE = "high", "low", "sample"


@dataclass(frozen=True, slots=True)
class Wave:
    """A square wave: `frequency` in Hz, `duty` the loaded share of its period, that comes first."""

    frequency: float
    duty: float

    @property
    def period(self) -> float:
        """Seconds of one period."""
        return 1.0 / self.frequency

    @property
    def samples(self) -> int:
        """How many phases are looked at."""
        return PHASES.get(self.frequency, FEW)

    @property
    def spacing(self) -> float:
        """Seconds between two samples: whole periods and one part of a period."""
        part = self.period / self.samples
        periods = 0
        while periods * self.period + part < SENSOR_S or coincides(periods * self.period + part):
            periods += 1
        return periods * self.period + part

    @property
    def seconds(self) -> float:
        """How long it takes, in whole periods."""
        last = (self.samples - 0.5) * self.spacing
        return self.period * -(-last // self.period)

    @property
    def lead(self) -> int:
        """How many periods of it are made before the first that is looked at."""
        led = self.duty == HALF and self.frequency in LEADS
        return round(LEAD_S * self.frequency) if led else 0

    def steps(self) -> list[tuple[float, str]]:
        """Return (seconds after the start, HIGH, LOW or SAMPLE) in order of time."""
        cycles = round(self.seconds / self.period)
        found = [(n * self.period, HIGH) for n in range(cycles)]
        found += [((n + self.duty) * self.period, LOW) for n in range(cycles)]
        found += [((n + 0.5) * self.spacing, SAMPLE) for n in range(self.samples)]
        return sorted(found, key=lambda step: step[0])


def coincides(seconds: float) -> bool:
    """Say whether a distance of samples is near a multiple of the sensor's period (PS5)."""
    turns = seconds / SENSOR_S
    return round(turns) > 0 and abs(turns - round(turns)) < COINCIDES * round(turns)


def sweep() -> list[Wave]:
    """Return the waves of a sweep: one duty after the other, of each the slowest first."""
    return [Wave(frequency, duty) for duty in DUTIES for frequency in FREQUENCIES]
