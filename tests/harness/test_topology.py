"""Every link ends at one switch of its own rack, and every switch has its share."""

import pytest

from rackproof.harness import spec
from rackproof.harness.errors import SpecError
from rackproof.harness.topology import links_of, shares, switch_of

EMULATED = ("gb200-nvl72", "gb300-nvl72", "catalina", "vr-nvl72", "hgx-h100", "hgx-b200")


def test_the_shares_of_the_contract() -> None:
    assert shares(18, 18) == (1,) * 18
    assert shares(18, 4) == (5, 4, 4, 5)
    assert shares(18, 2) == (9, 9)
    assert shares(18, 0) == ()


@pytest.mark.parametrize("links", range(20))
@pytest.mark.parametrize("switches", range(1, 20))
def test_shares_are_even_and_leave_no_link_out(links: int, switches: int) -> None:
    found = shares(links, switches)
    assert len(found) == switches
    assert sum(found) == links
    assert max(found) - min(found) <= 1


def test_link_l_of_every_gpu_of_an_nvl72_goes_to_switch_l() -> None:
    rack = spec.load("gb300-nvl72")
    assert switch_of(rack, rack.gpus[40], 7) == "rack0/switch07"
    assert len(links_of(rack, "rack0/switch07")) == 72


def test_a_gpu_of_catalina_reaches_the_switches_of_its_own_rack() -> None:
    rack = spec.load("catalina")
    assert switch_of(rack, rack.gpu("rack1/tray17/gpu1"), 17) == "rack1/switch17"
    assert len(links_of(rack, "rack1/switch17")) == 36
    assert all(link.startswith("rack1/") for link in links_of(rack, "rack1/switch17"))


def test_an_hgx_h100_has_five_links_at_the_outer_switches() -> None:
    rack = spec.load("hgx-h100")
    gpu = rack.gpus[0]
    numbers = [switch_of(rack, gpu, link) for link in range(18)]
    assert [numbers.count(f"rack0/switch{n:02d}") for n in range(4)] == [5, 4, 4, 5]


@pytest.mark.parametrize("name", EMULATED)
def test_every_link_ends_at_exactly_one_switch(name: str) -> None:
    rack = spec.load(name)
    found = [link for switch in rack.switches for link in links_of(rack, switch)]
    assert len(found) == len(set(found)) == len(rack.gpus) * 18


def test_a_link_or_a_switch_that_is_not_there_is_refused() -> None:
    rack = spec.load("gb300-nvl72")
    for link in (-1, 18):
        with pytest.raises(SpecError, match="no link"):
            switch_of(rack, rack.gpus[0], link)
    with pytest.raises(SpecError, match="no switch"):
        links_of(rack, "rack0/switch18")


def test_a_rack_without_switches_has_none_to_name() -> None:
    text = b"[rack]\nname='a'\nsource='real'\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku='h200'\n"
    rack = spec.build(text, "a.toml")
    assert switch_of(rack, rack.gpus[0], 3) is None
