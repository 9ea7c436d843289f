"""How lasting a cause is that several burns see, some of them now and then."""

import pytest

from rackproof.diagnostics.classify import persistence

GPU = "rack0/tray00/gpu1"
ECC, SUM = ("memory.march", "ecc.corrected.delta"), ("memory.sum", "ecc.corrected.delta")
WRONG = "gemm.{}.wrong"


def on(subject, what, *values):
    return {(what[0], subject, what[1]): values}


@pytest.mark.parametrize(
    ("first", "second", "lasting"),
    [
        ([3, 3, 3], [1, 0, 0], "persistent"),
        ([3, 3], [0, 1, 0], "persistent"),
        ([3, 0, 0], [1, 0, 0], "intermittent"),
        ([3, 0, 0], [0, 0, 0], "transient"),
        ([3, 0, 3], [1, 0, 0], "intermittent"),
    ],
)
def test_a_burn_that_never_passes_shows_what_others_see_now_and_then(bed, first, second, lasting):
    (found,) = bed(runs=on(GPU, ECC, *first) | on(GPU, SUM, *second)).judge().diagnoses
    assert found.persistence == lasting


def gemm(**values):
    return {
        (f"gemm.{precision}", GPU, WRONG.format(precision)): runs
        for precision, runs in values.items()
    }


@pytest.mark.parametrize(
    ("values", "lasting"),
    [
        ({"fp32": [3, 3, 3], "bf16": [2, 2, 2], "fp8": [1, 1, 1]}, "persistent"),
        ({"fp32": [3, 3, 3], "bf16": [2, 2, 2], "fp8": [0]}, "persistent"),
        ({"fp32": [3, 3, 3], "bf16": [2, 0, 0], "fp8": [0]}, "intermittent"),
        ({"fp32": [3, 3, 3], "bf16": [0], "fp8": [0]}, "intermittent"),
        ({"fp32": [3, 0, 0], "bf16": [0], "fp8": [0]}, "transient"),
    ],
)
def test_wrong_products_are_looked_for_alike_in_every_precision(bed, values, lasting):
    (found,) = bed(runs=gemm(**values)).judge().diagnoses
    assert (found.component, found.persistence) == ("sm", lasting)


def test_errors_of_a_link_are_counted_alike_by_every_burn_with_traffic(bed):
    link, errors = f"{GPU}/link00", "nvlink.errors.delta"
    runs = on(link, ("link.all", errors), 9, 9, 9)
    (always,) = bed(runs=runs).judge().diagnoses
    (found,) = bed(runs=runs | on(link, ("link.collective", errors), 9, 0, 0)).judge().diagnoses
    assert (always.persistence, found.persistence) == ("persistent", "intermittent")


def test_what_an_error_left_behind_does_not_make_it_lasting(bed):
    runs = on(GPU, ("memory.march", "ecc.uncorrected.delta"), 2, 0, 0)
    runs |= on(GPU, ("health", "remap.pending"), 1, 1, 1)
    (found,) = bed(runs=runs).judge().diagnoses
    assert (found.component, found.persistence) == ("hbm", "transient")


def confidence(bed, *values):
    (found,) = bed(runs=on(GPU, ECC, *values)).judge().diagnoses
    return found.confidence


def test_confidence_grows_with_what_was_seen(bed):
    assert confidence(bed, 3, 3, 3) > confidence(bed, 3, 3) > 0.5
    assert confidence(bed, 3, *[0] * 10) > confidence(bed, 3, 0, 0) > 0.5
    assert confidence(bed, 3) == 0.5
    assert persistence(1, 0) == "undetermined"
