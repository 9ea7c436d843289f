"""platform: what stands around the GPUs: NICs, host memory, PCIe errors, power shelves, cooling.

In: a Host. Out: for each NIC its link, speed, flaps and errors, for each host the errors of its
memory and PCIe devices, for each shelf and each rack's cooling what its controller says. Counters
run since the machine started, so what is written is by how much they rose in a window of our own.

Everything owed is read or Missing. A machine whose kernel counts no errors of memory or PCIe (a
virtual machine, or one without the platform's EDAC driver) says so: that is UNKNOWN where the rack
is described, and skipped on `local` where nobody said what ought to be there. Of NICs that nobody
planned, only which there are is noted: an empty port of theirs is nobody's fault.
"""

from collections.abc import Iterable

from rackproof.harness.burns.base import Burn, Run, why
from rackproof.harness.devices.bench import Bench
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Missing, Value, Why, sort_of

NIC_STATES = ("nic.link", "nic.speed")
NIC_COUNTERS = ("nic.flaps", "nic.errors")
HOST = ("host.memory.uncorrected", "host.aer.fatal", "host.aer.nonfatal")
HOST_NOTED = ("host.memory.corrected", "host.aer.corrected")
ZONE_NOTED = {"shelf": ("shelf.output",), "cooling": ("cooling.supply",)}
OWES = {
    "host": HOST,
    "nic": (*NIC_STATES, *NIC_COUNTERS),
    "shelf": ("shelf.health", "shelf.supplies.bad"),
    "cooling": ("cooling.health", "cooling.pumps.bad", "cooling.flow", "cooling.leak"),
}
WINDOW_S = {"quick": 1.5, "acceptance": 10.0, "soak": 60.0}
"""How long counters are watched."""
SECONDS = {"quick": 2.0, "acceptance": 11.0, "soak": 61.0}

HOWTO = "see docs/howto/read-the-platform.md"
CURES = {
    "nic": f"look for the port (lspci, ip link), or say which ports are meant; {HOWTO}",
    "host.memory": f"load the platform's EDAC driver, or run on bare metal; {HOWTO}",
    "host.aer": f"let the kernel handle AER (pcie_ports=native), or run on bare metal; {HOWTO}",
    "shelf": f"give access to the shelves' controllers by Redfish; {HOWTO}",
    "cooling": f"give access to the controller of the cooling by Redfish; {HOWTO}",
}

Key = tuple[str, str]  # metric, subject


def host(bench: Bench, notes: Run) -> None:
    """Read one host and its NICs, wait, and read them again."""
    nics = bench.parts(notes.subject, "nic")
    counters = [(metric, notes.subject) for metric in (*HOST, *HOST_NOTED)]
    counters += [(metric, nic) for nic in nics for metric in NIC_COUNTERS]
    states = [(metric, nic) for nic in nics for metric in NIC_STATES]
    if not nics:
        _note(notes, _read(bench, notes, [("host.nics", notes.subject)]))
    before = _read(bench, notes, [*states, *counters])
    bench.around.wait(WINDOW_S[notes.settings.level])
    after = _read(bench, notes, before)
    # a port that is down, or slow, at one end of the window is
    _note(notes, {key: min(before[key], after[key]) for key in states if key in after})
    for key in counters:
        if key in after:
            _rise(notes, key, int(before[key]), int(after[key]))


def zone(bench: Bench, notes: Run) -> None:
    """Read the shelves of one rack, or its cooling."""
    for sort, noted in ZONE_NOTED.items():
        subjects = bench.parts(notes.subject, sort)
        _note(notes, _read(bench, notes, [(m, s) for s in subjects for m in (*OWES[sort], *noted)]))


def _read(bench: Bench, notes: Run, keys: Iterable[Key]) -> dict[Key, Value]:
    """Return the readings that came; write of the others that they are missing."""
    found: dict[Key, Value] = {}
    for metric, subject in keys:
        try:
            found[metric, subject] = bench.around.read(metric, subject)
        except DeviceError as error:
            if metrics()[metric].judged or not isinstance(error, Unsupported):
                _miss(notes, (metric, subject), error)
    return found


def _note(notes: Run, found: dict[Key, Value]) -> None:
    for (metric, subject), value in found.items():
        notes.note(metric, value, subject)


def _rise(notes: Run, key: Key, before: int, after: int) -> None:
    """Write by how much a counter rose; one that fell was reset by somebody, and says nothing."""
    if after < before:
        error = DeviceError(f"the counter fell from {before} to {after} while it was watched")
        _miss(notes, key, error)
    else:
        notes.note(key[0], after - before, key[1])


def _miss(notes: Run, key: Key, error: DeviceError) -> None:
    metric, subject = key
    word = Why.NO_READING if isinstance(error, NotPresent) else why(error)[0]
    family = metric.rpartition(".")[0] if metric.startswith("host.") else sort_of(subject)
    reason, cure = str(error) or type(error).__name__, CURES.get(family, HOWTO)
    notes.seen.append(
        Missing(notes.check, subject, metric, word, reason, cure, notes.settings.attempt)
    )


BURNS = (
    Burn(
        "platform",
        "NICs, host memory, PCIe errors, power shelves and cooling, around the GPUs",
        OWES,
        SECONDS,
        host=host,
        zone=zone,
    ),
)
