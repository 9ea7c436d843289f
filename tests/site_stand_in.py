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


def gpus(tree: dict[str, JSON], count: int, *, controls: bool = False) -> list[str]:
    """Add GPUs of 200 to 1200 W to a board's tree; return the paths where their limits are set."""
    base, chassis = "/redfish/v1/Systems/HGX", "/redfish/v1/Chassis/Board"
    tree["/redfish/v1/"] |= {
        "Systems": link("/redfish/v1/Systems"), "Chassis": link("/redfish/v1/Chassis"),
    }  # fmt: skip
    tree["/redfish/v1/Systems"] = members("/redfish/v1/Systems", "HGX")
    tree["/redfish/v1/Chassis"] = members("/redfish/v1/Chassis", "Board")
    tree[base] = {"Processors": link(f"{base}/Processors")}
    tree[chassis] = {"Controls": link(f"{chassis}/Controls")}
    names = [f"GPU_{number}" for number in range(count)]
    tree[f"{base}/Processors"] = members(f"{base}/Processors", "CPU_0", *names)
    tree[f"{base}/Processors/CPU_0"] = {"Id": "CPU_0", "ProcessorType": "CPU"}
    tree[f"{chassis}/Controls"] = members(f"{chassis}/Controls", *names if controls else ())
    found = []
    for number, name in enumerate(names):
        at, limit = f"{base}/Processors/{name}", {"SetPoint": 1200, "AllowableMin": 200,
                                                  "AllowableMax": 1200}  # fmt: skip
        tree[at] = {"@odata.id": at, "Id": name, "ProcessorType": "GPU", "UUID": f"0000-{number}"}
        if controls:
            found.append(f"{chassis}/Controls/{name}")
            tree[found[-1]] = {
                "@odata.id": found[-1], "ControlType": "Power", "RelatedItem": [link(at)],
                "SetPointUnits": "W", "Sensor": {"Reading": 900.5}, **limit,
            }  # fmt: skip
        else:
            found.append(f"{at}/EnvironmentMetrics")
            tree[at]["EnvironmentMetrics"] = link(found[-1])
            tree[found[-1]] = {"PowerWatts": {"Reading": 900.5}, "PowerLimitWatts": limit}
    return found


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


class Board(Controller):
    """A controller that takes PATCHes: with If-Match where it has `etags`, and says what was asked.

    `takes` says what it does with one: 200 by default, or a status with which it does nothing.
    """

    def __init__(self, tree: Mapping[str, Any], *, etags: bool = True) -> None:
        super().__init__(tree)
        self.etags = etags
        self.takes: dict[str, int] = {}
        self.patched: list[tuple[str, JSON]] = []
        self.versions: dict[str, int] = {}
        self.changed: Callable[[str], None] = lambda _path: None

    def etag(self, path: str) -> str:
        return f'W/"{self.versions.get(path, 0)}"'

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        if request.command == "PATCH":
            size = int(request.headers["Content-Length"])
            say(request, self.take(path, json.loads(request.rfile.read(size)), request), b"")
        elif self.etags and path in self.tree and path not in self.odd:
            self.asked.append(path)
            say(request, 200, json.dumps(self.tree[path]).encode(), ETag=self.etag(path))
        else:
            super().answer(request)

    def take(self, path: str, body: JSON, request: BaseHTTPRequestHandler) -> int:
        """Do what a PATCH says; return the status."""
        self.patched.append((path, body))
        if path in self.takes:
            return self.takes[path]
        if self.etags and request.headers.get("If-Match") != self.etag(path):
            return 428 if "If-Match" not in request.headers else 412
        inner = body.get("PowerLimitWatts", body)
        own = self.tree[path].get("PowerLimitWatts", self.tree[path])
        if not own["AllowableMin"] <= inner["SetPoint"] <= own["AllowableMax"]:
            return 400
        own |= inner
        self.versions[path] = self.versions.get(path, 0) + 1
        self.changed(path)
        return 204


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
    tree: Mapping[str, Any] | Controller, tls: tuple[Path, Path] | None = None
) -> Iterator[Controller]:
    """Serve a tree on a port of the loopback until the end; `tls` is a certificate and its key."""
    about = tree if isinstance(tree, Controller) else Controller(tree)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            about.answer(self)

        def do_PATCH(self) -> None:
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
