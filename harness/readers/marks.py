"""Where in a file the output of a tool begins: lines that only it writes, prompts, banners.

A file is one tool's output as a rule. People also paste several behind one another, keep a whole
shell session, or send nvidia-bug-report.log, which holds some fifty of them. Lines come in; which
kind begins there goes out. What a part is, its own reader says: a mark only says where to look.
"""

import re
from collections.abc import Iterator
from itertools import islice

from rackproof.harness.readers.search import compiled, line_spans

LINE_LIMIT = 1 << 12
MOST = 1_500  # parts of one file; a bug report of eight GPUs has some 300
ANY = "any"  # what a prompt or a banner begins
# (kind, what stands in the line, the line itself)
_TOOLS: tuple[tuple[str, bytes, bytes], ...] = (
    ("nvidia-smi-q", b"NVSMI LOG", rb"={5,80}NVSMI LOG={5,80}"),
    ("nvidia-smi-table", b"| NVIDIA-SMI ", rb"\| NVIDIA-SMI [\d.]{3,20} "),
    ("nvidia-smi-xml", b"<nvidia_smi_log", rb"<nvidia_smi_log[ >]"),
    ("nvidia-smi-nvlink", b"(UUID: GPU-", rb"GPU \d{1,3}: [^\n]{1,100} \(UUID: GPU-"),
    ("nvidia-smi-topo", b"GPU0\t", rb"\t?[ \t]{0,16}GPU0\t"),
    ("nvidia-smi-csv", b"temperature.gpu", rb"[a-z_]{2,40}[^\n]{0,400}, ?temperature\.gpu"),
    ("nvidia-smi-csv", b"pci.bus_id", rb"[a-z_]{2,40}[^\n]{0,400}, ?pci\.bus_id|pci\.bus_id, "),
    ("nvidia-smi-csv", b"ecc.errors.", rb"[a-z_]{2,40}[^\n]{0,400}, ?ecc\.errors\."),
    ("nvidia-smi-csv", b"utilization.gpu", rb"[a-z_]{2,40}[^\n]{0,400}, ?utilization\.gpu"),
    ("dcgm-diag-text", b"Successfully ran diagnostic", rb"Successfully ran diagnostic"),
    ("dcgm-metrics", b"# HELP DCGM_", rb"# HELP DCGM_"),
    ("nccl-tests", b"# nThread ", rb"# nThread \d"),
    ("nvbandwidth", b"nvbandwidth Version", rb"nvbandwidth Version"),
    ("gpu-burn", b"Burning for ", rb"Burning for \d{1,9} seconds"),
    ("memtest", b"Running cuda memtest", rb"\[[^\n]{4,120}\]: ?Running cuda memtest"),
    ("ib", b"CA '", rb"CA '[\w.\-]{1,64}'\s{0,8}$"),
    ("ib", b"Infiniband device '", rb"Infiniband device '"),
)
_WORDS = (
    rb"(?:nvidia-smi|nvidia-bug-report|dmesg|journalctl|dcgmi|ibstat|ibstatus|ibdev2netdev|ibv_dev"
    rb"info|perfquery|mlxlink|rdma|ipmitool|ipmi-sel|sinfo|sacct|squeue|scontrol|kubectl|nvbandwidth"
    rb"|gpu_burn|cuda_memtest|\w{3,30}_perf)\b"
)
_SHELL = (
    rb"(?:\[?[\w.\-]{1,64}@[\w.\-]{1,64}[^\n#$%]{0,120}[#$%] ?[\w./]"
    rb"|(?:[#$%>+] ){1,2}(?:sudo )?(?:\S{0,80}/)?(?:" + _WORDS + rb"|(?:cat|grep|zcat|zgrep|tail) "
    rb"[^\n]{0,120}/var/log/))"
)
_BANNER = (
    rb"(?:==> \S{1,250} <==|(?:[=#*_\-]{2,80}>?|\[) {0,4}(?:/\S{0,80}/)?(?:sudo )?" + _WORDS
    + rb"|[=#*\-]{2,80}>? {0,4}/var/log/)"
)  # fmt: skip
_LINES = tuple((kind, re.compile(b"(?:" + line + b")")) for kind, _, line in _TOOLS)
_OTHERS = re.compile(b"(?:" + _SHELL + b"|" + _BANNER + b")")
# What one search over a file looks for: the line around it is then looked at alone.
_LITERALS = tuple(dict.fromkeys(literal for _, literal, _ in _TOOLS))
_HINTS = (
    rb"[#$%>+=*_\-\[] {0,4}(?:sudo )?(?:/\S*/)?" + _WORDS, rb"==> \S", rb" /var/log/",
    rb"[=#*\-] ?/var/log/",
)  # fmt: skip
# The same in a kernel's log, where sudo and health checks name the tools often.
_SPARSE = (rb"[#$%] (?:sudo )?(?:nvidia-smi|dmesg|dcgmi|ibstat|ipmitool)\b", rb"==> /")
REPORT = b"Start of NVIDIA bug report log file"
_REPORT_END = b"End of NVIDIA bug report log file"
_RULE = re.compile(rb"^_{20,80}[ \t\r]*$", re.MULTILINE)
# Lines that belong to the mark behind them: a table's edge, a date, the head of an XML document.
_LEAD = re.compile(
    rb"(?:\+[-=]{10,200}\+|[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} [\d:]{8} [^\n]{0,16}\d{4}"
    rb"|<\?xml [^\n]{0,80}|<!DOCTYPE [^\n]{0,80}|# nccl-tests version[^\n]{0,80})[ \t\r]*$"
)


_ANYWHERE = compiled(b"|".join((*map(re.escape, _LITERALS), *_HINTS)))
SPARSELY = b"|".join((*map(re.escape, _LITERALS), *_SPARSE))


def kind_at(line: bytes) -> str:
    """Return the kind of the tool whose output `line` begins, ANY for a prompt or a banner, ""."""
    for kind, pattern in _LINES:
        if pattern.match(line):
            return kind
    return ANY if _OTHERS.match(line) else ""


def kind_of(text: bytes) -> str:
    """Return the kind that begins in the first lines of `text`, which one of starts() begins."""
    found = (kind_at(line) for line in text[:LINE_LIMIT].splitlines()[:4])
    return next((kind for kind in found if kind), "")


def _found(chunk: bytes) -> Iterator[tuple[int, str]]:
    """Yield (where its line begins, the kind that begins there) for each mark in `chunk`."""
    for start, end in line_spans(chunk, _ANYWHERE):
        if kind := kind_at(chunk[start : min(end, start + LINE_LIMIT)]):
            yield start, kind


def marked(chunk: bytes, kind: str) -> int:
    """Return where in `chunk` another kind than `kind` may begin, -1 for nowhere."""
    return next((start for start, found in _found(chunk) if found != kind), -1)


def is_report(head: bytes) -> bool:
    """Whether a file is what nvidia-bug-report.sh writes."""
    return REPORT in head[: 1 << 12]


def is_whole(text: bytes) -> bool:
    """Whether a bug report was written to its end."""
    return _REPORT_END in text[-(1 << 16) :]


def starts(text: bytes) -> list[int]:
    """Return where parts may begin in `text`, the first at 0; MOST at most.

    A tool's mark behind another of the same kind begins nothing new.
    """
    if is_report(text):
        return sorted({0, *(match.end() for match in islice(_RULE.finditer(text), MOST))})
    found, last = {0}, ""
    for start, kind in _found(text):
        if kind == last != ANY:
            continue
        at, last = start, kind
        for _ in range(3):
            before = text.rfind(b"\n", 0, max(0, at - 1)) + 1
            if not at or not _LEAD.match(text[before : at - 1]):
                break
            at = before
        found.add(at)
        if len(found) >= MOST:
            break
    return sorted(found)
