"""Documents about logs: runbooks, web pages, source code, notes that quote a tool's output.

The head of a file comes in; whether people wrote it around what they quote goes out. What such a
text shows happened elsewhere, or never: it must not accuse a machine that stands beside it.
"""

import re

LINES = 400
FEW_SENTENCES, FEW_LINES = 2, 3
_HTML = re.compile(rb"\A\s{0,200}(?:<!--[^\n]{0,200}-->\s{0,80})?<(?:!DOCTYPE html|html)\b",
                   re.IGNORECASE)  # fmt: skip
_TAGS = re.compile(
    r"</?(?:html|head|body|div|p|pre|code|h[1-6]|ul|ol|li|table|tr|td|span|article|br)\b[^>\n]{0,200}>",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?:import \w[\w.]{0,80}(?: as \w{1,40})?;?$|from [\w.]{1,80} import \w"
    r"|(?:async )?def \w{1,80}\(|class \w{1,80}\s?[(:{]|#include [<\"]|package \w{1,80};?$"
    r"|func (?:\([^)\n]{0,80}\) )?\w{1,80}\("
    r"|(?:export )?(?:const|let|var) \w{1,80}\s?[:=]|public (?:static |final )?(?:class|void) \w"
    r"|(?:static |inline )?(?:int|void|char|bool|auto) \w{1,80}\([^)\n]{0,200}\)\s?\{"
    r"|use [\w:]{2,80}[;{]|(?:pub )?fn \w{1,80}[(<]|@@ -\d{1,7},|diff --git |using namespace "
    r"|@\w[\w.]{1,60}\()"
)
_SHEBANG = re.compile(rb"\A#! ?/")
_FENCE = re.compile(r"(?:```|~~~|-----{0,80}$|\.{4,80}$|\{code)")
_BLOCK = re.compile(r"(?:```|~~~|\{code|\{noformat|<pre>|\\begin\{verbatim\}|\.\. code-block::"
                    r"|\[source)")  # fmt: skip
_HEADING = re.compile(r"(?:#{1,6} {1,3}|={1,5} )[A-Z0-9][^\n:=]{2,120}$")
# A sentence as people write them: a capital, words, an end; no figures with units, no columns.
# Words are looked at one by one: one pattern over all would try every way to part them.
_BULLET = re.compile(r"(?:[-*] {1,3}|\d{1,2}[.)] {1,3})")
_FIRST = re.compile(r"[A-Z\"'(][\w'’-]{0,30},?\Z")
_NEXT = re.compile(r"[(\"'`*_]{0,3}[\w'’./+`*-]{1,40}[)\"'`*_]{0,3}[,;:]?\Z")
_END = re.compile(r" ?[.:?!]{1,2}\Z")
FEWEST_WORDS, MOST_WORDS = 3, 61
_WORD = re.compile(r"\b(?:a|an|the|is|are|was|were|you|we|it|this|that|then|when|if|and|or|of|to|in"
                   r"|on|for|with|not|see|so)\b", re.IGNORECASE)  # fmt: skip
_STAMPED = re.compile(r"[\[<({|+\d]|[A-Z][a-z]{2} {1,2}\d|NVRM|\S{1,40}: \[")
_QUOTED = re.compile(r"(?: {2,}|\t|> ?)\S")


def _sentence(line: str) -> bool:
    if _STAMPED.match(line) and not re.match(r"\d{1,2}[.)] ", line):
        return False
    end = _END.search(line[-3:])
    bullet = _BULLET.match(line)
    bare = line[bullet.end() if bullet else 0 : len(line) - len(end[0]) if end else None]
    words = bare.split(" ")
    if end is None or not FEWEST_WORDS <= len(words) <= MOST_WORDS or not _FIRST.match(words[0]):
        return False
    return all(map(_NEXT.match, words[1:])) and bool(_WORD.search(line))


def _heading(lines: list[str], number: int) -> bool:
    """Whether a heading stands here, with a blank line behind it: tools' comments have none."""
    after = lines[number + 1] if number + 1 < len(lines) else ""
    before = lines[number - 1] if number else ""
    return bool(_HEADING.match(lines[number])) and not after.strip() and not before.strip()


def _written(lines: list[str]) -> tuple[int, bool]:
    """Return how many lines people wrote around what they quote, and whether they marked that."""
    said, quoted, inside, marked = 0, 0, False, False
    for number, line in enumerate(lines):
        if _BLOCK.match(line.lstrip()):
            marked, inside = True, not inside
        elif not inside and _QUOTED.match(line):
            quoted += 1
        elif not inside and (_heading(lines, number) or _sentence(line.rstrip())):
            said += 1
    return said, marked or quoted >= max(1, sum(map(bool, map(str.strip, lines))) // 5)


def is_document(head: bytes) -> bool:
    """Whether a file that begins with `head` is a text or a program, and no tool's output."""
    if _HTML.match(head[:2048]):
        return True
    every = [line[:400] for line in head[: 1 << 16].decode("utf-8", "replace").splitlines()[:LINES]]
    lines = [line for line in every if line.strip()]
    code = sum(bool(_CODE.match(line)) for line in lines)
    if code >= FEW_SENTENCES or _SHEBANG.match(head):
        return True
    if sum(bool(_TAGS.search(line)) for line in lines) >= max(2, len(lines) // 10):
        return True
    said, marked = _written(every)
    fenced = any(line.lstrip().startswith(("```", "~~~")) for line in lines)
    around = said >= FEW_SENTENCES and (marked or said * 2 > len(lines) > FEW_LINES)
    return around or (said >= 1 and fenced)
