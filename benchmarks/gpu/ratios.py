"""What one real GPU does, as ratios of what it could do, and beside what the emulator assumes.

In: a GPU of this machine. Out: one JSON object a line on stdout, for each part as it ends: id,
verdict, reason, seconds, values. check.py runs this as a child, so that a part which hangs or
crashes takes none of the others with it.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rackproof.harness.burns import oracle  # noqa: E402 - the checkout comes first
from rackproof.harness.burns.base import Settings  # noqa: E402
from rackproof.harness.burns.run import execute, measurements  # noqa: E402
from rackproof.harness.burns.table import BURNS  # noqa: E402
from rackproof.harness.devices import Bench, connect_local  # noqa: E402
from rackproof.harness.devices.cupy_gemm import PATHS, Gemm, as_type  # noqa: E402
from rackproof.harness.devices.cupy_plane import CupyPlane  # noqa: E402
from rackproof.harness.devices.nvml_fields import value as field_value  # noqa: E402
from rackproof.harness.devices.protocol import Device, Pattern  # noqa: E402
from rackproof.harness.devices.real import RealDevice  # noqa: E402
from rackproof.harness.errors import DeviceError  # noqa: E402
from rackproof.harness.model import Missing  # noqa: E402
from rackproof.harness.spec import RackSpec, load, shipped  # noqa: E402

MEMORY, GEMM = 0.85, 0.97  # the least shares that are good: of the copy's and of cuBLAS's rate
PCIE = 0.7  # of what the link carries: of 64 GB/s, Gen 5 x16 gives 52 to 56 in nvbandwidth
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563, 7: 15.125}  # PCI-SIG, one way
PASSES = 3
BARE_S = 2.0
TRANSFER_S = 0.7
SENSOR_S = 2.0
TOGGLE_S = 0.15
SENSORS = {"average": 185, "instant": 186, "energy": 191}  # NVML field ids
SEED = 7

Values = dict[str, Any]
Part = Callable[["Site"], tuple[str, str, Values]]


class Site:
    """The GPU that is looked at: the first of this machine."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.subject, found = next(iter(bench.devices.items()))
        if not isinstance(found, RealDevice):
            msg = f"{self.subject}: the driver lists no GPU there"
            raise DeviceError(msg)
        self.device: Device = found
        self.real = found
        self.handle = found._nvml.handle  # noqa: SLF001 - fields that are no metric
        self.seen: Values = {}

    @property
    def plane(self) -> CupyPlane:
        """The GPU's plane."""
        return self.real._lazy.made()  # noqa: SLF001

    @contextmanager
    def run(self, what: str) -> Iterator[None]:
        """Begin at rest, and leave the GPU idle."""
        self.device.begin(what, 1)
        try:
            yield
        finally:
            self.device.end()


def best(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few passes, each of which waits for the GPU."""
    times = []
    for _ in range(PASSES):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def judged(ratio: float, least: float, what: str) -> tuple[str, str]:
    """Return verdict and reason of a ratio against the least that is good."""
    return ("PASS" if ratio >= least else "FAIL"), f"{what}: {ratio:.3f}, at least {least}"


def memory(site: Site) -> tuple[str, str, Values]:
    """Write and verify all free memory, against a copy of one half of it to the other."""
    pattern = Pattern("random", SEED)
    with site.run("memory"):
        size = site.plane.claim()
        half = size // 2 - size // 2 % 32
        write = best(lambda: site.plane.write(0, size, pattern))
        verify = best(lambda: site.plane.verify(0, size, pattern))
        copy = best(lambda: site.plane.copy(half, 0, half))
        wrong = site.plane.verify(0, half, pattern).miscompares
    rate, reference = 2 * size / (write + verify), 2 * half / copy
    values = {
        "bytes": size,
        "write_gbs": size / write / 1e9,
        "verify_gbs": size / verify / 1e9,
        "write_verify_gbs": rate / 1e9,
        "copy_gbs": reference / 1e9,
        "ratio": rate / reference,
        "miscompares": wrong,
    }
    verdict, reason = judged(rate / reference, MEMORY, "write and verify over the copy's rate")
    if wrong:
        verdict, reason = "FAIL", f"{wrong} words were not what had been written"
    return verdict, reason, values


def stream(site: Site) -> tuple[str, str, Values]:
    """Copy and triad; there is nothing to compare them with but the emulator's assumption."""
    values: Values = {}
    for kind in ("copy", "triad"):
        with site.run(f"stream {kind}"):
            moved = site.plane.stream(kind, 1.0)
        values[f"{kind}_gbs"], values[f"{kind}_wrong"] = moved.rate, moved.wrong
    site.seen["hbm_copy_rate"] = values["copy_gbs"] / 1000
    wrong = values["copy_wrong"] + values["triad_wrong"]
    return ("FAIL" if wrong else "PASS"), f"{wrong} words arrived wrong", values


def bare(plane: CupyPlane, precision: str) -> float:
    """Return FLOP/s of cuBLAS alone: products in a row with an event before and after."""
    order = plane.order(precision)
    given = oracle.operands(plane.xp, (order, order, order), SEED, precision)
    with plane.on("cuBLAS alone"):
        cupy, cublas = plane.cupy, plane.cupy.cuda.cublas
        pair = as_type(cupy, given.a, precision), as_type(cupy, given.b, precision)
        c = cupy.empty((order, order), dtype="float32")
        handle = cupy.cuda.get_cublas_handle()
        cublas.setMathMode(handle, 0)
        stream = cupy.cuda.get_current_stream()
        gemm = Gemm(handle, (*pair, c), (order, order, order), PATHS[precision])

        def run(count: int) -> float:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(stream)
            for _ in range(count):
                gemm.run(cublas)
            end.record(stream)
            end.synchronize()
            return float(cupy.cuda.get_elapsed_time(begin, end)) / 1000

        run(3)
        count = max(1, round(BARE_S / (run(3) / 3)))
        return 2.0 * order**3 * count / run(count)


def gemm(precision: str) -> Part:
    """Return the part that burns with products of `precision`, against cuBLAS alone."""

    def part(site: Site) -> tuple[str, str, Values]:
        name = f"gemm.{precision}"
        burn = BURNS[name]
        with site.run(f"{name} warm"):
            before = bare(site.plane, precision)
        seen = execute(burn, site.bench, site.subject, Settings("quick", SEED))
        with site.run(f"{name} bare"):
            alone = max(before, bare(site.plane, precision)) / 1e12
        missing = [m for m in seen if isinstance(m, Missing) and m.metric.startswith(name)]
        if missing:
            return "UNKNOWN", f"{missing[0].metric}: {missing[0].reason}", {}
        found = {m.metric: m.value for m in measurements(seen)}
        rate, share = float(found[f"{name}.rate"]), float(found[f"{name}.share"])
        ratio = rate * (1 - share) / alone
        values = {
            "bare_tflops": alone,
            "burn_tflops": rate,
            "every": found[f"{name}.every"],
            "share": share,
            "ratio": ratio,
            "ratio_of_products": rate / alone,
            "residual": found.get(f"{name}.residual"),
            "detectable": found.get(f"{name}.detectable"),
            "wrong": found[f"{name}.wrong"],
        }
        site.seen[f"{precision}_rate"] = rate
        verdict, reason = judged(ratio, GEMM, "the burn with its checks over cuBLAS alone")
        if values["wrong"]:
            verdict, reason = "FAIL", f"{values['wrong']} wrong products"
        reason += f"; every {values['every']:.0f}th product checked, {share:.2%} of the time"
        return verdict, reason, values

    return part


def pcie(site: Site) -> tuple[str, str, Values]:
    """Copies from and to the host, against what the link carries in its state under load."""
    read = site.device.telemetry.read
    values: Values = {}
    loaded: list[tuple[int, int]] = []

    def watch() -> None:
        loaded.append((int(read("pcie.gen")), int(read("pcie.width"))))

    for way in ("h2d", "d2h", "both"):
        with site.run(f"copy {way}"):
            if way == "h2d":
                values["gen_at_rest"] = read("pcie.gen")
            moved = site.plane.transfer(way, TRANSFER_S, SEED, watch)
        values[f"{way}_gbs"], values[f"{way}_wrong"] = moved.rate, moved.wrong
        site.seen[f"{way}_rate"] = moved.rate
    gen, width = max(loaded)
    carries = LANE_GBS.get(gen, 0.0) * width
    values |= {"gen": gen, "width": width, "carries_gbs": carries}
    wrong = sum(values[f"{way}_wrong"] for way in ("h2d", "d2h", "both"))
    if wrong:
        return "FAIL", f"{wrong} words arrived wrong", values
    if not carries:
        return "UNKNOWN", f"what PCIe Gen {gen} carries is not known here", values
    values["ratio"] = min(values["h2d_gbs"], values["d2h_gbs"]) / carries
    verdict, reason = judged(values["ratio"], PCIE, f"the slower way over Gen {gen} x{width}")
    return verdict, reason, values


def changes(readings: list[tuple[float, float]]) -> list[float]:
    """Return the seconds between changes of a reading."""
    at = [b[0] for a, b in itertools.pairwise(readings) if a[1] != b[1]]
    return [later - earlier for earlier, later in itertools.pairwise(at)]


def sensors(site: Site) -> tuple[str, str, Values]:
    """How often the power sensors change under a load that goes on and off."""
    values: Values = {}
    with site.run("sensors"):
        site.seen["power_idle"] = field_value(site.handle, SENSORS["average"]) / 1000
        site.device.plane.load(1.0)
        site.device.wait(1.5)
        site.seen["power_loaded"] = field_value(site.handle, SENSORS["average"]) / 1000
        for name, field in SENSORS.items():
            try:
                found = _sampled(site, field)
            except Exception as error:  # noqa: BLE001 - NVMLError: one sensor that is not there
                values[f"{name}_missing"] = str(error)
                continue
            apart = changes(found)
            values[f"{name}_reads_per_s"] = len(found) / SENSOR_S
            values[f"{name}_period_s"] = statistics.median(apart) if apart else None
    values |= {key: site.seen[key] for key in ("power_idle", "power_loaded")}
    known = [name for name in ("average", "instant") if values.get(f"{name}_period_s")]
    if not known:
        return "UNKNOWN", "neither power sensor changed under load", values
    text = ", ".join(f"{name} {values[f'{name}_period_s'] * 1000:.0f} ms" for name in known)
    return "PASS", f"update periods: {text}", values


def _sampled(site: Site, field: int) -> list[tuple[float, float]]:
    """Read a field as fast as it goes while the load goes on and off."""
    found: list[tuple[float, float]] = []
    begun = time.perf_counter()
    share, turn = 1.0, 0
    while (now := time.perf_counter() - begun) < SENSOR_S:
        if now >= turn * TOGGLE_S:
            share, turn = 1.0 - share, turn + 1
            site.device.plane.load(share)
        found.append((now, field_value(site.handle, field)))
    return found


UNITS = {
    "power_idle": "W",
    "hbm_copy_rate": "TB/s",
    "fp32_rate": "TFLOP/s",
    "bf16_rate": "TFLOP/s",
    "h2d_rate": "GB/s",
    "d2h_rate": "GB/s",
}


def emulator(site: Site) -> tuple[str, str, Values]:
    """Lay what the emulator assumes of this SKU beside what was seen; it judges nothing."""
    spec = rack_of(site.bench.spec.sku.key)
    if spec is None:
        return "UNKNOWN", f"no shipped rack holds this GPU ({site.bench.spec.sku.key})", {}
    table = []
    for name, unit in UNITS.items():
        assumed, seen = spec.assumed(name), site.seen.get(name)
        ratio = seen / float(assumed) if seen and assumed else None
        table.append(
            {"what": name, "unit": unit, "emulator": assumed, "seen": seen, "ratio": ratio}
        )
    known = sum(row["ratio"] is not None for row in table)
    verdict = "PASS" if known else "UNKNOWN"
    return verdict, f"{known} of {len(table)} assumptions seen", {"rack": spec.name, "table": table}


def rack_of(sku: str) -> RackSpec | None:
    """Return a shipped rack with that SKU."""
    specs = (load(name) for name, _ in shipped())
    return next((spec for spec in specs if spec.sku.key == sku), None)


PARTS: Mapping[str, Part] = {
    "memory": memory,
    "stream": stream,
    "pcie": pcie,
    "sensors": sensors,
    "gemm.bf16": gemm("bf16"),
    "gemm.fp32": gemm("fp32"),
    "emulator": emulator,
}


def tell(name: str, verdict: str, reason: str, begun: float, values: Values) -> None:
    """Print one part."""
    seconds = round(time.perf_counter() - begun, 3)
    part = {"id": name, "verdict": verdict, "reason": reason, "seconds": seconds, "values": values}
    print(json.dumps(part), flush=True)


def main() -> None:
    """Run all parts on the first GPU; whatever one of them raises is its own UNKNOWN."""
    bench = connect_local(tell=lambda line: print(line, file=sys.stderr))
    try:
        site = Site(bench)
        for name, part in PARTS.items():
            begun = time.perf_counter()
            try:
                verdict, reason, values = part(site)
            except Exception as error:  # noqa: BLE001 - whatever fails, the others are written
                verdict, reason, values = "UNKNOWN", f"{type(error).__name__}: {error}", {}
            tell(name, verdict, reason, begun, values)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
