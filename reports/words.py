"""What every report says in the same words: values, limits, places, diagnoses, the headline.

In: parts of a judgement. Out: short plain text. Text that came from a log or a record is untrusted:
`visible` shows its control and direction characters instead of obeying them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Limit
from rackproof.diagnostics.unheld import unheld
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Value

LONGEST = 600  # characters of one text that a report shows
NAMED = 3  # subjects that a headline names

COMPONENTS: Mapping[str, str] = {
    "hbm": "HBM memory",
    "sram": "on-chip SRAM",
    "sm": "compute units",
    "nvlink": "NVLink",
    "nvswitch": "NVSwitch",
    "pcie": "PCIe",
    "power": "power",
    "thermal": "cooling",
    "nic": "network adapter",
    "fabric": "NVLink fabric",
    "host": "host",
    "driver": "driver or firmware",
    "app": "application",
    "storage": "storage",
    "data": "data",
    "unknown": "component not known",
}
PERSISTENCES: Mapping[str, str] = {
    "transient": "happened once and not again",
    "intermittent": "comes and goes",
    "persistent": "stays",
    "undetermined": "not known yet whether it stays",
}
ACTIONS: Mapping[str, str] = {
    "none": "Nothing to do here; see the root of the case.",
    "watch": "Keep it in use for 28 days, with a soak each night; act when it shows again.",
    "retest": "Burn it again before you decide.",
    "restart-app": "Restart the application.",
    "reset-gpu": "Drain the GPU, reset it, and burn it again.",
    "reboot-node": "Drain the node, reboot it, and burn it again.",
    "update-software": "Bring driver and firmware to the wanted versions, and burn it again.",
    "check-cabling": "Check cables and connectors of this link, and burn it again.",
    "check-power": "Check the power supply of this part, and burn it again.",
    "check-cooling": "Check the cooling of this part, and burn it again.",
    "field-diag": "Take it out of use and run the vendor's field diagnostics.",
    "swap-to-spare": "Take it out of use and put a spare in its place.",
    "move-to-spare-rack": "Move the job to a spare rack.",
    "rma": "Take it out of use and return it to the vendor.",
}
_BURNT = frozenset(("hbm", "sram", "sm", "nvlink", "nvswitch", "fabric"))
_BESIDE = frozenset(("nic", "storage", "host", "power", "thermal"))


def to_do(root: Mapping[str, Any]) -> str:
    """Return the action of a root diagnosis in words, "" for one that has none.

    A burn tells nothing of a part beside the GPUs that files name: a supply, a leak, a port.
    """
    text = ACTIONS.get(root["action"], "")
    component, place = root["component"], root["subject"].rpartition("/")[2]
    device = place.startswith(("gpu", "pci:", "link")) and component not in ("nic", "storage")
    named = root["subject"].startswith(("host:", "nic:", "pci:"))
    if not named or device or component in _BURNT or component not in _BESIDE:
        return text
    text = text.replace(", with a soak each night; act when", "; look at it again when")
    return text.replace("burn it again", "look at it again").replace("Burn it", "Look at it")


# Zero-width joiners and marks, direction overrides, line separators and all control characters are
# not printable in Python's sense; a space of any width is shown as a space.
_SPACES = frozenset(
    "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f"
)


def spoken(seconds: float) -> str:
    """Return a time as a person says it: ``90 s``, ``20 min``, ``1 h 30 min``."""
    if seconds < 120:  # noqa: PLR2004 - below two minutes seconds say more
        return f"{seconds:g} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def visible(text: str, longest: int = LONGEST) -> str:
    """Return `text` with what cannot be printed as ⟨U+XXXX⟩, and cut after `longest`."""
    cut = len(text) - longest
    if cut > 0:
        text = text[:longest]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _named(c) for c in text)
    return f"{text} … ({cut} more characters)" if cut > 0 else text


def _named(character: str) -> str:
    if character in "\n\t" or character in _SPACES:
        return " "
    return f"⟨U+{ord(character):04X}⟩"


def shown(value: Value | None, unit: str = "") -> str:
    """Return a value with its unit, floats to six digits; a dash when there is none."""
    if value is None:
        return "–"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if unit == "flag":
        return {"0": "no", "1": "yes"}.get(text, text)
    return text if unit in ("", "text") else f"{text} {unit}"


def bounds(limit: Limit) -> str:
    """Return the bounds of a limit with their unit: ``≤ 87 C``."""
    unit = metrics()[limit.metric].unit
    if limit.equal is not None:
        return f"= {shown(limit.equal, unit)}"
    parts = (("≥", limit.low), ("≤", limit.high))
    return " and ".join(f"{sign} {shown(b, unit)}" for sign, b in parts if b is not None)


def counted(number: int, noun: str) -> str:
    """Return ``1 GPU``, ``2 GPUs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _ranges(names: Sequence[str]) -> str:
    """Write names that differ in their number alone as ranges: gpu0–3, link07,09."""
    stem = _stem(names[0])
    pieces: list[list[str]] = []
    for number in (name.removeprefix(stem) for name in names):
        if pieces and number and int(number[:9]) == int(pieces[-1][-1][:9] or "-9") + 1:
            pieces[-1].append(number)
        else:
            pieces.append([number])
    return stem + ",".join(p[0] if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in pieces)


def places(subjects: Iterable[str]) -> list[str]:
    """Return subjects in short: rack0/tray00–17/gpu0–3 for the 72 GPUs of a rack."""
    depths: dict[int, list[list[str]]] = {}
    for subject in dict.fromkeys(subjects):
        parts = subject.split("/")
        depths.setdefault(len(parts), []).append(parts)
    found: list[str] = []
    for depth, rows in sorted(depths.items()):
        for level in reversed(range(depth)):
            rows = _merged(rows, level)  # noqa: PLW2901 - each level works on the last one's rows
        found += ["/".join(row) for row in rows]
    return found


def _merged(rows: Sequence[Sequence[str]], level: int) -> list[list[str]]:
    same: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        key = (*row[:level], _stem(row[level]), *row[level + 1 :])
        same.setdefault(key, []).append(row[level])
    return [[*key[:level], _ranges(names), *key[level + 1 :]] for key, names in same.items()]


def roots(diagnoses: Sequence[Diagnosis]) -> list[tuple[str, str]]:
    """Return (subject, component) of every root, each once."""
    return list(dict.fromkeys((d.subject, d.component) for d in diagnoses if d.role == "root"))


def accused(judgement: Judgement) -> list[str]:
    """Return what a headline names: roots with their component, links of a GPU together."""
    named: dict[tuple[str, str], list[str]] = {}
    for subject, component in roots(judgement.diagnoses):
        gpu, _, last = subject.rpartition("/")
        key = gpu if last.startswith("link") else subject
        named.setdefault((key, component), []).append(subject)
    found = [
        f"{place} ({component})"
        for (_, component), subjects in named.items()
        for place in places(subjects)
    ]
    if found or judgement.verdict is not Verdict.FAIL:
        return found
    return places(c.subject for c in failing(judgement))


def failing(judgement: Judgement) -> list[Check]:
    """Return the checks that are FAIL and not waived."""
    return [c for c in judgement.checks if c.verdict is Verdict.FAIL and c.waiver is None]


def waived(judgement: Judgement) -> list[Check]:
    """Return the checks that are FAIL and waived."""
    return [c for c in judgement.checks if c.verdict is Verdict.FAIL and c.waiver is not None]


def unknown(judgement: Judgement) -> list[Check]:
    """Return the checks that could not be judged."""
    return [c for c in judgement.checks if c.verdict is Verdict.UNKNOWN]


def remarks(judgement: Judgement) -> list[str]:
    """Return what belongs beside any verdict: how many FAILs are waived, what was not run."""
    found = []
    held, out = len(waived(judgement)), len(judgement.left_out)
    if held:
        found.append(f"{held} waived")
    if out:
        burns = counted(judgement.burns + out, "burn")
        verb = "was" if out == 1 else "were"
        found.append(f"{out} of {burns} of {judgement.plan} {verb} left out")
    return found


def named(names: Sequence[str]) -> str:
    """Return the first names in a row, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _passing(judgement: Judgement) -> str:
    """Say how many GPUs pass, fail and are unknown, or that none was to be looked at."""
    count, total = judgement.counts, len(judgement.subjects)
    if not judgement.asked:
        return "no GPU was looked at"
    parts = [f"{count['PASS']} of {counted(total, 'GPU')} pass{'es' if total == 1 else ''}"]
    if count["FAIL"]:
        parts.append(f"{count['FAIL']} fail{'s' if count['FAIL'] == 1 else ''}")
    if count["UNKNOWN"]:
        verb = "is" if count["UNKNOWN"] == 1 else "are"
        parts.append(f"{count['UNKNOWN']} {verb} unknown")
    return ", ".join(parts)


def _of_others(judgement: Judgement, names: Sequence[str]) -> str | None:
    """Return the sentence of a FAIL that is of no GPU; None where a GPU fails or is accused."""
    count, gpus = judgement.counts, judgement.subjects
    ours = any(gpu_of(subject) in gpus for subject, _ in roots(judgement.diagnoses))
    if judgement.verdict is not Verdict.FAIL or count["FAIL"] or ours or not names:
        return None
    text = _passing(judgement)
    if gpus and count["PASS"] == len(gpus):
        text = "the one GPU passes" if len(gpus) == 1 else f"all {len(gpus)} GPUs pass"
    return f"{named(names)} {'fails' if len(names) == 1 else 'fail'}; {text}"


def headline(judgement: Judgement) -> str:
    """Return the sentence beside the verdict: how many GPUs pass, who does not, what is not run."""
    names = accused(judgement)
    text = _of_others(judgement, names)
    if text is None:
        text = _passing(judgement) + (f": {named(names)}" if names else "")
        if not judgement.asked and judgement.verdict is Verdict.PASS:
            text = f"{counted(judgement.judged, 'check')} judged; {text}"
    if judgement.problems and judgement.verdict is Verdict.UNKNOWN:
        text += f"; {judgement.problems[-1]}"
    elif judgement.verdict is Verdict.UNKNOWN and not (
        judgement.asked and judgement.counts["UNKNOWN"]
    ):
        count = len(unknown(judgement))
        left = f"{counted(count, 'check')} could not be judged" if count else "nothing was to judge"
        text += f"; {left}"
    silent = unheld(judgement.checks)
    if silent:
        text += f"; your limits on {named(silent)} held nothing"
    return "; ".join([text, *remarks(judgement)])
