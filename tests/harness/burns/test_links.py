"""link.pair, link.all and link.collective on emulated racks: healthy, and with one thing wrong."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rackproof.diagnostics.limits import Limits, shipped
from rackproof.fixtures.plant import plant
from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.burns.links import bus_bandwidth, lacks
from rackproof.harness.devices import connect
from rackproof.harness.devices.protocol import Reduced
from rackproof.harness.errors import DeviceError
from rackproof.harness.faults import parse_all
from rackproof.harness.model import Event, Measurement, Missing, sort_of
from rackproof.harness.spec import build, load

GPU, LINK = "rack0/tray00/gpu1", "rack0/tray00/gpu1/link07"
IDS = ("link.pair", "link.all", "link.collective")
# what holds for one subject by itself, with no look at the others
OWN = {"nvlink.active", "nvlink.share", "nvlink.errors.delta", "nvlink.recoveries.delta",
       "link.pair.wrong", "link.pair.coverage", "link.all.wrong", "link.collective.wrong",
       "xid.count", "gpu.present"}  # fmt: skip
LIMITS = {metric: Limits(shipped()).of(metric, "*", None) for metric in OWN}


class Rack:
    """A rack with faults, and what its link burns see."""

    def __init__(self, name: str, *faults: str, seed: int = 7, horizon: float = 20.0) -> None:
        self.spec = load(name)
        self.bench = connect(self.spec, seed=seed)
        self.seed = seed
        planted = parse_all(faults, self.spec, seed)
        self.planted = plant(self.bench, planted, horizon_s=horizon)

    def burn(self, burn: str, attempt: int = 1, **more) -> SimpleNamespace:
        settings = Settings("acceptance", self.seed, attempt, **more)
        seen = execute(BURNS[burn], self.bench, "fabric", settings)
        values = {(s.subject, s.metric): s.value for s in seen if isinstance(s, Measurement)}
        outside = sorted(
            (subject, metric)
            for (subject, metric), value in values.items()
            if metric in OWN and not all(limit.allows(value) for limit in LIMITS[metric])
        )
        return SimpleNamespace(
            values=values,
            outside=outside,
            gaps={(s.subject, s.metric): s for s in seen if isinstance(s, Missing)},
            events={(s.subject, s.code) for s in seen if isinstance(s, Event)},
            seen=seen,
        )


@pytest.fixture
def racks() -> Iterator:
    made: list[Rack] = []

    def opened(*arguments, **more) -> Rack:
        made.append(Rack(*arguments, **more))
        return made[-1]

    yield opened
    for rack in made:
        rack.bench.close()


# --- healthy -------------------------------------------------------------------------------------
@pytest.mark.parametrize("burn", IDS)
@pytest.mark.parametrize("name", ["hgx-h100", "hgx-b200", "gb300-nvl72", "catalina"])
def test_a_healthy_rack_gives_what_it_owes_within_limits(racks, name, burn):
    rack = racks(name)
    found = rack.burn(burn)
    assert (found.outside, found.gaps, found.events) == ([], {}, set())
    owed = {
        (subject, metric)
        for sort, metrics in BURNS[burn].owes.items()
        for subject in rack.spec.of_sort(sort)
        for metric in metrics
    }
    assert owed <= set(found.values)


@pytest.mark.parametrize("seed", range(20))
def test_no_link_of_a_healthy_rack_is_near_a_limit(racks, seed):
    rack = racks("gb300-nvl72" if seed % 5 == 0 else "hgx-h100", seed=seed)
    for burn in IDS[:2]:
        found = rack.burn(burn)
        assert found.outside == []
        shares = [v for (_, metric), v in found.values.items() if metric == "nvlink.share"]
        assert len(shares) == rack.spec.links * len(rack.spec.gpus)
        assert 0.98 < min(shares) < max(shares) < 1.02
        rates = [v for (_, metric), v in found.values.items() if metric == f"{burn}.rate"]
        assert min(rates) / max(rates) > 0.95


def test_the_same_seed_sees_the_same_and_another_does_not(racks):
    first, again, other = (racks("hgx-h100", seed=seed) for seed in (1, 1, 2))
    for burn in IDS:
        seen = first.burn(burn).seen
        assert seen == again.burn(burn).seen
        assert seen != other.burn(burn).seen


# --- one thing wrong -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["hgx-h100", "hgx-b200", "gb300-nvl72", "catalina"])
def test_half_the_rate_on_one_of_18_links_is_found_on_that_link_alone(racks, name):
    rack = racks(name, f"nvlink-degraded@{LINK}")
    healthy = racks(name)
    for burn in IDS[:2]:
        found = rack.burn(burn)
        assert found.outside == [(LINK, "nvlink.share")]
        assert found.values[LINK, "nvlink.share"] == pytest.approx(0.5 / (17.5 / 18), rel=0.02)
        assert found.values[GPU, f"{burn}.rate"] == pytest.approx(
            (17.5 / 18) * healthy.burn(burn).values[GPU, f"{burn}.rate"], rel=0.01
        )
    assert rack.planted.fired == [2]
    assert rack.bench.devices[GPU].telemetry.read_link("nvlink.speed", 7) > 0
    assert rack.burn("link.collective").outside == []


@pytest.mark.parametrize("name", ["hgx-h100", "gb300-nvl72"])
def test_a_dead_link_carries_nothing_and_its_gpu_alone_is_slower(racks, name):
    rack = racks(name, f"nvlink-down@{LINK}")
    for burn in IDS[:2]:
        found = rack.burn(burn)
        assert found.outside == [(LINK, "nvlink.active"), (LINK, "nvlink.share")]
        assert found.values[LINK, "nvlink.share"] == 0.0
        rates = {s: v for (s, metric), v in found.values.items() if metric == f"{burn}.rate"}
        others = [v for s, v in rates.items() if s != GPU]
        assert rates[GPU] < 0.98 * min(others)
        assert min(others) > 0.96 * max(others)


@pytest.mark.parametrize(
    ("name", "switch"),
    [
        ("hgx-h100", "rack0/switch03"),
        ("gb300-nvl72", "rack0/switch07"),
        ("catalina", "rack1/switch07"),
    ],
)
def test_a_dead_switch_is_the_same_links_of_all_its_gpus_and_no_other(racks, name, switch):
    rack = racks(name, f"nvswitch-down@{switch}")
    links = range(13, 18) if name == "hgx-h100" else [7]
    mine = [s for s in rack.bench.devices if s.startswith(switch.partition("/")[0])]
    dark = {f"{gpu}/link{n:02d}" for gpu in mine for n in links}
    for burn in IDS:
        found = rack.burn(burn)
        names = (
            ("nvlink.active", "nvlink.share") if burn != "link.collective" else ("nvlink.active",)
        )
        assert set(found.outside) == {(link, metric) for link in dark for metric in names}


@pytest.mark.parametrize(("name", "root"), [("hgx-h100", "xid.74"), ("hgx-b200", "xid.149")])
def test_a_link_that_drops_is_found_in_the_runs_in_which_it_does(racks, name, root):
    rack = racks(name, f"nvlink-flap@{LINK}:rate=0.5")
    struck = 0
    for burn in IDS:
        for attempt in range(1, 7):
            before = rack.planted.fired[0]
            found = rack.burn(burn, attempt)
            fired = rack.planted.fired[0] - before
            bad = {subject for subject, metric in found.outside if metric != "xid.count"}
            assert bad == ({LINK} if fired else set())
            assert ((GPU, root) in found.events) == bool(fired)
            peers = {subject for subject, code in found.events if code == "xid.145"}
            assert bool(peers) == (fired and root == "xid.149")
            assert GPU not in peers
            assert found.values[LINK, "nvlink.active"] == 1
            if fired:
                assert found.values[LINK, "nvlink.recoveries.delta"] == 1
                assert found.values[LINK, "nvlink.errors.delta"] > 0
            struck += fired
    assert 0 < struck < 18


def test_peers_that_talked_to_a_dropping_link_say_so(racks):
    rack = racks("gb300-nvl72", f"nvlink-flap@{LINK}:rate=1")
    told = {burn: {s for s, c in rack.burn(burn).events if c == "xid.145"} for burn in IDS}
    assert [len(told[burn]) for burn in IDS] == [1, 2, 71]


@pytest.mark.parametrize("name", ["hgx-h100", "gb300-nvl72"])
def test_a_gpu_that_is_sick_with_the_fabric_is_alone_in_it(racks, name):
    rack = racks(name, f"fabric-unhealthy@{GPU}")
    pair = rack.burn("link.pair")
    assert pair.outside == [(GPU, "link.pair.coverage")]
    assert {subject.partition("/link")[0] for subject, _ in pair.gaps} == {GPU}
    assert (GPU, "link.pair.rate") in pair.gaps
    summed = rack.burn("link.collective")
    assert summed.outside == []
    assert summed.values["fabric", "link.collective.ranks"] == len(rack.spec.gpus) - 1
    assert summed.values["fabric", "link.collective.rate"] > 0
    assert set(summed.gaps) == {(GPU, "link.collective.wrong")}
    assert "fabric." in summed.gaps[GPU, "link.collective.wrong"].reason


@pytest.mark.parametrize("name", ["hgx-h100", "gb300-nvl72"])
def test_a_gpu_that_gets_lost_in_the_middle_leaves_the_others_to_go_on(racks, name):
    whole = racks(name)
    start = whole.bench.now()
    whole.burn("link.pair")
    took = whole.bench.now() - start
    work = took - 1.05  # the settle gate comes first
    rack = racks(name, f"gpu-lost@{GPU}:at=0.5", horizon=2 * (1.05 + work / 2))
    found = rack.burn("link.pair")
    assert rack.planted.fired == [1]
    assert found.values[GPU, "gpu.present"] == 0
    assert found.outside == [(GPU, "gpu.present")]
    assert (GPU, "xid.79") in found.events
    assert {subject.partition("/link")[0] for subject, _ in found.gaps} == {GPU}
    assert {gap.why for gap in found.gaps.values()} == {"lost"}
    others = [s for s in rack.bench.devices if s != GPU]
    assert all(found.values[other, "link.pair.coverage"] == 1 for other in others)
    assert all((other, "link.pair.rate") in found.values for other in others)
    later = rack.burn("link.collective")
    assert later.values["fabric", "link.collective.ranks"] == len(others)
    assert {subject.partition("/link")[0] for subject, _ in later.gaps} == {GPU}


def test_a_gpu_that_gets_lost_in_the_all_reduce_is_left_out_of_the_next(racks):
    rack = racks("hgx-h100", f"gpu-lost@{GPU}:at=0.0001")
    found = rack.burn("link.collective")
    assert rack.planted.fired == [1]
    assert found.values["fabric", "link.collective.ranks"] == 7
    assert found.values[GPU, "gpu.present"] == 0
    assert found.outside == [(GPU, "gpu.present")]


def test_wrong_data_accuses_the_gpu_that_sends_it_and_no_peer(racks):
    rack = racks("hgx-h100")
    rack.bench.backing.rack.gpus[GPU].wires.spoils = 2
    for burn in IDS:
        assert rack.burn(burn).outside == [(GPU, f"{burn}.wrong")]


def test_two_bad_links_of_two_gpus_accuse_no_third(racks):
    other = "rack0/tray00/gpu5/link08"  # the same switch as LINK
    rack = racks("hgx-h100", f"nvlink-down@{LINK}", f"nvlink-down@{other}")
    for burn in IDS[:2]:
        assert {subject for subject, _ in rack.burn(burn).outside} == {LINK, other}


# --- what cannot be looked at --------------------------------------------------------------------
def test_counters_that_the_driver_does_not_give_are_missed_by_link(racks):
    rack = racks("hgx-h100", f"sensor-missing@{GPU}:metric=nvlink")
    found = rack.burn("link.pair")
    assert found.outside == []
    assert {sort_of(subject) for subject, _ in found.gaps} == {"link"}
    assert len(found.gaps) == 18 * 4
    assert found.values[GPU, "link.pair.rate"] > 0


@pytest.mark.parametrize("burn", IDS)
def test_one_chosen_gpu_has_nobody_to_copy_with(racks, burn):
    found = racks("hgx-h100").burn(burn, gpus=(GPU,))
    assert not [
        metric for _, metric in found.values if metric.startswith(("link.", "nvlink.share"))
    ]
    assert all("two of one NVLink domain" in gap.reason for gap in found.gaps.values())


def test_some_chosen_gpus_copy_among_themselves(racks):
    gpus = ("rack0/tray00/gpu0", GPU, "rack0/tray01/gpu0")
    found = racks("gb300-nvl72").burn("link.pair", gpus=gpus)
    assert (found.outside, found.gaps) == ([], {})
    assert {subject.partition("/link")[0] for subject, _ in found.values} == set(gpus)


@pytest.mark.parametrize(
    ("gpus", "links", "said"), [(1, 18, "two GPUs"), (4, 0, "no NVLinks"), (2, 18, "")]
)
def test_a_rack_without_peers_or_links_cannot_have_them(gpus, links, said):
    fabric = f"[fabric]\nlinks_per_gpu = {links}\nswitches = 1" if links else ""
    sku = "h100" if links else "unknown"
    raw = f'[rack]\nname = "x"\nsource = "emulated"\n[[tray]]\ncount = 1\ngpus = {gpus}\n'
    if sku == "unknown":
        spec = SimpleNamespace(gpus=range(gpus), domain=gpus, links=0)
    else:
        spec = build(f'{raw}[gpu]\nsku = "{sku}"\n{fabric}'.encode(), "x.toml")
    assert said in lacks(spec)
    assert bool(lacks(spec)) == bool(said)


def test_bus_bandwidth_is_nccls_and_wants_time():
    assert bus_bandwidth(Reduced(8 * 10**9, 1.0, 8, {})) == pytest.approx(14.0)
    with pytest.raises(DeviceError, match="no time"):
        bus_bandwidth(Reduced(1, 0.0, 8, {}))
