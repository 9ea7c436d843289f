"""Kernel logs of every shape give the same event; what only looks like one gives none."""

import json

import pytest

from rackproof.harness.readers import kernel_log, read, search
from rackproof.harness.readers.signatures import sign_of
from rackproof.harness.readers.stamps import month_of, parse

XID = "NVRM: Xid (PCI:0000:5a:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000."
EPOCH = 1740327858.0  # 2025-02-23T16:24:18Z
CALENDAR = (31 + 22) * 86400 + 16 * 3600 + 24 * 60 + 18


def journal(message, **more):
    entry = {"__REALTIME_TIMESTAMP": str(int(EPOCH * 1e6)), "_HOSTNAME": "n17",
             "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message, **more}  # fmt: skip
    return json.dumps(entry, separators=(",", ":"))


SHAPES = {
    "uptime": (f"[ 1843.308145] {XID}", 1843.308145, "boot", None),
    "uptime-caller": (f"[ 1843.308145][  T123] {XID}", 1843.308145, "boot", None),
    "raw": (f"<4>[ 1843.308145] {XID}", 1843.308145, "boot", None),
    "decoded": (f"kern  :warn  : [ 1843.308145] {XID}", 1843.308145, "boot", None),
    "human": (f"[Sun Feb 23 16:24:18 2025] {XID}", EPOCH, "epoch", None),
    "human-locale": (f"[So Feb 23 16:24:18 2025] {XID}", EPOCH, "epoch", None),
    "iso-comma": (f"2025-02-23T16:24:18,000000+00:00 {XID}", EPOCH, "epoch", None),
    "iso-z": (f"2025-02-23T16:24:18Z n17 kernel: {XID}", EPOCH, "epoch", "n17"),
    "iso-0800": (f"2025-02-24T00:24:18+0800 n17 kernel: {XID}", EPOCH, "epoch", "n17"),
    "iso-colon": (f"2025-02-23T11:24:18.000-05:00 n.lan kernel: {XID}", EPOCH, "epoch", "n.lan"),
    "syslog": (f"Feb 23 16:24:18 n17 kernel: [ 1843.3081] {XID}", CALENDAR, "calendar", "n17"),
    "syslog-locale": (f"février 23 16:24:18 n17 kernel: {XID}", CALENDAR, "calendar", "n17"),
    "syslog-cjk": (f"2月 23 16:24:18 n17 kernel: {XID}", CALENDAR, "calendar", "n17"),
    "rfc5424": (f"<4>1 2025-02-23T16:24:18.0+00:00 n17 kernel - - - {XID}", EPOCH, "epoch", "n17"),
    "short-full": (f"Sun 2025-02-23 16:24:18 UTC n17 kernel: {XID}", EPOCH, "epoch", "n17"),
    "short-unix": (f"1740327858.000000 n17 kernel: {XID}", EPOCH, "epoch", "n17"),
    "short-monotonic": (f"[ 1843.308145] n17 kernel: {XID}", 1843.308145, "boot", "n17"),
    "kmsg": (f"4,777,1843308145,-;{XID}", 1843.308145, "boot", None),
    "journal-json": (journal(XID), EPOCH, "epoch", "n17"),
    "journal-bytes": (journal(list(XID.encode())), EPOCH, "epoch", "n17"),
    "ftrace": (
        f"   <idle>-0       [003] d.h1.  1843.308145: nvidia_dev_xid: {XID.removeprefix('NVRM: ')}",
        1843.308145, "boot", None,
    ),
    "caller-apart": (f"[ 1843.308145] [ T4711] {XID}", 1843.308145, "boot", None),
    "caller-processor": (f"[ 1843.308145] [   C12] {XID}", 1843.308145, "boot", None),
    "caller-decoded": (f"kern  :err   : [ 1843.308145] [  T123] {XID}", 1843.308145, "boot", None),
    "caller-human": (f"[Sun Feb 23 16:24:18 2025] [  T123] {XID}", EPOCH, "epoch", None),
    "caller-iso": (f"2025-02-23T16:24:18,000000+00:00 [  T123] {XID}", EPOCH, "epoch", None),
    "caller-relative": (f"[  +2.500000] [  T123] {XID}", 2.5, "relative", None),
    "caller-syslog": (f"Feb 23 16:24:18 n17 kernel: [  T123] {XID}", CALENDAR, "calendar", "n17"),
    "caller-both": (
        f"Feb 23 16:24:18 n17 kernel: [ 1843.308145] [  T123] {XID}", CALENDAR, "calendar", "n17"
    ),
    "caller-journal": (journal(f"[  T123] {XID}"), EPOCH, "epoch", "n17"),
    "ts": (f"Feb 23 16:24:18 [ 1843.308145] {XID}", CALENDAR, "calendar", None),
    "grep": (f"/var/log/kern.log:Feb 23 16:24:18 n17 kernel: {XID}", CALENDAR, "calendar", "n17"),
    "grep-n": (f"412:[ 1843.308145] {XID}", 1843.308145, "boot", None),
    "grep-H-n": (f"logs/kern.log.1:412:[ 1843.308145] {XID}", 1843.308145, "boot", None),
    "grep-context": (f"kern.log-413-[ 1843.308145] {XID}", 1843.308145, "boot", None),
    "zgrep": (f"messages-20250223.gz:2025-02-23T16:24:18Z n17 kernel: {XID}", EPOCH, "epoch",
              "n17"),
    "pdsh-grep": (f"n17: /var/log/dmesg:[ 1843.308145] {XID}", 1843.308145, "boot", "n17"),
    "container-json": (
        json.dumps({"log": f"{XID}\n", "stream": "stdout", "time": "2025-02-23T16:24:18.0Z"}),
        EPOCH, "epoch", None,
    ),
    "container-json-stamped": (
        json.dumps({"log": f"[ 1843.308145] {XID}\n", "time": "2025-02-23T16:24:18.0Z"}),
        1843.308145, "boot", None,
    ),
    "container-cri": (f"2025-02-23T16:24:18.0Z stderr F {XID}", EPOCH, "epoch", None),
    "dmesg-json-line": (json.dumps({"pri": 3, "time": 1843.308145, "msg": XID}), 1843.308145,
                        "boot", None),
    "dmesg-json": (
        json.dumps({"dmesg": [{"pri": 6, "time": 1.5, "msg": "usb {1-1}: new"},
                              {"pri": 3, "time": 1843.308145, "msg": XID}]}, indent=3),
        1843.308145, "boot", None,
    ),
    "journal-export": (
        (f"__CURSOR=s=a;i=1\n__REALTIME_TIMESTAMP={int(EPOCH * 1e6)}\nMESSAGE={XID}\n"
        "_HOSTNAME=n17\n_TRANSPORT=kernel\n\n__CURSOR=s=a;i=2\n__REALTIME_TIMESTAMP=9\n"
        f"_HOSTNAME=n18\nSYSLOG_IDENTIFIER=sudo\nMESSAGE={XID}\n"), EPOCH, "epoch", "n17",
    ),
    "journal-verbose": (
        (f"Sun 2025-02-23 16:24:18.000000 UTC [s=a;i=1;b=b;m=1;t=2;x=3]\n    MESSAGE={XID}\n"
        "    _TRANSPORT=kernel\n    _HOSTNAME=n17\n"
        "Sun 2025-02-23 16:24:19.000000 UTC [s=a;i=2;b=b;m=1;t=2;x=3]\n"
        f"    SYSLOG_IDENTIFIER=audit\n    _HOSTNAME=n18\n    MESSAGE={XID}"),
        EPOCH, "epoch", "n17",
    ),
    "pdsh": (f"n17: [ 1843.308145] {XID}", 1843.308145, "boot", "n17"),
    "bare": (XID, None, "none", None),
    "bare-tag": (f"kernel: {XID}", None, "none", None),
}  # fmt: skip


@pytest.fixture
def log(tmp_path):
    def log(*lines):
        path = tmp_path / "any.name"
        path.write_text("\n".join(lines) + "\n")
        return read(path)

    return log


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_read(log, shape):
    line, at, clock, host = SHAPES[shape]
    found = log(line)
    assert found.kind == "kernel-log"
    (event,) = found.events
    assert (event.subject, event.code, event.clock) == ("pci:0000:5a:00.0", "xid.31", clock)
    assert event.at == (pytest.approx(at) if at is not None else None)
    assert found.host == host
    assert event.detail["pid"] == 4711


@pytest.mark.parametrize(
    "line",
    [
        f"Feb 23 16:24:18 n17 audit[99]: USER_CMD cmd='{XID}'",
        f"Feb 23 16:24:18 n17 sudo: ops : COMMAND=/bin/grep {XID}",
        f"Feb 23 16:24:18 n17 gpud[7]: {XID}",
        f'[ 1843.308145] audit: type=1123 msg="{XID}"',
        f"[ 1843.308145] agent said: {XID}",
        journal(XID, SYSLOG_IDENTIFIER="audit"),
        "[ 1843.308145] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        "[ 1843.308145] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT",
        "[ 1843.308145] mce: [Hardware Error]: Machine check events logged",
        "[ 1843.308145] I/O error, dev loop3, sector 0 op 0x0:(READ)",
        "[ 1843.308145] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.1",
    ],
)
def test_who_only_quotes_or_makes_noise_says_nothing(log, line):
    found = log("[    0.000001] Linux version 6.8.0", line)
    assert not found.events
    assert found.records == 2


@pytest.mark.parametrize(
    ("place", "subject"),
    [
        ("PCI:0000:5a:00", "pci:0000:5a:00.0"),
        ("0000:5a:00", "pci:0000:5a:00.0"),
        ("PCI:0009:01:00", "pci:0009:01:00.0"),
        ("PCI:00000009:01:00", "pci:0009:01:00.0"),
        ("PCI:00010009:01:00", "pci:00010009:01:00.0"),
        ("PCI:0000:10:1C", "pci:0000:10:1c.0"),
        ("PCI:0000:5a:00 GPU-I:05", "pci:0000:5a:00.0"),
        ("PCI:0000:5a:00 GPU-I:05 GPU-CI:01", "pci:0000:5a:00.0"),
    ],
)
def test_addresses_have_one_spelling(place, subject):
    sign = sign_of(f"NVRM: Xid ({place}): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No")
    assert (sign.subject, sign.code) == (subject, "xid.94")


@pytest.mark.parametrize(
    ("message", "code", "detail"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 45, pid=9, name=a, Ch 2 caused by previous Xid 62",
         "xid.45", {"cause": 62, "pid": 9}),
        (("NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS "
         "Reboot)"), "xid.154", {"action": 2}),
        ("NVRM: Xid (PCI:0000:01:00): 9876, words of the future", "xid.9876", {}),
        (("NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, Graphics SM Warp Exception on (GPC 2, "
         "TPC 3, SM 1): Illegal"), "xid.13", {"pid": 1, "place": "GPC 2, TPC 3"}),
        (("NVRM: Xid (PCI:0000:01:00): 145, RLW_REMAP  Nonfatal XC1 i0 Link -1 (0x00000004 "
         "0x00000001 0x0 0x0)"), "xid.145",
         {"unit": "RLW_REMAP", "severity": "non-fatal", "register": 4, "status": 1}),
        (("NVRM: Xid (PCI:0000:01:00): 149, pid=3, name=x, NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal "
         "i0 Link 07 (0x00a001c6 0x0 0x0)"), "xid.149",
         {"pid": 3, "unit": "NETIR_LINK_EVT/NETIR_LINK_DOWN", "severity": "fatal",
          "register": 0xA001C6, "status": 0, "link": 7}),
        ("NVRM: Xid (PCI:0000:01:00): 74, pid=1, NVLink: fatal error detected on link 11(0x10000)",
         "xid.74", {"pid": 1, "link": 11}),
        ("nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 20001, Non-fatal, Link 27 TX Replay Error",
         "sxid.20001", {"severity": "non-fatal", "link": 27}),
        ("pcieport 0000:00:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=0018",
         "aer.corrected", {"stage": "reported"}),
        ("pcieport 0000:00:03.1: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:00",
         "aer.nonfatal", {"stage": "received"}),
        ("pcieport 0000:00:03.1: AER: Uncorrectable (Fatal) error message received from 0000:01",
         "aer.fatal", {"stage": "received"}),
        ("EDAC MC0: 7 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1)",
         "edac.ce", {"count": 7, "device": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"}),
        ("nvme nvme3: controller is down; will reset: CSTS=0xffffffff", "storage.nvme",
         {"device": "nvme3"}),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2477)", "nvrm.init", {}),
    ],
)  # fmt: skip
def test_what_a_message_says(message, code, detail):
    sign = sign_of(message)
    assert (sign.code, dict(sign.detail)) == (code, detail)


@pytest.mark.parametrize("word", ["Severity 5 Engine instance 00", "Data {0x00000001, 0x2}"])
def test_an_sxid_goes_on_over_its_lines(log, word):
    head = "nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, "
    found = log(
        f"[    1.000001] {head}Fatal, Link 28 LTSSM Fault Up", f"[    1.000002] {head}{word}"
    )
    assert [(e.code, e.detail["count"]) for e in found.events] == [("sxid.20034", 1)]


def test_fallen_off_the_bus_over_three_lines(log):
    found = log(
        "[    9.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(e.subject, e.code) for e in found.events] == [("pci:0000:b3:00.0", "nvrm.fallen")]


def test_87_000_equal_lines_are_one_event(log):
    found = log(*[f"[ 1843.{i % 1000:03}000] {XID}" for i in range(87_000)])
    assert found.records == 87_000
    assert [(e.code, e.detail["count"]) for e in found.events] == [("xid.31", 87_000)]


def test_incidents_apart_are_two_events(log):
    first, second = log(f"[  100.000000] {XID}", f"[  200.000000] {XID}").events
    assert (first.at, second.at) == (100.0, 200.0)
    assert second.detail["line"] == 2


def test_new_year_does_not_turn_the_order_round(log):
    first, second, third = log(
        f"Dec 31 23:59:58 n17 kernel: {XID}",
        f"Jan  1 00:01:04 n17 kernel: {XID}",
        f"Jan  1 00:02:04 n17 kernel: {XID}",
    ).events
    assert second.at - first.at == 66.0
    assert third.at - second.at == 60.0


def test_leap_day_and_nonsense_dates():
    assert parse(f"Feb 29 00:00:00 n17 kernel: {XID}").at == 59 * 86400
    for stamp in ("Feb 41 00:00:00 n", "2025-13-41T00:00:00 n", "2025-02-30T00:00:00+99:99 n"):
        found = parse(f"{stamp} kernel: {XID}")
        assert found.at is None


@pytest.mark.parametrize(
    ("word", "month"),
    [("Mai", 5), ("août", 8), ("декабря", 12), ("dez.", 12), ("Ocak", 1), ("fool", None)],
)
def test_months_of_other_languages(word, month):
    assert month_of(word) == month


def test_differences_add_up_over_quiet_lines(log):
    found = log(
        "[Feb23 16:24] usb 1-1: new device",
        "[  +0.500000] usb 1-1: more",
        f"[  +1.250000] {XID}",
        "[Feb23 16:30] usb 1-1: gone",
        f"[  +2.000000] {XID}",
    )
    assert [e.at for e in found.events] == pytest.approx([1.75, 362.0])
    assert {e.clock for e in found.events} == {"relative"}


def test_a_second_boot_is_told_apart(log):
    first, second = log(
        f"[ 9000.000000] {XID}", "[    0.000000] Linux version 6.8.0", f"[ 9001.000000] {XID}"
    ).events
    assert second.detail["boot"] == first.detail.get("boot", 0) + 1


def test_a_log_of_several_hosts_keeps_them(log):
    found = log(f"Feb 23 16:24:18 a kernel: {XID}", f"Feb 23 16:24:18 b kernel: {XID}")
    assert found.host is None
    assert {e.subject for e in found.events} == {
        "host:a/pci:0000:5a:00.0", "host:b/pci:0000:5a:00.0"
    }  # fmt: skip


def test_a_host_name_that_is_none_is_left_out(log):
    assert log(journal(XID, _HOSTNAME="a/b\n\u202e")).host is None


def test_identity_lines_give_serial_and_uuid(log):
    uuid = "GPU-12345678-1234-1234-1234-123456789abc"
    found = log(f"[    1.000001] NVRM: GPU at PCI:0000:5a:00: {uuid}",
                "[    1.000002] NVRM: GPU Board Serial Number: 1650000000017",
                f"[    1.000003] {XID}")  # fmt: skip
    assert found.serials == {"pci:0000:5a:00.0": "1650000000017"}
    assert found.uuids == {"pci:0000:5a:00.0": uuid}


def test_an_apei_block_is_one_event(log):
    said = ["Hardware error from APEI Generic Hardware Error Source: 0", "event severity: fatal",
            " Error 0, type: fatal", "  section_type: PCIe error", "  device_id: 0000:5e:00.0",
            "  vendor_id: 0x10de, device_id: 0x2330", "  class_code: 030200"]  # fmt: skip
    found = log(*[f"[   19.19652{i}] {{1}}[Hardware Error]: {s}" for i, s in enumerate(said)])
    (event,) = found.events
    assert (event.subject, event.code) == ("pci:0000:5e:00.0", "apei.pcie.fatal")
    assert event.detail["device"] == "gpu"


def test_text_is_short_and_printable(log):
    (event,) = log(f"[    1.000001] {XID}\x07\x08\u202e{'x' * 5000}").events
    assert len(event.text) <= 300
    assert event.text.isprintable()


def test_a_flood_of_places_is_bounded_and_said(log):
    found = log(*[
        f"[{i}.000000] NVRM: Xid (PCI:{i % 65536:04x}:{i // 65536:02x}:00): 31, x"
        for i in range(30_000)
    ])  # fmt: skip
    assert len(found.events) == kernel_log.MOST_EVENTS
    assert "10000 further events" in found.problems[-1]


def test_both_search_engines_find_the_same_lines():
    chunk = ("\n".join(line for line, *_ in SHAPES.values()) + "\nquiet\n").encode()
    plain = search.re.compile(b"|".join(search.re.escape(x) for x in search.LITERALS))
    assert list(search.line_spans(chunk)) == list(search.line_spans(chunk, plain))


def test_a_log_of_the_whole_system_is_read_for_the_kernels_lines(log):
    noise = [f"Feb 23 16:24:{i % 60:02} n17 CRON[{i}]: (root) CMD (true)" for i in range(900)]
    found = log(
        *noise, "Feb 23 16:24:18 n17 kernel: usb 1-1: new", *noise * 5, f"{noise[0]} kernel: x"
    )
    assert (found.kind, found.events) == ("kernel-log", ())
    quiet = log(*noise)
    assert (quiet.kind, quiet.records, quiet.worked) == ("unrecognised", 0, False)
    assert "none of them is the kernel's" in quiet.problems[0]


@pytest.mark.parametrize(
    "noise",
    [
        "Feb 23 16:24:18 n17 CRON[{i}]: (root) CMD (true)",
        "2025-02-23T16:24:18+01:00 n17 systemd[1]: Started session {i}.",
        '{{"MESSAGE": "session {i}", "_HOSTNAME": "n17", "SYSLOG_IDENTIFIER": "systemd"}}',
        "Feb 23 16:24:18 n17 audit[{i}]: op=x kernel: no",
    ],
    ids=["rfc3164", "iso", "journal-json", "who-only-names-it"],
)
def test_the_kernel_may_speak_late_in_a_systems_log(log, noise):
    others = [noise.format(i=i) for i in range(9000)]
    said = f"Feb 23 16:24:18 n17 kernel: {XID}"
    late = log(*others, journal(XID) if noise[0] == "{" else said)
    assert [(e.code, e.detail["line"]) for e in late.events] == [("xid.31", 9001)]
    assert log(*others).kind == "unrecognised"


def test_entries_on_both_sides_of_a_chunks_end_are_whole(log):
    entry = (
        "__REALTIME_TIMESTAMP={at}000000\nPADDING={pad}\nMESSAGE=" + XID
        + "\n_HOSTNAME=n17\nSYSLOG_IDENTIFIER=kernel\n"
    )  # fmt: skip
    count = 300
    found = log(*[entry.format(at=1_740_000_000 + 60 * i, pad="x" * 9000) for i in range(count)])
    assert len(found.events) == count
    assert all(e.clock == "epoch" for e in found.events)
    assert found.host == "n17"
