"""What each shipped power drill has to show at the least, by its name: a table.

A record's header says what was asked; whoever wrote less into it must not pass by that. The drills
themselves are in diagnostics.drills.power, above this package; a test holds both together.
"""

from collections.abc import Collection, Mapping

ALWAYS = ("DD1", "DD4", "DD5", "DD8", "DD11")
LIMITED = ("DD2", "DD3", "DD6", "DD7", "DD10")
LEAST: Mapping[str, tuple[str, ...]] = {
    "power-dim": (
        *(f"DD{number}" for number in range(1, 14)), "limit -20 %", "limit -40 %", "ac-loss",
        "sag", "utility-ramp", "sensor-loss", "controller-killed", "control",
    ),
    "ac-loss": (*ALWAYS, "DD2", "DD10", "DD13", "ac-loss", "sag"),
    "utility-ramp": (*ALWAYS, "DD10", "utility-ramp"),
    "sensor-loss": (*ALWAYS, "DD9", "sensor-loss"),
    "coolant-loss": (*ALWAYS, "cooling", "coolant-loss"),
    "power-random": ALWAYS,
}  # fmt: skip
"""Criteria, and parts that have to be held."""
EVENTS_OF: Mapping[str, tuple[str, ...]] = {
    "limit -20 %": ("limit", "lift"),
    "limit -40 %": ("limit", "lift"),
    "ac-loss": ("ac-lost", "ac-back"),
    "sag": ("sag",),
    "utility-ramp": ("ramp", "lift"),
    "sensor-loss": ("limit", "sensors-lost", "lift", "sensors-back"),
    "controller-killed": ("limit", "controller-killed", "controller-back", "lift"),
    "coolant-loss": ("coolant-lost", "coolant-back"),
    "control": ("limit",),
}
"""What is done in each part, in the words of the record's events."""


def lacks(drill: str, due: Collection[str]) -> list[str]:
    """Return what the header of a power drill of that name does not ask for, and should.

    Of a drill of no known name it is that it is asked for anything at all.
    """
    least = LEAST.get(drill, () if due else ("anything",))
    return [each for each in least if each not in due]
