"""What conclusions cost, worked by hand from loss.toml."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.evaluation import worlds
from rackproof.diagnostics.evaluation.bench import Conclusion
from rackproof.diagnostics.evaluation.losses import deed, lost
from rackproof.diagnostics.evaluation.trials import label
from rackproof.diagnostics.retest.model import Cause
from tests.diagnostics.evaluation.test_answers import incident

WORLD = replace(worlds.world("matched"), reset_clears=1.0, reboot_clears=1.0)
AWAY = ("somewhere", "pci:0000:01:00.0")


def told(place, component, action, persistence="undetermined"):
    return Conclusion(place, component, persistence, action)


CASES = [
    # the cause, whether it is stuck, what is named and done, and what that loses
    (Cause.PERSISTENT, False, ("hbm", "rma"), 0.0),
    (Cause.PERSISTENT, False, ("hbm", "field-diag"), 0.0),
    (Cause.PERSISTENT, False, ("hbm", "reset-gpu"), 0.1 + 60.0),
    (Cause.PERSISTENT, False, ("hbm", "watch"), 4.7 + 20.0),
    (Cause.PERSISTENT, False, ("nvlink", "check-cabling"), 8.0 + 60.0),
    (Cause.INTERMITTENT, False, ("hbm", "watch"), 4.7 + 10.0),
    (Cause.INTERMITTENT, False, ("hbm", "none"), 40.0),
    (Cause.INTERMITTENT, False, ("hbm", "swap-to-spare"), 0.0),
    (Cause.INTERMITTENT, False, ("hbm", "field-diag"), 0.5 * 40.0),
    (Cause.TRANSIENT, False, ("hbm", "none"), 0.0),
    (Cause.TRANSIENT, False, ("hbm", "swap-to-spare"), 96.0),
    (Cause.TRANSIENT, False, ("hbm", "watch"), 4.7),
    (Cause.TRANSIENT, True, ("hbm", "none"), 20.0),
    (Cause.TRANSIENT, True, ("hbm", "reset-gpu"), 0.0),
    (Cause.TRANSIENT, True, ("hbm", "rma"), 96.0 - 0.1),
    (Cause.APP, False, ("app", "restart-app"), 0.0),
    (Cause.APP, False, ("hbm", "rma"), 96.0 + 20.0),
    (Cause.DRIVER, True, ("driver", "update-software"), 4.0 - 0.1),
    (Cause.DRIVER, True, ("driver", "none"), 20.0),
    (Cause.LINK, False, ("nvlink", "check-cabling"), 0.0),
    (Cause.LINK, False, ("nvlink", "rma"), 96.0 + 60.0),
    (Cause.LINK, False, ("nvlink", "field-diag"), 16.0 - 8.0),
    (Cause.SWITCH, False, ("nvswitch", "field-diag"), 16.0 - 8.0),
    (Cause.SWITCH, False, ("nvlink", "check-cabling"), 8.0 + 60.0),
    (Cause.HOST, False, ("power", "check-power"), 0.0),
    (Cause.HOST, False, ("host", "reboot-node"), 0.8 * 60.0),
    (Cause.NIC, False, ("nic", "check-cabling"), 0.0),
]


@pytest.mark.parametrize(
    ("cause", "stuck", "said", "hours"), CASES,
    ids=[f"{c[0]}{'-stuck' * c[1]}-{c[2][0]}-{c[2][1]}" for c in CASES],
)  # fmt: skip
def test_one_conclusion_at_the_right_place(cause, stuck, said, hours):
    found = incident(cause)
    own = [told(found.home, *said)]
    assert lost(found, WORLD, own, stuck=stuck, cured=False) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("said", "hours"),
    [([], 60.0), ([("hbm", "rma")], 60.0 + 96.0), ([("app", "restart-app")], 60.0)],
    ids=["nothing-said", "another-gpu-replaced", "another-place-and-nothing-done"],
)
def test_what_is_said_elsewhere_is_waste_and_the_fault_stays(said, hours):
    found = incident(Cause.PERSISTENT)
    own = [told(AWAY, *words) for words in said]
    assert lost(found, WORLD, own, stuck=False, cured=False) == pytest.approx(hours)


def test_what_a_retest_cured_strikes_no_more():
    found = incident(Cause.LINK)
    assert lost(found, WORLD, [], stuck=False, cured=True) == 0.0


@pytest.mark.parametrize(
    ("component", "persistence", "action", "name"),
    [
        ("app", "transient", "restart-app", "app"),
        ("driver", "undetermined", "reset-gpu", "driver"),
        ("hbm", "transient", "watch", "transient"),
        ("hbm", "undetermined", "reset-gpu", "transient"),
        ("hbm", "undetermined", "watch", "open"),
        ("hbm", "undetermined", "retest", "open"),
        ("hbm", "undetermined", "rma", "persistent"),
        ("hbm", "persistent", "swap-to-spare", "persistent"),
        ("hbm", "intermittent", "watch", "intermittent"),
        ("nvlink", "persistent", "check-cabling", "link"),
        ("nvlink", "persistent", "swap-to-spare", "persistent"),
        ("pcie", "intermittent", "watch", "intermittent"),
        ("nvswitch", "persistent", "field-diag", "switch"),
        ("fabric", "undetermined", "reset-gpu", "transient"),
        ("power", "undetermined", "check-power", "host"),
        ("nic", "persistent", "check-cabling", "nic"),
    ],
)
def test_a_conclusion_comes_down_to_one_cause(component, persistence, action, name):
    assert label(told(AWAY, component, action, persistence)) == name


@pytest.mark.parametrize(
    ("component", "action", "done"),
    [
        ("hbm", "field-diag", "diagnose"), ("host", "field-diag", "host"),
        ("nvswitch", "field-diag", "switch"), ("nic", "field-diag", "nic"),
        ("pcie", "field-diag", "link"), ("unknown", "check-cabling", "link"),
        ("thermal", "check-cooling", "host"), ("hbm", "move-to-spare-rack", "replace"),
        ("sm", "retest", "leave"),
    ],
)  # fmt: skip
def test_a_deed_is_named_by_what_it_looks_at(component, action, done):
    assert deed(told(AWAY, component, action)) == done
