"""What power.step says of a rack's stores, of both sensors, and of a cap without a reason."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.checks import all_checks
from rackproof.diagnostics.evidence import Head, Planned, Record
from rackproof.diagnostics.limits import Limit, Limits, shipped
from rackproof.diagnostics.verdict import Verdict
from rackproof.fixtures.plant import plant
from rackproof.harness.burns import BURNS, Settings, execute, power_step
from rackproof.harness.devices import connect
from rackproof.harness.devices.emulated.house.stores import StoreRating
from rackproof.harness.errors import DeviceError, Unsupported
from rackproof.harness.faults import parse_all
from rackproof.harness.model import Measurement
from rackproof.harness.platform import absent, platform_limits
from rackproof.harness.spec import load

RACK, GPU = "rack0/power", "rack0/tray00/gpu1"
NEW = ("power.step.mains.line", "power.step.mains.ramp", "power.step.mains.left",
       "power.store.charge", "power.breaker.strain")  # fmt: skip


class Bed:
    """One emulated rack and what power.step saw of it."""

    def __init__(self, rack="gb300-nvl72", faults=(), seed=7):
        self.spec = load(rack)
        self.bench = connect(self.spec, seed=seed)
        if faults:
            plant(self.bench, parse_all(faults, self.spec, seed), horizon_s=300.0)
        self.parts = self.bench.backing.rack.facility.parts

    def rebuild(self, **changes):
        """Change the rating of the store of the first rack."""
        part = self.parts[RACK]
        own = part._built.cbu
        rating = {name: getattr(own, name) for name in StoreRating.__slots__} | changes
        part._built = replace(part._built, cbu=StoreRating(**rating))

    def checks(self, *user):
        """Burn once; return the checks by (metric, subject)."""
        seen = execute(BURNS["power.step"], self.bench, "fabric", Settings("acceptance", 7))
        self.values = {(s.metric, s.subject): s.value for s in seen if isinstance(s, Measurement)}
        platform = [
            Limit(x.metric, x.source, "platform", x.low, x.high, x.equal, x.subject)
            for x in platform_limits(self.spec)
            if x.metric.startswith("power.")
        ]
        head = Head(
            rack=self.spec.name, source="emulated", seed=7, level="acceptance", verb="burn",
            gpus={gpu.subject: gpu.sku for gpu in self.spec.gpus}, hosts=[], links=0,
            plan=[Planned("power.step", power_step.OWES, 1.0, wide=True)], limits={},
            today="2026-07-30", absent=list(absent(self.spec)),
            around={"power": self.spec.of_sort("power")},
        )  # fmt: skip
        record = Record(head, seen, frozenset({("power.step", "fabric", 1)}), ended=True)
        limits = Limits((*user, *platform, *shipped()))
        return {(c.metric, c.subject): c for c in all_checks(record, limits)}


@pytest.fixture
def bed():
    made = []

    def connected(*args, **named):
        made.append(Bed(*args, **named))
        return made[-1]

    yield connected
    for each in made:
        each.bench.close()


def failed(checks):
    return {key for key, check in checks.items() if check.verdict is Verdict.FAIL}


def test_a_healthy_rack_passes_every_criterion_by_name(bed):
    checks = bed().checks()
    assert {check.verdict for check in checks.values()} == {Verdict.PASS}
    plain = ("gpu.present", "power.breaker.strain")  # of no criterion
    own = [check for (metric, _), check in checks.items() if metric not in plain]
    said = {check.message.partition(":")[0] for check in own}
    assert said == {f"PS{n}" for n in (1, 2, 3, 4, 6, 7, 8, 9, 10, 11)}
    assert checks["power.store.charge", RACK].message == "PS11: within limits"


def test_a_store_that_does_not_recharge_fails_ps11_alone(bed):
    broken = bed()
    broken.rebuild(recentre=0.0)
    checks = broken.checks()
    assert failed(checks) == {("power.store.charge", RACK)}
    assert checks["power.store.charge", RACK].message.startswith("PS11: ")


def test_a_store_that_does_nothing_leaves_the_waves_to_the_mains(bed):
    dead = bed()
    dead.rebuild(power=1.0)
    checks = dead.checks()
    assert failed(checks) == {("power.step.mains.left", RACK)}
    assert checks["power.step.mains.left", RACK].value == pytest.approx(1.0, abs=0.1)


def test_the_store_hides_the_fast_lines_and_not_the_slow_ones(bed):
    own = bed()
    own.checks()
    assert own.values["power.step.mains.left", RACK] < 0.3
    raw, mains = (own.values[f"power.step{part}.line", RACK] for part in ("", ".mains"))
    assert mains == pytest.approx(raw, rel=0.02)
    assert own.values["power.breaker.strain", RACK] < 0.1


def test_a_sites_limit_of_the_mains_is_held_against_the_mains_and_one_of_the_raw_against_it(bed):
    own = bed()
    site = [
        Limit("power.step.mains.line", "the site", "user", high=40_000.0),
        Limit("power.step.mains.ramp", "the site", "user", high=500.0),
    ]
    checks = own.checks(*site)
    assert failed(checks) == {("power.step.mains.line", RACK), ("power.step.mains.ramp", RACK)}
    assert checks["power.step.mains.ramp", RACK].message.startswith("PS7: ")
    assert checks["power.step.mains.line", RACK].message.startswith("PS8: ")


def test_a_rack_that_is_over_its_breaker_fails_by_its_strain_alone(bed):
    small = bed()
    part = small.parts[RACK]
    part._built = replace(part._built, rated=0.75 * part._built.rated)
    checks = small.checks()
    assert failed(checks) == {("power.breaker.strain", RACK)}
    assert checks["power.breaker.strain", RACK].value > 0.25


def meterless(bed, error=Unsupported):
    own = bed()

    def read(metric, subject):
        msg = f"{subject} has no reading {metric}"
        raise error(msg)

    own.bench.around.read = read
    return own


def test_a_rack_without_a_meter_is_judged_by_its_raw_half(bed):
    checks = meterless(bed).checks()
    assert {check.verdict for check in checks.values()} == {Verdict.PASS}
    assert not {key for key in checks if key[0] in NEW}
    assert ("power.step.line", RACK) in checks


def test_without_a_meter_a_users_limit_is_unknown_and_says_why(bed):
    checks = meterless(bed).checks(Limit("power.store.charge", "the site", "user", low=0.4))
    (unknown,) = [c for c in checks.values() if c.verdict is Verdict.UNKNOWN]
    assert (unknown.metric, unknown.subject) == ("power.store.charge", RACK)
    assert "has no reading" in unknown.message


def test_a_meter_that_fails_is_unknown(bed):
    checks = meterless(bed, DeviceError).checks()
    unknown = {m for (m, _), check in checks.items() if check.verdict is Verdict.UNKNOWN}
    assert unknown == {*NEW}


def test_a_rack_whose_file_has_no_store_skips_what_a_store_does(bed, monkeypatch):
    own = bed()
    part = own.parts[RACK]
    part._built = replace(part._built, cbu=None)
    own.spec = replace(own.spec, power=replace(own.spec.power, cbu=False))
    checks = own.checks()
    skipped = {m for (m, _), check in checks.items() if check.verdict is Verdict.SKIP}
    assert skipped == {"power.step.mains.left", "power.store.charge"}
    assert failed(checks) == set()


def test_both_racks_of_a_domain_are_judged(bed):
    both = bed("catalina")
    both.rebuild(recentre=0.0)
    checks = both.checks()
    assert failed(checks) == {("power.store.charge", RACK)}
    assert checks["power.store.charge", "rack1/power"].verdict is Verdict.PASS


# --- both sensors, and a cap without a reason -----------------------------------------------------
def test_the_average_hides_a_wave_of_one_hertz_and_the_other_sensor_shows_it(bed):
    own = bed("hgx-h100")
    own.checks()
    assert own.values["power.step.seen.instant", GPU] > 0.95
    assert own.values["power.step.seen.average", GPU] < 0.1


@pytest.mark.parametrize(
    ("asked", "given", "metric"),
    [
        ("power.average", "power.instant", "power.step.seen.average"),
        ("power.instant", "power.average", "power.step.seen.instant"),
    ],
)
def test_a_sensor_that_is_the_other_one_is_found(bed, asked, given, metric):
    own = bed("hgx-h100")
    telemetry = own.bench.devices[GPU].telemetry
    read = telemetry.read
    telemetry.read = lambda name: read(given if name == asked else name)
    checks = own.checks()
    assert (metric, GPU) in failed(checks)
    assert {subject for _, subject in failed(checks)} == {GPU}
    assert checks[metric, GPU].message.startswith("PS6: ")


def test_a_cap_that_holds_without_a_reason_fails_ps3(bed):
    own = bed("hgx-h100")
    device = own.bench.devices[GPU]
    load_, throttled = device.plane.load, device.telemetry.throttled
    device.plane.load = lambda share: load_(0.8 * share)
    device.telemetry.throttled = lambda reason: (
        0.2 * device.clock.now() if reason == "sw_power" else throttled(reason)
    )
    checks = own.checks()
    assert failed(checks) == {("power.step.capped", GPU)}
    assert checks["power.step.capped", GPU].value == pytest.approx(0.2, abs=0.01)
    assert checks["power.step.capped", GPU].message.startswith("PS3: ")


def test_a_cap_that_explains_itself_does_not(bed):
    own = bed("hgx-h100", faults=[f"power-cap-out-of-band@{GPU}"])
    checks = own.checks()
    assert own.values["throttled.cap.share", GPU] > 0.5
    assert own.values["power.step.capped", GPU] == 0.0
    assert ("power.step.capped", GPU) not in failed(checks)


def test_without_the_averaging_sensor_only_its_own_number_is_missing(bed):
    own = bed("hgx-h100")
    telemetry = own.bench.devices[GPU].telemetry
    read = telemetry.read

    def blind(metric):
        if metric == "power.average":
            msg = "it is away"
            raise DeviceError(msg)
        return read(metric)

    telemetry.read = blind
    checks = own.checks()
    unknown = {key for key, check in checks.items() if check.verdict is Verdict.UNKNOWN}
    assert unknown == {("power.step.seen.average", GPU)}


# --- much else hangs on the meter ----------------------------------------------------------------
LOST = {("power.step.mains.line", RACK), ("power.step.mains.ramp", RACK),
        ("power.step.mains.left", RACK)}  # fmt: skip


def beside(tmp_path, kilowatts, trays=3):
    file = tmp_path / f"beside{kilowatts}.toml"
    file.write_text(
        f'[rack]\nname = "beside{kilowatts}"\nsource = "emulated"\n\n[[tray]]\ncount = {trays}\n'
        'gpus = 4\n\n[gpu]\nsku = "gb300"\n\n[power]\nshelves = 40\nshelf_kw = 33\ncbu = 4.7\n'
        f'uncappable_kw = {kilowatts}\n\n[cooling]\nkind = "flc"\n'
    )
    return str(file)


@pytest.mark.parametrize(("kilowatts", "trays"), [(400, 3), (1000, 3), (300, 1)])
def test_a_healthy_rack_whose_meter_sees_mostly_other_things_is_not_condemned(
    bed, tmp_path, kilowatts, trays
):
    checks = bed(beside(tmp_path, kilowatts, trays)).checks()
    assert failed(checks) == set()
    unknown = {key for key, check in checks.items() if check.verdict is Verdict.UNKNOWN}
    assert unknown == LOST
    assert all("meter's noise" in checks[key].message for key in LOST)


@pytest.mark.parametrize("kilowatts", [50, 100, 150, 200, 250, 300])
@pytest.mark.parametrize("seed", [1, 2])
def test_between_the_two_nothing_is_condemned_either(bed, tmp_path, kilowatts, seed):
    assert failed(bed(beside(tmp_path, kilowatts), seed=seed).checks()) == set()


def test_a_dead_store_beside_other_loads_still_fails(bed, tmp_path):
    dead = bed(beside(tmp_path, 100))
    dead.rebuild(power=1.0)
    assert ("power.step.mains.left", RACK) in failed(dead.checks())


def test_a_dead_store_never_passes_for_the_noise(bed, tmp_path):
    dead = bed(beside(tmp_path, 400))
    dead.rebuild(power=1.0)
    assert dead.checks()["power.step.mains.left", RACK].verdict is Verdict.UNKNOWN


def test_a_sites_ramp_beside_other_loads_still_fails(bed, tmp_path):
    site = Limit("power.step.mains.ramp", "the site", "user", high=300.0)
    checks = bed(beside(tmp_path, 100)).checks(site)
    assert ("power.step.mains.ramp", RACK) in failed(checks)
