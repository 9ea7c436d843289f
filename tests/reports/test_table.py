"""The table holds every check once, with types that survive, and no formula of a stranger."""

import builtins
import csv as csv_module
import io

import pandas as pd
import pytest

from rackproof.harness.errors import RecordError, SpecError
from rackproof.harness.model import Missing, Why
from rackproof.reports.table import COLUMNS, csv, frame, parquet


def test_one_row_a_check(run_of, failing) -> None:
    record, judgement = run_of(failing())
    table = frame(record, judgement)
    assert list(table.columns) == COLUMNS
    assert len(table) == len(judgement.checks)
    bad = table[(table.subject == "rack0/tray00/gpu1") & (table.metric == "ecc.corrected.delta")]
    row = bad[bad.burn == "memory.march"].iloc[0]
    assert (row.value, row.unit, row.high, row.verdict) == (63.0, "errors", 0.0, "FAIL")
    assert (row.serial, row.runs, row.decided_by) == ("1650000000001", "63, 63, 64", "spec")
    assert not row.waived
    assert table[table.waived].metric.tolist() == ["temperature"]


def test_a_missing_reading_is_empty_and_never_zero(run_of, failing) -> None:
    table = frame(*run_of(failing()))
    gap = table[table.verdict == "UNKNOWN"].iloc[0]
    assert pd.isna(gap.value)
    assert pd.isna(gap.text)
    read = csv(*run_of(failing()))
    rows = list(csv_module.DictReader(io.StringIO(read)))
    assert [r["value"] for r in rows if r["verdict"] == "UNKNOWN"] == [""]


def test_texts_and_numbers_keep_their_columns(run_of, case) -> None:
    table = frame(*run_of(case()))
    driver = table[table.metric == "driver.version"].iloc[0]
    assert driver.text == "580.105.08"
    assert pd.isna(driver.value)
    assert table.value.dtype == "float64"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", " =", "\n@"])
def test_a_formula_is_made_harmless(run_of, case, start) -> None:
    evil = f"{start}HYPERLINK(1)"
    gap = Missing("health", "rack0/tray00/gpu0", "temperature", Why.NO_READING, evil, "")
    rows = list(csv_module.DictReader(io.StringIO(csv(*run_of(case(missing=[gap]))))))
    (row,) = [r for r in rows if r["verdict"] == "UNKNOWN"]
    assert row["message"].startswith("'")
    assert row["message"].endswith("HYPERLINK(1)")


def test_a_number_below_zero_stays_a_number(run_of, case) -> None:
    cold = {("health", "rack0/tray00/gpu0", "thermal.margin"): [-4.5]}
    rows = list(csv_module.DictReader(io.StringIO(csv(*run_of(case(runs=cold))))))
    (row,) = [r for r in rows if r["metric"] == "thermal.margin" and r["verdict"] == "FAIL"]
    assert float(row["value"]) == -4.5


def test_parquet_gives_the_same_table(run_of, failing, tmp_path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install pyarrow)")
    path = tmp_path / "checks.parquet"
    parquet(*run_of(failing()), path)
    read = pd.read_parquet(path)
    assert len(read) == 770
    assert read.value.dtype == "float64"
    assert read[read.verdict == "FAIL"].runs.tolist()[-2:] == ["63, 63, 64", "1, 0, 0"]
    with pytest.raises(RecordError, match="cannot be written"):
        parquet(*run_of(failing()), tmp_path / "nowhere" / "checks.parquet")


def test_without_pyarrow_the_extra_is_named(run_of, case, tmp_path, monkeypatch) -> None:
    real = builtins.__import__

    def no_pyarrow(name, *arguments, **options):
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(SpecError, match=r"pip install rackproof\[parquet\]"):
        parquet(*run_of(case()), tmp_path / "x.parquet")
