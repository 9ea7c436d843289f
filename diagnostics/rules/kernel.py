"""The kernel's own signs: PCIe, host memory, disks, network cards; storms told from noise.

Corrected errors lose nothing, and a healthy machine writes some; a network port goes down at every
reboot. What counts is the rate, the repetition, or the state in which the log ends.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.episodes import CASE, Clock, Episode, Said, told
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
_WHOLE = frozenset(("nic-link", _MEMORY))  # judged once, by all that a place ever said
_BYSTANDER = frozenset(("aer.unrecovered",))
_FATAL = frozenset(("aer.fatal", "apei.pcie.fatal", "xid.79", "nvrm.fallen", "pcie.unplugged"))


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


def _memory_storm(group: Sequence[Episode]) -> bool:
    """Whether any 24 hours hold as many corrected memory errors as one should be told of."""
    by_clock: dict[Clock, list[Said]] = {}
    for episode in group:
        by_clock.setdefault(episode.clock, []).extend(episode.said)
    for said in by_clock.values():
        said.sort(key=Said.order)
        start = count = 0
        for one in said:
            count += one.count
            while (one.at or 0.0) - (said[start].at or 0.0) > DAY:
                count -= said[start].count
                start += 1
            if count >= MEMORY_STORM:
                return True
    return False


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


class _Fatal:
    """Where fatal errors stand, by machine and clock, for a quick look from anywhere."""

    def __init__(self, found: Sequence[Episode]) -> None:
        self._ends: dict[tuple[str, Clock], list[tuple[float, float]]] = {}
        for episode in found:
            if episode.codes & _FATAL:
                first, last = episode.first or 0.0, episode.last or 0.0
                spans = self._ends.setdefault((episode.machine, episode.clock), [])
                spans.append((last + CASE, first - CASE))
        for spans in self._ends.values():
            spans.sort()
            for i in range(len(spans) - 2, -1, -1):  # the earliest beginning of all that end later
                spans[i] = (spans[i][0], min(spans[i][1], spans[i + 1][1]))

    def near(self, episode: Episode) -> bool:
        """Whether one stands near `episode`; without times, in its file."""
        spans = self._ends.get((episode.machine, episode.clock), [])
        i = bisect.bisect_left(spans, (episode.first or 0.0, -math.inf))
        return i < len(spans) and spans[i][1] <= (episode.last or 0.0)


def _counted(episode: Episode, group: Sequence[Episode], fatal: _Fatal) -> str | None:
    """Return the action for an episode whose codes need company to count, or None for none."""
    if episode.codes == _BYSTANDER:
        # Without a fatal error the driver was only told of a lesser one.
        return "check-cabling" if fatal.near(episode) else "watch"
    if episode.family == "nic-link":
        return _port(group)
    storm = _memory_storm(group) if episode.family == _MEMORY else _storm(episode)
    return "watch" if storm else None


def sift(found: Sequence[Episode]) -> list[Episode]:
    """Return the episodes, less those that count only in numbers and did not reach them."""
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in found:
        groups.setdefault((episode.machine, episode.subject, episode.family), []).append(episode)
    fatal = _Fatal(found)
    answers: dict[tuple[str, str, str], str | None] = {}
    kept: list[Episode] = []
    for episode in found:
        counted = any(said.rule.kind == "counted" for said in episode.said)
        if not counted and episode.codes != _BYSTANDER:
            kept += [episode] if episode.kind != "ignore" else []
            continue
        key = (episode.machine, episode.subject, episode.family)
        if episode.family in _WHOLE and key in answers:
            action = answers[key]
        else:
            action = answers[key] = _counted(episode, groups[key], fatal)
        if action:
            kept.append(_as(episode, action))
    return kept
