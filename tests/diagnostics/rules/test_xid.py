"""Codes to causes: the table, the NVLink 5 sheet, and what the text adds."""

import pytest

from rackproof.diagnostics.rules import sxid, tables
from rackproof.diagnostics.rules.xid import cause_of, decode, meaning, rank, rule_of


@pytest.mark.parametrize(
    ("code", "component", "action"),
    [(13, "app", "restart-app"), (31, "app", "restart-app"), (48, "hbm", "reset-gpu"),
     (64, "hbm", "rma"), (74, "nvlink", "reset-gpu"), (79, "pcie", "reboot-node"),
     (95, "hbm", "reset-gpu"), (119, "driver", "reset-gpu"), (172, "sram", "reset-gpu"),
     (78, "driver", "update-software"), (162, "power", "none"), (54, "power", "check-power"),
     (51, "unknown", "watch"), (99999, "unknown", "watch")],
)  # fmt: skip
def test_the_table(code, component, action):
    rule = rule_of(code)
    assert (rule.component, rule.action) == (component, action)


def test_the_tables_are_whole_and_have_sources():
    assert set(tables.xids()) == set(range(1, 177))
    assert len(tables.sxids()) == 399
    assert set(tables.nvlink5()) == set(range(144, 151))
    assert all(rule.source and 0 <= rule.prior <= 1 for rule in tables.xids().values())


@pytest.mark.parametrize(
    ("codes", "first"),
    [([45, 94, 79], 79), ([45, 145, 149], 149), ([144, 149], 149), ([31, 63], 63), ([63, 64], 64),
     ([119, 48], 48), ([45, 31], 31), ([74, 79], 79)],
)  # fmt: skip
def test_which_code_is_the_root(codes, first):
    assert min(codes, key=rank) == first
    assert cause_of(f"xid.{code}" for code in codes) == rule_of(first)


def test_cause_of_skips_what_is_no_xid():
    assert cause_of(["aer.fatal", "xid.79", "xid.x"]).component == "pcie"
    assert cause_of([]).component == "unknown"


@pytest.mark.parametrize(
    ("code", "unit", "register", "status", "action"),
    [
        (144, "SAW_MVB", 0x1, 0x2, "reset-gpu"),
        (144, "SAW_MVB", 0x1, 0x4, "none"),
        (144, "SAW_MVB", 0x1, 0x6, "reset-gpu"),
        (145, "RLW_REMAP", 0x4, 0x4, "watch"),
        (145, "RLW_REMAP", 0x4, 0x40, "reset-gpu"),
        (149, "NETIR_LINK_EVT", 0x025001C6, 0, "reset-gpu"),
        (149, "NETIR_LINK_DOWN", 0x026001C6, 0, "watch"),
        (149, "NETIR_BER_EVENT", 0x00000226, 0x1, "watch"),
        (150, "MSE_WATCHDOG", 0, 0, "reset-gpu"),
    ],
)
def test_the_nvlink_5_sheet(code, unit, register, status, action):
    row = decode(code, {"unit": unit, "register": register, "status": status})
    assert row.action == action


def test_what_the_sheet_does_not_know_goes_by_its_severity():
    for severity, action in (("fatal", "reset-gpu"), ("non-fatal", "watch")):
        detail = {"unit": "NEW_UNIT", "register": 1, "status": 1, "severity": severity}
        assert decode(144, detail) is None
        assert meaning(144, detail, "").action == action


@pytest.mark.parametrize(
    ("number", "action"), [(0, "none"), (1, "reset-gpu"), (2, "reboot-node"), (99, "watch")]
)
def test_154_goes_by_its_number(number, action):
    assert meaning(154, {"action": number}, "whatever it is called").action == action


@pytest.mark.parametrize(
    ("code", "said", "action"),
    [(20034, {"severity": "fatal"}, "reset-gpu"), (20001, {"severity": "non-fatal"}, "watch"),
     (20001, {"severity": "fatal"}, "reset-gpu"), (23001, {"severity": "fatal"}, "reboot-node"),
     (11002, {"severity": "non-fatal"}, "watch"), (11002, {"severity": "fatal"}, "reset-gpu"),
     (10005, {"severity": "non-fatal"}, "none"), (99999, {"severity": "fatal"}, "reset-gpu"),
     (99999, {}, "watch")],
)  # fmt: skip
def test_sxids(code, said, action):
    assert sxid.meaning(code, said).action == action
