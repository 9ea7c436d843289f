"""A rack file is read whole or refused with one line that says what, where and what is due."""

import dataclasses
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.harness import rackfile, spec
from rackproof.harness.errors import SpecError
from rackproof.harness.spec import RackSpec

GOOD = """
[rack]
name = "mine"
source = "emulated"

[[tray]]
count = 2
gpus = 4

[gpu]
sku = "gb300"
"""

SHIPPED = {
    "gb200-nvl72": (72, 18, 1, 18, "flc"),
    "gb300-nvl72": (72, 18, 1, 18, "flc"),
    "catalina": (72, 36, 2, 36, "aalc"),
    "vr-nvl72": (72, 18, 1, 18, "flc"),
    "hgx-h100": (8, 1, 1, 4, "air"),
    "hgx-h200": (8, 1, 1, 4, "air"),
    "hgx-b200": (8, 1, 1, 2, "air"),
}


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def build(text: str) -> RackSpec:
    return spec.build(text.encode(), "mine.toml")


def outcome(text: str) -> RackSpec | str:
    try:
        return build(text)
    except SpecError as error:
        return str(error)


def refusal(name_or_path: str) -> str:
    with pytest.raises(SpecError) as error:
        spec.load(name_or_path)
    message = str(error.value)
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 400
    return message


# --- what is shipped -------------------------------------------------------------------------
def test_the_seven_racks_of_the_contract_are_shipped() -> None:
    assert {name for name, _ in spec.shipped()} == set(SHIPPED)
    assert all(summary and "\n" not in summary for _, summary in spec.shipped())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_rack_has_the_shape_of_the_contract(name: str) -> None:
    rack = spec.load(name)
    gpus, trays, racks, switches, cooling = SHIPPED[name]
    assert (rack.name, rack.source) == (name, "emulated")
    assert len(rack.gpus) == gpus == rack.domain
    assert (len(rack.trays), rack.racks, len(rack.switches)) == (trays, racks, switches)
    assert rack.links == 18
    assert rack.cooling == cooling
    assert rack.spares < trays


def test_subjects_are_spelt_as_in_the_contract() -> None:
    nvl72 = set(spec.load("gb300-nvl72").subjects())
    assert {
        "rack0/tray03/gpu1", "rack0/tray03/gpu1/link07", "rack0/tray17/gpu3/link17",
        "rack0/tray03/host", "rack0/tray03/nic0", "rack0/switch17", "rack0/power",
        "rack0/power/shelf2", "rack0/cooling", "fabric",
    } <= nvl72  # fmt: skip
    assert "rack0/tray18/gpu0" not in nvl72
    assert "rack0/tray00/gpu4" not in nvl72
    catalina = set(spec.load("catalina").subjects())
    assert {"rack1/tray17/gpu1", "rack1/switch17", "rack0/switch00", "rack1/cooling"} <= catalina
    assert "rack0/tray00/gpu2" not in catalina
    hgx = set(spec.load("hgx-h100").subjects())
    assert {"rack0/tray00/gpu7", "rack0/switch03"} <= hgx
    assert "rack0/switch04" not in hgx


def test_no_subject_comes_twice() -> None:
    for name in SHIPPED:
        subjects = list(spec.load(name).subjects())
        assert len(subjects) == len(set(subjects))


def test_vera_rubin_states_no_link_count_and_assumes_one() -> None:
    rack = spec.load("vr-nvl72")
    assert rack.links_per_gpu is None
    assert rack.links == 18
    assert rack.sku.known("nvlink_links") is None


def test_every_shipped_rack_gives_the_emulator_what_it_needs() -> None:
    needed = (
        "name pci_id memory_total nvlink_speed pcie_gen pcie_width power_idle power_min "
        "power_default power_max sm_clock_max sm_count compute_capability architecture "
        "temperature_slowdown temperature_shutdown tlimit_slowdown fp32_rate hbm_copy_rate "
        "h2d_rate d2h_rate pair_rate coolant_temperature driver_version vbios_version remap_banks"
    ).split()
    for name in SHIPPED:
        rack = spec.load(name)
        assert [key for key in needed if rack.assumed(key) is None] == [], name


def test_a_rack_is_frozen_hashable_and_survives_pickling() -> None:
    rack = spec.load("gb300-nvl72")
    assert pickle.loads(pickle.dumps(rack)) == rack  # noqa: S301 - our own, just made
    assert hash(rack) == hash(spec.load("gb300-nvl72"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rack.name = "other"  # type: ignore[misc]


# --- a user's file ---------------------------------------------------------------------------
def test_a_small_file_takes_the_rest_from_the_sku(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    rack = spec.load(path)
    assert [gpu.subject for gpu in rack.gpus][:5] == [
        "rack0/tray00/gpu0", "rack0/tray00/gpu1", "rack0/tray00/gpu2", "rack0/tray00/gpu3",
        "rack0/tray01/gpu0",
    ]  # fmt: skip
    assert (rack.file, rack.identity, rack.domain) == (path, "mine", 8)
    assert (rack.links_per_gpu, rack.switches) == (18, ())


def test_the_digest_follows_the_text() -> None:
    assert build(GOOD).digest == build(GOOD).digest
    assert build(GOOD).digest != build(GOOD + "\n").digest


def test_two_sorts_of_tray_are_numbered_on() -> None:
    rack = build(GOOD + "[[tray]]\ncount = 1\ngpus = 2\n")
    assert [(tray.number, len(tray.gpus)) for tray in rack.trays] == [(0, 4), (1, 4), (2, 2)]


def test_each_rack_numbers_its_own_trays_in_whatever_order_the_file_has() -> None:
    text = GOOD.replace("count = 2\n", "count = 1\nrack = 1\n")
    rack = build(text + "[[tray]]\nrack = 0\ncount = 1\ngpus = 1\n")
    assert [gpu.subject for gpu in rack.gpus][:2] == ["rack0/tray00/gpu0", "rack1/tray00/gpu0"]


def test_the_emulation_table_wins_for_the_emulator_and_leaves_the_sku_alone() -> None:
    rack = build(GOOD + "[emulation]\nmemory_total = 1024\n")
    assert rack.assumed("memory_total") == 1024
    assert rack.sku.number("memory_total") == 284208
    assert build(GOOD).assumed("memory_total") == 284208
    assert build(GOOD).assumed("fp32_rate") is None
    with pytest.raises(KeyError, match="memory_total"):
        rack.assumed("memory_totl")


def test_crlf_and_a_byte_order_mark_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "dos.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert len(spec.load(str(path)).gpus) == 8


def test_a_gpu_is_found_by_its_subject() -> None:
    rack = build(GOOD)
    assert rack.gpu("rack0/tray01/gpu3") == rack.gpus[-1]
    with pytest.raises(SpecError, match="rack0/tray01/gpu3"):
        rack.gpu("rack0/tray01/gpu33")


# --- what is refused -------------------------------------------------------------------------
def test_an_unknown_name_names_the_nearest() -> None:
    assert "gb300-nvl72" in refusal("gb30-nvl72")
    assert "catalina" in refusal("zzz")
    assert refusal("")
    assert refusal("\x1b[31m\n") is not None
    assert refusal("x" * 100_000)


def test_local_is_reserved() -> None:
    assert "local" in refusal("local")
    with pytest.raises(SpecError, match="reserved"):
        build(GOOD.replace('"mine"', '"local"'))


def test_a_name_that_is_a_file_here_is_said_to_be(tmp_path: Path, monkeypatch: object) -> None:
    write(tmp_path, GOOD)
    assert isinstance(monkeypatch, pytest.MonkeyPatch)
    monkeypatch.chdir(tmp_path)
    assert "./mine.toml" in refusal("mine")


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(str(tmp_path / "none.toml"))
    assert "folder" in refusal(str(tmp_path) + "/")
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert "no regular file" in refusal(str(pipe))
    assert refusal("a\0.toml")
    assert refusal("x" * 5000 + ".toml")


def test_an_unreadable_file_is_refused() -> None:
    # Linux refuses to read this at offset 0, also to root.
    assert "cannot be read" in refusal("/proc/self/mem")


def test_a_binary_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(bytes(range(256)))
    assert "not UTF-8" in refusal(str(binary))
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * (rackfile.MAX_BYTES + 1))
    assert "1 MiB" in refusal(str(huge))


@pytest.mark.parametrize(
    "text",
    ["[rack", "a = 1\na = 2", "x = " + "1" * 5000, "x = " + "[" * 5000, "\0", "name: mine"],
)
def test_what_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    message = refusal(write(tmp_path, text))
    assert "mine.toml: is no TOML" in message


def test_the_line_of_a_syntax_error_is_named(tmp_path: Path) -> None:
    assert "line 2" in refusal(write(tmp_path, "[rack]\nname = \n"))


BAD = {
    "unknown-table": (GOOD + "[powr]\nshelves = 8\n", "table powr (did you mean power?)"),
    "unknown-key": (GOOD.replace("count =", "cuont ="), "[[tray]] 1: unknown key cuont"),
    "nearest-key": (GOOD.replace("sku =", "skuu ="), "did you mean sku?"),
    "far-key": (GOOD.replace("sku =", "qqqq ="), "known: sku"),
    "odd-key": (GOOD + '[power]\n"\\u0007\\n" = 1\n', "[power]: unknown key ??"),
    "no-rack": ("[[tray]]\ncount = 1\ngpus = 1\n[gpu]\nsku='h100'\n", "[rack] is missing"),
    "no-tray": ("[rack]\nname='a'\nsource='real'\n[gpu]\nsku='h100'\n", "[[tray]] is missing"),
    "no-gpu": (GOOD.split("[gpu]", maxsplit=1)[0], "[gpu] is missing"),
    "no-sku": (GOOD.replace('sku = "gb300"', ""), "[gpu]: sku is missing"),
    "no-count": (GOOD.replace("count = 2", ""), "[[tray]] 1: count is missing"),
    "no-source": (GOOD.replace('source = "emulated"', ""), "source is missing, one of emulated"),
    "unknown-sku": (GOOD.replace("gb300", "gb30"), "gb30"),
    "sku-number": (GOOD.replace('"gb300"', "300"), "is a number, and text is due"),
    "one-bracket": (GOOD.replace("[[tray]]", "[tray]"), "two brackets"),
    "empty-tray": ("tray = []\n[rack]\nname='a'\nsource='real'\n[gpu]\nsku='h100'", "two brackets"),
    "two-brackets": (GOOD.replace("[gpu]", "[[gpu]]"), "written [gpu]"),
    "table-as-value": ("power = 3\n" + GOOD, "[power] must be one table"),
    "text-count": (GOOD.replace("count = 2", 'count = "2"'), "is text, and a whole number is due"),
    "bool-count": (GOOD.replace("count = 2", "count = true"), "is true, and a whole number"),
    "float-count": (GOOD.replace("count = 2", "count = 2.5"), "whole number is due"),
    "nan-count": (GOOD.replace("count = 2", "count = nan"), "finite"),
    "inf-count": (GOOD.replace("count = 2", "count = inf"), "finite"),
    "date-count": (GOOD.replace("count = 2", "count = 2030-01-01"), "is a date or time"),
    "list-count": (GOOD.replace("count = 2", "count = [2]"), "is a list"),
    "zero-count": (GOOD.replace("count = 2", "count = 0"), "from 1 to 4096"),
    "negative": (GOOD.replace("gpus = 4", "gpus = -4"), "from 1 to 16"),
    "many-gpus": (GOOD.replace("gpus = 4", "gpus = 17"), "from 1 to 16"),
    "huge-count": (GOOD.replace("count = 2", "count = " + "9" * 400), "far out of range"),
    "many-trays": (GOOD + "[[tray]]\ncount = 4095\ngpus = 1\n", "4097 trays in all"),
    "rack-gap": (GOOD.replace("gpus = 4", "gpus = 4\nrack = 2"), "no [[tray]] is of rack 0"),
    "bad-source": (GOOD.replace('"emulated"', '"emulted"'), "did you mean emulated?"),
    "bad-cooling": (GOOD + "[cooling]\nkind = 'water'\n", "none of aalc, flc, air"),
    "links": (GOOD + "[fabric]\nlinks_per_gpu = 12\n", "gb300 has 18"),
    "domain": (GOOD + "[fabric]\ndomain = 9\n", "hold 8 GPUs"),
    "spares": (GOOD + "[spares]\ntrays = 2\n", "none would be left"),
    "nan-power": (GOOD + "[power]\nshelf_kw = nan\n", "[power] shelf_kw: is nan"),
    "inf-power": (GOOD + "[power]\nshelf_kw = -inf\n", "finite"),
    "zero-power": (GOOD + "[power]\nshelf_kw = 0\n", "must be from"),
    "text-flag": (GOOD + "[power]\nbbu = 'yes'\n", "[power] bbu: is text"),
    "emulation-key": (GOOD + "[emulation]\nfp32_rat = 1\n", "did you mean fp32_rate?"),
    "emulation-type": (GOOD + "[emulation]\nfp32_rate = 'fast'\n", "is text, and a number"),
    "emulation-nan": (GOOD + "[emulation]\nfp32_rate = nan\n", "finite"),
    "control": (GOOD.replace('"mine"', '"mine"\nidentity = "a\\nb"'), "printable"),
    "endless": (GOOD.replace('"mine"', f'"mine"\nidentity = "{"a" * 201}"'), "printable"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    message = refusal(write(tmp_path, text))
    assert expected in message
    assert "mine.toml: " in message


@pytest.mark.parametrize(
    "name", ["", "..", "../up", "a/b", ".hidden", "-rf", "a b", "a\\u0000", "é", "a" * 65, "a\\n"]
)
def test_a_name_that_no_folder_should_have_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"\[rack\] name"):
        build(GOOD.replace('"mine"', f'"{name}"'))


def test_a_hostile_path_does_not_reach_the_message_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path, "[rack", "a\x1b[2J\nb.toml")
    assert "\x1b" not in refusal(path)


VALUES = "nan inf true -1 0 1e999 999999999999999999999 'x' [] {} 07:32:00 [[1]]".split()


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from([*VALUES, "=", "[", "\n", "é"]))))
def test_a_garbled_file_is_a_rack_or_a_refusal_and_nothing_else(
    edits: list[tuple[int, str]],
) -> None:
    text = GOOD + "[power]\nshelves = 8\nbbu = true\n[emulation]\nfp32_rate = 60\n"
    for at, piece in edits:
        text = text[:at] + piece + text[at + 1 :]
    found = outcome(text)
    if isinstance(found, str):
        assert found.startswith("mine.toml: ")
    else:
        assert 0 < len(found.gpus) <= rackfile.MAX_TRAYS * 16


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    ("table", "key"),
    [(t, k) for t, keys in rackfile.TABLES.items() if t != "emulation" for k in keys],
)
def test_every_key_withstands_every_sort_of_value(table: str, key: str, value: str) -> None:
    head = {"rack": "name='a'\nsource='real'", "tray": "count=1\ngpus=1", "gpu": "sku='h100'"}
    lines = [line for line in head.get(table, "").split("\n") if not line.startswith(f"{key}=")]
    tables = {**head, table: "\n".join([*lines, f"{key}={value}"])}
    text = "".join(
        f"{'[[tray]]' if name == 'tray' else f'[{name}]'}\n{body}\n"
        for name, body in tables.items()
    )
    found = outcome(text)
    if isinstance(found, str):
        assert found.startswith("mine.toml: ")
        assert key in found or "no TOML" in found


# --- selection -------------------------------------------------------------------------------
def test_a_glob_selects_subjects_across_slashes() -> None:
    rack = spec.load("gb300-nvl72")
    assert spec.select(rack, "rack0/tray03/gpu1") == ("rack0/tray03/gpu1",)
    assert len(spec.select(rack, "rack0/tray0[0-3]/gpu?")) == 16
    assert len(spec.select(rack, "rack0/tray03/gpu1/*")) == 18
    assert len(spec.select(rack, "*/link00")) == 72
    assert len(spec.select(rack, "*")) == len(list(rack.subjects()))


def test_a_glob_that_selects_nothing_says_how_a_gpu_is_written() -> None:
    with pytest.raises(SpecError, match="rack0/tray00/gpu0"):
        spec.select(spec.load("gb300-nvl72"), "rack7/*")


# --- the page about it -----------------------------------------------------------------------
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "describe-a-rack.md"


def test_the_examples_of_the_howto_are_racks() -> None:
    examples = PAGE.read_text("utf-8").split("```toml\n")[1:]
    racks = [build(example.split("```")[0]) for example in examples]
    assert [len(rack.gpus) for rack in racks] == [72, 72]


def test_the_howto_names_every_key() -> None:
    page = PAGE.read_text("utf-8")
    keys = {key for name, table in rackfile.TABLES.items() if name != "emulation" for key in table}
    missing = {key for key in keys | rackfile.EMULATION_ONLY.keys() if key not in page}
    assert missing == set()
