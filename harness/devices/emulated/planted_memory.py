"""The faults of single HBM words: where they lie, what they do, and how often they were met.

In: a Fault of the HBM and the GPU that it is on. Out: faults in the memory's cells (cells.py). The
seed draws words, bits and what they are stuck at.
"""

from collections.abc import Mapping

from rackproof.harness.devices.emulated import cells, draw
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.strikes import Kind, Plan, Strike
from rackproof.harness.faults import Fault

WORD_BITS = 64
IN_REACH = 0.9
"""Faulty words lie in the first 90 % of the free memory, the least that a memory burn covers."""


class MemoryFault(Strike):
    """Faults of single words; they fire when a store or a read meets them."""

    with_gpu = True

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self._live: list[cells.Planted] = []

    def cell_faults(self) -> list[cells.Fault]:
        """Return the cells' faults to plant."""
        raise NotImplementedError

    def on(self) -> None:
        """Plant them."""
        self._live = [self.gpu.hbm.plant(fault) for fault in self.cell_faults()]

    def off(self) -> None:
        """Take them away; their counts stay."""
        self._fired = self.fired
        for planted in self._live:
            self.gpu.hbm.lift(planted)
        self._live = []

    @property
    def fired(self) -> int:
        """How many stores and reads were changed."""
        return self._fired + sum(planted.fired for planted in self._live)

    def sites(self, count: int, bits: int) -> list[tuple[int, int]]:
        """Draw `count` words (their byte addresses) and `bits` wrong bits in each (a mask)."""
        words = max(count, int(self.gpu.hbm.size * IN_REACH) // 8)
        chosen: dict[int, int] = {}
        tried = 0
        while len(chosen) < count:
            word = draw.below(words, *self.plan.name("word", tried))
            chosen.setdefault(8 * word, self._mask(bits, word))
            tried += 1
        return list(chosen.items())

    def _mask(self, bits: int, word: int) -> int:
        order = sorted(range(WORD_BITS), key=lambda b: draw.word(*self.plan.name("bit", word, b)))
        return sum(1 << bit for bit in order[:bits])

    def _value(self, address: int, mask: int) -> int:
        """Draw what the bits are stuck at: all at 0, or all at 1.

        Every memory burn writes each word and its inverse, so one of the two is met by all bits
        of the mask when a burn writes constants, and at least one bit by any pattern.
        """
        return mask if draw.below(2, *self.plan.name("value", address)) else 0


class StuckBits(MemoryFault):
    """hbm-stuck-bit."""

    def cell_faults(self) -> list[cells.Fault]:
        """Return `count` words with `bits` stuck bits each."""
        count, bits = (int(self.fault.parameters[key]) for key in ("count", "bits"))
        return [
            cells.StuckBits(address, mask, self._value(address, mask))
            for address, mask in self.sites(count, bits)
        ]


class Uncorrectable(MemoryFault):
    """hbm-uncorrectable: the driver makes XIDs and a pending remap of what the memory reports."""

    def cell_faults(self) -> list[cells.Fault]:
        """Return one word with `bits` stuck bits."""
        return [
            cells.Uncorrectable(address, mask, self._value(address, mask))
            for address, mask in self.sites(1, int(self.fault.parameters["bits"]))
        ]


class AddressAlias(MemoryFault):
    """hbm-address-alias: accesses to one word reach another; each holds a good code word."""

    def cell_faults(self) -> list[cells.Fault]:
        """Return two words that share a cell."""
        (one, _), (other, _) = self.sites(2, 1)
        return [cells.AddressAlias(one, other)]


class BitFlip(MemoryFault):
    """hbm-bit-flip: armed when a run begins, it strikes after the next store to its word."""

    def cell_faults(self) -> list[cells.Fault]:
        """Return one flip of `bits` bits in one word."""
        bits = int(self.fault.parameters["bits"])
        return [cells.FlipOnce(address, mask) for address, mask in self.sites(1, bits)]

    def began(self) -> None:
        """Arm it again where it struck in a run before."""
        if any(planted.fired for planted in self._live):
            self.off()
            self.on()


KINDS: Mapping[str, Kind] = {
    "hbm-stuck-bit": StuckBits,
    "hbm-bit-flip": BitFlip,
    "hbm-address-alias": AddressAlias,
    "hbm-uncorrectable": Uncorrectable,
}
