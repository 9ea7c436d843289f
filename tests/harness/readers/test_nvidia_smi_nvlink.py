"""NVLink as nvidia-smi and dcgmi tell of it: speeds, states, counters old and new, snapshots."""

import pytest

from rackproof.harness.readers import read

NAME = "NVIDIA B200"
FIVE = (
    ("Tx packets", 41), ("Rx bytes", 9876543210), ("Malformed packet Errors", 0),
    ("Buffer overrun Errors", 2), ("Rx Errors", 1), ("Rx remote Errors", 0),
    ("Rx General Errors", 0), ("Local link integrity Errors", 0), ("Tx discards", 0),
    ("Link recovery successful events", 7), ("Link recovery failed events", 1),
    ("Total link recovery events", 8), ("Effective Errors", 0), ("Effective BER", "3e-13"),
    ("Symbol Errors", 4), ("Symbol BER", "15e-255"), ("FEC Errors - 0", 987654321),
    ("FEC Errors - 15", 0),
)  # fmt: skip


@pytest.fixture
def reading(tmp_path):
    def made(text):
        path = tmp_path / "file"
        path.write_bytes(text.encode())
        return read(path)

    return made


def values(found, metric):
    return {m.subject: m.value for m in found.measurements if m.metric == metric}


def gpu(index, lines, name=NAME):
    uuid = f"GPU-0a0b0c0d-1111-2222-3333-44445555666{index}"
    return f"GPU {index}: {name} (UUID: {uuid})\n" + "".join(f"\t Link {x}\n" for x in lines)


def errors(index, recoveries, links=2):
    lines = [
        f"{link}: {kind} Errors: {recoveries.get(link, 0) if kind == 'Recovery' else 0}"
        for link in range(links)
        for kind in ("Replay", "Recovery", "CRC")
    ]
    return gpu(index, lines)


def test_speeds_and_links_that_are_down(reading):
    speeds = [f"{i}: 53.125 GB/s" for i in range(17)]
    found = reading(gpu(0, [*speeds, "17: 53,125 GB/s"]) + gpu(1, [*speeds, "17: <inactive>"]))
    assert (found.kind, found.records, found.cut) == ("nvidia-smi-nvlink", 2, False)
    assert len(values(found, "nvlink.speed")) == 35
    assert values(found, "nvlink.speed")["gpu0/link17"] == 53.125
    active = values(found, "nvlink.active")
    assert (len(active), sum(active.values()), active["gpu1/link17"]) == (36, 35, 0)
    assert set(found.uuids) == {"gpu0", "gpu1"}


def test_the_counters_of_an_nvlink_5(reading):
    found = reading(gpu(3, [f"11: {name}: {value}" for name, value in FIVE]))
    told = {m.metric: m.value for m in found.measurements if m.subject == "gpu3/link11"}
    assert told == {
        "nvlink.faults": 3, "nvlink.recoveries": 7, "nvlink.recoveries.failed": 1,
        "nvlink.ber": 3e-13, "nvlink.ber.symbol": 0.0,
    }  # fmt: skip
    assert {m.unit for m in found.measurements if m.metric == "nvlink.ber"} == {"ratio"}


@pytest.mark.parametrize(
    ("name", "text", "metric"),
    [
        ("Replay Errors", "18446744073709551615", "nvlink.replays"),
        ("Recovery Errors", "4294967295", "nvlink.recoveries"),
        ("CRC Errors", "65535", "nvlink.crc"),
        ("Replay Errors", "-1", "nvlink.replays"),
        ("Effective BER", "N/A", "nvlink.ber"),
        ("Effective BER", "Not Supported", "nvlink.ber"),
        ("Total link recovery events", "N/A", "nvlink.recoveries"),
    ],
)
def test_what_is_no_count_is_missing(reading, name, text, metric):
    found = reading(gpu(0, [f"0: {name}: {text}", "1: Replay Errors: 0"]))
    assert ("gpu0/link00", metric) in {(m.subject, m.metric) for m in found.missing}
    assert not values(found, metric) or "gpu0/link00" not in values(found, metric)


def test_the_count_of_all_recoveries_stands_alone(reading):
    found = reading(gpu(0, ["4: Total link recovery events: 9", "5: Replay Errors: 0"]))
    assert values(found, "nvlink.recoveries") == {"gpu0/link04": 9}


def test_snapshots_of_one_file_give_what_grew(reading):
    text = "".join(
        f"ops@n31:~$ date -Is; nvidia-smi nvlink -e\n2026-11-04T05:{minute:02d}:00+00:00\n"
        + errors(0, {1: count}) + errors(1, {})
        for minute, count in ((0, 505), (10, 506), (21, 508))
    )  # fmt: skip
    found = reading(text)
    assert (found.records, found.host) == (2, "n31")
    assert values(found, "nvlink.recoveries")["gpu0/link01"] == 508
    grown = values(found, "nvlink.recoveries.delta")
    assert grown == {"gpu0/link00": 0, "gpu0/link01": 3, "gpu1/link00": 0, "gpu1/link01": 0}
    window = next(m.window for m in found.measurements if m.metric == "nvlink.recoveries.delta")
    assert window == (found.taken - 21 * 60, found.taken)


def test_a_count_that_fell_was_reset(reading):
    found = reading(errors(0, {1: 40}) + errors(0, {1: 2}))
    assert values(found, "nvlink.recoveries")["gpu0/link01"] == 2
    assert "gpu0/link01" not in values(found, "nvlink.recoveries.delta")


def test_capabilities_tell_nothing_of_health(reading):
    lines = [
        "0, P2P is supported: true",
        "0, Link is supported: false",
        "1, SLI is supported: false",
    ]
    found = reading(gpu(0, lines))
    assert (found.kind, [m.metric for m in found.measurements]) == (
        "nvidia-smi-nvlink",
        ["gpu.name"],
    )
    assert found.cut, "nothing was told of its links"


@pytest.mark.parametrize(
    ("text", "up"),
    [
        ("Device does not have or support Nvlink", {}),
        ("NVML: Unable to retrieve Nvlink information as all links are inActive", {"gpu0": 0}),
    ],
)
def test_gpus_without_links(reading, text, up):
    found = reading(
        f"GPU 0: NVIDIA RTX 6000 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n{text}\n"
    )
    assert (found.records, found.cut, found.worked) == (1, False, True)
    assert (values(found, "nvlink.up"), found.uuids) == (up, {})


def test_dcgmi_errors(reading):
    bar = "+-----------------------------+------------------------------------------------+\n"
    rows = "".join(
        f"| Link {link}                      |                                                |\n"
        f"| -> CRC FLIT Error           | {link}                                              |\n"
        "| -> CRC Data Error           | 2                                              |\n"
        "| -> Replay Error             | 0                                              |\n"
        f"| -> Recovery Error           | {40 * link}                                           |\n"
        for link in range(2)
    )
    head = (
        f"{bar}| NVLINK Error Counts                                                          |\n"
    )
    found = reading(
        f"{head}| GPU 6                                                        |\n{rows}{bar}"
    )
    assert values(found, "nvlink.crc") == {"gpu6/link00": 2, "gpu6/link01": 3}
    assert values(found, "nvlink.recoveries") == {"gpu6/link00": 0, "gpu6/link01": 40}


def test_dcgmi_states(reading):
    found = reading(
        "+----------------------+\n|  NvLink Link Status  |\n+----------------------+\nGPUs:\n"
        "    gpuId 0:\n        U U D X\n    gpuId 1:\n        U U U _\nNvSwitches:\n"
        "    physicalId 8:\n        X D D U\n\nKey: Up=U, Down=D, Disabled=X, Not Supported=_\n"
    )
    assert found.records == 2
    down = {s for s, v in values(found, "nvlink.active").items() if not v}
    assert down == {"gpu0/link02"}
    assert len(values(found, "nvlink.active")) == 6


def test_other_commands_of_a_transcript_end_a_block(reading):
    found = reading(
        "$ nvidia-smi nvlink -e\n" + errors(0, {}) + "$ cat notes\n"
        "\t Link 0: Recovery Errors: 900\n$ nvidia-smi nvlink -s\n" + gpu(0, ["0: 53.125 GB/s"])
    )
    assert values(found, "nvlink.recoveries") == {"gpu0/link00": 0, "gpu0/link01": 0}
    assert values(found, "nvlink.speed") == {"gpu0/link00": 53.125}


@pytest.mark.parametrize(
    "tail", ["\t Link 1: Recovery Errors:", "\t Link 1: Reco", "GPU 1: NVIDIA B200 (UUID: GPU-77"]
)
def test_a_text_that_breaks_off(reading, tail):
    assert reading(errors(0, {}) + tail).cut


@pytest.mark.parametrize(
    "text",
    [
        "The manual says Link 0: Recovery Errors: 0 for GPU 0: see there.\n",
        "GPU 0: a\nsome\nother\nlines\nof prose\nLink 0: here\n",
        "eth0: Link 1: up\neth1: Link 2: up\n",
    ],
)
def test_other_files_are_not_taken(reading, text):
    assert reading(text).kind == "unrecognised"
