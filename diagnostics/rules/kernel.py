"""The kernel's own signs: PCIe, host memory, disks, network cards; storms told from noise.

Corrected errors lose nothing, and a healthy machine writes some; a network port goes down at every
reboot. What counts is the rate, the repetition, or the state in which the log ends.
"""

from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.episodes import Episode, Said, told
from rackproof.diagnostics.rules.tables import Rule, toml
from rackproof.harness.model import Event

# DCGM: PCIe replays of a Gen 5 link of 16 lanes, a minute: ceil(16 x 1.92).
STORM_A_MINUTE = 31
STORM_LEAST = 3
# rasdaemon's default threshold for corrected memory errors: 50 in 24 hours.
MEMORY_STORM = 50
DAY = 86400.0
FLAPS = 3  # gpud: a port that fell three times and came back flaps
_DEVICES = {"storage": "storage", "nic": "nic", "gpu": "pcie"}
_MEMORY = "host-memory-corrected"


def meaning(event: Event) -> Rule | None:
    """Return what one kernel sign means, or None for a code that is not in the table."""
    row = toml("kernel.toml").get(event.code)
    if row is None:
        return None
    rule = Rule(**row)
    device = event.detail.get("device")
    if event.code.startswith("apei.pcie") and isinstance(device, str):
        return replace(rule, component=_DEVICES.get(device, rule.component))
    return rule


def _storm(episode: Episode) -> bool:
    count = told(episode.said)
    if episode.first is None or episode.last is None:
        return count > STORM_A_MINUTE
    span = max(1.0, episode.last - episode.first)
    return count >= STORM_LEAST and count * 60 / span > STORM_A_MINUTE


def _memory_storm(episode: Episode, all_of_it: Sequence[Episode]) -> bool:
    start = episode.first
    count = sum(
        sum(said.count for said in other.said)
        for other in all_of_it
        if other.clock == episode.clock
        and (start is None or other.first is None or 0 <= other.first - start <= DAY)
    )
    return count >= MEMORY_STORM


def _port(episodes: Sequence[Episode]) -> str | None:
    """Return the action for one network port's ups and downs, or None where all is well."""
    said = [one for episode in episodes for one in episode.said]
    downs = sum(one.count for one in said if one.event.code == "nic.down")
    if not downs:
        return None
    last = max(said, key=lambda one: (one.last or 0.0, _last_line(one)))
    return "check-cabling" if last.event.code == "nic.down" or downs >= FLAPS else "watch"


def _last_line(said: Said) -> int:
    line = said.event.detail.get("last_line", said.line)
    return line if isinstance(line, int) else 0


def _as(episode: Episode, action: str) -> Episode:
    kind = "watch" if action == "watch" else "hardware"
    said = [
        replace(s, rule=replace(s.rule, action=action, kind=kind)) for s in episode.said
        if s.rule.kind != "ignore"
    ]  # fmt: skip
    place = (episode.machine, episode.subject, episode.family, episode.clock)
    return Episode.of(place, said or episode.said)


def sift(found: Sequence[Episode]) -> list[Episode]:
    """Return the episodes, less those that count only in numbers and did not reach them."""
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in found:
        groups.setdefault((episode.machine, episode.subject, episode.family), []).append(episode)
    kept: list[Episode] = []
    for episode in found:
        if not any(said.rule.kind == "counted" for said in episode.said):
            kept += [episode] if episode.kind != "ignore" else []
            continue
        group = groups[episode.machine, episode.subject, episode.family]
        if episode.family == "nic-link":
            if action := _port(group):
                kept.append(_as(episode, action))
        elif episode.family == _MEMORY:
            if _memory_storm(episode, group):
                kept.append(_as(episode, "watch"))
        elif _storm(episode):
            kept.append(_as(episode, "watch"))
    return kept
