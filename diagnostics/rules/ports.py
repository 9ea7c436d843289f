"""Ports of one machine held against each other: which one is down that ought to be up.

Readings of ports come in, signs go out. A port alone cannot be judged, since nobody may have
plugged it in: what condemns it is that like ports (one link layer, one model) are up. A port that
is disabled was switched off by somebody, or is of Ethernet and has no carrier; one without a cable
is not looking for a partner.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.rules.tables import Rule
from rackproof.harness.model import Event, Measurement

_UP = frozenset(("active", "activedefer"))
_TRYING = frozenset(("polling", "linkerrorrecovery", "portconfigurationtraining",
                     "ethanfsmenable", "linktraining"))  # fmt: skip
# So many like ports at one greater rate make one slow port a sign; two may be another fabric's.
PEERS = 3
MANY = 7  # with the one that is down the eight of a node: it is no spare
LANES = 4
_IBTA = "InfiniBand Architecture Specification, volume 1, 14.2.5.6 PortInfo: "


@dataclass(frozen=True, slots=True)
class _Port:
    subject: str
    state: str
    physical: str
    layer: str
    model: str
    rate: float | None
    width: float | None

    @property
    def up(self) -> bool:
        return self.state in _UP

    def like(self, other: "_Port") -> bool:
        """Whether `other` is a port of the same sort: one link layer, and one model if known."""
        same = not (self.model and other.model) or self.model == other.model
        return self.subject != other.subject and self.layer == other.layer and same


def _ports(measurements: Sequence[Measurement]) -> list[_Port]:
    found: dict[str, dict[str, str | int | float]] = {}
    for one in measurements:
        if one.metric.startswith("ib.port."):
            found.setdefault(one.subject, {})[one.metric.removeprefix("ib.port.")] = one.value
    return [
        _Port(
            subject, _word(seen, "state"), _word(seen, "physical"), _word(seen, "layer"),
            _word(seen, "model"), _number(seen, "rate"), _number(seen, "width"),
        )
        for subject, seen in sorted(found.items())
    ]  # fmt: skip


def _word(seen: Mapping[str, str | int | float], name: str) -> str:
    return str(seen.get(name, ""))


def _number(seen: Mapping[str, str | int | float], name: str) -> float | None:
    value = seen.get(name)
    return float(value) if isinstance(value, int | float) else None


def _sign(port: _Port, code: str, words: str, rule: Rule) -> tuple[Event, Rule]:
    event = Event(port.subject, code, f"{code} {words}", clock="none")
    return event, rule


def _rule(component: str, action: str, kind: str, source: str) -> Rule:
    return Rule(component, action, "sign-port", kind, name="port", source=source)


def _down(port: _Port, peers: Sequence[_Port]) -> tuple[Event, Rule] | None:
    """Judge a port that is not up by those that are like it."""
    up = [peer for peer in peers if peer.up]
    beside = f"beside {len(up)} like ports that are active" if up else "with no like port to go by"
    words = f"{port.state}, physically {port.physical or 'unknown'}, {beside}"
    if port.state in ("init", "initializing", "initialize", "armed"):
        source = _IBTA + "the link is up, and the subnet manager has not made it active"
        return _sign(port, "ib.port.state", words, _rule("fabric", "retest", "watch", source))
    if port.physical == "disabled" or port.state not in ("down", "polling", "nostatechange"):
        if port.layer == "infiniband" and up and port.physical == "disabled":
            source = _IBTA + "disabled; a port of InfiniBand is so only when somebody asked for it"
            return _sign(port, "ib.port.state", words, _rule("nic", "watch", "watch", source))
        return _no_carrier(port, peers)
    if port.physical in ("sleep", "phytest"):
        return None
    source = _IBTA + "the port looks for a partner, and finds none"
    if up and (port.physical in _TRYING or not port.physical or port.physical == "linkup"):
        return _sign(
            port, "ib.port.state", words, _rule("nic", "check-cabling", "hardware", source)
        )
    return _sign(port, "ib.port.state", words, _rule("nic", "watch", "watch", source))


def _no_carrier(port: _Port, peers: Sequence[_Port]) -> tuple[Event, Rule] | None:
    """Judge an Ethernet port that is disabled: one of many like ports that all but it are up.

    mlx5 shows an Ethernet port without carrier as disabled, and one that nobody uses as well. So it
    is a sign only where the others like it run at one rate, and few are down.
    """
    off = 1 + sum(not peer.up for peer in peers)
    rates = Counter(peer.rate for peer in peers if peer.up and peer.rate is not None)
    if port.layer != "ethernet" or port.physical != "disabled" or not rates:
        return None
    rate, alike = rates.most_common(1)[0]
    if alike < PEERS or alike < PEERS * off:
        return None
    words = f"{port.state}, physically disabled, beside {alike} like ports active at {rate:g} Gb/s"
    source = "mlx5: an Ethernet port without carrier is Down and Disabled"
    many = alike >= MANY
    rule = _rule("nic", "check-cabling", "hardware", source) if many else _rule(
        "nic", "watch", "watch", source)  # fmt: skip
    return _sign(port, "ib.port.state", words, rule)


def _slow(port: _Port, peers: Sequence[_Port]) -> tuple[Event, Rule] | None:
    """Judge an active port that runs on fewer lanes, or slower than each of several like ports."""
    if port.width is not None and 0 < port.width < LANES:
        wide = [p for p in peers if p.up and p.width is not None and p.width >= LANES]
        if wide:
            words = f"{port.width:g} of {LANES} lanes, beside {len(wide)} like ports with all"
            source = _IBTA + "LinkWidthActive below LinkWidthSupported"
            rule = _rule("nic", "check-cabling", "hardware", source)
            return _sign(port, "ib.port.width", words, rule)
    rates = [p.rate for p in peers if p.up and p.rate is not None]
    if port.rate is not None and len(rates) >= PEERS and port.rate < min(rates) == max(rates):
        words = f"{port.rate:g} Gb/s, beside {len(rates)} like ports with {rates[0]:g}"
        source = _IBTA + "LinkSpeedActive; another rate may also be meant so"
        return _sign(port, "ib.port.rate", words, _rule("nic", "watch", "watch", source))
    return None


def signs(measurements: Sequence[Measurement]) -> Iterable[tuple[Event, Rule]]:
    """Yield a sign for each port of one file that is down, not yet active, narrow or slow."""
    ports = _ports(measurements)
    for port in ports:
        if not port.state:
            continue
        peers = [other for other in ports if port.like(other)]
        sign = _slow(port, peers) if port.up else _down(port, peers)
        if sign is not None:
            yield sign
