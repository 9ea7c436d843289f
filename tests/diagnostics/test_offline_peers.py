"""Counters and rates of all files of a call, each against its like."""

from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.model import Measurement
from rackproof.harness.readers import Reading

T = 1_772_424_306.0
MINUTE = 60.0


def node(number, values, taken=None, gpus=8):
    """One file of one node; `values` gives {metric: value} by GPU, and by GPU and link."""
    found = []
    for gpu in range(gpus):
        place = f"pci:0000:{gpu:02x}:00.0"
        found.append(Measurement("x", place, "gpu.name", "X", "text"))
        found.append(Measurement("x", place, "remap.pending", 0, "flag"))
        for metric, value in values(gpu).items():
            link = "/link03" if metric.startswith("nvlink") else ""
            unit = "GB/s" if metric.endswith("rate") else "errors"
            found.append(Measurement("x", place + link, metric, value, unit))
    return Reading(Path(f"{number}-{taken}.txt"), "nvidia-smi-q", gpus, host=f"n{number}",
                   measurements=tuple(found), taken=taken)  # fmt: skip


def hall(metric, usual, odd, at=(), taken=None, nodes=4):
    return [node(n, lambda g, n=n: {metric: odd if (n, g) in at else usual}, taken)
            for n in range(nodes)]  # fmt: skip


def roots(found):
    return [(d.subject, d.component, d.action) for d in found.diagnoses if d.role == "root"]


SICK = {(2, 5)}
PLACE = "host:n2/pci:0000:05:00.0"


@pytest.mark.parametrize(
    ("metric", "usual", "odd", "expected"),
    [
        ("nvlink.recoveries", 0, 505, [(f"{PLACE}/link03", "nvlink", "watch")]),
        ("nvlink.recoveries", 0, 9, []),
        ("nvlink.recoveries", 8, 505, []),
        ("nvlink.replays", 0, 5000, [(f"{PLACE}/link03", "nvlink", "watch")]),
        ("ecc.corrected.volatile", 3, 5000, [(PLACE, "hbm", "watch")]),
        ("ecc.corrected.volatile", 3, 250, []),
        ("ecc.corrected.volatile", 900_000, 54_000_000_000, [(PLACE, "hbm", "watch")]),
        ("copy.h2d.rate", 50.0, 40.0, [(PLACE, "pcie", "watch")]),
        ("copy.h2d.rate", 50.0, 25.0, [(PLACE, "pcie", "check-cabling")]),
        ("copy.h2d.rate", 50.0, 45.0, []),
    ],
)
def test_one_of_32_that_is_not_like_the_others(metric, usual, odd, expected):
    found = judge_inputs(hall(metric, usual, odd, SICK))
    assert roots(found) == expected
    healthy = judge_inputs(hall(metric, usual, usual))
    assert (healthy.verdict, healthy.diagnoses) == ("PASS", ())


def test_gpus_of_the_far_socket_are_a_plateau_and_no_fault():
    far = {(n, g) for n in range(4) for g in (4, 5, 6, 7)}
    assert roots(judge_inputs(hall("copy.h2d.rate", 55.0, 44.0, far))) == []
    assert roots(judge_inputs(hall("copy.h2d.rate", 55.0, 44.0, {(1, 4)}, nodes=1))) == []


def two(metric, first, second, minutes):
    return [*hall(metric, 0, first, SICK, T), *hall(metric, 0, second, SICK, T + minutes * MINUTE)]


def test_what_grows_where_the_others_stand_still_is_named():
    found = judge_inputs(two("nvlink.recoveries", 2, 5, 21))
    assert roots(found) == [(f"{PLACE}/link03", "nvlink", "watch")]
    assert "3 more in 21 min" in found.diagnoses[0].because[0]
    assert judge_inputs(two("nvlink.recoveries", 2, 2, 21)).verdict == "PASS"


@pytest.mark.parametrize(
    ("model", "action"),
    [("NVIDIA H100 80GB HBM3", "check-cabling"), ("NVIDIA GB300", "watch"), ("Y9", "watch")],
)
def test_what_grows_between_two_files_is_judged_by_the_generation(model, action):
    files = [
        replace(one, measurements=tuple(
            replace(m, value=model) if m.metric == "gpu.name" else m for m in one.measurements))
        for one in two("nvlink.recoveries", 0, 1, 30)
    ]  # fmt: skip
    assert roots(judge_inputs(files)) == [(f"{PLACE}/link03", "nvlink", action)]


def test_a_total_that_grows_as_well_is_told_with_more_confidence():
    total = judge_inputs(two("nvlink.recoveries", 505, 505, 21)).diagnoses[0]
    both = judge_inputs(two("nvlink.recoveries", 505, 508, 21)).diagnoses[0]
    assert len(both.because) == len(total.because) + 1
    assert both.confidence >= total.confidence


def test_crc_errors_at_a_rate_are_a_fault():
    slow, fast = two("nvlink.crc", 0, 50 * 60, 1), two("nvlink.crc", 0, 100 * 60, 1)
    assert roots(judge_inputs(slow)) == [(f"{PLACE}/link03", "nvlink", "watch")]
    assert roots(judge_inputs(fast)) == [(f"{PLACE}/link03", "nvlink", "check-cabling")]


@pytest.mark.parametrize(("grown", "watched"), [(31 * 5, False), (31 * 5 + 1, True)])
def test_pcie_replays_are_held_against_lanes_and_generation(grown, watched):
    def values(gpu, count):
        more = {"pcie.width": 16, "pcie.width.max": 16, "pcie.gen.max": 5}
        return more | {"pcie.replays": 100 + (count if gpu == 5 else 0)}

    files = [node(2, lambda g: values(g, 0), T), node(2, lambda g: values(g, grown), T + 300)]
    expected = [("pci:0000:05:00.0", "pcie", "watch")] if watched else []
    assert roots(judge_inputs(files)) == expected


def test_a_counter_that_was_set_back_has_grown_by_what_it_shows():
    found = judge_inputs(two("nvlink.recoveries", 9, 4, 21))
    assert "4 more in 21 min" in found.diagnoses[0].because[0]


def test_many_links_of_one_gpu_are_the_gpus():
    def file(n):
        found = [
            Measurement("x", f"pci:0000:{g:02x}:00.0/link{k:02d}", "nvlink.recoveries",
                        700 if (n, g) == (2, 5) else 0, "events")
            for g in range(8) for k in range(18)
        ]  # fmt: skip
        return Reading(Path(f"{n}.txt"), "nvidia-smi-nvlink", 8, measurements=tuple(found),
                       host=f"n{n}")  # fmt: skip

    assert roots(judge_inputs([file(n) for n in range(4)])) == [(PLACE, "nvlink", "watch")]
