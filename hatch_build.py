"""Compiles the emulated NVML driver into the wheel, where there is a C compiler.

With a compiler the wheel holds ``libnvidia-ml.so.1`` and is tagged for this platform, for any
Python 3, since the library is opened with dlopen and knows nothing of Python. Without one the
wheel is pure, and the driver is compiled at first use. An editable install is never given one:
there the driver is compiled from the checkout, as it stands, when it is used.
"""

import importlib.util
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EMULATED = Path("harness", "devices", "emulated")
LIBRARY = "libnvidia-ml.so.1"


def load_build(root: Path) -> ModuleType:
    """Return build.py of the checkout at `root` as a module; nothing of it need be installed."""
    sys.path.insert(0, str(root))
    try:
        place = root / EMULATED / "build.py"
        spec = importlib.util.spec_from_file_location("_rackproof_driver_build", place)
        if spec is None or spec.loader is None:
            msg = f"{place} cannot be loaded"
            raise ImportError(msg)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up there
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(root))
    return module


def platform_tag() -> str:
    """Return the tag of a wheel that holds a shared library, and no Python extension."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{platform}"


class DriverHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the compiled driver into a wheel; `initialize` is called once before each build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the driver beside the build, and tell hatchling where it goes and what tag."""
        if version == "editable":
            return
        self._scratch = tempfile.mkdtemp(prefix="rackproof-driver-")
        library = Path(self._scratch) / LIBRARY
        build = load_build(Path(self.root))
        try:
            build.compile_to(library)
        except (build.BuildError, OSError) as error:  # no compiler: a pure wheel still works
            self.app.display_warning(
                f"rackproof: {error}\nThe driver is left out of this wheel; it is compiled at "
                "first use."
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = platform_tag()
        build_data["force_include"][str(library)] = f"rackproof/{EMULATED.as_posix()}/{LIBRARY}"

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """Remove what was compiled, now that the wheel holds it."""
        scratch = getattr(self, "_scratch", None)
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
