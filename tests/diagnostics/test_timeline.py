"""Files of one machine on one clock, and what two of them tell counted once."""

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest

from rackproof.diagnostics.offline import judge_inputs, settled
from rackproof.diagnostics.timeline import agreed, epoch_of
from rackproof.harness.readers import read_all

BOOT = datetime(2026, 3, 2, 4, 0, 0, tzinfo=UTC)
FALLEN = "NVRM: Xid (PCI:0000:19:00): 79, pid=1, GPU has fallen off the bus."
HALT = "NVRM: Xid (PCI:0000:19:00): 62, pid=1, PMU halt"
TIMEOUT = "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=a, Timeout of RPC"
LINK = "NVRM: Xid (PCI:0000:19:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 07 (0x00a001c6 0x0 0x0)"
PEER = "NVRM: Xid (PCI:0000:3b:00): 145, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x4 0x00000004 0x0)"
QUIET = "usb 1-1: new device"


def dmesg(seconds, message):
    return f"[{seconds:12.6f}] {message}"


def syslog(seconds, message, host="n1", *, uptime=True, zone=0.0):
    at = BOOT + timedelta(seconds=seconds, hours=zone)
    mark = f"[{seconds:12.6f}] " if uptime else ""
    return f"{at:%b} {at.day:2d} {at:%H:%M:%S} {host} kernel: {mark}{message}"


def iso(seconds, message, host="n1"):
    return (
        f"{BOOT + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%f}+00:00 {host} kernel: {message}"
    )


def journal(seconds, message, host="n1"):
    at = int((BOOT + timedelta(seconds=seconds)).timestamp() * 1e6)
    return json.dumps({"__REALTIME_TIMESTAMP": str(at), "MESSAGE": message, "_HOSTNAME": host,
                       "_SOURCE_MONOTONIC_TIMESTAMP": str(int(seconds * 1e6)),
                       "SYSLOG_IDENTIFIER": "kernel", "_TRANSPORT": "kernel"})  # fmt: skip


@pytest.fixture
def hold(tmp_path):
    """Write files (name: lines) into one folder, read it."""

    def hold(**files):
        for name, lines in files.items():
            (tmp_path / f"{name}.log").write_text("\n".join(lines) + "\n")
        return read_all([tmp_path])

    return hold


def told(readings):
    """(code, count, epoch or own time) of each root's events."""
    cases, _ = settled(readings)
    return sorted((s.event.code, s.count, s.clock[0], round(s.at or 0, 1))
                  for c in cases for e in c.root for s in e.said)  # fmt: skip


BOOTED = BOOT.timestamp()
ONCE = {
    "the same syslog twice": {"a": [syslog(900, FALLEN)], "b": [syslog(900, FALLEN)]},
    "rotated, with overlap": {
        "a": [syslog(1, QUIET), syslog(900, FALLEN)],
        "b": [syslog(900, FALLEN), syslog(950, QUIET)]},
    "dmesg beside a syslog that kept the uptime": {
        "a": [dmesg(1, QUIET), dmesg(900.25, FALLEN)], "b": [syslog(900, FALLEN)]},
    "dmesg beside a journal": {
        "a": [dmesg(1, QUIET), dmesg(900.25, FALLEN)], "b": [journal(900.25, FALLEN)]},
    "syslog without a year beside a journal": {
        "a": [syslog(900, FALLEN)], "b": [journal(900.5, FALLEN)]},
    "dmesg that says when its clock was set": {
        "a": [dmesg(2, f"rtc_cmos 00:02: setting system clock to 2026-03-02T04:00:02 UTC "
                       f"({int(BOOTED) + 2})"), dmesg(900.25, FALLEN)],
        "b": [iso(900.25, FALLEN)]},
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_what_two_files_tell_is_counted_once(hold, name):
    readings = hold(**ONCE[name])
    assert [(code, count) for code, count, *_ in told(readings)] == [("xid.79", 1)]
    (root,) = judge_inputs(readings).diagnoses
    assert "xid.79 once" in root.because[0]


def test_two_messages_in_common_place_an_uptime_and_one_does_not(hold):
    files = {"a": [dmesg(1, QUIET), dmesg(900.5, FALLEN), dmesg(950.5, HALT)],
             "b": [syslog(900, FALLEN, uptime=False), syslog(950, HALT, uptime=False)]}  # fmt: skip
    assert [(c, n) for c, n, *_ in told(hold(**files))] == [("xid.62", 1), ("xid.79", 1)]
    alone = {"a": [dmesg(1, QUIET), dmesg(900.5, FALLEN)],
             "b": [syslog(900, FALLEN, uptime=False)]}  # fmt: skip
    assert len(told(hold(**alone))) == 2


def test_what_is_told_at_another_time_or_place_is_not_the_same(hold):
    later = hold(a=[syslog(900, FALLEN)], b=[syslog(960, FALLEN)])
    assert len(told(later)) == 2
    other = HALT.replace(":19:", ":3b:")
    assert len(told(hold(a=[syslog(900, HALT)], b=[syslog(900, other)]))) == 2


def test_a_storm_that_goes_on_over_two_files_is_one_with_its_longest_count(hold):
    first = [syslog(900 + i, TIMEOUT) for i in range(30)]
    readings = hold(a=first[:20], b=first[10:])
    assert [(code, count) for code, count, *_ in told(readings)] == [("xid.119", 20)]


@pytest.mark.parametrize("zone", [2.0, -5.0, 5.5])
def test_a_time_zone_is_taken_out(hold, zone):
    readings = hold(a=[syslog(900, FALLEN, zone=zone), syslog(950, HALT, zone=zone)],
                    b=[journal(900, FALLEN), journal(950, HALT)])  # fmt: skip
    assert [(c, n) for c, n, *_ in told(readings)] == [("xid.62", 1), ("xid.79", 1)]


@pytest.mark.parametrize(
    ("first", "second", "roots"),
    [
        ([dmesg(1, QUIET), dmesg(900, LINK), syslog(1, QUIET)], [iso(905, PEER, "n2")], 1),
        ([syslog(900, LINK)], [iso(905, PEER, "n2")], 1),
        ([syslog(900, LINK)], [iso(955, PEER, "n2")], 1),  # a clock that is 55 s off
        ([syslog(900, LINK)], [iso(1100, PEER, "n2")], 2),
        ([dmesg(1, QUIET), dmesg(900, LINK)], [iso(905, PEER, "n2")], 1),  # cannot be compared
    ],
    ids=["uptime beside dates", "no year", "skew", "too far", "no common clock"],
)
def test_a_peer_on_another_machine_follows_the_root(tmp_path, first, second, roots):
    for name, lines in (("n1", first), ("n2", second)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kern.log").write_text("\n".join(lines) + "\n")
    found = judge_inputs(read_all([tmp_path / "n1", tmp_path / "n2"]))
    assert sum(d.role == "root" for d in found.diagnoses) == roots
    if roots == 1:
        assert found.diagnoses[0].subject == "host:n1/pci:0000:19:00.0/link07"


def test_two_boots_are_told_apart_in_dated_logs_of_two_files(hold):
    again = hold(a=[iso(0, "Linux version 6.8"), iso(900, TIMEOUT)],
                 b=[iso(7200, "Linux version 6.8"), iso(8100, TIMEOUT)])  # fmt: skip
    assert judge_inputs(again).diagnoses[0].persistence == "persistent"
    once = hold(a=[iso(0, "Linux version 6.8"), iso(900, TIMEOUT)],
                b=[iso(0, "Linux version 6.8"), iso(900, TIMEOUT)])  # fmt: skip
    assert judge_inputs(once).diagnoses[0].persistence == "undetermined"


def test_the_order_of_files_changes_nothing(hold):
    readings = hold(
        a=[dmesg(1, QUIET), dmesg(900.25, FALLEN), dmesg(930, LINK)],
        b=[syslog(900, FALLEN), syslog(931, PEER)],
        c=[journal(901, HALT)],
        d=[dmesg(1, QUIET), dmesg(70, TIMEOUT)],
    )
    answers = {
        json.dumps([d.as_json() for d in judge_inputs(order).diagnoses])
        for order in itertools.permutations(readings)
    }
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("day", "year", "expected"),
    [(59, 2026, None), (59, 2028, datetime(2028, 2, 29, tzinfo=UTC)),
     (60, 2026, datetime(2026, 3, 1, tzinfo=UTC)), (366, 2025, datetime(2026, 1, 1, tzinfo=UTC))],
)  # fmt: skip
def test_a_date_without_year_counts_the_days_of_a_leap_year(day, year, expected):
    assert epoch_of(day * 86400.0, year) == (expected.timestamp() if expected else None)


def test_a_log_over_new_year_is_placed_by_its_end(hold):
    lines = ["Dec 31 23:59:50 n1 kernel: " + HALT, "Jan  1 00:00:10 n1 kernel: " + FALLEN]
    readings = hold(a=lines, b=["2026-01-01T00:00:40+00:00 n1 kernel: " + TIMEOUT])
    times = {code: at for code, _, clock, at in told(readings) if clock == "epoch"}
    assert times["xid.79"] == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC).timestamp()
    assert times["xid.62"] == datetime(2025, 12, 31, 23, 59, 50, tzinfo=UTC).timestamp()


def test_clocks_agree_by_majority_and_never_by_one_message():
    def messages(*times):
        return {("xid.79", "gpu0", str(i)): t for i, t in enumerate(times)}

    assert agreed(messages(1, 2), messages(101, 102.5)) == pytest.approx(100.25)
    assert agreed(messages(1), messages(101)) is None
    assert agreed(messages(1, 2), messages(101, 152)) is None
    assert agreed(messages(1, 2, 3), messages(101, 102, 900)) == 100
