"""Who may import whom: reads every module with ast, and names file and line of each trespass.

An upper floor may import a lower one, never the reverse::

    rackproof.cli, .plugin → fixtures → reports → diagnostics → harness

diagnostics is pure but for its suites and drills, the nouns of harness stand on the standard
library alone, nobody asks the emulator what is wrong, and the rooms are never imported bare.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("harness", "diagnostics", "reports", "fixtures", "rackproof")
ROOMS = FLOORS[:-1]
OUTSIDE = ("tests", "benchmarks")

# What would let a judge act, or give two answers to one question.
ACTING = (
    "asyncio builtins concurrent ctypes fcntl ftplib getpass glob http io "
    "logging mmap multiprocessing os pathlib pickle platform pty random requests secrets select "
    "shelve shutil signal socket sqlite3 subprocess tempfile threading time urllib "
    "cupy pynvml torch pytest click rich"
)
IMPURE = frozenset(ACTING.split())
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "breakpoint", "__import__"})
IMPURE_METHODS = frozenset({"now", "today", "utcnow", "read_csv", "to_csv"})
DRIVING = "burns checkpoint clock devices launch power readers telemetry training"
HARDWARE = frozenset(f"rackproof.harness.{part}" for part in DRIVING.split())
# Data and nothing else: what a reader returns, and a path that no file system stands behind.
PURE = (
    "rackproof.harness.readers.reading",
    "rackproof.harness.readers.Reading",
    "rackproof.harness.readers.UNRECOGNISED",
    "pathlib.PurePath",
    "pathlib.PurePosixPath",
)

# These may import the standard library and each other.
NOUNS = frozenset(f"rackproof.harness.{part}" for part in ("model", "units", "errors", "clock"))

EMULATED = "rackproof.harness.devices.emulated"
MAY_EMULATE = frozenset(
    {"harness/devices/__init__.py", "fixtures/plant.py", "fixtures/power_rack.py"}
)


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: its path under the root, its dotted name, and its syntax tree."""

    path: str
    name: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.path.split("/", 1)[0]

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yield (line, dotted name) of all that it imports, ``from a import b`` as ``a.b``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Call) and called(node) in {"import_module", "__import__"}:
                yield from ((node.lineno, name) for name in first_text(node))

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        if not self.path.endswith("/__init__.py"):
            package.pop()
        package = package[: len(package) - node.level + 1]
        return ".".join([*package, *([node.module] if node.module else [])])


def called(node: ast.Call) -> str:
    """Return the last part of what is called: ``open`` of ``path.open()``."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def first_text(node: ast.Call) -> list[str]:
    """Return the first argument, where it is plain text."""
    texts = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return [text for text in texts if isinstance(text, str)]


def within(name: str, parts: frozenset[str] | tuple[str, ...]) -> bool:
    """Return whether dotted `name` is one of `parts`, or lies inside one."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def floor(name: str) -> int | None:
    """Return the floor of an imported name, or None when it is none of ours."""
    first, _, rest = name.partition(".")
    if first != "rackproof":
        return None
    part = rest.split(".", 1)[0]
    if part in ROOMS:
        return FLOORS.index(part)
    # __version__ and the package itself lie below every floor.
    return None if part in {"", "__version__", "__file__"} else FLOORS.index("rackproof")


def climbs(module: Module) -> Iterator[tuple[int, str]]:
    """An upper floor may import a lower one, never the reverse."""
    if module.room not in FLOORS:
        return
    own = FLOORS.index(module.room)
    for line, name in module.imports():
        other = floor(name)
        if other is not None and other > own:
            yield line, f"{module.room} imports {name}, which is a floor above it"


def bare(module: Module) -> Iterator[tuple[int, str]]:
    """The names harness, diagnostics, fixtures and reports belong to other people."""
    for line, name in module.imports():
        if name.split(".", 1)[0] in ROOMS:
            yield line, f"imports {name} bare; it is rackproof.{name}"


def impure(module: Module) -> Iterator[tuple[int, str]]:
    """A judge has no clock, no files, no chance and no hardware; suites and drills drive it."""
    parts = module.path.split("/")
    if module.room != "diagnostics" or parts[1] in {"suites", "drills"}:
        return
    for line, name in module.imports():
        if within(name, (*IMPURE, *HARDWARE)) and not within(name, PURE):
            yield line, f"diagnostics is pure, and imports {name}"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        is_method = isinstance(node.func, ast.Attribute)
        if name in IMPURE_METHODS if is_method else name in IMPURE_CALLS:
            yield node.lineno, f"diagnostics is pure, and calls {name}()"


def leans(module: Module) -> Iterator[tuple[int, str]]:
    """The nouns of harness stand on the standard library alone."""
    if module.name not in NOUNS:
        return
    for line, name in module.imports():
        if name.split(".", 1)[0] not in sys.stdlib_module_names and not within(name, tuple(NOUNS)):
            yield line, f"{module.name} may import the standard library only, not {name}"


def cheats(module: Module) -> Iterator[tuple[int, str]]:
    """A burn that asks the emulator what is wrong finds nothing on silicon."""
    if module.path in MAY_EMULATE or module.room in OUTSIDE or within(module.name, (EMULATED,)):
        return
    for line, name in module.imports():
        if within(name, (EMULATED,)):
            yield line, f"imports {name}; only harness.devices and fixtures.plant may"


def peeks(module: Module) -> Iterator[tuple[int, str]]:
    """What was planted is not known to what measures or judges."""
    if module.room not in {"harness", "diagnostics"} or within(module.name, (EMULATED,)):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and node.value == "planted.json":
            yield node.lineno, "names planted.json, which nothing that measures or judges may open"


RULES = (climbs, bare, impure, leans, cheats, peeks)


def modules(root: Path) -> Iterator[Module]:
    """Yield every module under `root` that is ours."""
    files = [*root.glob("*.py")]
    for folder in (*FLOORS, *OUTSIDE):
        files += (root / folder).rglob("*.py")
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        name = ".".join(parts if parts[0] not in ROOMS else ["rackproof", *parts])
        yield Module(path, name, ast.parse(file.read_text("utf-8"), path))


def violations(root: Path) -> list[str]:
    """Return ``file:line: what`` of each trespass under `root`."""
    return [
        f"{module.path}:{line}: {what}"
        for module in modules(root)
        for rule in RULES
        for line, what in rule(module)
    ]


def test_nobody_trespasses():
    assert not violations(ROOT), "\n" + "\n".join(violations(ROOT))


def test_it_reads_all_the_rooms():
    seen = {module.room for module in modules(ROOT)}
    assert seen >= {*FLOORS, "tests"}


PLANTED = [
    # where, the source, the line, a part of what is said
    ("harness/a.py", "import os\nimport rackproof.reports.record\n", 2, "a floor above"),
    ("harness/a.py", "from rackproof import fixtures\n", 1, "a floor above"),
    ("harness/a.py", "from rackproof.cli import main\n", 1, "a floor above"),
    ("diagnostics/suites/a.py", "from rackproof.fixtures import rack\n", 1, "a floor above"),
    ("reports/a.py", "def f():\n    import rackproof.fixtures.burn\n", 2, "a floor above"),
    ("fixtures/a.py", "import rackproof.plugin\n", 1, "a floor above"),
    ("harness/burns/a.py", "from ...diagnostics import judge\n", 1, "a floor above"),
    ("harness/a.py", "import importlib as i\ni.import_module('rackproof.reports')\n", 2, "a floor"),
    ("rackproof/a.py", "import harness.model\n", 1, "bare"),
    ("tests/a.py", "from fixtures import rack\n", 1, "bare"),
    ("conftest.py", "import diagnostics as d\n", 1, "bare"),
    ("diagnostics/a.py", "import time\n", 1, "pure"),
    ("diagnostics/a.py", "from os import path\n", 1, "pure"),
    ("diagnostics/a.py", "from pathlib import Path\n", 1, "pure"),
    ("diagnostics/a.py", "from rackproof.harness.readers import read\n", 1, "pure"),
    ("diagnostics/rules/a.py", "import random\n", 1, "pure"),
    ("diagnostics/a.py", "from rackproof.harness.devices import connect\n", 1, "pure"),
    ("diagnostics/a.py", "def f():\n    return open('x')\n", 2, "open()"),
    ("diagnostics/a.py", "import datetime as d\nd.datetime.now()\n", 2, "now()"),
    ("harness/model.py", "import numpy\n", 1, "standard library only"),
    ("harness/units.py", "from rackproof.harness.spec import load\n", 1, "standard library only"),
    ("harness/burns/a.py", "from rackproof.harness.devices import emulated\n", 1, "only harness"),
    ("rackproof/a.py", f"import {EMULATED}.driver\n", 1, "only harness"),
    ("diagnostics/drills/a.py", f"from {EMULATED}.planted import ask\n", 1, "only harness"),
    ("harness/burns/a.py", "NAME = 'planted.json'\n", 1, "planted.json"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "source", "line", "said"), PLANTED)
def test_a_planted_trespass_is_named(tmp_path, where, source, line, said):
    place = tmp_path / where
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source, "utf-8")
    found = violations(tmp_path)
    assert found
    assert found[0].startswith(f"{where}:{line}: ")
    assert said in found[0]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("rackproof/cli.py", "import rackproof.fixtures.plugin\nimport rackproof.reports\n"),
        ("fixtures/plant.py", f"from {EMULATED} import planted\n"),
        ("harness/devices/__init__.py", f"from {EMULATED}.driver import start\n"),
        (
            "harness/devices/emulated/driver.py",
            f"import {EMULATED}.hbm\nfrom rackproof import __version__\n",
        ),
        ("diagnostics/suites/test_a.py", "import time\nfrom rackproof.harness.burns import gemm\n"),
        ("diagnostics/judge.py", "from importlib import resources\nimport rackproof.harness.model"),
        ("diagnostics/a.py", "from rackproof.harness.readers.reading import Reading\n"),
        ("diagnostics/a.py", "from pathlib import PurePath\n"),
        ("harness/errors.py", "import os\nfrom rackproof.harness.model import Gpu\n"),
        ("tests/harness/test_a.py", f"from {EMULATED} import hbm\nimport rackproof.cli\n"),
    ],
)
def test_what_is_allowed_is_let_through(tmp_path, where, source):
    place = tmp_path / where
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source, "utf-8")
    assert violations(tmp_path) == []
