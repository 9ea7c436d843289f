"""The rack's own limits: a soak's heat beside its tray, copies and links beside like GPUs."""

import pytest

from rackproof.diagnostics.evidence import Planned

SOAK = ("thermal.soak", "thermal.soak.temperature")
PLAN = (
    Planned("thermal.soak", {"gpu": ["thermal.soak.temperature"]}),
    Planned("copy.h2d", {"gpu": ["copy.h2d.rate"]}),
    Planned("gemm.fp32", {"gpu": ["gemm.fp32.digest"]}),
)


def soak(bed, temperatures, gpus=4, **fields):
    trays = -(-len(temperatures) // gpus)
    whole = bed(plan=PLAN, trays=trays, gpus=gpus, layers=(), **fields)
    runs = {
        (SOAK[0], gpu, SOAK[1]): [value]
        for gpu, value in zip(whole.head().gpus, temperatures, strict=True)
    }
    found = bed(plan=PLAN, trays=trays, gpus=gpus, layers=(), runs=runs, **fields).judge()
    return {c.subject: c for c in found.checks if c.metric == SOAK[1]}


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_hot_gpu_stands_out_of_its_own_tray_by_ten_kelvin(bed, gpus):
    cool, warm = [50.0] * (gpus - 1), [70.0] * (gpus - 1)
    checks = soak(bed, [*cool, 60.5, *warm, 79.5], gpus)
    failed = [s for s, c in checks.items() if c.verdict == "FAIL"]
    assert failed == [f"rack0/tray00/gpu{gpus - 1}"]
    check = checks[failed[0]]
    assert check.decided_by == "median"
    assert check.limit.high == pytest.approx(60.0)
    assert f"{gpus} GPUs beside it" in check.limit.source


def test_trays_of_two_are_held_against_their_rack(bed):
    checks = soak(bed, [50.0] * 7 + [61.0], gpus=2)
    assert [s for s, c in checks.items() if c.verdict == "FAIL"] == ["rack0/tray03/gpu1"]
    assert "8 GPUs beside it" in checks["rack0/tray03/gpu1"].limit.source


def test_where_nobody_stands_beside_it_the_heat_is_only_noted(bed):
    checks = soak(bed, [50.0, 80.0], gpus=2)
    assert checks == {}, "optional: judged where a limit exists"


def test_a_users_limit_judges_it_alone_too(bed):
    text = '[[limit]]\nmetric = "thermal.soak.temperature"\nhigh = 75\nunit = "C"\nsource = "us"\n'
    checks = soak(bed, [50.0, 80.0], gpus=2, limits=text)
    assert [str(c.verdict) for c in checks.values()] == ["PASS", "FAIL"]


def test_copies_have_a_median(bed):
    runs = {("copy.h2d", "rack0/tray00/gpu1", "copy.h2d.rate"): [150.0]}
    checks = bed(plan=PLAN, runs=runs).judge().checks
    failed = [c for c in checks if c.verdict == "FAIL"]
    assert [(c.subject, c.decided_by) for c in failed] == [("rack0/tray00/gpu1", "median")]


def test_like_gpus_compute_like_bits(bed):
    gpus = list(bed().head().gpus)
    runs = {("gemm.fp32", gpu, "gemm.fp32.digest"): ["a1"] for gpu in gpus}
    runs["gemm.fp32", gpus[3], "gemm.fp32.digest"] = ["b2"]
    found = bed(plan=PLAN, runs=runs).judge()
    assert [(d.subject, d.component) for d in found.diagnoses] == [(gpus[3], "sm")]
