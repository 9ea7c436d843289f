"""nvidia-smi's CSV: headers and none, units and none, every spelling of absent, loops, lists."""

import pytest

from rackproof.harness.model import Why
from rackproof.harness.readers import read

BUS = "pci:0000:2b:00.0"
OTHER = "pci:0000:ac:00.0"


@pytest.fixture
def reading(tmp_path):
    def made(text, encoding="utf-8"):
        path = tmp_path / "file"
        path.write_bytes(text.encode(encoding))
        return read(path)

    return made


def table(columns, *rows):
    """Return a CSV text with the bus id in front of `columns`."""
    heads = [", ".join(("index", "pci.bus_id", *columns))]
    buses = ("00000000:2B:00.0", "00000000:AC:00.0")
    return "\n".join(
        heads + [", ".join((str(i % 2), buses[i % 2], *row)) for i, row in enumerate(rows)]
    )


def values(found, metric):
    return {m.subject: m.value for m in found.measurements if m.metric == metric}


def test_units_in_cells_headers_or_nowhere(reading):
    for header, cells in (
        (("memory.total [MiB]", "temperature.gpu"), ("81920 MiB", "33")),
        (("memory.total [MiB]", "temperature.gpu"), ("81920", "33")),
        (("memory.total", "temperature.gpu"), ("81920 MiB", "33 C")),
        (("memory.total [MB]", "temperature.gpu"), ("85899.34592 MB", "33")),
    ):
        found = reading(table(header, cells), "utf-16")
        assert (found.kind, found.records, found.cut) == ("nvidia-smi-csv", 1, False)
        assert values(found, "memory.total")[BUS] == pytest.approx(81920)
        assert values(found, "temperature") == {BUS: 33}
        assert found.aliases == {"gpu0": BUS}


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("[N/A]", Why.NOT_SUPPORTED),
        ("N/A", Why.NOT_SUPPORTED),
        ("[Not Supported]", Why.NOT_SUPPORTED),
        ("[Not Found]", Why.NO_READING),
        ("[Function Not Found]", Why.NOT_SUPPORTED),
        ("[Requested functionality has been deprecated]", Why.NOT_SUPPORTED),
        ("[Insufficient Permissions]", Why.NOT_PERMITTED),
        ("[Unknown Error]", Why.LOST),
        ("[GPU is lost]", Why.LOST),
        ("[GPU requires reset]", Why.NOT_SUPPORTED),
        ("18446744073709551615", Why.NO_READING),
        ("4294967295", Why.NO_READING),
        ("-2", Why.NO_READING),
        ("", Why.NOT_SUPPORTED),
        ("twelve", Why.NO_READING),
    ],
)
def test_what_is_absent_is_missing_and_no_zero(reading, cell, why):
    columns = ("remapped_rows.uncorrectable", "ecc.errors.uncorrected.volatile.total")
    found = reading(table(columns, (cell, "0"), ("3", cell)))
    assert values(found, "remap.rows.uncorrected") == {OTHER: 3}
    assert values(found, "ecc.uncorrected.volatile") == {BUS: 0}
    gone = {(m.subject, m.metric, m.why) for m in found.missing}
    assert {(BUS, "remap.rows.uncorrected", why), (OTHER, "ecc.uncorrected.volatile", why)} <= gone


@pytest.mark.parametrize(
    ("columns", "cells", "metric", "value"),
    [
        (("remapped_rows.failure",), ("Yes",), "remap.failure", 1),
        (("remapped_rows.pending",), ("No",), "remap.pending", 0),
        (("remapped_rows.histogram.none",), ("2",), "remap.banks.none", 2),
        (("clocks_throttle_reasons.hw_power_brake_slowdown",), ("Active",), "throttle.power_brake",
         1),
        (("clocks_event_reasons.sw_thermal_slowdown",), ("Not Active",), "throttle.thermal", 0),
        (("clocks_event_reasons.active",), ("0x0000000000000080",), "throttle.power_brake", 1),
        (("clocks_throttle_reasons.active",), ("0x0000000000000004",), "throttle.thermal", 0),
        (("gpu_recovery_action",), ("None",), "recovery.action", "none"),
        (("gpu_recovery_action",), ("Node Reboot",), "recovery.action", "reboot"),
        (("retired_pages.sbe", "retired_pages.dbe"), ("3", "4"), "retired.pages", 7),
        (("retired_pages.pending",), ("Yes",), "retired.pending", 1),
        (("fabric.status", "fabric.state"), ("Success", "Completed"), "fabric.status", "Success"),
        (("pcie.link.width.current", "pcie.link.width.max"), ("8", "16"), "pcie.width.max", 16),
        (
            ("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",), ("Yes",),
            "sram.threshold", 1,
        ),
    ],
)  # fmt: skip
def test_columns_are_the_fields_of_the_query(reading, columns, cells, metric, value):
    found = reading(table(columns, cells))
    assert values(found, metric) == {BUS: value}


@pytest.mark.parametrize(
    ("cells", "metric", "value"),
    [
        (
            {"dram": "2", "sram": "1", "total": "3", "device_memory": "2"},
            "ecc.uncorrected.volatile",
            3,
        ),
        ({"dram": "[N/A]", "sram": "[N/A]", "total": "5"}, "ecc.uncorrected.volatile", 5),
        (
            {"device_memory": "1", "register_file": "1", "total": "[N/A]"},
            "ecc.uncorrected.volatile",
            2,
        ),
        ({"sram.parity": "4", "total": "4"}, "ecc.uncorrected.volatile", 4),
    ],
    ids=["parts and total", "total alone", "parts alone", "a part of a part"],
)
def test_ecc_errors_are_counted_once(reading, cells, metric, value):
    head = "ecc.errors.uncorrected.volatile."
    found = reading(table([head + name for name in cells], list(cells.values())))
    assert values(found, metric) == {BUS: value}


def test_a_loop_decides_by_its_last_row_and_tells_what_grew(reading):
    head = (
        "timestamp, index, ecc.errors.corrected.volatile.total, clocks_event_reasons.hw_slowdown\n"
    )
    rows = [
        f"2026/11/03 01:02:{second:02d}.{index}00, {index}, {count}, {slow}"
        for second, counts, slow in (
            (1, (10, 10), "Active"), (2, (25, 10), "Active"), (3, (45, 10), "Not Active"),
        )
        for index, count in enumerate(counts)
    ]  # fmt: skip
    found = reading(head + "\n".join(rows))
    assert (found.records, found.cut) == (2, False)
    assert values(found, "ecc.corrected.volatile") == {"gpu0": 45, "gpu1": 10}
    assert values(found, "ecc.corrected.delta") == {"gpu0": 35, "gpu1": 0}
    assert values(found, "throttle.hw_slowdown") == {"gpu0": 0, "gpu1": 0}
    assert next(m.window for m in found.measurements if m.window)[1] == found.taken - 0.1


def test_rows_without_a_name_belong_to_the_gpus_of_one_sample(reading):
    head = "timestamp, temperature.gpu\n"
    rows = [f"2026/11/03 01:02:{s:02d}.00{g}, {40 + g + s}" for s in (1, 2, 9) for g in range(3)]
    found = reading(head + "\n".join(rows))
    assert values(found, "temperature") == {"gpu0": 49, "gpu1": 50, "gpu2": 51}


def test_a_gpu_that_a_loop_no_longer_lists(reading):
    head = "timestamp, index, temperature.gpu\n"
    rows = [
        f"2026/11/03 01:02:{s:02d}.00{g}, {g}, 40"
        for s in range(1, 9) for g in range(3) if g != 1 or s < 4
    ]  # fmt: skip
    found = reading(head + "\n".join(rows))
    assert {(e.subject, e.code) for e in found.events} == {("gpu1", "smi.gone")}


def test_one_cell_is_a_sensors_and_the_word_lost_is_the_gpus(reading):
    columns = ("fan.speed [%]", "power.draw [W]", "remapped_rows.pending")
    found = reading(
        table(columns, ("[Unknown Error]", "90 W", "No"), ("[N/A]", "[GPU is lost]", "No"))
    )
    assert {(e.subject, e.code) for e in found.events} == {
        (BUS, "smi.unread"), (OTHER, "smi.lost"),
    }  # fmt: skip


def test_a_list_of_retired_pages_has_a_row_for_each_and_placeholders_for_none(reading):
    head = "gpu_uuid, gpu_bus_id, retired_pages.address, retired_pages.cause\n"
    rows = [
        ("2B", "0x0000000000012345"),
        ("2B", "0x00000000000ABCDE"),
        ("AC", "[N/A]"),
        ("AC", "[N/A]"),
    ]
    found = reading(head + "\n".join(
        f"GPU-0a0b0c0d-1111-2222-3333-444455556666, 00000000:{bus}:00.0, {address}, Double Bit ECC"
        for bus, address in rows
    ))  # fmt: skip
    assert values(found, "retired.pages") == {BUS: 2, OTHER: 0}


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("Tesla T4, [N/A], 33, P8\nTesla T4, [Not Supported], 35, P8\n", None),
        ("0, 00000000:2B:00.0, [GPU is lost], [GPU is lost]\n", (BUS, "smi.lost")),
        ("3, 77, [GPU is lost]\n", ("host", "smi.lost.somewhere")),
    ],
)
def test_without_a_header_nothing_but_words_is_read(reading, text, event):
    found = reading(text)
    assert (found.kind, found.measurements) == ("nvidia-smi-csv", ())
    assert "no header" in found.problems[0]
    assert {(e.subject, e.code) for e in found.events} == ({event} if event else set())


def test_a_row_that_breaks_off_is_a_cut(reading):
    whole = table(("temperature.gpu", "remapped_rows.pending"), ("40", "No"), ("41", "No"))
    found = reading(whole[: whole.rindex(",")])
    assert (found.cut, found.records) == (True, 1)
    assert not reading(whole).cut


def test_words_in_place_of_rows(reading):
    head = "index, pci.bus_id, temperature.gpu\n"
    lost = "Unable to determine the device handle for GPU 0000:AC:00.0: GPU is lost.\n"
    found = reading(head + "0, 00000000:2B:00.0, 40\n" + lost)
    assert [(e.subject, e.code) for e in found.events] == [(OTHER, "smi.lost")]
    assert (found.records, found.cut) == (1, False)
    assert reading(head).worked is False


@pytest.mark.parametrize(
    "text",
    [
        "name, count, index\nscrews, 3, 1\n",
        "timestamp, loss, lr\n1, 2, 3\n",
        "epoch,memory,power\n1,2,3\n",
        "pci.bus_id is a field of nvidia-smi, and so is index\n",
        "1, 2, 3\n4, 5, 6\n",
        'import csv\nrow = ["pci.bus_id", "index"]\n',
    ],
)
def test_other_tables_are_not_taken(reading, text):
    assert reading(text).kind == "unrecognised"
