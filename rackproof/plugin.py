"""The pytest entry point: options and markers; inert until a rack is named.

Installed, it adds options and nothing else. With ``--rack`` (or the ini key ``rack``) it registers
rackproof.fixtures.plugin, which brings the fixtures.
"""

import argparse
import os

import pytest

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MOST = 2**63 - 1


def _seed(text: str) -> int:
    """Return a seed; what is none, as the command line has it, is a usage error."""
    if not (text.isascii() and text.isdecimal()) or int(text[:40]) > _MOST:
        msg = f"{text[:40]!r} is no whole number from 0 to {_MOST}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


_OPTIONS = (
    ("--rack", {"metavar": "RACK", "help": "burn this rack: a shipped name, a TOML file, local"}),
    (
        "--rack-plant",
        {
            "metavar": "FAULT",
            "action": "append",
            "default": [],
            "help": "plant KIND@SUBJECT[:key=value,...] into an emulated rack",
        },
    ),
    ("--rack-seed", {"metavar": "N", "type": _seed, "help": "seed of noise, order and data"}),
    ("--rack-level", {"metavar": "LEVEL", "default": "quick", "help": "quick, acceptance or soak"}),
    ("--rack-out", {"metavar": "DIR", "help": "where the record is written"}),
    ("--rack-limits", {"metavar": "FILE", "help": "limits, golden values and waivers (TOML)"}),
    ("--rack-subject", {"metavar": "GLOB", "default": "*", "help": "only GPUs that match"}),
    (
        "--rack-only",
        {
            "metavar": "ID",
            "action": "append",
            "default": [],
            "help": "only these burns or families",
        },
    ),
    ("--rack-budget", {"metavar": "TIME", "help": "the best coverage that fits, as in 20m"}),
    ("--rack-for", {"metavar": "TIME", "help": "with level soak: rounds until it is over"}),
    (
        "--rack-retest-budget",
        {"metavar": "TIME", "help": "device time beyond the plan and its three runs, as in 2h"},
    ),
    (
        "--rack-allow",
        {
            "metavar": "ID",
            "action": "append",
            "default": [],
            "help": "let this burn change settings of real GPUs; it puts them back",
        },
    ),
    (
        "--rack-shared",
        {"action": "store_true", "help": "burn real GPUs on which other processes compute"},
    ),
    ("--rack-expect", {"metavar": "WHAT", "help": "what ought to be there: gpus=N,driver=V, RACK"}),
    ("--rack-resume", {"action": "store_true", "help": "go on with the run in --rack-out"}),
    ("--rack-verb", {"metavar": "VERB", "default": "burn", "help": "recorded: burn or probe"}),
    ("--rack-progress", {"action": "store_true", "help": "draw a progress bar on stderr"}),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that begin with --rack, and the ini key rack."""
    group = parser.getgroup("rackproof", "rackproof: burn a rack of GPUs and judge it")
    for name, how in _OPTIONS:
        group.addoption(name, **how)
    parser.addini("rack", "the rack to burn, as --rack", default="")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; with a rack named, the fixtures."""
    for marker in (
        "burn(id, ...): this test runs these burns",
        "drill(id): this test is a drill",
        "needs(feature, ...): skip where the rack has no such feature",
    ):
        config.addinivalue_line("markers", marker)
    if config.option.rack or config.getini("rack"):
        for name in _THREADS:  # before NumPy is loaded: emulated products are small
            os.environ.setdefault(name, "1")
        from rackproof.fixtures import plugin  # noqa: PLC0415 - only once a rack is named

        config.pluginmanager.register(plugin, "rackproof-fixtures")
