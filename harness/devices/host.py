"""The host of a real machine, and what feeds it: protocol.Host on Linux and Redfish.

In: the rack that is planned, /sys (or a tree like it), and the addresses of the GPUs that this
machine has. Out: readings by metric and subject. Which port is nic0, nic1, ...: those that
RACKPROOF_NICS names, in its order, else by PCI address; a gap cannot be seen that way, so where
some are missing the last ones are, and where there are more than are planned none is read.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rackproof.harness.devices import redfish, redfish_site
from rackproof.harness.devices.sysfs import AER, EDAC, Port, Sysfs, pci_of, run_ethtool
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.model import Value, sort_of
from rackproof.harness.spec import RackSpec

NICS = "RACKPROOF_NICS"
SYS = Path("/sys")

Readings = Mapping[str, redfish_site.Readings]


class RealHost:
    """This machine's host, and the shelves and cooling whose controllers the environment names.

    `spec` says which subjects there are (none: one host without NICs), `gpus` maps the subjects of
    this machine's GPUs to their PCI addresses, and may grow.
    """

    def __init__(
        self,
        spec: RackSpec | None,
        gpus: Mapping[str, str],
        *,
        sysfs: Sysfs | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._spec = spec
        self._gpus = gpus
        self._sysfs = sysfs or Sysfs(SYS, run_ethtool)
        self._environment = os.environ if environment is None else environment
        self._ports: list[Port] | None = None
        self._sites: dict[str, Readings | DeviceError] = {}
        self._nic: dict[str, Callable[[Port], Value]] = {
            "nic.link": self._sysfs.link,
            "nic.speed": self._sysfs.speed,
            "nic.flaps": self._sysfs.flaps,
            "nic.errors": self._sysfs.errors,
        }

    def read(self, metric: str, subject: str) -> Value:
        """Return one reading; as protocol.Host."""
        sort = sort_of(subject)
        if sort in ("shelf", "cooling"):
            return self._site(metric, subject, sort)
        if sort == "nic" and metric in self._nic:
            return self._nic[metric](self._port(subject))
        if sort == "host":
            return self._own(metric, subject)
        msg = f"{subject} has no reading {metric}"
        raise Unsupported(msg)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Begin a run: the controllers are asked anew."""
        del check, attempt, at
        self._sites.clear()

    def wait(self, seconds: float) -> None:
        """Let the machine's time pass."""
        time.sleep(seconds)

    def end(self) -> None:
        """Forget what the controllers said."""
        self._sites.clear()

    # --- this machine ----------------------------------------------------------------------------
    def _own(self, metric: str, subject: str) -> Value:
        self._check(subject)
        if metric in EDAC:
            return self._sysfs.memory(metric)
        if metric in AER:
            devices = [pci_of(pci) for pci in self._gpus.values()]
            devices += [port.pci for port in self._found()]
            return self._sysfs.aer(metric, dict.fromkeys(devices))
        if metric == "host.nics":
            return "; ".join(map(self._told, self._found())) or "none"
        msg = f"{subject} has no reading {metric}"
        raise Unsupported(msg)

    def _check(self, host: str) -> None:
        """Raise NotPresent for the host of another machine: of a rack, this one sees its own."""
        hosts = [tray.host for tray in self._spec.trays] if self._spec else []
        own = {f"{gpu.rpartition('/')[0]}/host" for gpu in self._gpus}
        if len(hosts) > 1 and host not in own:
            msg = f"{host} is not this machine, by the GPUs that are here"
            raise NotPresent(msg)

    def _found(self) -> list[Port]:
        """Return the ports of this machine, as they were when they were first looked for."""
        if self._ports is None:
            self._ports = self._sysfs.ports()
        return self._ports

    def _port(self, subject: str) -> Port:
        """Return the port that a NIC's subject stands for."""
        tray, _, nic = subject.rpartition("/")
        self._check(f"{tray}/host")
        every = self._spec.of_sort("nic") if self._spec else []
        planned = [each for each in every if each.startswith(f"{tray}/")]
        ports = self._meant(len(planned))
        number = int(nic.removeprefix("nic"))
        if number >= len(ports):
            msg = f"{len(ports)} ports of NICs are found and {len(planned)} planned"
            raise NotPresent(msg)
        return ports[number]

    def _meant(self, planned: int) -> Sequence[Port]:
        """Return the ports that are planned, as far as they are there."""
        ports = self._found()
        named = self._environment.get(NICS, "").replace(",", " ").split()
        if named:
            return [_named(name, ports) for name in named]
        if len(ports) > planned:
            ports = [port for port in ports if not self._sysfs.is_dpu(port)]
        if len(ports) > planned:
            names = ", ".join(port.name for port in ports[:16])
            msg = (
                f"{len(ports)} ports are found ({names}) and {planned} planned: name them in {NICS}"
            )
            raise DeviceError(msg)
        return ports

    def _told(self, port: Port) -> str:
        """Describe a port in a few words."""
        try:
            state = "up" if self._sysfs.link(port) else "down"
        except DeviceError:
            state = "state unknown"
        try:
            return f"{port.name} at {port.pci} {state}, {self._sysfs.speed(port):g} Gb/s"
        except DeviceError:
            return f"{port.name} at {port.pci} {state}"

    # --- shelves and cooling ---------------------------------------------------------------------
    def _site(self, metric: str, subject: str, sort: str) -> Value:
        if sort not in self._sites:
            try:
                self._sites[sort] = self._walk(sort)
            except DeviceError as error:
                self._sites[sort] = error
        found = self._sites[sort]
        if isinstance(found, DeviceError):
            raise found
        if subject not in found:
            msg = f"{subject}: there is no such {sort}"
            raise NotPresent(msg)
        try:
            value = found[subject][metric]
        except KeyError:
            msg = f"{subject} has no reading {metric}"
            raise Unsupported(msg) from None
        if isinstance(value, DeviceError):
            raise value
        return value

    def _walk(self, sort: str) -> Readings:
        controllers = redfish.accesses(self._environment)
        if not controllers:
            msg = f"no controller is named: set {redfish.URL}"
            raise NotPresent(msg)
        planned = self._spec.of_sort(sort) if self._spec else []
        walk = redfish_site.shelves if sort == "shelf" else redfish_site.cooling
        return walk(controllers, planned)


def _named(name: str, ports: Sequence[Port]) -> Port:
    for port in ports:
        if name == port.name or (port.net is not None and name == port.net.name):
            return port
    msg = f"{NICS}: this machine has no port {name[:40]!r}"
    raise NotPresent(msg)
