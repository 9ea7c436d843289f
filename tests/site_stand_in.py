"""Stand-ins for the machines around the GPUs: a tree like /sys, and a Redfish controller."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
Answer = Callable[[BaseHTTPRequestHandler], None]


class Tree:
    """A tree like /sys in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", "utf-8")

    def device(self, pci: str, ids: tuple[str, str] = ("0x15b3", "0x1021")) -> None:
        self.write(f"bus/pci/devices/{pci}/vendor", ids[0])
        self.write(f"bus/pci/devices/{pci}/device", ids[1])

    def hang(self, path: str, pci: str) -> None:
        """Let the device below `path` be the one at a PCI address."""
        (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / path / "device").symlink_to(self.root / "bus/pci/devices" / pci)

    def rdma(self, name: str, pci: str, *, layer: str = "InfiniBand", rate: int = 400) -> str:
        """Add an RDMA device with one port that is up; return the port's path."""
        self.device(pci)
        self.hang(f"class/infiniband/{name}", pci)
        port = f"class/infiniband/{name}/ports/1"
        for file, text in {
            "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": layer,
            "rate": f"{rate} Gb/sec (4X NDR)", "counters/link_downed": "3",
            "counters/symbol_error": "0", "counters/port_rcv_errors": "2",
            "counters/link_error_recovery": "0", "counters/local_link_integrity_errors": "0",
        }.items():  # fmt: skip
            self.write(f"{port}/{file}", text)
        return port

    def net(self, name: str, pci: str, *, speed: str = "400000") -> str:
        """Add a network interface that is up; return its path."""
        self.device(pci)
        at = f"class/net/{name}"
        self.hang(at, pci)
        for file, text in {
            "carrier": "1", "operstate": "up", "speed": speed, "dev_port": "0",
            "carrier_changes": "7", "carrier_down_count": "3",
            "statistics/rx_errors": "5", "statistics/tx_carrier_errors": "0",
        }.items():  # fmt: skip
            self.write(f"{at}/{file}", text)
        return at

    def memory(self, *errors: tuple[int, int]) -> None:
        """Add a memory controller for each pair of corrected and uncorrected errors."""
        for number, (corrected, uncorrected) in enumerate(errors):
            at = f"devices/system/edac/mc/mc{number}"
            self.write(f"{at}/ce_count", str(corrected))
            self.write(f"{at}/ue_count", str(uncorrected))

    def aer(self, pci: str, *, fatal: int = 0, nonfatal: int = 0, corrected: int = 0) -> None:
        at = f"bus/pci/devices/{pci}"
        self.write(f"{at}/aer_dev_fatal", f"Undefined 0\nDLP {fatal}\nTOTAL_ERR_FATAL {fatal}")
        self.write(f"{at}/aer_dev_nonfatal", f"TLP {nonfatal}\nTOTAL_ERR_NONFATAL {nonfatal}")
        self.write(f"{at}/aer_dev_correctable", f"RxErr {corrected}\nBadTLP 0")


def link(path: str) -> JSON:
    return {"@odata.id": path}


def members(path: str, *names: str) -> JSON:
    return {"Members": [link(f"{path}/{name}") for name in names]}


WELL = {"State": "Enabled", "Health": "OK"}


def shelf(tree: dict[str, JSON], name: str, supplies: int = 6) -> None:
    """Add a power shelf to a controller's tree, below PowerEquipment."""
    base = "/redfish/v1/PowerEquipment/PowerShelves"
    at = f"{base}/{name}"
    tree["/redfish/v1/"]["PowerEquipment"] = link("/redfish/v1/PowerEquipment")
    tree["/redfish/v1/PowerEquipment"] = {"PowerShelves": link(base)}
    tree.setdefault(base, {"Members": []})["Members"].append(link(at))
    tree[at] = {"Id": name, "Status": WELL, "PowerSupplies": link(f"{at}/PowerSupplies")}
    ids = [str(number) for number in range(supplies)]
    tree[f"{at}/PowerSupplies"] = members(f"{at}/PowerSupplies", *ids)
    for each in ids:
        supply = f"{at}/PowerSupplies/{each}"
        tree[supply] = {"Id": each, "Status": WELL, "Metrics": link(f"{supply}/Metrics")}
        tree[f"{supply}/Metrics"] = {"OutputPowerWatts": {"Reading": 1200.0}}


def cdu(tree: dict[str, JSON], name: str) -> str:
    """Add a cooling unit to a controller's tree, below ThermalEquipment; return its path."""
    base = "/redfish/v1/ThermalEquipment/CDUs"
    at = f"{base}/{name}"
    tree["/redfish/v1/"]["ThermalEquipment"] = link("/redfish/v1/ThermalEquipment")
    tree["/redfish/v1/ThermalEquipment"] = {"CDUs": link(base)}
    tree.setdefault(base, {"Members": []})["Members"].append(link(at))
    parts = ("Pumps", "SecondaryCoolantConnectors", "LeakDetection")
    tree[at] = {"Id": name, "Status": WELL, **{part: link(f"{at}/{part}") for part in parts}}
    tree[f"{at}/Pumps"] = members(f"{at}/Pumps", "1", "2")
    for pump in ("1", "2"):
        tree[f"{at}/Pumps/{pump}"] = {"Status": WELL, "PumpSpeedPercent": {"Reading": 60}}
    way = f"{at}/SecondaryCoolantConnectors"
    tree[way] = members(way, "1")
    tree[f"{way}/1"] = {
        "FlowLitersPerMinute": {"Reading": 180.5},
        "SupplyTemperatureCelsius": {"Reading": 26.0},
    }
    tree[f"{at}/LeakDetection"] = {"LeakDetectors": link(f"{at}/LeakDetection/LeakDetectors")}
    tree[f"{at}/LeakDetection/LeakDetectors"] = members(f"{at}/LeakDetection/LeakDetectors", "1")
    tree[f"{at}/LeakDetection/LeakDetectors/1"] = {"Status": WELL, "DetectorState": "OK"}
    return at


def site(shelves: int, units: int) -> dict[str, JSON]:
    """Return a healthy controller's tree by path."""
    tree: dict[str, JSON] = {"/redfish/v1/": {"RedfishVersion": "1.17.0"}}
    for number in range(shelves):
        shelf(tree, f"Shelf{number}")
    for number in range(units):
        cdu(tree, f"CDU{number}")
    return tree


class Controller:
    """What a controller answers: `tree` by path, and by path `odd` ways to answer."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self.tree = tree
        self.odd: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.credentials: set[str] = set()
        self.url = ""
        self.over = threading.Event()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        given = request.headers.get("Authorization", "")
        self.credentials.add(base64.b64decode(given.removeprefix("Basic ")).decode())
        odd = self.odd.get(request.path)
        if odd is not None:
            odd(request)
            return
        found = self.tree.get(request.path)
        say(request, 404 if found is None else 200, json.dumps(found or {}).encode())


def say(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    """Answer a request."""
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def controller(
    tree: Mapping[str, Any], tls: tuple[Path, Path] | None = None
) -> Iterator[Controller]:
    """Serve a tree on a port of the loopback until the end; `tls` is a certificate and its key."""
    about = Controller(tree)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            about.answer(self)

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that goes away is what some tests are about
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    about.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    try:
        yield about
    finally:
        about.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
