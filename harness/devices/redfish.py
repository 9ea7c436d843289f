"""A Redfish client that trusts nobody: the shelves' and the cooling's controllers over HTTP.

In: addresses and credentials from the environment. Out: the JSON object behind a path, or a
DeviceError; and, where a power limit is to be set, a PATCH of it. Every answer is bounded in size,
time and number, no redirect leaves the controller that was named, and neither an address nor a
credential is ever part of a message: messages end up in records, which are passed on.
"""

import base64
import contextlib
import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import urljoin, urlsplit

from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, TimedOut

URL, USER, PASSWORD = (
    "RACKPROOF_REDFISH_URL",
    "RACKPROOF_REDFISH_USER",
    "RACKPROOF_REDFISH_PASSWORD",
)
CA, INSECURE = "RACKPROOF_REDFISH_CA", "RACKPROOF_REDFISH_INSECURE"
MAX_URLS = 64
MAX_BYTES = 1 << 20
MAX_REQUESTS = 1000
"""Of one run and controller: a shelf with its supplies takes about fifteen."""
MAX_REDIRECTS = 3
REDIRECTS = (301, 302, 303, 307, 308)
REQUEST_S = 10.0
RUN_S = 60.0
"""The longest that one request, and all requests of a run to one controller, may take."""
TRIES = 3
"""PATCHes of one change, where others change the same thing meanwhile (412)."""
DONE = (200, 202, 204)
"""Statuses of a PATCH that was taken; whether it did anything is read back by whoever asked."""
_ETAG = re.compile(r"[!-~]{1,200}")
_PATH = re.compile(r"/redfish(/[!-~]{0,500})?")

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One request: a GET, or a PATCH with a body."""

    path: str
    body: bytes | None = None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back, as it came."""

    status: int
    location: str
    etag: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """Where one controller is, and how to be let in. `origin` is (scheme, host, port)."""

    origin: tuple[str, str, int] = field(repr=False)
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca: str = ""
    insecure: bool = False


def accesses(environment: Mapping[str, str]) -> list[Access]:
    """Return the controllers that the environment names, in its order; none where it names none.

    Raises DeviceError for what cannot be meant: no URL, credentials within one, a password that
    would cross the network in the clear.
    """
    words = environment.get(URL, "").replace(",", " ").split()
    if len(words) > MAX_URLS:
        msg = f"{URL}: names more than {MAX_URLS} controllers"
        raise DeviceError(msg)
    return [_access(word, environment) for word in words]


def _access(word: str, environment: Mapping[str, str]) -> Access:
    try:
        parts = urlsplit(word)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        msg = f"{URL}: write https://ADDRESS[:PORT], several with a blank between them"
        raise DeviceError(msg)
    if parts.username is not None or parts.password is not None:
        msg = f"{URL}: holds credentials; they belong into {USER} and {PASSWORD}"
        raise DeviceError(msg)
    user, password = environment.get(USER, ""), environment.get(PASSWORD, "")
    insecure = environment.get(INSECURE, "") not in ("", "0")
    if parts.scheme == "http" and user and not insecure and not _loopback(parts.hostname):
        msg = f"{URL}: http would send the password in the clear; use https, or {INSECURE}=1"
        raise DeviceError(msg)
    origin = (parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))
    return Access(origin, user, password, environment.get(CA, ""), insecure)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Service:
    """One controller, for one run: `get` answers from what was read in the run already."""

    def __init__(
        self, access: Access, *, request_s: float = REQUEST_S, run_s: float = RUN_S
    ) -> None:
        self._access = access
        self._request_s = request_s
        self._until = time.monotonic() + run_s
        self._asked = 0
        self._seen: dict[str, Object | DeviceError] = {}
        self._etags: dict[str, str] = {}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str) -> Object:
        """Return the JSON object at a path below /redfish.

        Raises NotPermitted, NotPresent (404), TimedOut, or DeviceError for what makes no sense.
        """
        if path not in self._seen:
            try:
                self._seen[path] = self._fetch(path)
            except DeviceError as error:
                self._seen[path] = error
        found = self._seen[path]
        if isinstance(found, DeviceError):
            raise found
        return found

    def look(self, path: str) -> Object:
        """Return the JSON object at a path as it is now, whatever was read before; as `get`."""
        self._seen.pop(path, None)
        return self.get(path)

    def patch(self, path: str, change: Object) -> None:
        """Change properties of what was read at a path, unless others changed it meanwhile.

        With the ETag that came with it, if one did; where it is stale (412) it is read again, three
        tries in all. No redirect is followed. Raises as `get`. A change must bear to be made twice:
        where a connection breaks it may be.
        """
        if not _PATH.fullmatch(path):
            _fail("", "a link leads to no path below /redfish")
        body = json.dumps(change, allow_nan=False).encode()
        for _ in range(TRIES):
            if path not in self._etags:
                self.look(path)
            found = self._ask(_Wanted(path, body, self._etags.get(path, "")))
            self._seen.pop(path, None)
            self._etags.pop(path, None)
            if found.status in DONE:
                return
            if found.status != http.HTTPStatus.PRECONDITION_FAILED:
                break
        else:
            _fail(path, f"was changed by others, {TRIES} times, while it was to be changed")
        _refused(path, found.status)
        _fail(path, f"the change is refused (HTTP {found.status})")

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _fetch(self, path: str) -> Object:
        redirected, asked = 0, path
        while redirected <= MAX_REDIRECTS:
            if not _PATH.fullmatch(path):  # whatever it is, it may hold an address
                _fail("", "a link leads to no path below /redfish")
            found = self._ask(_Wanted(path))
            if found.status not in REDIRECTS:
                break
            path = self._same(path, found.location)
            redirected += 1
        else:
            _fail(path, f"redirects more than {MAX_REDIRECTS} times")
        read = _object(path, found.status, found.body)
        etag = found.etag or read.get("@odata.etag")
        self._etags[asked] = etag if isinstance(etag, str) and _ETAG.fullmatch(etag) else ""
        return read

    def _same(self, path: str, location: str) -> str:
        """Return the path that a redirect leads to, on the controller that was named."""
        scheme, host, port = self._access.origin
        base = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
        try:
            parts = urlsplit(urljoin(base, location))
            there = (
                parts.scheme,
                parts.hostname,
                parts.port or (443 if parts.scheme == "https" else 80),
            )
        except ValueError:
            there = ("", None, 0)
        if there != self._access.origin:
            _fail(path, "redirects to another address, where the credentials do not belong")
        return parts.path

    def _ask(self, wanted: _Wanted) -> _Answer:
        """Return the answer to one request; a connection that went stale is renewed."""
        self._asked += 1
        if self._asked > MAX_REQUESTS:
            _fail(wanted.path, f"the controller's tree takes more than {MAX_REQUESTS} requests")
        stale = self._connection is not None
        try:
            return self._once(wanted)
        except (http.client.RemoteDisconnected, ConnectionError):
            self.close()
            if not stale:
                _fail(wanted.path, "the controller closed the connection")
        return self._ask(wanted)

    def _once(self, wanted: _Wanted) -> _Answer:
        path = wanted.path
        left = min(self._request_s, self._until - time.monotonic())
        if left <= 0:
            msg = f"Redfish {path}: no time is left for it in this run"
            raise TimedOut(msg)
        late = threading.Event()
        watch: threading.Timer | None = None
        try:
            connection = self._connected(left)
            watch = threading.Timer(left, _cut, (connection.sock, late))
            watch.daemon = True
            watch.start()
            found = self._answer(connection, wanted)
        except (TimeoutError, OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if late.is_set() or isinstance(error, TimeoutError):
                msg = f"Redfish {path}: no answer within {left:.0f} s"
                raise TimedOut(msg) from None
            if isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                raise
            _explain(path, error)
        finally:
            if watch is not None:
                watch.cancel()
        return found

    def _answer(self, connection: http.client.HTTPConnection, wanted: _Wanted) -> _Answer:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._access.user:
            pair = f"{self._access.user}:{self._access.password}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(pair).decode("ascii")
        if wanted.body is not None:
            headers["Content-Type"] = "application/json"
        if wanted.etag:
            headers["If-Match"] = wanted.etag
        method = "GET" if wanted.body is None else "PATCH"
        connection.request(method, wanted.path, body=wanted.body, headers=headers)
        response = connection.getresponse()
        body = response.read(MAX_BYTES + 1)
        if len(body) <= MAX_BYTES and response.length:  # cut off, by them or by our own watch
            raise http.client.IncompleteRead(body, response.length)
        if len(body) > MAX_BYTES or response.will_close:
            self.close()
        location, etag = (response.headers.get(name, "") for name in ("Location", "ETag"))
        return _Answer(response.status, location, etag, body)

    def _connected(self, left: float) -> http.client.HTTPConnection:
        if self._connection is None:
            scheme, host, port = self._access.origin
            connection = http.client.HTTPConnection(host, port, timeout=left)
            opened = socket.create_connection((host, port), timeout=left)
            # A PATCH is two packets, and the second must not wait for an answer to the first.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = _wrapped(opened, self._access) if scheme == "https" else opened
            self._connection = connection
        self._connection.sock.settimeout(left)
        return self._connection


def _wrapped(opened: socket.socket, access: Access) -> ssl.SSLSocket:
    """Return the socket under TLS, with the certificate verified unless told otherwise."""
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(opened, server_hostname=access.origin[1])
    except BaseException:
        opened.close()
        raise


def _cut(opened: socket.socket, late: threading.Event) -> None:
    """End a request that takes too long, also one whose answer comes byte by byte."""
    late.set()
    with contextlib.suppress(OSError):
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


def _fail(path: str, what: str) -> NoReturn:
    msg = f"Redfish {path[:200]}: {what}"
    raise DeviceError(msg)


def _explain(path: str, error: Exception) -> NoReturn:
    """Raise what went wrong, without the address, which some of Python's messages hold."""
    if isinstance(error, ssl.SSLCertVerificationError):
        _fail(path, f"the controller's certificate is not trusted; name its authority in {CA}")
    if isinstance(error, FileNotFoundError):
        _fail(path, f"{CA} names no file")
    if isinstance(error, socket.gaierror):
        _fail(path, f"the name in {URL} is not known here")
    _fail(path, f"no answer that could be read ({type(error).__name__})")


def _refused(path: str, status: int) -> None:
    """Raise what a refusal means, where its status says it."""
    if status in (401, 403):
        msg = f"Redfish {path}: the controller refuses (HTTP {status}); see {USER} and {PASSWORD}"
        raise NotPermitted(msg)
    if status == http.HTTPStatus.NOT_FOUND:
        msg = f"Redfish {path}: the controller has no such thing (HTTP 404)"
        raise NotPresent(msg)


def _object(path: str, status: int, body: bytes) -> Object:
    _refused(path, status)
    if status != http.HTTPStatus.OK:
        _fail(path, f"HTTP {status}")
    if len(body) > MAX_BYTES:
        _fail(path, f"the answer is larger than {MAX_BYTES} bytes")
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        _fail(path, "the answer is no JSON")
    if not isinstance(found, dict):
        _fail(path, "the answer is no JSON object")
    return found


def _no_number(text: str) -> NoReturn:
    msg = f"{text} is no JSON"
    raise ValueError(msg)
