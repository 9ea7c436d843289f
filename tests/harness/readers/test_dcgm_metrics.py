"""The text of dcgm-exporter: labels, blanks, MIG, Xids kept and counted, NVLink, many hosts."""

import pytest

from rackproof.harness.model import Why
from rackproof.harness.readers import read
from rackproof.harness.readers.exposition import sample

A, B = "pci:0000:1b:00.0", "pci:0001:43:00.0"
LABELS = {
    0: 'gpu="0",UUID="GPU-0a0b0c0d-1111-2222-3333-444455556660",pci_bus_id="00000000:1B:00.0",'
    'device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n40"',
    1: 'gpu="1", UUID="GPU-0a0b0c0d-1111-2222-3333-444455556661", pci_bus_id="00000001:43:00.0", '
    'Hostname="n40"',
}
BLANK = ("9223372036854775794", "9.223372036854775794e+18", "2147483632", "140737488355330",
         "NaN", "+Inf", "-Inf", "-1", "18446744073709551615", "4294967295")  # fmt: skip


@pytest.fixture
def reading(tmp_path):
    def made(text):
        path = tmp_path / "file"
        path.write_bytes(text.encode())
        return read(path)

    return made


def series(field, *values, more=""):
    return "".join(
        f"{field}{{{LABELS[i]}{more}}} {value}\n"
        for i, value in enumerate(values)
        if value is not None
    )


def values(found, metric):
    return {m.subject: m.value for m in found.measurements if m.metric == metric}


@pytest.mark.parametrize(
    ("line", "name", "labels", "value", "at"),
    [
        ("up 1", "up", {}, 1.0, None),
        ('a{b="c d, e} =", f="g"} 2.5 1700000000123', "a", {"b": "c d, e} =", "f": "g"}, 2.5,
         1700000000.123),
        (r'a{b="say \"x\" \\ \n",} 1e3', "a", {"b": 'say "x" \\ \n'}, 1000.0, None),
        (r'a{b="odd \q"} 1', "a", {"b": "odd \\q"}, 1.0, None),
        ('a { b = "c" }\t7', "a", {"b": "c"}, 7.0, None),
    ],
)  # fmt: skip
def test_a_sample_of_the_format(line, name, labels, value, at):
    found = sample(line)
    assert (found.name, found.labels, found.value, found.at) == (name, labels, value, at)


@pytest.mark.parametrize(
    "line",
    ["", "# HELP a b", "a", 'a{b="c"', 'a{b="c}', "a{b=c} 1", "a{b} 1", 'a{b="c"} one', "1a 2",
     'a{b="c"} 1 2 3', 'a{b="c"} 1 x', "a{" * 50, 'a{b="' + "\\" * 99],
)  # fmt: skip
def test_what_is_no_sample(line):
    assert sample(line) is None


def test_fields_become_metrics_of_addresses(reading):
    found = reading(
        series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 3)
        + "# HELP DCGM_FI_DEV_ROW_REMAP_FAILURE Whether remapping has failed\n"
        + series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1)
        + series("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 5, None)
        + series("DCGM_FI_DEV_RETIRED_SBE", 2, 1) + series("DCGM_FI_DEV_RETIRED_DBE", 4, None)
        + series("DCGM_FI_DEV_GPU_TEMP", 44, 45)
        + series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 4, 0x80)
        + series("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", 3, 0)
        + series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, 0.25)
    )  # fmt: skip
    assert (found.kind, found.host, found.cut, found.worked) == ("dcgm-metrics", "n40", False, True)
    assert values(found, "ecc.uncorrected.volatile") == {A: 0, B: 3}
    assert values(found, "remap.failure") == {A: 0, B: 1}
    assert values(found, "remap.rows.uncorrected") == {A: 5}
    assert values(found, "retired.pages") == {A: 6, B: 1}
    assert values(found, "throttle.power_brake") == {A: 0, B: 1}
    assert values(found, "fabric.status") == {A: "success"}
    assert found.aliases == {"gpu0": A, "gpu1": B}
    assert found.uuids[B].endswith("61")
    assert not values(found, "ecc.corrected.volatile"), "an absent series is no zero"


@pytest.mark.parametrize("value", BLANK)
@pytest.mark.parametrize("field", ["ECC_DBE_VOL_TOTAL", "NVLINK_REPLAY_ERROR_COUNT_TOTAL"])
def test_a_blank_is_missing(reading, value, field):
    found = reading(series(f"DCGM_FI_DEV_{field}", value, 0))
    assert A not in {m.subject for m in found.measurements}
    assert {m.subject for m in found.missing} == {A}


def test_a_blank_may_say_why(reading):
    found = reading(series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2147483634, 2147483635))
    assert {(m.subject, m.why) for m in found.missing} == {
        (A, Why.NOT_SUPPORTED), (B, Why.NOT_PERMITTED),
    }  # fmt: skip


def test_instances_of_one_gpu_are_not_added_up(reading):
    def slice_of(number, count):
        more = f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{number}"'
        return series("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", count, more=more) + series(
            "DCGM_FI_DEV_XID_ERRORS", 94, more=more
        )

    found = reading(slice_of(7, 12) + slice_of(8, 12))
    assert values(found, "ecc.corrected.volatile") == {A: 12}
    assert [(e.subject, e.code) for e in found.events] == [(A, "xid.94")]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (series("DCGM_FI_DEV_XID_ERRORS", 0, 79), {(B, "xid.79", 1)}),
        (
            series("DCGM_FI_DEV_XID_ERRORS", 45, 43),
            {(A, "exporter.xid.45", 1), (B, "xid.43", 1)},
        ),
        (series("DCGM_EXP_XID_ERRORS_COUNT", 3, 0, more=',xid="31"'), {(A, "xid.31", 3)}),
        (series("DCGM_FI_DEV_XID_ERRORS_ACTIVE", 2, more=',xid="45"'), {(A, "exporter.xid.45", 2)}),
        (series("DCGM_EXP_XID_ERRORS_TOTAL", 1, more=',xid="nan"'), set()),
        ('DCGM_FI_DEV_XID_ERRORS{err_msg="x, \\"y\\""} 48\n', {("host", "xid.48", 1)}),
        (series("DCGM_FI_DEV_XID_ERRORS", "2147483632", "NaN"), set()),
    ],
)
def test_xids_kept_and_counted(reading, text, events):
    found = reading(text)
    assert {(e.subject, e.code, e.detail["count"]) for e in found.events} == events


def test_nvlink_of_gpus_and_of_links(reading):
    found = reading(
        series("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L14", 0, 505)
        + series("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 3, 65535)
        + series("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", 1, 0, more=',nvlink="6"')
        + series("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", 4095, 5 << 8 | 11)
        + series("DCGM_FI_DEV_NVLINK_COUNT_SYMBOL_BER_FLOAT", "1e-20", "0")
    )
    assert values(found, "nvlink.recoveries") == {f"{A}/link14": 0, f"{B}/link14": 505}
    assert values(found, "nvlink.crc") == {A: 3}
    assert values(found, "nvlink.recoveries.failed") == {f"{A}/link06": 1, f"{B}/link06": 0}
    assert values(found, "nvlink.ber") == {A: 0, B: pytest.approx(5e-11)}
    assert values(found, "nvlink.ber.symbol") == {A: 1e-20, B: 0}


def test_two_scrapes_tell_what_grew(reading):
    def scrape(count, at):
        field = "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS"
        heat = "DCGM_FI_DEV_THERMAL_VIOLATION"
        return series(field, 7, f"{count} {at}") + series(heat, 0, count * 10**9)

    found = reading(scrape(505, 1700000000000) + scrape(508, 1700001260000))
    assert values(found, "nvlink.recoveries") == {A: 7, B: 508}
    assert values(found, "nvlink.recoveries.delta") == {A: 0, B: 3}
    assert values(found, "violation.thermal.delta") == {A: 0, B: 3}
    assert found.taken == 1700001260


def test_several_hosts_are_several_machines(reading):
    text = series("DCGM_FI_DEV_ROW_REMAP_PENDING", 0, 1)
    found = reading(text + text.replace("n40", "n41"))
    assert found.host is None
    assert found.aliases == {}
    assert values(found, "remap.pending") == {
        f"host:{host}/{gpu}": int(gpu == B) for host in ("n40", "n41") for gpu in (A, B)
    }


def test_health_watches(reading):
    found = reading(
        series("DCGM_EXP_GPU_HEALTH_STATUS", 0, 20, more=',health_watch="MEM"')
        + series("DCGM_EXP_GPU_HEALTH_STATUS", 10, 0, more=',health_watch="PCIE"')
        + series("DCGM_EXP_CLOCK_EVENTS_COUNT", 0, 2, more=',clock_event="hw_thermal"')
        + series("DCGM_EXP_CLOCK_EVENTS_COUNT", 9, 9, more=',clock_event="power_cap"')
    )
    assert {(e.subject, e.code) for e in found.events} == {
        (B, "exporter.health.mem.fail"), (A, "exporter.health.pcie.warn"),
    }  # fmt: skip
    assert values(found, "throttle.thermal") == {A: 0, B: 1}


@pytest.mark.parametrize(
    ("tail", "cut"),
    [
        ("", False),
        ("# EOF\n", False),
        ("go_goroutines 12\n", False),
        ("# HELP DCGM_FI_DEV_SM_CLOCK SM clo", True),
        ("# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n", True),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0",UU', True),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0"}', True),
    ],
)
def test_a_text_that_breaks_off(reading, tail, cut):
    assert reading(series("DCGM_FI_DEV_ROW_REMAP_PENDING", 0, 0) + tail).cut is cut


@pytest.mark.parametrize(
    "text",
    [
        "DCGM_FI_DEV_XID_ERRORS, gauge, the last code\nDCGM_FI_DEV_GPU_TEMP, gauge, C\n",
        "Ask for DCGM_FI_DEV_XID_ERRORS in the panel.\nIt shows the last code.\n",
        "# HELP node_cpu_seconds_total x\nnode_cpu_seconds_total 3\n",
        'expr = "DCGM_FI_DEV_XID_ERRORS{gpu=0} > 0"\nif expr:\n    call()\n',
    ],
    ids=["the exporter's own list", "prose", "another exporter", "source"],
)
def test_other_files_are_not_taken(reading, text):
    assert reading(text).kind == "unrecognised"
