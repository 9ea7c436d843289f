"""The cells that faults touch: the only words of an emulated HBM that are kept one by one.

In: faults, and stores and reads of single words. Out: what a read returns through SECDED, and the
counters that it moves. Addresses in a fault are physical: an alias redirects the accesses, and the
cell that nobody reaches any more keeps its faults to itself.

A store goes: transition faults hold bits back, stuck bits are forced, an armed flip strikes, and
last the coupling to other cells. A read forces stuck bits again (they may be younger than the
content), decodes, and writes nothing back: a flipped bit is corrected, and counted, at every read
until it is written. Bits that leak are gone when their word has rested for too long; a store and
a read both restore what is still there.
"""

from dataclasses import dataclass, field

from rackproof.harness.devices.emulated.secded import CODE, DATA, Outcome, decode, encode


@dataclass(frozen=True, slots=True)
class StuckBits:
    """The bits of `mask` always hold those of `value`; bits 64-71 are the check bits."""

    address: int
    mask: int
    value: int = 0


@dataclass(frozen=True, slots=True)
class Uncorrectable:
    """Two or more stuck bits in one word: more than SECDED corrects, where the data disagree."""

    address: int
    mask: int
    value: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """The bits of `mask` cannot rise from 0 to 1, or (rising false) cannot fall from 1 to 0."""

    address: int
    mask: int
    rising: bool = True


@dataclass(frozen=True, slots=True)
class Coupling:
    """A write to `aggressor` flips the victim's bits of `mask`, or forces them to `force`.

    With `edge` (a mask of one bit) only a write that changes this bit of the aggressor does so:
    the inversion and idempotent coupling faults of the march literature (van de Goor 1991).
    """

    aggressor: int
    victim: int
    mask: int
    force: int | None = None
    edge: int = 0


@dataclass(frozen=True, slots=True)
class AddressAlias:
    """Accesses to `b` land in the cell of `a`."""

    a: int
    b: int


@dataclass(frozen=True, slots=True)
class FlipOnce:
    """After the next store to `address` the bits of `mask` flip once; then the fault is gone."""

    address: int
    mask: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bits of `mask`, two or more of one word, are joined: where one is 0 all read as 0."""

    address: int
    mask: int


@dataclass(frozen=True, slots=True)
class Leak:
    """The bits of `mask` fall to those of `value` after `seconds` without an access."""

    address: int
    mask: int
    seconds: float
    value: int = 0


Fault = StuckBits | Uncorrectable | Transition | Coupling | AddressAlias | FlipOnce | Bridge | Leak


@dataclass(slots=True, eq=False)
class Planted:
    """A fault in place, and how often it changed what was read or stored."""

    fault: Fault
    fired: int = 0


@dataclass(frozen=True, slots=True)
class Incident:
    """An uncorrected error: the word's byte address. The driver makes XIDs and a remap of it."""

    address: int
    kind: str = "uncorrected"


@dataclass(slots=True)
class Cell:
    """One stored code word, what was last written into it, and the faults that sit on it."""

    code: int
    written: int
    faults: list[Planted] = field(default_factory=list)  # in the order they were planted
    aggressive: list[Planted] = field(default_factory=list)  # couplings that start here
    rested: float = 0.0  # seconds since the last access


@dataclass(slots=True)
class Counters:
    """SECDED's counts over the life of the memory: one a read."""

    corrected: int = 0
    uncorrected: int = 0
    incidents: list[Incident] = field(default_factory=list)


def addresses(fault: Fault) -> tuple[int, ...]:
    """Return the byte addresses that a fault touches."""
    match fault:
        case Coupling():
            return (fault.aggressor, fault.victim)
        case AddressAlias():
            return (fault.a, fault.b)
        case _:
            return (fault.address,)


def check(fault: Fault) -> None:
    """Raise ValueError when a fault makes no sense."""
    touched = addresses(fault)
    if len(set(touched)) != len(touched):
        msg = f"{fault} needs two addresses"
        raise ValueError(msg)
    if isinstance(fault, AddressAlias):
        return
    least = 2 if isinstance(fault, Uncorrectable | Bridge) else 1
    if not 0 < fault.mask <= CODE or fault.mask.bit_count() < least:
        msg = f"{fault} needs a mask of at least {least} of 72 bits"
        raise ValueError(msg)


class Cells:
    """Faulty words by physical address, and the aliases that lead to them."""

    def __init__(self, counters: Counters, *, ecc: bool) -> None:
        """Begin with no fault; reads move `counters` when `ecc` is on."""
        self.counters = counters
        self.ecc = ecc
        self._bits = CODE if ecc else DATA  # with ECC off there are no check bits
        self.cells: dict[int, Cell] = {}
        self.planted: list[Planted] = []
        self._aliases: dict[int, tuple[int, Planted]] = {}  # logical b to physical a
        self._meant: dict[int, int] = {}  # of aliased logical addresses: the word last written
        self._leaks: list[tuple[Planted, Leak]] = []
        self._touched: set[int] = set()  # every address that a fault was ever planted on

    def take(self, address: int, data: int) -> None:
        """Keep `address`, which holds `data`, as a cell from now on."""
        self.cells.setdefault(address, Cell(encode(data) & self._bits, data))

    def plant(self, fault: Fault) -> Planted:
        """Put `fault` on cells that were taken before."""
        planted = Planted(fault)
        self.planted.append(planted)
        self._touched.update(addresses(fault))
        match fault:
            case Coupling():
                self.cells[fault.aggressor].aggressive.append(planted)
            case AddressAlias():
                for address in addresses(fault):
                    self._meant.setdefault(address, self.cells[address].written)
                self._aliases[fault.b] = (self._physical(fault.a), planted)
            case _:
                self.cells[fault.address].faults.append(planted)
        if isinstance(fault, Leak):
            self._leaks.append((planted, fault))
        return planted

    def lift(self, planted: Planted) -> None:
        """Take a fault away again; what it did to the content stays. Its count stays readable."""
        self.planted.remove(planted)
        self._leaks = [leak for leak in self._leaks if leak[0] is not planted]
        for cell in self.cells.values():
            for owned in (cell.faults, cell.aggressive):
                if planted in owned:
                    owned.remove(planted)
        self._aliases = {b: to for b, to in self._aliases.items() if to[1] is not planted}

    def healthy(self, address: int) -> bool:
        """Whether no fault was ever planted on the cell: it only holds what a copy brought."""
        return address not in self._touched

    def drop(self, address: int) -> None:
        """Keep `address` no longer as a cell; it is healthy."""
        del self.cells[address]

    def rest(self, seconds: float) -> None:
        """Let time pass without an access, as those cells see it that have a leak."""
        for address in {fault.address for _, fault in self._leaks}:
            self.cells[address].rested += seconds
        for planted, fault in self._leaks:
            cell = self.cells[fault.address]
            if cell.rested >= fault.seconds:
                left = cell.code & ~fault.mask | fault.value & fault.mask
                self._change(planted, cell, left)

    def store(self, address: int, data: int) -> None:
        """Write one word."""
        if address in self._meant:
            self._meant[address] = data
        physical = self._physical(address)
        cell = self.cells[physical]
        old = cell.code
        cell.code = self._held(cell, encode(data) & self._bits)
        cell.written, cell.rested = data, 0.0
        for planted in tuple(cell.faults):
            if isinstance(planted.fault, FlipOnce):
                cell.faults.remove(planted)
                self._change(planted, cell, cell.code ^ planted.fault.mask)
        for planted in cell.aggressive:
            self._couple(planted, old ^ cell.code)

    def load(self, address: int) -> int:
        """Read one word through SECDED, moving the counters."""
        physical = self._physical(address)
        cell = self.cells[physical]
        cell.code, cell.rested = self._stuck(cell, cell.code), 0.0
        if self._meant.get(address, cell.written) != cell.written:
            for _, planted in self._aliases_of(physical):
                planted.fired += 1
        if not self.ecc:
            return cell.code & DATA
        data, outcome = decode(cell.code)
        if outcome is Outcome.CORRECTED:
            self.counters.corrected += 1
        elif outcome is Outcome.UNCORRECTED:
            self.counters.uncorrected += 1
            self.counters.incidents.append(Incident(address))
        return data

    def _physical(self, address: int) -> int:
        to = self._aliases.get(address)
        return address if to is None else to[0]

    def _aliases_of(self, physical: int) -> list[tuple[int, Planted]]:
        return [to for to in self._aliases.values() if to[0] == physical]

    def _held(self, cell: Cell, code: int) -> int:
        """Return what the cell takes of `code`: transition faults first, then stuck bits."""
        for planted in cell.faults:
            fault = planted.fault
            if not isinstance(fault, Transition):
                continue
            if fault.rising:
                taken = code & ~(~cell.code & code & fault.mask)
            else:
                taken = code | (cell.code & ~code & fault.mask)
            planted.fired += taken != code
            code = taken
        return self._stuck(cell, code)

    def _stuck(self, cell: Cell, code: int, *, counted: bool = True) -> int:
        """Return what stuck and bridged bits make of `code`, in the order they were planted."""
        for planted in cell.faults:
            fault = planted.fault
            forced = code
            if isinstance(fault, StuckBits | Uncorrectable):
                forced = (code & ~fault.mask | fault.value & fault.mask) & self._bits
            elif isinstance(fault, Bridge) and code & fault.mask != fault.mask & self._bits:
                forced = code & ~fault.mask
            planted.fired += counted and forced != code
            code = forced
        return code

    def _couple(self, planted: Planted, changed: int) -> None:
        fault = planted.fault
        if not isinstance(fault, Coupling) or (fault.edge and not fault.edge & changed):
            return
        victim = self.cells[fault.victim]
        if fault.force is None:
            self._change(planted, victim, victim.code ^ fault.mask)
        else:
            self._change(planted, victim, victim.code & ~fault.mask | fault.force & fault.mask)

    def _change(self, planted: Planted, cell: Cell, code: int) -> None:
        """Let a fault change a stored word; stuck and bridged bits stay where they are."""
        code = self._stuck(cell, code & self._bits, counted=False)
        planted.fired += code != cell.code
        cell.code = code
