"""DCGM's error codes by its words: the tables of dcgmi print a message and no number.

The formats are those of dcgmlib/dcgm_errors.h (DCGM 2 to 4). They are compared without blanks and
case, since a table wraps a message wherever the cell ends, also inside a word.
"""

import re

# (code, parts that stand in the message in this order); the first that fits counts.
_FORMATS: tuple[tuple[int, str], ...] = (
    (80, "row remapping failed"),
    (84, "had uncorrectable memory errors and * rows were remapped"),
    (85, "row remappings are pending"),
    (83, "pending page retirements together with a dbe"),
    (6, "pending retired page"),
    (8, "an excess of * retired pages due to dbes"),
    (7, "or more retired pages have been detected"),
    (52, "found * faulty memory elements"),
    (111, "found * nan-value memory elements"),
    (58, "a memory mismatch was detected"),
    (57, "double-bit ecc error has occur"),
    (4, "detected * volatile double-bit ecc error"),
    (5, "single-bit ecc error(s) detected"),
    (106, "detected * dbe * above the threshold"),
    (103, "detected * ecc_dbe_volatile_total"),
    (103, "detected * dbe * for gpu"),
    (105, "detected * sbe * above the threshold"),
    (102, "detected * ecc_sbe_volatile_total"),
    (79, "miscompare failure in the l1 cache"),
    (81, "uncontained error"),
    (101, "detected xid"),
    (109, "detected fatal nvswitch sxid"),
    (88, "nvswitch * nvlink * is down"),
    (15, "detected fatal errors on nvswitch"),
    (16, "detected nonfatal errors on nvswitch"),
    (100, "nvswitch * only * nvlinks are up"),
    (99, "nvlinks are up out of the expected"),
    (14, "nvlink link * is currently down"),
    (70, "nvlink errors found occuring per second"),
    (71, "nvlink errors on gpu * (should be 0)"),
    (13, "nvlink errors on gpu * exceeds threshold"),
    (3, "pcie replays per minute"),
    (98, "host-side pcie replay violation"),
    (107, "pcie_replay * above the threshold"),
    (104, "detected * pcie_replay"),
    (45, "running at pci link generation"),
    (46, "running at pci link width"),
    (30, "bandwidth of gpu * did not exceed minimum required bandwidth"),
    (31, "latency type * exceeded maximum allowed latency"),
    (41, "thermal violations totaling * started at"),
    (40, "thermal violations totaling"),
    (42, "exceeded user-specified maximum allowed temperature"),
    (10, "clock throttling due to thermal violation"),
    (10, "due to clocks_event_reason_hw_thermal"),
    (12, "clock throttling due to power violation"),
    (43, "clocks are being throttled for"),
    (43, "clocks are being optimized for"),
    (11, "cannot reliably read the power usage"),
    (63, "did not reach desired power minimum"),
    (72, "enforced power limit on gpu"),
    (62, "only achieved a memory bandwidth"),
    (50, "did not reach desired stress level"),
    (110, "which is below the threshold"),
    (9, "corrupt inforom"),
    (86, "was unsuccessfully written to in a peer-to-peer test"),
    (87, "unsuccessfully wrote data in a peer-to-peer test"),
    (66, "failed to create a cuda context"),
    (66, "unable to create cuda context"),
    (54, "no longer bound to a cuda context"),
    (59, "unable to find a corresponding cuda device"),
    (56, "couldn't allocate at least * of gpu memory"),
    (73, "cannot allocate * bytes on the host"),
    (51, "error using cuda api"),
    (67, "error using dcgm api"),
    (65, "api call * failed for gpu"),
    (65, "gpu * api call * failed"),
    (64, "api call * failed"),
    (20, "number of devices nvml returns is different"),
    (22, "cannot open library"),
    (23, "found driver on the denylist"),
    (23, "found driver on the blacklist"),
    (24, "cannot get pointer to * from libnvidia-ml"),
    (25, "processes with graphics contexts"),
    (28, "performance-limiting environment variable"),
    (29, "persistence mode for gpu"),
    (18, "could not be accessed directly"),
    (27, "could not query field"),
    (44, "there was an internal error during the test"),
    (47, "test was aborted early due to user signal"),
    (49, "unable to generate / collect stat"),
    (55, "because ecc is not enabled"),
    (60, "ecc memory is not turned on or is unsupported"),
    (61, "ecc memory * is in a pending state"),
    (68, "unable to run concurrent pair bandwidth test"),
    (48, "test is skipped for this gpu"),
    (77, "had to restore gpu state"),
    (78, "does not support the l1 cache test"),
    (82, "no valid gpus passed to plugin"),
    (108, "fabricmanager * not"),
    (108, "fabric manager is not"),
    (21, "bad parameter to function"),
    (34, "which is above the threshold"),
)  # fmt: skip


# Words of DCGM's advice; with those of its messages they tell a break between words from others.
_ADVICE = (
    "a an and any are at by check drain for from has have if in is it its logs node of on or "
    "please reboot rerun reset restart restore run running see system test than that the then "
    "this to was were when which while with your down diagnostic diagnostics field report"
)
_KNOWN = frozenset(
    word for text in (_ADVICE, *(words for _, words in _FORMATS))
    for word in text.split() if word.isalpha()
)  # fmt: skip
_LAST, _FIRST = re.compile(r"([A-Za-z]+)\Z"), re.compile(r"([A-Za-z]+)(?![A-Za-z])")
_SENTENCE = re.compile(r"[A-Z][a-z]")


def joined(text: str, more: str) -> str:
    """Return a cell's text with that of the next row, where a full row hides a blank between them.

    A row that is full may end inside a word. Two whole words of DCGM's are parted, and so are two
    sentences.
    """
    last, first = _LAST.search(text[-40:]), _FIRST.match(more)
    words = bool(last and first and {last[1].lower(), first[1].lower()} <= _KNOWN)
    parted = words or (text.endswith(".") and _SENTENCE.match(more) is not None)
    return f"{text} {more}" if parted else text + more


def squeezed(text: str) -> str:
    """Return `text` in lower case and without blanks."""
    return "".join(text.lower().split())


_PARTS = tuple(
    (code, tuple(squeezed(part) for part in words.split("*"))) for code, words in _FORMATS
)


def _holds(text: str, parts: tuple[str, ...]) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def code_of(text: str) -> int | None:
    """Return the number of the error that `text` tells of, or None."""
    bare = squeezed(text)
    return next((code for code, parts in _PARTS if _holds(bare, parts)), None)
