"""What the mains of an emulated rack see, its store, and its breaker."""

import numpy as np
import pytest

from rackproof.harness.devices import connect
from rackproof.harness.devices.emulated.house.stores import Store
from rackproof.harness.errors import NotPresent, Unsupported
from rackproof.harness.spec import load

RACK = "rack0/power"


class Rack:
    """An emulated rack in a run."""

    def __init__(self, name="gb300-nvl72", seed=3):
        self.bench = connect(load(name), seed=seed)
        self.devices = list(self.bench.devices.values())
        self.part = self.bench.backing.rack.facility.parts.get(RACK)

    def begin(self, attempt=1):
        for device in self.devices:
            device.begin("power.step", attempt)
        self.bench.align(self.devices)

    def load(self, share):
        for device in self.devices:
            device.plane.load(share)

    def wait(self, seconds):
        for device in self.devices:
            device.wait(seconds)

    def read(self, metric="power.rack.input", rack=RACK):
        return self.bench.around.read(metric, rack)

    def wave(self, hertz, cycles, looks=8):
        """Return (W that the mains see, charge) at evenly spread moments of a square wave."""
        watts, charge = [], []
        for _ in range(cycles):
            for share in (1.0, 0.0):
                self.load(share)
                for _ in range(looks // 2):
                    self.wait(1.0 / hertz / looks)
                    watts.append(self.read())
                    charge.append(self.read("power.store.charge"))
        return np.array(watts), np.array(charge)


@pytest.fixture
def rack():
    made = Rack()
    made.begin()
    yield made
    made.bench.close()


def test_a_rack_at_rest_draws_what_cannot_be_capped_and_its_idle_gpus(rack):
    idle = 45_000.0 + sum(gpu.die.part.power_idle for gpu in rack.bench.backing.rack.gpus.values())
    assert rack.read() == pytest.approx(idle, rel=0.01)
    assert rack.read("power.store.charge") == 0.5
    assert rack.read("power.breaker.strain") == 0.0


def test_a_steady_load_comes_to_the_mains_and_strains_what_it_is_over(rack):
    rack.read()
    rack.load(1.0)
    rack.wait(60.0)
    assert rack.read() == pytest.approx(45_000.0 + 72 * 1400.0, rel=0.01)
    ratio = (45_000.0 + 72 * 1400.0) / 142_000.0
    strain = 60.0 * (ratio - 1.0) ** 2.04 / 9.22
    assert rack.read("power.breaker.strain") == pytest.approx(strain, rel=0.05)
    assert rack.read("power.store.charge") == pytest.approx(0.5, abs=0.01)


def test_the_store_flattens_five_hertz_and_does_nothing_visible_at_half_a_hertz(rack):
    rack.read()
    rack.wave(5.0, 30)
    fast, charge = rack.wave(5.0, 10)
    slow, empty = rack.wave(0.5, 3)
    raw = 72 * (1400.0 - 175.0)
    assert np.ptp(fast) < 0.25 * raw
    assert charge.min() > 0.0
    assert charge.max() < 1.0
    assert np.ptp(slow) > 0.9 * raw
    assert empty.min() < 0.02
    assert empty.max() > 0.98


def test_the_store_comes_back_to_half_and_one_that_does_not_recharge_stays(rack):
    rack.read()
    rack.wave(1.0, 3)
    rack.load(0.0)
    rack.wait(60.0)
    assert rack.read("power.store.charge") == pytest.approx(0.5, abs=0.01)
    rating = rack.part.store.rating
    broken = type(rating)(rating.energy, rating.power, rating.efficiency, rating.reaction,
                          rating.smooth, recentre=0.0)  # fmt: skip
    rack.part.store = Store(broken)
    rack.wave(1.0, 3)
    rack.load(0.0)
    rack.wait(60.0)
    assert abs(rack.read("power.store.charge") - 0.5) > 0.1


def test_looking_more_often_changes_nothing(rack):
    other = Rack()
    other.begin()
    try:
        for each, looks in ((rack, 8), (other, 2)):
            each.read()
            each.wave(2.0, 4, looks)
        assert rack.part.watts == pytest.approx(other.part.watts, rel=1e-6)
        assert rack.part.store.charge == pytest.approx(other.part.store.charge, abs=1e-6)
        assert rack.part.breaker.strain == pytest.approx(other.part.breaker.strain, rel=1e-6)
    finally:
        other.bench.close()


def test_each_run_finds_it_at_rest_and_reads_the_same(rack):
    found = []
    for _ in range(2):
        rack.begin()
        rack.read()
        rack.wave(1.0, 2)
        found.append(rack.wave(1.0, 1)[1].tolist())
        for device in rack.devices:
            device.end()
    assert found[0] == pytest.approx(found[1])


def test_nothing_is_kept_of_the_gpus_once_the_run_is_over(rack):
    rack.read()
    rack.load(1.0)
    rack.wait(1.0)
    dies = [gpu.die for gpu in rack.bench.backing.rack.gpus.values()]
    assert all(die.trail is not None for die in dies)
    for device in rack.devices:
        device.end()
    assert all(die.trail is None for die in dies)


def test_a_gpu_that_is_not_in_the_run_idles(rack):
    few = rack.devices[:36]
    rack.read()
    for device in few:
        device.plane.load(1.0)
        device.wait(30.0)
    assert rack.read() == pytest.approx(45_000.0 + 36 * (1400.0 + 175.0), rel=0.01)


def test_racks_without_a_store_or_without_power_of_their_own_say_so():
    node = Rack("hgx-h100")
    try:
        with pytest.raises(NotPresent):
            node.read()
    finally:
        node.bench.close()


def test_two_racks_of_one_domain_have_power_of_their_own():
    both = Rack("catalina")
    try:
        both.begin()
        for rack in (RACK, "rack1/power"):
            both.read(rack=rack)
        for device in both.devices:
            if device.gpu.rack == 1:
                device.plane.load(1.0)
        both.wait(5.0)
        idle, busy = both.read(), both.read(rack="rack1/power")
        assert busy - idle > 30_000.0
        with pytest.raises(Unsupported):
            both.read("power.hum")
    finally:
        both.bench.close()


def test_a_rack_is_rated_for_no_more_than_its_shelves_give(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(
        '[rack]\nname = "small"\nsource = "emulated"\n\n[[tray]]\ncount = 3\ngpus = 4\n\n'
        '[gpu]\nsku = "gb300"\n\n[power]\nshelves = 1\nshelf_kw = 20\nuncappable_kw = 5\n\n'
        '[cooling]\nkind = "flc"\n'
    )
    small = Rack(str(file))
    try:
        small.begin()
        small.read()
        small.load(1.0)
        small.wait(60.0)
        ratio = (5_000.0 + 12 * 1400.0) / 20_000.0
        strain = 60.0 * (ratio - 1.0) ** 2.04 / 9.22
        assert small.read("power.breaker.strain") == pytest.approx(strain, rel=0.1)
    finally:
        small.bench.close()
