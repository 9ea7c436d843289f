"""What tables, CSV, NVLink counters and exporters lead to: verdict, root, component, action."""

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read

HEAD = "index, pci.bus_id, "
BUS = "00000000:{:02X}:00.0"
A, B = "pci:0000:10:00.0", "pci:0000:11:00.0"


@pytest.fixture
def judged(tmp_path):
    def made(*texts):
        readings = []
        for number, text in enumerate(texts):
            path = tmp_path / f"file{number}"
            path.write_bytes(text.encode())
            readings.append(read(path))
        found = judge_inputs(readings)
        roots = [(d.subject, d.component, d.action) for d in found.diagnoses if d.role == "root"]
        return str(found.verdict), roots

    return made


def csv(column, *cells):
    rows = [f"{i}, {BUS.format(16 + i)}, {cell}" for i, cell in enumerate(cells)]
    return "\n".join((HEAD + column, *rows)) + "\n"


def nvlink(gpus=4, links=18, odd=None, kind="Recovery Errors", name="NVIDIA GB200"):
    """Return nvidia-smi nvlink -e; `odd` gives the counts that are not 0 by (GPU, link)."""
    odd = odd or {}
    return "".join(
        f"GPU {g}: {name} (UUID: GPU-0a0b0c0d-1111-2222-3333-4444555566{g:02d})\n"
        + "".join(f"\t Link {n}: {kind}: {odd.get((g, n), 0)}\n" for n in range(links))
        for g in range(gpus)
    )


def speeds(gpus=4, links=18, odd=None, name="NVIDIA GB200"):
    odd = odd or {}
    return "".join(
        f"GPU {g}: {name} (UUID: GPU-0a0b0c0d-1111-2222-3333-4444555566{g:02d})\n"
        + "".join(f"\t Link {n}: {odd.get((g, n), '53.125 GB/s')}\n" for n in range(links))
        for g in range(gpus)
    )


def exporter(field, *values, more=""):
    return "".join(
        f'{field}{{gpu="{i}",pci_bus_id="{BUS.format(16 + i)}"{more}}} {value}\n'
        for i, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        pytest.param(csv("remapped_rows.failure", "No", "Yes"), "FAIL", [(B, "hbm", "rma")],
                     id="remap failure"),
        pytest.param(csv("remapped_rows.pending", "No", "No"), "PASS", [], id="healthy"),
        pytest.param(csv("remapped_rows.pending", "[N/A]", "[N/A]"), "PASS", [], id="not there"),
        pytest.param(csv("temperature.gpu", "30", "31"), "UNKNOWN", [], id="nothing judged"),
        pytest.param(csv("remapped_rows.pending", "No", "[GPU is lost]"), "FAIL",
                     [(B, "pcie", "reboot-node")], id="lost"),
        pytest.param(csv("fan.speed [%], remapped_rows.pending", "[Unknown Error], No", "3 %, No"),
                     "UNKNOWN", [(A, "unknown", "watch")], id="a fan that cannot be read"),
        pytest.param(csv("clocks_event_reasons.hw_power_brake_slowdown", "Active", "Active"),
                     "FAIL",
                     [("host:unknown", "power", "check-power")], id="brake on all"),
        pytest.param(csv("power.draw [W], enforced.power.limit [W], remapped_rows.pending",
                         "720, 700, No", "699, 700, No"), "PASS", [], id="draw over its limit"),
        pytest.param("Tesla T4, [N/A], 33, P8\n", "UNKNOWN", [], id="no header"),
        pytest.param("No devices were found\n", "UNKNOWN", [], id="no devices"),
        pytest.param("Failed to initialize NVML: Driver/library version mismatch\n", "FAIL",
                     [("host:unknown", "driver", "update-software")], id="mismatch"),
    ],
)  # fmt: skip
def test_queries(judged, text, verdict, roots):
    assert judged(text) == (verdict, roots)


HOST = "pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, pstate"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (csv("temperature.gpu", "30", "31"), "only temperature"),
        ("".join(f"GPU {n}: NVIDIA Y9 (UUID: GPU-0a0b0c0d-1111-2222-3333-44445555660{n})\n"
                 for n in range(2)), "only gpu.name"),
        (("nvbandwidth Version: v0.8\nBuilt from Git version: x\n\n"
          "Waiving device_to_host_memcpy_ce.\n"), "device_to_host_memcpy_ce: waived"),
    ],
    ids=["columns that tell nothing", "a list of names", "all waived"],
)  # fmt: skip
def test_unknown_never_comes_without_a_reason(tmp_path, text, said):
    (tmp_path / "file").write_text(text)
    found = judge_inputs([read(tmp_path / "file")])
    assert (found.verdict, found.diagnoses) == ("UNKNOWN", ())
    assert said in found.inputs[0].problems[0]
    assert found.inputs[0].records or "waived" in said


def test_a_narrow_link_is_the_same_fact_without_names(judged):
    wide, narrow = "5, 16, 16, P0", "5, 8, 16, P0"
    assert judged(csv(HOST, wide, narrow, wide, wide, wide))[1] == [(B, "pcie", "check-cabling")]
    assert judged(csv(HOST, wide, narrow))[1] == [(B, "pcie", "watch")]
    assert judged(csv(HOST, *[narrow] * 5))[1] == []


@pytest.mark.parametrize(("count", "expected"), [(40_000, [(B, "pcie", "watch")]), (300, [])])
def test_pcie_replays_that_like_gpus_do_not_have(judged, count, expected):
    lines = [
        f'DCGM_FI_DEV_{name}{{gpu="{n}",pci_bus_id="00000000:{16 + n:02X}:00.0",Hostname="n1"}} '
        f"{value}"
        for name, of in (("PCIE_REPLAY_COUNTER", count), ("ROW_REMAP_FAILURE", 0))
        for n in range(8) for value in (of if n == 1 else 0,)
    ]  # fmt: skip
    assert judged("\n".join(lines) + "\n")[1] == expected


def test_one_link_with_recoveries_that_its_siblings_lack(judged):
    verdict, roots = judged(nvlink(odd={(2, 14): 505}))
    assert (verdict, roots) == ("UNKNOWN", [("gpu2/link14", "nvlink", "watch")])


@pytest.mark.parametrize(
    ("name", "verdict", "action"),
    [("NVIDIA GB200", "UNKNOWN", "watch"), ("NVIDIA Y9", "UNKNOWN", "watch"),
     ("NVIDIA H200", "FAIL", "check-cabling"), ("NVIDIA A100-SXM4-40GB", "FAIL", "check-cabling")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["Recovery Errors", "Replay Errors"])
def test_a_count_that_moves_is_judged_by_the_generation(judged, kind, name, verdict, action):
    before, after = ({(2, 14): n} for n in (2, 3))
    found = judged(nvlink(odd=before, name=name, kind=kind)
                   + nvlink(odd=after, name=name, kind=kind))  # fmt: skip
    assert found == (verdict, [("gpu2/link14", "nvlink", action)])


def topology(*rows):
    gpus = [f"GPU{i}" for i in range(len(rows))]
    return (
        "\n".join(
            ["\t" + "\t".join(gpus), *("\t".join((g, *r)) for g, r in zip(gpus, rows, strict=True))]
        )
        + "\n"
    )


def test_a_gpu_without_nvlink_is_a_fault_and_a_pair_is_watched(judged):
    def cells(short, count=6, usual="NV18"):
        return [["X" if i == j else short(i, j) or usual for j in range(count)]
                for i in range(count)]  # fmt: skip

    alone = topology(*cells(lambda i, j: "SYS" if 4 in (i, j) else ""))
    assert judged(alone) == ("FAIL", [("gpu4", "nvlink", "check-cabling")])
    pair = topology(*cells(lambda i, j: "NV9" if {i, j} == {1, 4} else ""))
    assert judged(pair)[0] == "UNKNOWN"
    assert judged(topology(*cells(lambda i, j: ""))) == ("PASS", [])


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        pytest.param(nvlink(), "PASS", [], id="all at zero"),
        pytest.param(nvlink(odd={(1, 3): 2}), "PASS", [], id="two recoveries in a lifetime"),
        pytest.param(nvlink(odd={(1, 3): 40}, kind="Replay Errors"), "PASS", [], id="some replays"),
        pytest.param(nvlink(odd={(1, 3): 900}, kind="Replay Errors"), "UNKNOWN",
                     [("gpu1/link03", "nvlink", "watch")], id="many replays"),
        pytest.param(nvlink(odd={(1, 3): 1}, kind="Link recovery failed events"), "UNKNOWN",
                     [("gpu1/link03", "nvlink", "watch")], id="a recovery that failed"),
        pytest.param(nvlink(odd={(1, n): 300 for n in range(18)}), "UNKNOWN",
                     [("gpu1", "nvlink", "watch")], id="all links of a GPU"),
        pytest.param(nvlink(gpus=1, links=1, odd={(0, 0): 77}), "UNKNOWN",
                     [("gpu0/link00", "nvlink", "watch")], id="a link without siblings"),
        pytest.param(nvlink(odd={(g, n): 90 + n for g in range(4) for n in range(18)}), "UNKNOWN",
                     [("fabric", "nvlink", "watch")], id="all links alike"),
        pytest.param(nvlink(odd={(0, 5): "3e-12"}, kind="Effective BER").replace(": 0\n",
                     ": 15e-255\n"), "FAIL", [("gpu0/link05", "nvlink", "field-diag")], id="BER"),
        pytest.param(nvlink(odd={(0, 5): "1e-12"}, kind="Effective BER").replace(": 0\n",
                     ": 15e-255\n"), "PASS", [], id="BER at the limit"),
        pytest.param(nvlink(kind="CRC Errors") + nvlink(odd={(0, 1): 5}, kind="CRC Errors"),
                     "UNKNOWN", [("gpu0/link01", "nvlink", "watch")], id="CRC errors moving"),
        pytest.param(nvlink(odd={(3, 0): 65535}, kind="CRC Errors"), "PASS", [],
                     id="stuck counter"),
        pytest.param(speeds(), "PASS", [], id="all up"),
        pytest.param(speeds(odd={(3, 7): "<inactive>"}), "FAIL",
                     [("gpu3/link07", "nvlink", "check-cabling")], id="one down"),
        pytest.param(speeds(odd={(3, 7): "26.562 GB/s"}), "FAIL",
                     [("gpu3/link07", "nvlink", "check-cabling")], id="one slow"),
        pytest.param(speeds(odd={(g, n): "<inactive>" for g in range(4) for n in (16, 17)}), "PASS",
                     [], id="two that no GPU uses"),
        pytest.param(speeds(gpus=1, odd={(0, 7): "<inactive>"}), "UNKNOWN",
                     [("gpu0/link07", "nvlink", "watch")], id="one down, no peers"),
        pytest.param(speeds(gpus=2) + speeds(gpus=2, links=4, name="NVIDIA A30")
                     .replace("GPU 0", "GPU 2").replace("GPU 1", "GPU 3").replace("53.125", "25"),
                     "PASS", [], id="two models"),
        pytest.param(speeds(gpus=3) + "GPU 3: NVIDIA GB200\nNVML: Unable to retrieve Nvlink "
                     "information as all links are inActive\n", "FAIL",
                     [("gpu3", "nvlink", "check-cabling")], id="a GPU without any"),
        pytest.param("".join(f"GPU {g}: NVIDIA B200\nNVML: Unable to retrieve Nvlink information "
                             "as all links are inActive\n" for g in range(8)), "UNKNOWN",
                     [("fabric", "nvlink", "watch")], id="all GPUs without any"),
        pytest.param("GPU 0: NVIDIA GeForce RTX 3090\nNVML: Unable to retrieve Nvlink information "
                     "as all links are inActive\n", "PASS", [], id="no bridge"),
    ],
)  # fmt: skip
def test_links_against_their_siblings(judged, text, verdict, roots):
    assert judged(text) == (verdict, roots)


@pytest.mark.parametrize(
    ("text", "verdict", "roots"),
    [
        pytest.param(exporter("DCGM_FI_DEV_XID_ERRORS", 0, 0), "PASS", [], id="no Xid"),
        pytest.param(exporter("DCGM_FI_DEV_XID_ERRORS", 0, 45), "UNKNOWN",
                     [(B, "unknown", "watch")], id="clean-up hides the code before"),
        pytest.param(exporter("DCGM_FI_DEV_XID_ERRORS", 0, 79), "FAIL",
                     [(B, "pcie", "reboot-node")], id="off the bus"),
        pytest.param(exporter("DCGM_FI_DEV_XID_ERRORS", 31, 0), "PASS",
                     [(A, "app", "restart-app")], id="the application's"),
        pytest.param(exporter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 1), "FAIL",
                     [(B, "hbm", "reset-gpu")], id="double bit error"),
        pytest.param(exporter("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, 0), "FAIL", [(A, "hbm", "rma")],
                     id="remap failure"),
        pytest.param(exporter("DCGM_FI_DEV_SM_CLOCK", 1980, 1980), "UNKNOWN", [],
                     id="clocks alone"),
        pytest.param(exporter("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "NaN", "NaN"), "PASS", [],
                     id="asked for, and not there"),
        pytest.param(exporter("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 0, 0, 480, 0),
                     "UNKNOWN", [("pci:0000:12:00.0", "nvlink", "watch")], id="recoveries"),
        pytest.param(exporter("DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", 4095, 3 << 8 | 9), "FAIL",
                     [(B, "nvlink", "field-diag")], id="packed BER"),
        pytest.param(exporter("DCGM_FI_DEV_POWER_VIOLATION", 9e12, 8e12)
                     + exporter("DCGM_FI_DEV_XID_ERRORS", 0, 0), "PASS", [], id="at full power"),
        pytest.param(exporter("DCGM_FI_DEV_THERMAL_VIOLATION", 0, 0, 400e9), "UNKNOWN",
                     [("pci:0000:12:00.0", "thermal", "watch")], id="one GPU hot in the past"),
        pytest.param(exporter("DCGM_FI_DEV_THERMAL_VIOLATION", 1e9, 0)
                     + exporter("DCGM_FI_DEV_THERMAL_VIOLATION", 1e9, 5e9), "FAIL",
                     [(B, "thermal", "check-cooling")], id="hot now"),
        pytest.param(exporter("DCGM_EXP_GPU_HEALTH_STATUS", 0, 20, more=',health_watch="NVLINK"'),
                     "FAIL", [(B, "nvlink", "field-diag")], id="health watch"),
        pytest.param(exporter("DCGM_FI_DEV_ROW_REMAP_PENDING", 0, 0) + "# HELP DCGM_FI_DEV_FB",
                     "UNKNOWN", [], id="cut"),
    ],
)  # fmt: skip
def test_exporters(judged, text, verdict, roots):
    assert judged(text) == (verdict, roots)


def test_files_of_one_machine_share_their_names(judged):
    kernel = "[    9.500000] NVRM: Xid (PCI:0000:11:00): 63, pid=7, Row Remapper: 0x1\n"
    query = csv("remapped_rows.pending", "No", "No")
    verdict, roots = judged(query, nvlink(gpus=2, odd={(1, 14): 505}), kernel)
    assert {subject for subject, _, _ in roots} == {B, f"{B}/link14"}
    assert verdict == "FAIL"


def test_a_topology_names_the_gpu_with_fewer_links(judged):
    gpus = [f"GPU{i}" for i in range(8)]
    rows = [
        "\t".join(("X" if i == j else "NV17" if 3 in (i, j) else "NV18") for j in range(8))
        for i in range(8)
    ]  # fmt: skip
    text = "\t" + "\t".join(gpus) + "\n" + "\n".join(map("\t".join, zip(gpus, rows, strict=True)))
    assert judged(text) == ("FAIL", [("gpu3", "nvlink", "check-cabling")])
    assert judged(text.replace("NV17", "NV18")) == ("PASS", [])
