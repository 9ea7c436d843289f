"""The kernel's own signs: PCIe, host memory, disks, network cards; storms told from noise.

Corrected errors lose nothing, and a healthy machine writes some; a network port goes down at every
reboot. What counts is the rate, the repetition, or the state in which the log ends.
"""

from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.episodes import Episode, Said
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


def _told(episode: Episode) -> int:
    """Return how many errors an episode tells of: AER writes each twice, at two stages."""
    stages: dict[object, int] = {}
    for said in episode.said:
        stage = said.event.detail.get("stage", "")
        stages[stage] = stages.get(stage, 0) + said.count
    return max(stages.values())


def _storm(episode: Episode) -> bool:
    count = _told(episode)
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
    downs, last = 0, None
    for episode in episodes:
        for said in episode.said:
            down = said.event.code == "nic.down"
            downs += said.count if down else 0
            if last is None or (said.last or 0.0, said.line) >= last[0]:
                last = ((said.last or 0.0, _last_line(said)), down)
    if last is None or not downs:
        return None
    return "check-cabling" if last[1] or downs >= FLAPS else "watch"


def _last_line(said: Said) -> int:
    line = said.event.detail.get("last_line", said.line)
    return line if isinstance(line, int) else 0


def _as(episode: Episode, action: str) -> Episode:
    kind = "watch" if action == "watch" else "hardware"
    said = tuple(
        replace(s, rule=replace(s.rule, action=action, kind=kind)) for s in episode.said
        if s.rule.kind != "ignore"
    )
    return replace(episode, said=said)


def sift(found: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without those whose codes only count in numbers and did not reach them."""
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in found:
        groups.setdefault((episode.machine, episode.subject, episode.family), []).append(episode)
    kept: list[Episode] = []
    for episode in found:
        if not any(said.rule.kind == "counted" for said in episode.said):
            kept.append(episode)
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


