"""How a truth answers a retest: runs that fail or pass, resets that cure, swaps that tell.

One Answers stands for one policy's tries at one incident: a reset that cured it stays a cure. Each
sort of test has its own stream of chance, so that policies that ask the same get the same answers.
"""

import numpy as np

from rackproof.diagnostics.evaluation.truth import Place, Truth
from rackproof.diagnostics.evaluation.worlds import OF_GPU, World
from rackproof.diagnostics.retest.model import Cause, Outcome, Test

_STAY = frozenset((Cause.LINK, Cause.SWITCH, Cause.HOST, Cause.NIC))
_STUCK_HIT = 0.98


class Answers:
    """The state of one incident under one policy's tries. `seed` is the incident's."""

    def __init__(self, truth: Truth, world: World, seed: tuple[int, ...]) -> None:
        self._truth, self._world = truth, world
        self._rngs = {
            test: np.random.default_rng((*seed, number)) for number, test in enumerate(Test, 1)
        }
        self.stuck = truth.stuck
        self.cured = False

    def __call__(self, place: Place, test: Test, runs: int) -> Outcome:
        """Return what `runs` runs of a retest at a place show, and change what it changes."""
        rng = self._rngs[test]
        if place not in self._truth.places | self._truth.near:
            return self._outcome(rng, test, runs, (self._world.chance, self._world.chance))
        self._change(rng, test)
        hits = self._hits(test)
        return self._outcome(rng, test, runs, hits)

    @staticmethod
    def _outcome(
        rng: np.random.Generator, test: Test, runs: int, hits: tuple[float, float]
    ) -> Outcome:
        struck, stayed = (int(n) for n in rng.binomial(runs, hits))
        return Outcome(test, runs, struck, stayed if test is Test.SWAP else 0)

    def _change(self, rng: np.random.Generator, test: Test) -> None:
        """Let a reset, a reboot or a swap cure what it cures."""
        truth, world = self._truth, self._world
        clears = {
            Test.RESET: world.driver_reset_clears
            if truth.cause is Cause.DRIVER else world.reset_clears,
            Test.REBOOT: world.reboot_clears,
            Test.SWAP: world.reboot_clears,
        }.get(test, 0.0)  # fmt: skip
        clear, cure = rng.random(2)
        self.stuck = self.stuck and clear >= clears
        cures = {
            (Cause.HOST, Test.REBOOT): world.host_reboot_cures,
            (Cause.LINK, Test.SWAP): world.reseat_cures,
        }.get((truth.cause, test), 0.0)
        self.cured = self.cured or cure < cures

    def _hits(self, test: Test) -> tuple[float, float]:
        """Return the chance that a run shows it: where it is looked for, and at the old place."""
        truth, world = self._truth, self._world
        cause = Cause.TRANSIENT if self.cured else truth.cause
        mine = truth.hit if not self.cured else world.chance
        if cause in OF_GPU and not truth.seen:
            mine = world.chance
        if self.stuck:
            mine = _STUCK_HIT
        if cause is Cause.APP or (cause is Cause.SWITCH and truth.wide):
            return mine, mine
        if test is Test.ELSEWHERE:
            return (world.driver_elsewhere if cause is Cause.DRIVER else world.chance), world.chance
        if test is Test.SWAP and cause in _STAY:
            return world.chance, mine
        return mine, world.chance
