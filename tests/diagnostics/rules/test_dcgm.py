"""DCGM's error codes: every one has a meaning, and its severity decides what is nobody's fault."""

import pytest

from rackproof.diagnostics.diagnosis import ACTIONS, COMPONENTS
from rackproof.diagnostics.rules import dcgm, signs, tables
from rackproof.diagnostics.rules.xid import KINDS
from rackproof.harness.model import Event


def rule(code, **detail):
    return signs.meaning(Event("gpu1", code, "", detail=detail))


def test_every_code_is_there_with_words_of_the_contract():
    rows = tables.rows("dcgm_errors.csv")
    assert [int(row["code"]) for row in rows] == list(range(1, 118))
    for row in rows:
        assert row["component"] in COMPONENTS
        assert row["action"] in ACTIONS
        assert row["kind"] in KINDS
        assert row["shared"] in ("", "host", "fabric")
        assert row["source"]


def test_software_and_configuration_accuse_no_part():
    """Severity 5 is configuration; nothing that only software can have is a FAIL of a part."""
    for row in tables.rows("dcgm_errors.csv"):
        found = rule(f"dcgm.fr.{row['code']}", severity=5)
        assert found.kind not in ("hardware", "terminal")
        if row["component"] in ("driver", "host", "app"):
            assert row["action"] in ("watch", "retest", "update-software", "none")


@pytest.mark.parametrize(
    ("code", "component", "action", "kind"),
    [
        (4, "hbm", "reset-gpu", "hardware"),
        (14, "nvlink", "reset-gpu", "hardware"),
        (29, "host", "watch", "watch"),
        (40, "thermal", "check-cooling", "hardware"),
        (52, "hbm", "field-diag", "hardware"),
        (66, "driver", "retest", "watch"),
        (80, "hbm", "rma", "terminal"),
        (98, "pcie", "check-cabling", "hardware"),
        (25, "app", "watch", "app"),
    ],
)
def test_codes_that_matter(code, component, action, kind):
    found = rule(f"dcgm.fr.{code}")
    assert (found.component, found.action, found.kind) == (component, action, kind)


@pytest.mark.parametrize(
    ("severity", "category", "component", "action"),
    [(2, 11, "nvlink", "field-diag"), (6, 10, "hbm", "reset-gpu"), (1, 9, "thermal", "watch"),
     (4, 13, "pcie", "retest"), (5, 10, "hbm", "retest"), (0, 0, "unknown", "retest"),
     (99, 99, "unknown", "retest")],
)  # fmt: skip
def test_a_code_of_the_future_is_judged_by_what_the_file_says(
    severity, category, component, action
):
    found = rule("dcgm.fr.4711", severity=severity, category=category)
    assert (found.component, found.action) == (component, action)
    assert dcgm.shared_by("dcgm.fr.4711") == "host"


def test_who_is_the_root_where_all_show_it():
    assert signs.shared_by("dcgm.fr.40") == "host"
    assert signs.shared_by("dcgm.fr.14") == "fabric"
    assert signs.shared_by("dcgm.fr.52") == ""
