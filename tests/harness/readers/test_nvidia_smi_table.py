"""The table of nvidia-smi: every width, MIG, Windows, cells that say ERR!, loops and refusals."""

import gzip

import pytest

from rackproof.harness.readers import read

WIDE = """\
Wed Nov 11 04:05:06 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 575.51.02              Driver Version: 575.51.02      CUDA Version: 12.9     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
END = """\
+-----------------------------------------+------------------------+----------------------+
"""
PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|    1   N/A  N/A            4711      C   ./train | tee log                       512MiB |
+-----------------------------------------------------------------------------------------+
"""
MIG = """
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|==================+==================================+===========+=======================|
|  1    1   0   0  |              10MiB / 40000MiB    | 60      0 |  3   0    3    0    3 |
|                  |               0MiB / 24000MiB    |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  1    2   0   1  |              10MiB / 20000MiB    | 32      4 |  2   0    2    0    2 |
+------------------+----------------------------------+-----------+-----------------------+
"""
NARROW = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:1A:00.0 Off |                    2 |
|ERR!   55C    P0    60W / 300W |    999MB / 32768MB   |      7%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+"""
WINDOWS = """\
| NVIDIA-SMI 610.11                 KMD Version: 610.11        CUDA UMD Version: 13.3     |
| GPU  Name                  Driver-Model | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA RTX A2000 Laptop ...  WDDM  |   00000000:01:00.0  On |                  N/A |
| 38%   39C    P8              9W /   35W |     797MiB /   4096MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
"""


def gpu(index, bus, ecc="0", first=" N/A   41C    P0             98W /  700W ", third="Disabled"):
    return (
        f"|  {index:2d}  NVIDIA H100 80GB HBM3          On  |   00000000:{bus}:00.0 Off "
        f"|{ecc:>21} |\n"
        f"|{first}|       1MiB /  81559MiB |      3%      Default |\n"
        f"|                                         |                        |{third:>21} |\n{END}"
    )


@pytest.fixture
def reading(tmp_path):
    def made(text, encoding="utf-8", pack=bytes):
        path = tmp_path / "file"
        path.write_bytes(pack(text.encode(encoding)))
        return read(path)

    return made


def values(found, metric):
    return {m.subject: m.value for m in found.measurements if m.metric == metric}


def codes(found):
    return {(e.subject, e.code) for e in found.events}


TWO = WIDE + gpu(0, "5A") + gpu(1, "C4") + PROCESSES


@pytest.mark.parametrize(
    ("text", "encoding", "pack"),
    [
        pytest.param(TWO, "utf-8", bytes, id="plain"),
        pytest.param(TWO.replace("\n", "\r\n"), "utf-16", bytes, id="of PowerShell"),
        pytest.param("\ufeff" + TWO, "utf-8", gzip.compress, id="mark and gzip"),
        pytest.param(TWO.replace("|=", "\x1b[1m|=\x1b[0m"), "utf-8", bytes, id="colours"),
        pytest.param("[ops@n7 ~]$ nvidia-smi\n" + TWO, "utf-8", bytes, id="transcript"),
        pytest.param(TWO.replace("Wed Nov", "Mi nov"), "utf-8", bytes, id="another language"),
    ],
)
def test_a_table_in_every_dress(reading, text, encoding, pack):
    found = reading(text, encoding, pack)
    assert (found.kind, found.records, found.cut, found.worked) == (
        "nvidia-smi-table", 2, False, True,
    )  # fmt: skip
    assert values(found, "ecc.uncorrected.volatile") == {
        "pci:0000:5a:00.0": 0,
        "pci:0000:c4:00.0": 0,
    }
    assert values(found, "temperature") == {"pci:0000:5a:00.0": 41, "pci:0000:c4:00.0": 41}
    assert values(found, "memory.total")["pci:0000:5a:00.0"] == 81559
    assert values(found, "driver.version") == {"host": "575.51.02"}
    assert found.aliases == {"gpu0": "pci:0000:5a:00.0", "gpu1": "pci:0000:c4:00.0"}
    assert not found.events


def test_times_are_seconds(reading):
    later = TWO.replace("04:05:06", "04:05:16")
    assert reading(later).taken - reading(TWO).taken == 10


def test_a_narrow_table_with_err_glued_to_its_bar(reading):
    found = reading(NARROW)
    assert (found.records, found.cut) == (1, False)
    assert codes(found) == {("pci:0000:1a:00.0", "smi.unread")}
    assert values(found, "ecc.uncorrected.volatile") == {"pci:0000:1a:00.0": 2}
    assert values(found, "memory.total")["pci:0000:1a:00.0"] == pytest.approx(31250)
    assert not values(found, "gpu.name"), "a name cut with dots is no name"


def test_windows(reading):
    found = reading(WINDOWS)
    assert (found.records, found.cut, found.events) == (1, False, ())
    assert not values(found, "ecc.uncorrected.volatile")
    assert "ecc.uncorrected.volatile" in {m.metric for m in found.missing}
    assert values(found, "driver.version") == {"host": "610.11"}


def test_mig_devices_count_for_their_gpu(reading):
    found = reading(WIDE + gpu(0, "5A") + gpu(1, "C4", "On", third="Enabled") + MIG)
    assert found.records == 2
    assert values(found, "ecc.uncorrected.volatile") == {
        "pci:0000:5a:00.0": 0,
        "pci:0000:c4:00.0": 4,
    }


@pytest.mark.parametrize("cell", ["On", "Off", "N/A", "-3", "18446744073709551615", "4294967295"])
def test_what_is_no_count_is_no_zero(reading, cell):
    found = reading(WIDE + gpu(0, "5A", cell))
    assert not values(found, "ecc.uncorrected.volatile")
    assert "ecc.uncorrected.volatile" in {m.metric for m in found.missing}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param("ERR!  ERR!  ERR!   ERR! / ERR! ", "smi.lost", id="nothing answers"),
        pytest.param(" N/A   41C    P0        ERR! /  700W ", "smi.unread", id="one sensor"),
    ],
)
def test_a_lost_gpu_and_a_lost_sensor(reading, row, code):
    found = reading(WIDE + gpu(0, "5A") + gpu(1, "C4", "0", f"{row:41}"))
    assert codes(found) == {("pci:0000:c4:00.0", code)}


def test_the_last_table_of_a_loop_decides(reading):
    def table(second, ecc):
        return WIDE.replace("05:06", f"05:{second:02d}") + gpu(0, "5A", ecc)

    found = reading(table(6, "0") + table(11, "2") + table(16, "7"))
    assert (found.records, values(found, "ecc.uncorrected.volatile")) == (
        1,
        {"pci:0000:5a:00.0": 7},
    )
    assert values(found, "ecc.uncorrected.delta") == {"pci:0000:5a:00.0": 7}
    window = next(m.window for m in found.measurements if m.metric == "ecc.uncorrected.delta")
    assert window[1] - window[0] == 10


@pytest.mark.parametrize("rows", range(1, 4))
def test_a_table_that_breaks_off(reading, rows):
    found = reading(WIDE + gpu(0, "5A") + "\n".join(gpu(1, "C4").split("\n")[:rows]))
    assert found.cut
    assert found.problems


@pytest.mark.parametrize(
    ("text", "events", "worked"),
    [
        pytest.param("No devices were found\n", set(), False, id="none"),
        pytest.param(
            "Unable to determine the device handle for GPU 0000:5A:00.0: GPU is lost.  Reboot the "
            "system to recover this GPU\nNo devices were found\n",
            {("pci:0000:5a:00.0", "smi.lost")}, True, id="lost and none",
        ),
        pytest.param(
            "Unable to determine the device handle for GPU3: 0000:5A:00.0: Unknown Error\n"
            "No devices were found",
            {("pci:0000:5a:00.0", "smi.lost")}, True, id="with an index",
        ),
        pytest.param(
            "Unable to determine the device handle for GPU0000:5A:00.0: Not Found\nNo devices "
            "were found", {("pci:0000:5a:00.0", "smi.unread")}, False, id="glued",
        ),
        pytest.param(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            "NVML library version: 575.51", {("host", "smi.mismatch")}, False, id="mismatch",
        ),
        pytest.param("Failed to initialize NVML: Unknown Error", set(), False, id="no NVML"),
        pytest.param(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.\n\n", set(), False,
            id="no driver",
        ),
        pytest.param("bash: nvidia-smi: command not found", set(), False, id="no tool"),
    ],
)  # fmt: skip
def test_words_in_place_of_a_table(reading, text, events, worked):
    found = reading(text)
    assert (codes(found), found.worked) == (events, worked)
    assert found.problems or found.events


@pytest.mark.parametrize(
    "text",
    [
        "When you run nvidia-smi, | GPU  Name Bus-Id Volatile Uncorr. ECC | is what you see.\n" * 3,
        "# Table\n| a | b |\n|---|---|\n| GPU | 3 |\n",
        'print("| NVIDIA-SMI 575.51.02 |")\nimport os\n\n\ndef main():\n    pass\n',
        "Yesterday no GPU answered.\nNo devices were found, it said, and we went home.\nThe end.\n",
    ],
    ids=["prose", "markdown", "source", "a story"],
)
def test_other_files_are_not_taken(reading, text):
    assert reading(text).kind == "unrecognised"
