"""Of what stands around the GPUs nobody is told to swap a GPU: words for a rack's power."""

import pytest

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.classify import diagnose
from rackproof.diagnostics.evidence import Head, Planned
from rackproof.diagnostics.verdict import Verdict

GPU = "rack0/tray00/gpu1"


@pytest.mark.parametrize(
    ("metric", "site"), [("power.step.line", True), ("power.store.charge", False)]
)
def test_of_a_racks_power_nobody_is_told_to_swap_a_gpu(metric, site):
    head = Head(
        rack="r", source="emulated", seed=1, level="acceptance", verb="burn", gpus={GPU: "gb300"},
        hosts=[], links=0, limits={}, today="2026-07-30", around={"power": ["rack0/power"]},
        plan=[Planned("power.step", {"power": (metric,)}, 300.0, wide=True)],
    )  # fmt: skip
    check = Check(
        "power.step", "rack0/power", metric, Verdict.FAIL, "outside", "W", value=9.0,
        runs=(9.0, 9.0, 9.0), failed=(True, True, True), attempts=(1, 2, 3),
    )  # fmt: skip
    (found,) = diagnose(head, [check], [], {})
    told = " ".join(found.because)
    assert (found.subject, found.component, found.action) == (
        "rack0/power", "power", "check-power",
    )  # fmt: skip
    assert "neighbour" not in told
    assert "reset" not in told
    assert ("iteration period" in told) is site
