"""nvidia-smi topo -m: tabs or blanks, colours, NICs and their legend, rows that are cut."""

import pytest

from rackproof.harness.readers import read

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_3
  NIC1: mlx5_bond_0
"""


@pytest.fixture
def reading(tmp_path):
    def made(text):
        path = tmp_path / "file"
        path.write_bytes(text.encode())
        return read(path)

    return made


def matrix(gpus=4, nics=2, join="NV18", odd=None, sep="\t"):
    """Return a matrix; `odd` gives the cells of some pairs, in both rows."""
    odd = odd or {}
    devices = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t\x1b[4m" + sep.join((*devices, "CPU Affinity", "NUMA Affinity")) + "\x1b[0m"]
    for row, name in enumerate(devices):
        cells = [
            " X " if row == column
            else odd.get((min(row, column), max(row, column)),
                         join if max(row, column) < gpus else "NODE")
            for column in range(len(devices))
        ]  # fmt: skip
        lines.append(sep.join((name, *cells, *(["0-31,64-95", "0"] if row < gpus else []))))
    return "\n".join(lines) + "\n"


def values(found, metric):
    return {m.subject: m.value for m in found.measurements if m.metric == metric}


@pytest.mark.parametrize("sep", ["\t", "    "], ids=["tabs", "blanks"])
def test_gpus_and_names_of_nics(reading, sep):
    found = reading(matrix(sep=sep) + LEGEND)
    assert (found.kind, found.records, found.cut, found.worked) == (
        "nvidia-smi-topo", 4, False, True,
    )  # fmt: skip
    assert found.aliases == {"NIC0": "nic:mlx5_3", "NIC1": "nic:mlx5_bond_0"}
    assert values(found, "gpu.count") == {"host": 4}
    assert values(found, "nvlink.joined") == {f"gpu{i}": 18 for i in range(4)}


def test_one_gpu_has_no_pair(reading):
    found = reading(matrix(gpus=1, nics=0) + LEGEND)
    assert (found.records, found.cut, values(found, "nvlink.joined")) == (1, False, {})


@pytest.mark.parametrize(
    ("gpus", "odd", "joined"),
    [
        pytest.param(8, {(2, i) if i > 2 else (i, 2): "NV17" for i in range(8) if i != 2},
                     {2: 17}, id="one link down behind a switch"),
        pytest.param(8, {(5, i) if i > 5 else (i, 5): "SYS" for i in range(8) if i != 5},
                     {5: 0}, id="one GPU without links"),
        pytest.param(8, {(1, 6): "NV17"}, {1: 17}, id="one pair: either end"),
        pytest.param(8, {(0, 1): "PHB", (2, 3): "PHB", (4, 5): "PHB", (6, 7): "PHB", (0, 2): "SYS",
                         (1, 3): "SYS", (4, 6): "SYS", (5, 7): "SYS"}, None, id="bridges"),
    ],
)  # fmt: skip
def test_a_gpu_that_fewer_links_join(reading, gpus, odd, joined):
    found = values(reading(matrix(gpus=gpus, odd=odd)), "nvlink.joined")
    if joined is None:
        assert found == {}
    else:
        assert {s: v for s, v in found.items() if v < 18} == {
            f"gpu{i}": v for i, v in joined.items()
        }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(matrix().split("\n")[:3]), id="two rows of six"),
        pytest.param(matrix()[:-30], id="inside a row"),
        pytest.param("\n".join(line[:24] for line in matrix().split("\n")), id="columns cut"),
    ],
)
def test_a_matrix_that_breaks_off(reading, text):
    found = reading(text)
    assert found.kind == "nvidia-smi-topo"
    assert found.cut
    assert found.problems


@pytest.mark.parametrize(
    "text",
    [
        "GPU0 X is what the first row says, and GPU1 NV4.\n",
        "GPU0 GPU1\nfoo bar\n",
        "| GPU0 | X |\n",
        "GPU0 12 13\nGPU1 14 15\n",
    ],
)
def test_other_files_are_not_taken(reading, text):
    assert reading(text).kind == "unrecognised"
