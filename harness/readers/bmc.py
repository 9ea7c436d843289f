"""What a baseboard management controller says in words: event text in, a code ``bmc.*`` out.

The words of IPMI 2.0, table 42-3, as ipmitool and FreeIPMI write them, and those of the firmware
of the large vendors in event logs and Redfish. A message in none of these words has no code.
"""

import re
from collections.abc import Sequence

_GAP = r".{0,60}"
_BAD = r"(?:fail(?:ed|ure|ing)?\b|fault|is lost|error)"
_SUPPLY = r"(?:power supply|power supplies|\bpsu?\s?[_#]?\d{0,2}\b|pwr supply|power unit|\bpsu\b)"
# The order matters: "uncorrectable" holds "correctable", and a fan's redundancy is no supply's.
_WORDS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (code, re.compile(words))
    for code, words in (
        ("", r"\bno (?:leak|fault|error|failure)|not? (?:present|installed)|self.?test ok"),
        ("bmc.thermal.leak", r"\bleak(?:age)?\b|moisture|water ingress"),
        ("bmc.gpu", r"\b(?:gpu|sxm)" + _GAP + r"(?:" + _BAD + r"|(?<!non-)critical|fallen|\blo"
                                                              r"st\b|missing"
                    r"|not detected|uncorrect|unresponsive|inaccessible)"),
        ("bmc.memory.uncorrected", r"uncorrect(?:ed|able)" + _GAP + r"(?:ecc|memory|dimm)"
                                   r"|(?:memory|dimm|ecc)" + _GAP + r"uncorrect"
                                   r"|multi-?bit" + _GAP + r"(?:ecc|memory|error)"
                                   r"|\bdimm" + _GAP + _BAD + r"|memory parity error"),
        ("bmc.memory.corrected", r"(?<!un)correct(?:ed|able)" + _GAP + r"(?:ecc|memory|dimm)"
                                 r"|(?:memory|dimm|ecc)" + _GAP + r"(?<!un)correct(?:ed|able)"
                                 r"|single-?bit" + _GAP + r"(?:ecc|error)"),
        ("bmc.storage.predicted", r"predictive failure|predicted to fail|reallocated sectors"),
        ("bmc.storage.drive", r"(?:drive|disk|\bhdd|\bssd|nvme|raid|array|volume)" + _GAP
                              + r"(?:" + _BAD + r"|in critical|in failed|offline|degraded)"
                              r"|in (?:critical|failed) array"),
        ("bmc.thermal.fan", r"\b(?:fan|pump)s?(?:\d|\b)" + _GAP + r"(?:" + _BAD + r"|lower critical"
                            r"|lower non-?recoverable|redundancy (?:lost|degraded)|stopped"
                            r"|removed|non-?redundant|transition to (?:critical|off))"),
        ("bmc.thermal.critical", r"thermal trip|over-?temp|(?:temp\w{0,8}|thermal)" + _GAP
                                 + r"(?:upper critical|upper non-?recoverable|(?<!non-)\bcriti"
                                   r"cal|shutdown"
                                 r"|transition to critical|" + _BAD + r")"),
        ("bmc.thermal.warning", r"(?:temp\w{0,8}|thermal)" + _GAP + r"(?:upper non-?critical|w"
                                                                    r"arning"
                                r"|caution)|throttl|prochot"),
        ("bmc.power.input", r"(?:input|a/?c|dc|power supply)" + _GAP + r"(?:\blost\b|loss\b"
                            r"|out.of.range)|loss of input|no input"),
        ("bmc.power.supply", _SUPPLY + _GAP + r"(?:" + _BAD + r"|non-?recoverable|(?<!non-)\bc"
                                                              r"ritical"
                             r"|removed|shut ?down)"),
        ("bmc.power.redundancy", (r"redundancy (?:lost|degraded)|non-?redundant"
                                 r"|insufficient resources|not redundant")),
        ("bmc.power.voltage", r"(?:volt\w{0,6}|\bvcore|\d ?v\b|\bvr\w{0,8}|\bvdd\w{0,8}|current)"
                              + _GAP + r"(?:(?<!non-)critical|non-?recoverable|" + _BAD +
                              r"|out of range|limit exceeded)|power (?:good|fault)" + _GAP + _BAD),
        ("bmc.cpu", r"\bierr\b|cat(?:astrophic)? ?err|machine check|\bmcerr\b|\bfrb[123]\b"
                    r"|(?:processor|cpu)" + _GAP + r"(?:" + _BAD + r"|disabled)"),
        ("bmc.pcie.fatal", r"bus (?:fatal|uncorrect\w{2,4}) error|\bpci\w{0,4}" + _GAP +
                           r"(?:(?<!non-)(?<!non)fatal|uncorrect)|\b[sp]err\b|bus uncorrect"),
        ("bmc.pcie.corrected", r"bus correctable error|\bpci\w{0,4}" + _GAP + r"correct"),
        ("bmc.nic", r"\b(?:nic|hca|infiniband|connectx|bluefield|network adapter)" + _GAP +
                    r"(?:" + _BAD + r"|critical)"),
        ("bmc.watchdog", r"watchdog" + _GAP + r"(?:hard reset|power (?:down|cycle)|expired|tim"
                                              r"eout)"),
        ("bmc.os", r"run-?time critical stop|kernel panic|os graceful stop|os critical stop"),
    )
)  # fmt: skip
_AREA = {"memory": "host", "cpu": "host", "watchdog": "host", "os": "host"}


def code_of(text: str) -> str:
    """Return the code of an event's words, or "" where they are no sign of a fault."""
    text = text[:400].lower().replace("|", " ")
    return next((code for code, words in _WORDS if words.search(text)), "")


def area_of(code: str) -> str:
    """Return the area of a code ``bmc.AREA[.WHAT]``."""
    area = code.split(".")[1]
    return _AREA.get(area, area)


def cleared(code: str) -> str:
    """Return the code for a sign that the same log takes back, or "" where nothing remains.

    Lost input comes and goes with the mains and with every service of the rack.
    """
    return "" if code == "bmc.power.input" else f"bmc.{area_of(code)}.cleared"
