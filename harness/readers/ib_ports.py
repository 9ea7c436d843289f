"""Ports of channel adapters from ibstat, ibstatus, ibv_devinfo and rdma link.

Lines come in; a Port with state, physical state, link layer, rate and width goes out for each.
Words are in lower case without the number that some tools write before them (``4: ACTIVE``).
"""

import re
from dataclasses import dataclass

_CA = re.compile(r"CA '([\w.\-]{1,64})'\s*\Z")
_STATUS = re.compile(r"Infiniband device '([\w.\-]{1,64})' port (\d{1,3}) status:")
_HCA = re.compile(r"hca_id:\s{1,8}([\w.\-]{1,64})\s*\Z")
_PORT = re.compile(r"\s{1,24}[Pp]ort(?: (\d{1,3}):|:\s{1,16}(\d{1,3}))\s*\Z")
_LINK = re.compile(
    r"(?:link |\d{1,3}/\d{1,3}: )([\w.\-]{1,64})/(\d{1,3}):? (?:.{0,80}? )?state ([A-Z_]{2,16}) "
    r"physical_state ([A-Z_]{2,24})"
)
_FIELD = re.compile(r"\s{1,24}([A-Za-z_][\w ]{0,30}?):\s{1,24}(\S.{0,80})\Z")
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?)(?: (Gb/sec) \((\d{1,2})X)?", re.ASCII)
_NUMBERED = re.compile(r"\d{1,2}: {0,4}")
MOST = 4096


@dataclass(slots=True)
class Port:
    """One port. `rate` in Gb/s, `width` in lanes; "" and None where the tool says nothing."""

    device: str
    number: int
    model: str = ""
    state: str = ""
    physical: str = ""
    layer: str = ""
    rate: float | None = None
    width: int | None = None


def _word(value: str) -> str:
    value = _NUMBERED.sub("", value.strip(), count=1).split(" (")[0]
    return value.lower().removeprefix("port_").replace("_", "").replace(" ", "")[:32]


class Ports:
    """The ports met so far, in the order of the file."""

    def __init__(self) -> None:
        self._ports: dict[tuple[str, int], Port] = {}
        self._device = self._model = ""
        self._promised: dict[str, int] = {}
        self._port: Port | None = None

    def all(self) -> list[Port]:
        """Return the ports."""
        return list(self._ports.values())

    def several(self) -> set[str]:
        """Return the devices that have more than one port."""
        second = {port.device for port in self._ports.values() if port.number != 1}
        return second | {device for device, count in self._promised.items() if count > 1}

    def promised(self) -> int:
        """Return how many ports the devices say that they have."""
        return sum(self._promised.values())

    def _open(self, device: str, number: int) -> Port | None:
        key = (device, number)
        if key not in self._ports and len(self._ports) < MOST:
            self._ports[key] = Port(device, number, self._model)
        self._port = self._ports.get(key)
        return self._port

    def take(self, line: str) -> bool:
        """Look at one line; whether it belongs to a port."""
        if match := _CA.match(line) or _HCA.match(line):
            self._device, self._model, self._port = match[1], "", None
        elif match := _STATUS.match(line):
            self._device, self._model = match[1], ""
            self._open(match[1], int(match[2]))
        elif match := _LINK.match(line):
            port = self._open(match[1], int(match[2]))
            if port:
                port.state, port.physical = _word(match[3]), _word(match[4])
        elif self._device and (match := _PORT.match(line)):
            self._open(self._device, int(match[1] or match[2]))
        elif self._device and (match := _FIELD.match(line)):
            self._field(match[1].lower().replace("_", " "), match[2])
        else:
            return False
        return True

    def _field(self, name: str, value: str) -> None:
        port = self._port
        if port is None:
            if name in ("ca type", "vendor part id", "board id"):
                self._model = self._model or plain_model(value)
            elif name in ("number of ports", "phys port cnt"):
                self._promised[self._device] = int(value) if re.fullmatch(r"[0-9]", value) else 0
        elif name == "state":
            port.state = _word(value)
        elif name in ("physical state", "phys state"):
            port.physical = _word(value)
        elif name == "link layer":
            port.layer = _word(value)
        elif name == "rate" and (match := _RATE.match(value)):
            port.rate = float(match[1])
            port.width = int(match[3]) if match[3] else None


def plain_model(value: str) -> str:
    """Return the model's name as one short word."""
    return re.sub(r"[^\w.\-]", "", value)[:32]
