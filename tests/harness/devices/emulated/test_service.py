"""Reset, reboot and exchange: what they end, what they leave, and what goes with a GPU."""

import contextlib

import pytest

from rackproof.diagnostics.retest import model
from rackproof.diagnostics.retest.tables import seconds
from rackproof.harness.devices.absent import NoService
from rackproof.harness.devices.emulated import service
from rackproof.harness.devices.protocol import Pattern
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported

GPU, NEAR, FAR = "rack0/tray00/gpu1", "rack0/tray00/gpu2", "rack0/tray01/gpu0"
LINK, HOST = f"{GPU}/link03", "rack0/tray00/host"
PATTERN = Pattern("address")


def told(bench, work, subject, metric):
    return work.read(bench.devices[subject], metric)


def trained(bench, subject):
    """Read the PCIe generation while data moves."""
    device, found = bench.devices[subject], []
    device.begin("copy.h2d", 1)
    device.plane.transfer("h2d", 1.0, 1, lambda: found.append(device.telemetry.read("pcie.gen")))
    device.end()
    return max(found)


def slowed(bench, work, subject, attempt):
    """Compare with a GPU that nobody touches."""
    return work.rate(bench.devices[subject], attempt) < 0.8 * work.rate(bench.devices[NEAR])


def fastness(bench, work, subject):
    """Return the rate of a die, its noise averaged out."""
    return sum(work.rate(bench.devices[subject], attempt) for attempt in range(1, 17)) / 16


def test_a_reset_activates_a_pending_remap_for_good(make, work):
    bench, planted = make(f"row-remap-pending@{GPU}:rows=3")
    work.look(bench.devices[GPU])
    assert (told(bench, work, GPU, "remap.pending"), planted.fired) == (1, [1])
    before = bench.devices[GPU].clock.now()
    assert bench.service.reset(GPU) == service.RESET_S
    assert bench.devices[GPU].clock.now() - before == pytest.approx(service.RESET_S)
    work.look(bench.devices[GPU], attempt=2)
    assert told(bench, work, GPU, "remap.pending") == 0
    assert told(bench, work, GPU, "remap.rows.uncorrected") == 3, "the rows stay remapped"
    assert planted.fired == [1], "a fault that is over fires no more"


def test_a_reset_begins_volatile_counters_anew_and_mends_nothing(make, work):
    bench, planted = make(f"hbm-uncorrectable@{GPU}", f"nvlink-down@{LINK}", f"slow-gpu@{NEAR}")
    device = bench.devices[GPU]
    slow = work.rate(bench.devices[NEAR])
    assert work.memory(device)[2] > 0
    assert told(bench, work, GPU, "remap.pending") == 1
    for subject in (GPU, NEAR):
        bench.service.reset(subject)
    assert told(bench, work, GPU, "ecc.uncorrected.volatile") == 0
    assert told(bench, work, GPU, "remap.pending") == 0
    assert device.telemetry.read_link("nvlink.active", 3) == 0
    assert work.memory(device, 2)[2] > 0
    assert work.rate(bench.devices[NEAR], 2) == pytest.approx(slow, rel=0.03)
    assert planted.fired[0] > 1


def test_a_reset_does_not_bring_back_a_gpu_that_is_gone(make, work):
    bench, _ = make(f"gpu-lost@{GPU}:at=0.01")
    with pytest.raises(DeviceError):
        work.product(bench.devices[GPU])
    bench.service.reset(GPU)
    bench.service.reboot(HOST)
    bench.scan()
    with pytest.raises(DeviceError):
        bench.devices[GPU].telemetry.read("temperature")


def test_a_reboot_is_a_reset_of_all_gpus_of_a_host(make, work):
    bench, _ = make(*(f"row-remap-pending@{each}" for each in (GPU, NEAR, FAR)))
    assert bench.service.reboot(HOST) == service.REBOOT_S
    bench.scan()
    assert [told(bench, work, each, "remap.pending") for each in (GPU, NEAR, FAR)] == [0, 0, 1]
    assert bench.devices[NEAR].clock.now() >= service.REBOOT_S
    assert bench.around.read("host.memory.corrected", HOST) == 0


@pytest.mark.parametrize(
    ("kind", "shows"),
    [
        ("hbm-stuck-bit", lambda b, w, s, n: w.memory(b.devices[s], n)[1] > 0),
        ("hbm-address-alias", lambda b, w, s, n: w.memory(b.devices[s], n, (PATTERN,))[0] > 0),
        ("ecc-storm", lambda b, w, s, n: w.memory(b.devices[s], n)[1] > 0),
        ("row-remap-failure", lambda b, w, s, n: told(b, w, s, "remap.failure") == 1),
        ("slow-gpu:factor=0.5", slowed),
        ("sensor-missing:metric=temperature",
         lambda b, w, s, n: isinstance(told(b, w, s, "temperature"), DeviceError)),
    ],
    ids=lambda each: each.partition(":")[0] if isinstance(each, str) else "",
)  # fmt: skip
def test_what_is_the_gpus_own_goes_with_it_and_comes_back(make, work, kind, shows):
    bench, planted = make(f"{kind.replace(':', f'@{GPU}:')}" if ":" in kind else f"{kind}@{GPU}")
    assert [shows(bench, work, each, 1) for each in (GPU, FAR)] == [True, False]
    assert bench.service.swap(GPU, FAR) == service.EXCHANGE_S
    bench.scan()
    assert [shows(bench, work, each, 2) for each in (GPU, FAR)] == [False, True]
    bench.service.swap(FAR, GPU)
    bench.scan()
    assert [shows(bench, work, each, 3) for each in (GPU, FAR)] == [True, False]
    assert planted.summary()[0]["subject"] == GPU, "the account says where it was planted"


@pytest.mark.parametrize(
    ("kind", "shows"),
    [
        (f"pcie-downtrain@{GPU}:gen=3", lambda b, w, s: trained(b, s) == 3),
        (f"nvlink-down@{LINK}",
         lambda b, w, s: b.devices[s].telemetry.read_link("nvlink.active", 3) == 0),
        (f"power-brake@{GPU}",
         lambda b, w, s: w.product(b.devices[s])[1]["throttle.power_brake"] == 1),
        (f"thermal-throttle@{GPU}",
         lambda b, w, s: w.product(b.devices[s])[1]["throttle.thermal"] == 1),
    ],
    ids=lambda each: each.partition("@")[0] if isinstance(each, str) else "",
)  # fmt: skip
def test_what_is_the_places_own_stays(make, work, kind, shows):
    bench, _ = make(kind)
    bench.service.swap(GPU, NEAR)
    bench.scan()
    assert [shows(bench, work, each) for each in (GPU, NEAR)] == [True, False]


def test_an_exchange_moves_names_history_and_die_and_leaves_the_address(make, work):
    bench, _ = make()
    before = {each: bench.identity(each) for each in (GPU, FAR)}
    rates = [fastness(bench, work, each) for each in (GPU, FAR)]
    bench.service.swap(GPU, FAR)
    bench.scan()
    for here, there in ((GPU, FAR), (FAR, GPU)):
        now = bench.identity(here)
        assert (now.serial, now.uuid) == (before[there].serial, before[there].uuid)
        assert now.pci == before[here].pci
    moved = [fastness(bench, work, each) for each in (FAR, GPU)]
    assert moved == pytest.approx(rates, rel=0.004)
    assert rates[0] != pytest.approx(rates[1], rel=0.01), "else the test shows nothing"


@pytest.mark.parametrize("kind", ["gpu-lost", "gpu-missing"])
def test_what_takes_a_gpu_off_the_bus_stays_with_the_place(make, work, kind):
    bench, _ = make(f"{kind}@{GPU}" + (":at=0.01" if kind == "gpu-lost" else ""))
    with contextlib.suppress(DeviceError):
        work.product(bench.devices[GPU])
    bench.service.swap(GPU, NEAR)
    bench.scan()
    with pytest.raises(DeviceError):
        work.product(bench.devices[GPU])
    assert work.rate(bench.devices[NEAR]) > 0


def test_who_cannot_be_moved_is_refused(make):
    bench, _ = make()
    for pair, error in (((GPU, GPU), DeviceError), ((GPU, "rack0/tray09/gpu0"), NotPresent)):
        with pytest.raises(error):
            bench.service.swap(*pair)
    with pytest.raises(NotPresent):
        bench.service.reboot("rack0/tray09/host")


def test_a_real_machine_is_never_touched():
    for call in (lambda s: s.reset(GPU), lambda s: s.reboot(HOST), lambda s: s.swap(GPU, FAR)):
        with pytest.raises(Unsupported, match="never done by rackproof on a real machine"):
            call(NoService())


@pytest.mark.parametrize(
    ("test", "took"),
    [(model.Test.RESET, service.RESET_S), (model.Test.REBOOT, service.REBOOT_S),
     (model.Test.SWAP, 2 * service.EXCHANGE_S)],
)  # fmt: skip
def test_the_sequential_test_reckons_with_these_times(test, took):
    assert seconds(test, 1, 0.0) == took
