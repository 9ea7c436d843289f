"""Files of any make are read or refused, never waited for, and never fill the memory."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rackproof.diagnostics.offline import judge_inputs
from rackproof.harness.readers import read, read_all
from rackproof.harness.readers.source import BLOCK, Source, Unreadable

FALLEN = "[ 4242.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=train, GPU has fallen off\n"
QUIET = "[    1.000000] usb 1-1: new high-speed USB device number 2 using xhci_hcd\n"


@pytest.fixture
def put(tmp_path):
    def put(data, name="log"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return put


def codes(path):
    return [event.code for event in read(path).events]


@pytest.mark.parametrize(
    "packed",
    [
        lambda t: t.encode(),
        lambda t: b"\xef\xbb\xbf" + t.encode(),
        lambda t: t.encode("utf-16"),
        lambda t: t.encode("utf-16-le"),
        lambda t: t.encode("utf-16-be"),
        lambda t: t.replace("\n", "\r\n").encode(),
        lambda t: gzip.compress(t.encode()),
        lambda t: gzip.compress(QUIET.encode()) + gzip.compress(t.encode()),
        lambda t: bz2.compress(t.encode()),
        lambda t: bz2.compress(QUIET.encode()) + bz2.compress(t.encode()),
        lambda t: lzma.compress(t.encode()),
        lambda t: lzma.compress(QUIET.encode()) + bytes(8) + lzma.compress(t.encode()),
        lambda t: t.replace("NVRM:", "\x1b[33mNVRM:\x1b[0m").encode(),
        lambda t: b"\xff\x80 broken\n" * 3 + t.encode(),
    ],
    ids=[
        "plain",
        "bom",
        "utf16",
        "le",
        "be",
        "crlf",
        "gz",
        "gz-twice",
        "bz2",
        "bz2-twice",
        "xz",
        "xz-padded",
        "ansi",
        "bad-utf8",
    ],
)
def test_every_packing_gives_the_same_event(put, packed):
    found = read(put(packed(QUIET * 5 + FALLEN)))
    assert found.kind == "kernel-log"
    assert [(e.subject, e.code) for e in found.events] == [("pci:0000:3b:00.0", "xid.79")]


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress], ids=["bz2", "xz"])
def test_other_packings_that_end_early_or_are_damaged_are_cut(put, pack):
    noise = "".join(f"[{i:5}.{i * 7919 % 999983:06}] usb {i * 31 % 97}: x\n" for i in range(90_000))
    whole = pack((FALLEN + noise).encode())
    for data in (whole[: len(whole) * 2 // 3], whole[:-400] + b"\x55" * 400):
        found = read(put(data))
        assert (found.cut, [e.code for e in found.events]) == (True, ["xid.79"])
        assert re.search("stream (ends early|is damaged)", found.problems[0])


def _tar():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("kern.log")
        member.size = len(FALLEN)
        archive.addfile(member, io.BytesIO(FALLEN.encode()))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"\x28\xb5\x2f\xfd" + b"x" * 99, "zstd"), (b"PK\x03\x04" + b"x" * 99, "zip"),
     (b"\x04\x22\x4d\x18" + b"x" * 99, "lz4"), (_tar(), "tar archive")],
    ids=["zstd", "zip", "lz4", "tar"],
)  # fmt: skip
def test_what_is_not_unpacked_here_says_so(put, data, word):
    (problem,) = read(put(data)).problems
    assert word in problem
    assert "unpack it first" in problem


def test_a_gzip_that_ends_early_is_read_as_far_as_it_goes(put):
    noise = "".join(f"[{i:5}.{i * 7919 % 999983:06}] usb {i * 31 % 97}: x\n" for i in range(4000))
    whole = gzip.compress((FALLEN + noise).encode())
    found = read(put(whole[: len(whole) // 2]))
    assert found.cut
    assert "ends early" in found.problems[0]
    assert [e.code for e in found.events] == ["xid.79"]


def test_a_nul_block_parts_two_lines_and_is_told(put):
    found = read(put(QUIET.encode() + b"[    2.0000" + bytes(4096) + FALLEN.encode()))
    assert [e.code for e in found.events] == ["xid.79"]
    assert any("NUL" in problem for problem in found.problems)


def test_bytes_behind_a_gzip_stream_do_no_harm(put):
    assert codes(put(gzip.compress(FALLEN.encode()) + b"garbage")) == ["xid.79"]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 1000, b"\x1f\x8b", b"\x1f\x8bgarbage", bytes(range(128, 136))]
)
def test_what_holds_no_text_is_unrecognised_with_a_reason(put, data):
    found = read(put(data))
    assert (found.kind, found.records) == ("unrecognised", 0)
    assert found.problems


def test_a_fifo_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="no regular file"):
        Source(tmp_path / "pipe")
    assert read(Path("/dev/zero")).problems == ("is no regular file, and is not read",)


def test_a_folder_is_walked_once_in_order_without_loops(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two").write_text(FALLEN)
    (tmp_path / "a").write_text(QUIET)
    (tmp_path / "b" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b" / "zagain").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    found = read_all([tmp_path])
    assert [r.path.name for r in found] == ["a", "c", "pipe", "two"]
    assert not any(r.named for r in found)
    assert [bool(r.problems) for r in found] == [False, True, True, False]


def test_named_and_met_are_told_apart(put, tmp_path):
    named, met = put("nothing known", "x"), put("nothing known", "y")
    found = [(r.path, r.named) for r in read_all([named, tmp_path])]
    assert found == [(named, True), (met, False)]


@pytest.mark.parametrize("again", ["same", "spelled otherwise", "its folder", "hard link"])
def test_a_file_that_is_met_again_is_read_once(put, tmp_path, again):
    named = put(FALLEN, "x")
    other = {"same": named, "spelled otherwise": tmp_path / "." / "x", "its folder": tmp_path,
             "hard link": tmp_path / "z"}[again]  # fmt: skip
    if again == "hard link":
        other.hardlink_to(named)
    for paths in ([named, other], [other, named]):
        found = read_all(paths)
        assert [r.named for r in found] == [True]


def test_a_name_that_is_no_text_can_be_written(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/log\xff"))
    path.write_text(FALLEN)
    body = judge_inputs([read(path)]).as_json()
    assert json.dumps(body, ensure_ascii=False).encode()
    assert body["inputs"][0]["path"].endswith("log\\udcff")


def test_an_empty_folder_is_said(tmp_path):
    (only,) = read_all([tmp_path])
    assert only.problems == ("a folder with no file in it",)


def test_chunks_end_with_whole_lines_at_any_length(put):
    lines = [b"x" * (n * 7919 % 5000) + b"\n" for n in range(2000)]
    path = put(b"".join(lines))
    chunks = list(Source(path).chunks())
    assert b"".join(chunks) == path.read_bytes()
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    assert len(chunks) > 2


def test_a_line_of_many_megabytes_passes_in_parts(put):
    source = Source(put(FALLEN.encode() + b"a" * (5 * BLOCK) + b"\n" + FALLEN.encode()))
    assert max(map(len, source.chunks())) <= 3 * BLOCK
    assert any("longer than 1 MiB" in problem for problem in source.problems)


def _peak(path):
    """Return the peak memory in KiB of a child that reads `path`."""
    code = (
        "import re, sys; from pathlib import Path; from rackproof.harness.readers import read;"
        "r = read(Path(sys.argv[1]));"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1];"
        "print(r.records, len(r.events), peak)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("line", [QUIET, FALLEN], ids=["quiet", "one-event-for-ever"])
def test_memory_does_not_grow_with_the_file(put, line):
    small = _peak(put(line * 1000, "small"))
    many = 400_000 if line is QUIET else 60_000
    large = _peak(put(line * many, "large"))
    assert large[0] == many
    assert large[2] - small[2] < 24 * 1024


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_zip_bomb_is_read_in_small_pieces(put, pack):
    bomb = pack((QUIET * 400_000).encode())
    assert len(bomb) < 1 << 18
    records, _, peak = _peak(put(bomb))
    assert records == 400_000
    assert peak < _peak(put(QUIET, "one"))[2] + 40 * 1024
