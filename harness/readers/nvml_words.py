"""What NVML says when it refuses, in the words of other programs: a sentence in, a code out.

Container runtimes, device plugins and schedulers hand on what ``nvmlErrorString`` gave them. The
same words mean the same whoever prints them. ``""`` for a sentence without any.
"""

import re
from collections.abc import Sequence

# In order: the first that a sentence holds is what it says.
_WORDS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (code, re.compile(words))
    for code, words in (
        ("nvml.lost", (r"gpu is lost|gpu_is_lost|fallen off the bus"
                       r"|device handle for gpu ?[0-9a-f:.]{1,16}: unknown error")),
        ("smi.mismatch", r"driver/library version mismatch|lib_rm_version_mismatch"),
        ("smi.needs-reset", r"gpu requires reset|gpu in need of reset|reset_required"),
        ("nvml.driver", (r"driver not loaded|driver is not loaded|driver_not_loaded"
                        r"|couldn'?t communicate with the nvidia driver"
                        r"|libnvidia-ml\.so[.\d]{0,8}.{0,40}(?:not found|no such file|cannot open)"
                        r"|failed to initiali[sz]e nvml")),
        ("nvml.handle", (r"(?:fail\w{0,3}|unable|could ?n[o']t) (?:to )?(?:get|determine|find)"
                        r" (?:the )?(?:gpu )?(?:device )?handle"
                        r"|nvml(?: |_)error: unknown error|nvml: unknown error")),
    )
)  # fmt: skip
LOOKED_AT = 2000  # characters


def nvml_code(text: str) -> str:
    """Return the code of NVML's refusal in a sentence, or ""."""
    text = text[:LOOKED_AT].lower()
    return next((code for code, words in _WORDS if words.search(text)), "")
