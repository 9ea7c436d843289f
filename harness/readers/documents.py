"""JSON as people paste it: one document, several in a row, prompts and HTTP headers between them.

Text comes in; the documents go out, with whether one of them was broken off. Each character is
looked at about once: after a broken document the search goes on where it broke.
"""

import json
import re
from typing import Any

_BEGIN = re.compile(r"\{|\[(?=\s{0,64}[\[{\]])")  # a prompt such as [root@n1 ~]$ begins with [, too
MOST = 10_000


def documents(text: str) -> tuple[list[Any], list[str]]:
    """Return the JSON documents in `text`, and a sentence for each that could not be read."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    problems: list[str] = []
    at = 0
    while (match := _BEGIN.search(text, at)) and len(found) < MOST and len(problems) < 3:  # noqa: PLR2004
        try:
            document, at = decoder.raw_decode(text, match.start())
            found.append(document)
        except json.JSONDecodeError as error:
            problems.append(f"line {error.lineno}: the JSON is broken off or damaged: {error.msg}")
            at = max(match.end(), error.pos)
        except (ValueError, RecursionError):
            problems.append("the JSON is nested too deeply, or holds a number too long, to be read")
            break
    return found, problems
