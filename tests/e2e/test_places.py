"""Words that name no place: an unset variable, a name too long, links that go nowhere or round."""

import pytest

from rackproof.fixtures import runs
from rackproof.fixtures.drill import fresh
from rackproof.harness.errors import RecordError
from rackproof.reports.render import write_whole

LONG = "a" * 300
DEEP = "ab/" * 2000 + "x"
VERBS = {
    "drill": ("drill", "gpu-loss"),
    "burn": ("burn", "hgx-h100", "--only", "inventory"),
    "resume": ("burn", "hgx-h100", "--only", "inventory", "--resume"),
    "probe": ("probe", "hgx-h100"),
    "qualify": ("qualify", "hgx-h100", "--kinds", "gpu-lost"),
    "evaluate": ("evaluate-classifier", "--cases", "1"),
}
EMPTY = [
    ("drill", ""), ("drill", "gpu-loss", ""), ("drill", "gpu-loss", " "),
    ("drill", "gpu-loss", "", "--", "true"), ("drill", "gpu-loss", "--require", ""),
    ("drill", "gpu-loss", "--layer", ""), ("drill", "gpu-loss", "--log-regex", "", "--", "true"),
    ("burn", ""), ("probe", ""), ("qualify", ""), ("emulate", "", "--", "true"),
    ("burn", "hgx-h100", "--limits", ""), ("burn", "hgx-h100", "--expect", ""),
    ("burn", "hgx-h100", "--plant", ""), ("burn", "hgx-h100", "--level", ""),
    ("burn", "hgx-h100", "--budget", ""), ("burn", "hgx-h100", "--alluredir", ""),
    ("diagnose", ""), ("diagnose", ".", ""), ("compare", "", "."), ("compare", ".", ""),
    ("spares", ""), ("report", "", "--as", "html"), ("report", ".", "--as", ""), ("list", ""),
]  # fmt: skip


@pytest.fixture
def places(tmp_path):
    """A folder with a file, a link to nothing, and two links to one another."""
    (tmp_path / "file").write_text("mine\n", "utf-8")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    return tmp_path


def refused(answer):
    assert answer.code == 2
    assert len(answer.err.strip().splitlines()) == 1
    assert answer.out == ""
    return answer.err


@pytest.mark.parametrize("words", EMPTY, ids=" ".join)
def test_an_empty_word_is_no_default(cli, words):
    assert "empty" in refused(cli(*words))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("out", "why"),
    [("", "is empty"), (LONG, "too long a name"), (DEEP, "too long a name"),
     ("one", "loop of links"), ("file/sub", ""), ("one/sub", "loop of links")],
)  # fmt: skip
def test_an_out_that_cannot_be(cli, places, verb, out, why):
    before = sorted(places.iterdir())
    assert why in refused(cli(*VERBS[verb], "--out", out))
    assert sorted(places.iterdir()) == before


@pytest.mark.parametrize("words", [("report", LONG, "--as", "html"), ("diagnose", LONG),
                                   ("compare", LONG, LONG), ("spares", DEEP), ("burn", LONG),
                                   ("burn", "hgx-h100", "--limits", LONG)])  # fmt: skip
def test_a_word_that_is_too_long(cli, words):
    assert len(refused(cli(*words))) < 200


def test_a_regular_expression_may_be_long(cli):
    words = ("--log-regex", f"(?P<step>{LONG})", "--require", "L9", "--", "true")
    assert "L9" in refused(cli("drill", "gpu-loss", *words))


def test_an_empty_word_of_a_command_is_its_own(cli):
    assert "L9" in refused(cli("drill", "gpu-loss", "--require", "L9", "--", "true", ""))


@pytest.mark.parametrize(
    ("name", "why"),
    [("file", "it is no directory"), ("file/sub", "file is no directory"),
     ("dangling", "dangling is a link to nothing"), ("dangling/sub", "dangling is a link to noth"),
     ("one", "Too many levels"), (LONG, "File name too long"), ("a\0b", "null byte")],
)  # fmt: skip
def test_what_can_be_no_run_directory(places, name, why):
    for refuse in (runs.usable, runs.refuse_used, fresh):
        with pytest.raises(RecordError, match=why):
            refuse(places / name)


def test_what_can_be_one(places):
    (places / "folder").mkdir()
    (places / "good").symlink_to("folder")
    for name in ("folder", "good", "new", "new/below"):
        fresh(places / name)


@pytest.mark.parametrize("name", ["one", LONG, "a\0b", "file/sub"])
def test_a_file_that_cannot_be_written(places, name):
    with pytest.raises(RecordError, match="cannot be written"):
        write_whole(places / name, b"x")


def test_what_stands_in_the_folder_is_said_as_it_is(places):
    (places / "folder").mkdir()
    (places / "folder" / "notes.txt").touch()
    with pytest.raises(RecordError, match=r"\(notes\.txt\)"):
        fresh(places / "folder")
    (places / "folder" / "other.txt").touch()
    with pytest.raises(RecordError, match=r"\(notes\.txt, \.\.\.\)"):
        fresh(places / "folder")
