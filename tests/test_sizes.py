"""A file over 400 lines or a function over 40 asks to be split."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("rackproof", "harness", "diagnostics", "fixtures", "reports", "tests", "benchmarks")
FILE, FUNCTION = 400, 40


def too_long(root: Path) -> list[str]:
    """Return ``file:line: what`` of each file and function that is over its size."""
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            text = file.read_text("utf-8")
            path, lines = file.relative_to(root), len(text.splitlines())
            if lines > FILE:
                found.append(f"{path}:1: {lines} lines, over {FILE}")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                    size = node.end_lineno - node.lineno + 1
                    if size > FUNCTION:
                        found.append(
                            f"{path}:{node.lineno}: {node.name} has {size}, over {FUNCTION}"
                        )
    return found


def test_nothing_asks_to_be_split():
    assert not too_long(ROOT), "\n" + "\n".join(too_long(ROOT))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n" * 401, "harness/a.py:1: 401 lines"),
        ("\ndef f():\n" + "    x = 1\n" * 40, "harness/a.py:2: f has 41"),
    ],
)
def test_a_planted_giant_is_named(tmp_path, text, said):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "a.py").write_text(text, "utf-8")
    (found,) = too_long(tmp_path)
    assert found.startswith(said)


def test_what_is_just_small_enough_is_let_through(tmp_path):
    (tmp_path / "harness").mkdir()
    function = "def f():\n" + "    x = 1\n" * 39
    (tmp_path / "harness" / "a.py").write_text(function + "x = 1\n" * 360, "utf-8")
    assert too_long(tmp_path) == []
