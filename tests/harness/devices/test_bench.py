"""Who sits in which slot, what a rack's identity decides, and how two racks stay apart."""

import dataclasses
import itertools
import statistics
import tempfile

import pytest

from rackproof.harness.devices import connect, local_spec
from rackproof.harness.devices.absent import AbsentDevice
from rackproof.harness.devices.bench import place
from rackproof.harness.devices.emulated import draw
from rackproof.harness.devices.emulated.driver_state import Flag
from rackproof.harness.devices.emulated.identity import birth
from rackproof.harness.devices.nvml import Identity
from rackproof.harness.devices.protocol import Pattern
from rackproof.harness.errors import NotPresent, SpecError
from rackproof.harness.spec import build, load, shipped


def rack(text: str, name: str = "x.toml"):
    head = '[rack]\nname = "x"\nsource = "emulated"\n'
    return build((head + text).encode(), name)


def readings(bench, order):
    """Run two burns on some GPUs in this order; return what each saw."""
    seen = {}
    for subject, check in order:
        device = bench.devices[subject]
        device.begin(check, 1)
        size = device.plane.claim()
        device.plane.write(0, size, Pattern("constant", 1))
        ones = device.plane.xp.ones((64, 64), dtype="float32")
        product = device.plane.multiply(ones, ones, "fp32", 3.0)
        seen[subject, check] = (
            product.flops,
            *(device.telemetry.read(m) for m in ("power.average", "temperature", "clock.sm")),
        )
        device.end()
    return seen


@pytest.mark.parametrize("name", [name for name, _ in shipped()])
def test_every_shipped_rack_can_be_emulated(name):
    spec = load(name)
    bench = connect(spec, seed=3)
    try:
        assert bench.count == len(spec.gpus) == len(bench.devices)
        assert list(bench.devices) == [gpu.subject for gpu in spec.gpus]
        assert bench.unexpected == []
        uuids = {bench.identity(subject).uuid for subject in bench.devices}
        assert len(uuids) == len({bench.identity(s).pci for s in bench.devices}) == bench.count
        for subject, device in bench.devices.items():
            assert device.telemetry.read("nvlink.links") == spec.links
            assert bench.identity(subject).module == device.gpu.index + 1
    finally:
        bench.close()


def test_one_domain_has_one_clique_and_two_have_two():
    spec = rack('[[tray]]\ncount=4\ngpus=4\n[gpu]\nsku="gb300"\n[fabric]\nswitches=18\ndomain=8\n')
    bench = connect(spec, seed=1)
    cliques = [device.telemetry.read("fabric.clique") for device in bench.devices.values()]
    bench.close()
    assert [len(list(group)) for _, group in itertools.groupby(cliques)] == [8, 8]


def test_a_rack_that_the_emulator_knows_too_little_of_says_what_is_missing():
    spec = rack('[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku="vr"\n')
    with pytest.raises(SpecError, match=r"x\.toml: .* add it to \[emulation\]"):
        connect(spec, seed=1)


def test_an_own_rack_is_emulated_with_defaults():
    spec = rack('[[tray]]\ncount=2\ngpus=8\n[gpu]\nsku="h200"\n')
    bench = connect(spec, seed=1)
    assert bench.count == 16
    domains = {bench.identity(subject).pci.split(":")[0] for subject in bench.devices}
    bench.close()
    assert len(domains) == 2


# --- identity and seed ---------------------------------------------------------------------------
def test_identity_comes_from_the_rack_and_not_from_the_seed():
    spec = load("hgx-b200")
    first, second = connect(spec, seed=1), connect(spec, seed=2)
    for subject in first.devices:
        assert first.identity(subject) == second.identity(subject)
    other = dataclasses.replace(spec, identity="another")
    assert birth(other, spec.gpus[0]).serial != birth(spec, spec.gpus[0]).serial
    assert birth(other, spec.gpus[0]).spread != birth(spec, spec.gpus[0]).spread
    first.close()
    second.close()


def test_a_superchips_gpus_share_a_serial_number():
    spec = load("gb300-nvl72")
    serials = [birth(spec, gpu).serial for gpu in spec.gpus]
    assert len(set(serials)) == 36
    assert serials[0] == serials[1] != serials[2]


def test_dies_differ_by_a_percent_and_never_by_more_than_two():
    spec = load("gb300-nvl72")
    racks = [dataclasses.replace(spec, identity=f"rack {n}") for n in range(30)]
    spreads = [birth(r, gpu).spread for r in racks for gpu in spec.gpus]
    assert max(abs(s - 1) for s in spreads) <= 0.02
    assert statistics.stdev(spreads) == pytest.approx(0.0088, abs=0.0005)  # cut at two sigma


def test_noise_is_small_and_bounded():
    noise = draw.Noise(3, "gpu")
    noise.begin("x", 1)
    factors = [noise.factor("r") for _ in range(4000)]
    assert max(abs(f - 1) for f in factors) <= 0.009
    assert statistics.stdev(factors) == pytest.approx(0.003, rel=0.05)
    assert statistics.mean(factors) == pytest.approx(1.0, abs=0.0002)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_gpus_stay_within_four_percent_of_their_median(seed):
    bench = connect(load("gb300-nvl72"), seed=seed)
    seen = readings(bench, [(subject, "gemm.fp32") for subject in bench.devices])
    bench.close()
    rates = [reading[0] for reading in seen.values()]
    assert min(rates) > 0.96 * statistics.median(rates)
    assert min(rates) / 3.0 > 0.9 * 60e12


def test_the_same_seed_gives_the_same_readings_in_any_order():
    spec = load("hgx-h200")
    runs = [(gpu.subject, check) for gpu in spec.gpus[:3] for check in ("a", "b", "c")]
    seen = []
    for order in (runs, runs[::-1], runs[4:] + runs[:4]):
        bench = connect(spec, seed=9)
        seen.append(readings(bench, order))
        bench.close()
    assert seen[0] == seen[1] == seen[2]
    bench = connect(spec, seed=10)
    other = readings(bench, runs)
    bench.close()
    assert all(other[run] != seen[0][run] for run in runs)


def test_a_run_taken_up_again_reads_the_same():
    spec = load("hgx-h200")
    runs = [(gpu.subject, check) for gpu in spec.gpus[:2] for check in ("a", "b")]
    whole = connect(spec, seed=9)
    all_at_once = readings(whole, runs)
    whole.close()
    parts = {}
    for part in (runs[:1], runs[1:]):
        bench = connect(spec, seed=9)
        parts |= readings(bench, part)
        bench.close()
    assert parts == all_at_once


def test_another_attempt_has_other_noise():
    noise = draw.Noise(3, "gpu")
    noise.begin("gemm", 1)
    first = [noise.factor("rate") for _ in range(3)]
    noise.begin("gemm", 2)
    assert noise.factor("rate") not in first
    noise.begin("gemm", 1)
    assert [noise.factor("rate") for _ in range(3)] == first


def test_two_racks_are_open_at_once_and_stay_apart():
    first, second = connect(load("hgx-h100"), seed=1), connect(load("gb300-nvl72"), seed=1)
    assert (first.count, second.count) == (8, 72)
    names = [next(iter(b.devices.values())).telemetry.read("gpu.name") for b in (first, second)]
    assert names == ["NVIDIA H100 80GB HBM3", "NVIDIA GB300"]
    second.close()
    assert first.count == 8
    first.close()
    first.close()


def test_the_state_lies_where_it_is_asked_for(tmp_path):
    bench = connect(load("hgx-h100"), seed=1, state_dir=tmp_path)
    assert list(tmp_path.iterdir())
    bench.close()
    assert list(tmp_path.iterdir())


def test_a_state_of_our_own_is_in_memory_and_gone_at_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bench = connect(load("hgx-h100"), seed=1)
    state = bench.backing.state
    assert "(deleted)" in str(state.readlink())
    bench.close()
    assert not state.exists() or "rackproof-rack" not in str(state.readlink())
    assert list(tmp_path.iterdir()) == []


# --- slots ---------------------------------------------------------------------------------------
def who(pci, tray, module, chassis=b""):
    return (None, Identity("s", f"GPU-{pci}", pci, tray, module), chassis)


def test_a_gpu_goes_where_its_numbers_say_whatever_the_order():
    spec = load("gb300-nvl72")
    found = [who(f"{t:03x}{m}:01:00.0", t, m + 1) for t in range(18) for m in range(4)]
    slots = place(spec, found[::-1])
    assert slots == [gpu.subject for gpu in spec.gpus][::-1]
    del found[13]
    assert spec.gpus[13].subject not in place(spec, found)


def test_modules_may_count_from_nought():
    spec = load("hgx-h100")
    found = [who(f"0000:{10 + m}:00.0", None, m) for m in range(8)]
    assert place(spec, found) == [gpu.subject for gpu in spec.gpus]


def test_a_lone_tray_is_found_whatever_its_number_in_the_real_rack():
    spec = rack('[[tray]]\ncount=1\ngpus=4\n[gpu]\nsku="gb300"\n')
    found = [who(f"000{m}:01:00.0", 11, m + 1) for m in range(4)]
    assert place(spec, found) == [gpu.subject for gpu in spec.gpus]


def test_racks_are_told_apart_by_their_chassis():
    spec = load("catalina")
    found = [
        who(f"{r}{t:02x}{m}:01:00.0", t, m + 1, b"ab"[r : r + 1])
        for r in range(2) for t in range(18) for m in range(2)
    ]  # fmt: skip
    assert place(spec, found) == [gpu.subject for gpu in spec.gpus]


def test_without_numbers_it_goes_by_pci_order_and_the_rest_is_unexpected():
    spec = rack('[[tray]]\ncount=1\ngpus=2\n[gpu]\nsku="h200"\n')
    found = [who(f"0000:{bus}:00.0", None, None) for bus in ("c0", "10", "80")]
    first, second = (gpu.subject for gpu in spec.gpus)
    assert place(spec, found) == [None, first, second]


def test_two_gpus_that_claim_one_slot_do_not_both_get_it():
    spec = load("hgx-h100")
    found = [who("0000:10:00.0", 0, 1), who("0000:20:00.0", 0, 1), who("0000:30:00.0", 0, 2)]
    assert place(spec, found) == ["rack0/tray00/gpu0", None, "rack0/tray00/gpu1"]


def test_a_machine_without_a_driver_says_so(monkeypatch):
    monkeypatch.setenv("RACKPROOF_NVML_STATE", "/nonexistent")
    with pytest.raises(NotPresent, match=r"libnvidia-ml\.so\.1"):
        local_spec()
    with pytest.raises(SpecError, match="did you mean hgx-h100"):
        local_spec("hgx-h10")


def test_a_rack_keeps_its_number_when_the_other_is_dark():
    spec = load("catalina")
    bench = connect(spec)
    gpu = spec.gpus[40]
    assert gpu.subject == "rack1/tray02/gpu0"
    serial = bench.identity(gpu.subject).serial
    for dark in spec.gpus[:36]:
        bench.backing.rack.gpus[dark.subject].row["flags"] |= int(Flag.ABSENT)
    bench.scan()
    assert bench.identity(gpu.subject).serial == serial
    assert isinstance(bench.devices["rack0/tray02/gpu0"], AbsentDevice)
    assert bench.unexpected == []
    bench.close()
