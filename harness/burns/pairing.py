"""Who copies to whom in the link burns: designs over the GPUs of one NVLink domain.

In: the GPUs of a domain, parted by rack. Out: rounds of pairs. In a round of `tournament` every GPU
has one partner at most, and over all rounds each pair of GPUs meets once. In a round of `shifts`
every GPU sends to one other and receives from one. Rounds within a rack come first, so that what is
wrong between two racks, or at one partner, is in some rounds and not in others.
"""

from collections.abc import Sequence

Pair = tuple[str, str]
Round = list[Pair]


def tournament(parts: Sequence[Sequence[str]]) -> list[Round]:
    """Return rounds in which every pair of GPUs meets once: the circle method, then rack by rack.

    n GPUs of one rack take n - 1 rounds (n where it is odd, and one rests); two racks of n then
    take n more.
    """
    own = [_circle(part) for part in parts]
    rounds = [
        [pair for part in own if number < len(part) for pair in part[number]]
        for number in range(max(map(len, own), default=0))
    ]
    for step in range(1, len(parts)):
        for near in range(len(parts) - step):
            rounds += _across(parts[near], parts[near + step])
    return [pairs for pairs in rounds if pairs]


def shifts(parts: Sequence[Sequence[str]]) -> list[Round]:
    """Return up to four rounds, each a permutation of the GPUs without a fixed point.

    In one rack GPU i sends to i + k for four different k; in several the GPUs of each rack do so
    for two k, and then those of each rack send to the next rack's.
    """
    many = len(parts) > 1
    rounds = [
        [pair for part in parts for pair in _shifted(part, part, turn)]
        for turn in ((0, 3) if many else (0, 1, 2, 3))
    ]
    if many:
        after = [*parts[1:], parts[0]]
        rounds += [
            [pair for a, b in zip(parts, after, strict=True) for pair in _shifted(a, b, turn)]
            for turn in (0, 3)
        ]
    return [list(pairs) for pairs in dict.fromkeys(tuple(p) for p in rounds if p)]


def _circle(gpus: Sequence[str]) -> list[Round]:
    """Return the rounds of one group: one stands, the others go round it."""
    seats: list[str | None] = [*gpus, *([None] if len(gpus) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        meeting = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(a, b) for a, b in meeting if a is not None and b is not None])
        seats[1:] = [seats[-1], *seats[1:-1]]
    return rounds


def _across(these: Sequence[str], those: Sequence[str]) -> list[Round]:
    """Return the rounds between two groups, in which the smaller goes along the larger."""
    small, large = sorted((these, those), key=len)
    count = len(large)
    return [
        [(gpu, large[(place + turn) % count]) for place, gpu in enumerate(small)]
        for turn in range(count)
    ]


def _shifted(these: Sequence[str], those: Sequence[str], turn: int) -> Round:
    """Return the pairs of one permutation: the `turn`-th of four ways to shift along `those`."""
    if not those:
        return []
    count = len(those)
    by = (1, 2, count // 3 + 1, count // 2)[turn]
    return [
        (gpu, those[(place + by) % count])
        for place, gpu in enumerate(these)
        if gpu != those[(place + by) % count]
    ]
