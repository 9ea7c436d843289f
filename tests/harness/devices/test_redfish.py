"""A controller may say anything, or nothing: each answer is a value or a DeviceError, and in time.

What goes over the wire is looked at as well: credentials go to the controller that was named, and
never into a message.
"""

import contextlib
import subprocess

import pytest

from rackproof.harness.devices import redfish
from rackproof.harness.devices.redfish import CA, INSECURE, PASSWORD, URL, USER, Service, accesses
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, TimedOut

ROOT = "/redfish/v1/"
SECRET = "s3cret-and-more"  # noqa: S105 - of our own server


@pytest.fixture
def served(site):
    """A controller of one shelf."""
    with site.controller(site.site(shelves=1, units=0)) as controller:
        yield controller


@pytest.fixture
def service():
    """Make a client of a controller: ``service(served, request_s=0.2)``; closed at the end."""
    with contextlib.ExitStack() as clients:

        def made(controller, **times: float) -> Service:
            (access,) = accesses({URL: controller.url, USER: "reader", PASSWORD: SECRET})
            return clients.enter_context(contextlib.closing(Service(access, **times)))

        yield made


def refusal(client: Service, path: str = ROOT) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        client.get(path)
    assert SECRET not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    return caught.value


def says(site, status: int, body: bytes, **headers: str):
    return lambda request: site.say(request, status, body, **headers)


def test_an_object_is_read_once_a_run_with_the_credentials(served, service):
    client = service(served)
    assert client.get(ROOT)["RedfishVersion"] == "1.17.0"
    client.get(ROOT)
    assert served.asked == [ROOT]
    assert served.credentials == {f"reader:{SECRET}"}
    client.close()
    client.close()


@pytest.mark.parametrize(("status", "kind"), [(401, NotPermitted), (403, NotPermitted),
                                              (404, NotPresent), (500, DeviceError),
                                              (204, DeviceError)])  # fmt: skip
def test_a_refusal_is_told_by_its_sort(site, served, status, kind, service):
    served.odd[ROOT] = says(site, status, b"")
    assert type(refusal(service(served))) is kind


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b'"text"', b"\xff\xfe", b'{"a":', b'{"a": NaN}',
     b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_what_is_no_json_object_is_said(site, served, body, service):
    served.odd[ROOT] = says(site, 200, body)
    assert "JSON" in str(refusal(service(served)))


def test_a_huge_answer_is_not_taken(site, served, service):
    served.odd[ROOT] = says(site, 200, b" " * (redfish.MAX_BYTES + 10))
    assert "larger" in str(refusal(service(served)))
    served.odd.clear()
    assert service(served).get(ROOT)


def test_a_redirect_within_the_controller_is_followed(site, served, service):
    served.odd["/redfish/v1/Old"] = says(site, 308, b"", Location="/redfish/v1/")
    assert service(served).get("/redfish/v1/Old")["RedfishVersion"]


def test_a_loop_of_redirects_ends(site, served, service):
    served.odd[ROOT] = says(site, 302, b"", Location=ROOT)
    assert "redirects" in str(refusal(service(served)))
    assert len(served.asked) == redfish.MAX_REDIRECTS + 1


@pytest.mark.parametrize("where", ["//example.invalid/redfish/v1/", "https://127.0.0.1/redfish/v1/",
                                   "http://[", "http://127.0.0.1:99999/redfish/v1/", "/etc/passwd",
                                   "file:///etc/passwd", ""])  # fmt: skip
def test_a_redirect_elsewhere_is_refused(site, served, where, service):
    served.odd[ROOT] = says(site, 301, b"", Location=where)
    refusal(service(served))


def test_credentials_do_not_follow_a_redirect_to_another_port(site, served, service):
    with site.controller({}) as other:
        served.odd[ROOT] = says(site, 301, b"", Location=f"{other.url}/redfish/v1/")
        assert "another address" in str(refusal(service(served)))
        assert other.asked == []


@pytest.mark.parametrize("path", ["/etc/passwd", "/redfish/v1/a b", "/redfish/v1/\r\nX: y", "",
                                  "/redfish/" + "a" * 600, "http://127.0.0.1/a"])  # fmt: skip
def test_only_paths_below_redfish_are_asked_for(served, path, service):
    refusal(service(served), path)
    assert served.asked == []


def test_silence_ends_in_time(served, service):
    served.odd[ROOT] = lambda _request: served.over.wait(30)
    assert isinstance(refusal(service(served, request_s=0.2)), TimedOut)


def test_an_answer_that_comes_byte_by_byte_ends_in_time(served, service):
    def drip(request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        for _ in range(100_000):
            try:
                request.wfile.write(b" ")
            except OSError:
                return
            if served.over.wait(0.01):
                return

    served.odd[ROOT] = drip
    assert isinstance(refusal(service(served, request_s=0.3)), TimedOut)


def test_a_run_has_an_end(served, service):
    client = service(served, run_s=0.0)
    assert isinstance(refusal(client), TimedOut)
    assert served.asked == []


def test_a_tree_without_an_end_is_left(served, monkeypatch, service):
    monkeypatch.setattr(redfish, "MAX_REQUESTS", 5)
    client = service(served)
    for number in range(5):
        refusal(client, f"/redfish/v1/{number}")
    assert "more than 5 requests" in str(refusal(client, "/redfish/v1/6"))


def test_a_connection_that_went_stale_is_renewed(site, served, service):
    client = service(served)
    client.get(ROOT)

    def hang_up(request) -> None:
        request.close_connection = True
        served.odd.clear()

    served.odd["/redfish/v1/Chassis"] = hang_up
    served.tree["/redfish/v1/Chassis"] = {"Members": []}
    assert client.get("/redfish/v1/Chassis") == {"Members": []}


def test_a_controller_that_always_hangs_up_is_left(served, service):
    def hang_up(request) -> None:
        request.close_connection = True

    served.odd[ROOT] = hang_up
    assert "closed the connection" in str(refusal(service(served)))


def test_nobody_at_the_address_is_a_device_error(site, service):
    with site.controller({}) as gone:
        client = service(gone)
    refusal(client)


def test_what_speaks_no_http_is_a_device_error(served, service):
    def babble(request) -> None:
        request.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n" * 3)
        request.close_connection = True

    served.odd[ROOT] = babble
    refusal(service(served))


def test_tls_is_verified_unless_told_otherwise(served, tmp_path):
    plain = served.url.replace("http:", "https:")  # a server that speaks no TLS at all
    for more in ({}, {INSECURE: "1"}, {CA: str(tmp_path / "none.pem")}):
        (access,) = accesses({URL: plain, USER: "reader", PASSWORD: SECRET, **more})
        refusal(Service(access, request_s=2.0))


@pytest.fixture(scope="module")
def certificate(tool, tmp_path_factory):
    """A certificate that vouches for 127.0.0.1 by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "certificate.pem"
    words = [tool("openssl", optional=True), "req", "-x509", "-newkey", "rsa:2048", "-nodes"]
    words += ["-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=controller"]
    subprocess.run(
        [*words, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    return made, key


@pytest.mark.parametrize("trusted", ["no", "by its authority", "by order"])
def test_a_certificate_counts_only_where_somebody_vouches_for_it(site, certificate, trusted):
    made, key = certificate
    more = {"no": {}, "by its authority": {CA: str(made)}, "by order": {INSECURE: "1"}}[trusted]
    with site.controller(site.site(1, 0), tls=(made, key)) as controller:
        (access,) = accesses({URL: controller.url, USER: "reader", PASSWORD: SECRET, **more})
        with contextlib.closing(Service(access)) as client:
            if trusted == "no":
                assert "not trusted" in str(refusal(client))
                assert controller.asked == []
            else:
                assert client.get(ROOT)["RedfishVersion"]


# --- the environment -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("bmc7", "write https://"),
        ("ftp://bmc7", "write https://"),
        ("https://", "write https://"),
        ("https://bmc7:port", "write https://"),
        ("https://[::1", "write https://"),
        (f"https://root:{SECRET}@bmc7", "belong into"),
        ("http://bmc7", "in the clear"),
        (" ".join(f"https://bmc{n}" for n in range(65)), "more than 64"),
    ],
)
def test_what_cannot_be_meant_is_said(url, said):
    with pytest.raises(DeviceError, match=said) as caught:
        accesses({URL: url, USER: "reader", PASSWORD: SECRET})
    assert SECRET not in str(caught.value)
    assert "bmc7" not in str(caught.value)


def test_several_controllers_stand_in_the_order_in_which_they_are_named():
    found = accesses({URL: "https://b, https://a:8443  http://[::1]:5000"})
    assert [access.origin for access in found] == [
        ("https", "b", 443), ("https", "a", 8443), ("http", "::1", 5000),
    ]  # fmt: skip
    assert accesses({}) == accesses({URL: " , "}) == []


def test_no_credential_and_no_address_is_in_what_is_printed():
    (access,) = accesses({URL: "https://bmc7", USER: "reader", PASSWORD: SECRET})
    for secret in (SECRET, "reader", "bmc7"):
        assert secret not in repr(access)
