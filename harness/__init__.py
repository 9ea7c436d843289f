"""Acts and measures, and never judges. Comes in: a spec. Goes out: Measurement, Missing, Event."""
