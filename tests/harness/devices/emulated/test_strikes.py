"""When a planted fault acts, and what counts as felt."""

import random

import pytest

GPU, OTHER = "rack0/tray01/gpu2", "rack0/tray00/gpu0"


# --- what counts ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        f"row-remap-pending@{GPU}",
        f"row-remap-failure@{GPU}",
        f"wrong-sku@{GPU}",
        f"nvlink-down@{GPU}/link03",
        f"power-brake@{GPU}",
        f"thermal-throttle@{GPU}",
        f"sensor-missing@{GPU}",
    ],
)
@pytest.mark.parametrize("lasts", ["", ":lasts=once"])
def test_what_nobody_reads_has_not_fired(make, work, text, lasts):
    bench, planted = make(text + lasts)
    device = bench.devices[GPU]
    device.begin("inventory", 1)
    device.telemetry.read("driver.version")
    device.telemetry.read_link("nvlink.active", 4)
    device.end()
    assert planted.fired == [0]
    work.look(device, attempt=1)
    if "thermal" in text:
        work.product(device, 1)
    assert planted.fired == [1]


# --- when ----------------------------------------------------------------------------------------
def test_once_strikes_in_the_first_run_and_is_gone(make, work):
    bench, planted = make(f"slow-gpu@{GPU}:factor=0.5,lasts=once")
    healthy, _ = make()
    shares = [
        work.rate(bench.devices[GPU], n) / work.rate(healthy.devices[GPU], n) for n in (1, 2, 3)
    ]
    assert shares == pytest.approx([0.5, 1.0, 1.0])
    assert planted.fired == [1]


@pytest.mark.parametrize("name", ["slow-gpu", "power-brake", "hbm-bit-flip", "row-remap-pending"])
def test_once_that_fired_before_a_resume_is_spent(make, work, name):
    bench, planted = make(f"{name}@{GPU}:lasts=once", fired=[1])
    work.look(bench.devices[GPU])
    assert work.memory(bench.devices[GPU]) == (0, 0, 0, [])
    work.product(bench.devices[GPU])
    assert bench.devices[GPU].telemetry.read("remap.pending") == 0
    assert planted.fired == [1]


def test_seconds_are_those_of_the_gpus_clock(make, work):
    bench, _ = make(f"slow-gpu@{GPU}:factor=0.5,lasts=3.5")
    healthy, _ = make()
    # A run begins with a second of idling: 2.5 of the first product's 5 seconds are slow.
    device, other = bench.devices[GPU], healthy.devices[GPU]
    assert work.rate(device, 2) / work.rate(other, 2) < 1.0
    assert work.rate(device, 3) / work.rate(other, 3) == pytest.approx(1.0)


def test_strikes_of_a_rate_are_those_of_the_run_whatever_ran_before(make, work):
    text = f"slow-gpu@{GPU}:factor=0.5,rate=0.4"

    def strikes(order):
        bench, _ = make(text)
        healthy, _ = make()
        return {
            n: work.rate(bench.devices[GPU], n) / work.rate(healthy.devices[GPU], n) < 0.75
            for n in order
        }

    runs = list(range(1, 31))
    once = strikes(runs)
    assert 4 <= sum(once.values()) <= 20
    random.Random(5).shuffle(runs)
    assert strikes(runs) == once


def test_other_seeds_strike_in_other_runs(make, work):
    def strikes(seed):
        bench, planted = make(f"power-brake@{GPU}:rate=0.5", seed=seed)
        fired = []
        for attempt in range(1, 21):
            work.look(bench.devices[GPU], attempt=attempt)
            fired.append(planted.fired[0])
        return fired

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)


def test_the_account_reads_as_in_the_contract(make, work):
    _, planted = make(f"gpu-missing@{GPU}")
    assert planted.summary() == [
        {"kind": "gpu-missing", "subject": GPU, "parameters": {}, "fired": 1}
    ]
