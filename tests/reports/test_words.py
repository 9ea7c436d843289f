"""Places in short, values with units, and nothing invisible in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.limits import Limit
from rackproof.reports.words import bounds, places, shown, to_do, visible


def test_places_are_written_as_ranges() -> None:
    rack = [f"rack0/tray{t:02d}/gpu{g}" for t in range(18) for g in range(4)]
    assert places(rack) == ["rack0/tray00–17/gpu0–3"]
    assert places([*rack[:4], *rack[8:12]]) == ["rack0/tray00,02/gpu0–3"]
    assert places(["rack0/tray00/gpu0", "rack0/tray01/gpu1"]) == [
        "rack0/tray00/gpu0",
        "rack0/tray01/gpu1",
    ]
    assert places(["fabric", "rack0/tray00/host", "rack0/tray01/host", "nic:mlx5_3"]) == [
        "fabric",
        "nic:mlx5_3",
        "rack0/tray00–01/host",
    ]
    assert places([]) == []


@given(st.lists(st.text("abgpu/0129", max_size=12), max_size=12))
def test_places_never_fail_on_strange_subjects(subjects) -> None:
    assert len(places(subjects)) <= len(set(subjects))


@given(st.text(max_size=40))
def test_nothing_invisible_remains(text) -> None:
    assert visible(text).isprintable()


def test_long_texts_are_cut_and_it_is_said() -> None:
    assert visible("x" * 700).endswith("… (100 more characters)")


def test_values_and_bounds() -> None:
    assert shown(None) == "–"
    assert shown(1 / 3, "C") == "0.333333 C"
    assert shown(0, "errors") == "0 errors"
    assert shown(1, "flag") == "yes"
    assert bounds(Limit("temperature", "s", "spec", low=1.0, high=87.0)) == "≥ 1 C and ≤ 87 C"
    assert bounds(Limit("fabric.state", "s", "spec", equal="completed")) == "= completed"


@pytest.mark.parametrize(
    ("subject", "component", "action", "word"),
    [
        ("host:n3", "thermal", "check-cooling", "look at"),
        ("host:n3", "power", "check-power", "look at"),
        ("host:n3", "host", "watch", "look at"),
        ("nic:mlx5_2", "nic", "check-cabling", "look at"),
        ("pci:0000:5a:00.0", "storage", "retest", "ook at"),
        ("host:n3/pci:0000:5a:00.0", "thermal", "check-cooling", "burn"),
        ("pci:0000:5a:00.0/link03", "nvlink", "check-cabling", "burn"),
        ("rack0/power/shelf2", "power", "check-power", "burn"),
    ],
)
def test_what_is_no_gpu_is_not_burnt(subject, component, action, word):
    said = to_do({"subject": subject, "component": component, "action": action})
    assert word in said
    assert ("urn it" in said) == (word == "burn")
