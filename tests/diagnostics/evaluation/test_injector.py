"""The injector: what it draws, what it writes, and that it stands apart from the classifier."""

import ast
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rackproof.diagnostics import evaluation
from rackproof.diagnostics.evaluation import log, truth, worlds
from rackproof.diagnostics.evaluation.worlds import LASTING
from rackproof.diagnostics.offline import settled
from rackproof.diagnostics.retest.model import Cause
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.signatures import sign_of

HERE = Path(evaluation.__file__).parent
APART = "worlds truth script sorts log answers losses statistics".split()


def drawn(world, seed, count):
    for index in range(count):
        rng = np.random.default_rng((seed, index))
        found = truth.draw(rng, world)
        yield found, log.readings(found, world, rng)


@pytest.mark.parametrize("name", APART)
def test_the_injector_knows_the_nouns_of_the_classifier_and_nothing_else(name):
    source = (HERE / f"{name}.py").read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rackproof"):
            room = node.module.removeprefix("rackproof.diagnostics.")
            assert not room.startswith("retest") or room == "retest.model", node.module
            assert room not in {"rules", "rules.tables", "rules.xid", "cases", "offline"}
    assert "priors.toml" not in source
    assert "hits.toml" not in source


@pytest.mark.parametrize("name", ["matched", "storms"])
def test_every_line_is_what_the_reader_would_make_of_its_text(name):
    seen = set()
    for _, readings in drawn(worlds.world(name), 11, 400):
        for event in (e for reading in readings for e in reading.events):
            if event.code.startswith(("dcgm.", "cuda.")):
                seen.add("tool")
                continue
            sign = sign_of(event.text)
            detail = {k: v for k, v in event.detail.items() if k not in ("line", "last")}
            assert (sign.code, sign.subject) == (event.code, event.subject)
            assert {"count": 1} | dict(sign.detail) == detail
            assert plain(event.text) == event.text
            seen.add(event.code)
    assert seen >= {f"xid.{n}" for n in (13, 31, 43, 45, 48, 62, 63, 74, 79, 94, 95, 109, 119,
                                         137, 145, 149, 154, 172)}  # fmt: skip
    assert seen >= {"tool", "sxid.20034", "edac.ue", "nvrm.fallen", "nvrm.power", "nic.health",
                    "nic.cable", "nic.down", "aer.fatal", "aer.corrected", "edac.ce"}  # fmt: skip


def test_no_reading_names_the_truth():
    for _, readings in drawn(worlds.world("matched"), 12, 150):
        told = " ".join(repr(reading) for reading in readings)
        assert not any(word in told for word in ("persistent", "intermittent", "transient"))


def test_the_same_seed_draws_the_same_incidents_and_another_does_not():
    world = worlds.world("matched")
    one, same, other = (list(drawn(world, seed, 20)) for seed in (3, 3, 4))
    assert one == same
    assert one != other


def test_causes_come_as_often_as_the_world_says():
    world = worlds.world("matched")
    count = 4000
    found = Counter(
        truth.draw(np.random.default_rng((21, index)), world).cause for index in range(count)
    )
    whole = sum(sort.share for sort in world.sorts)
    for cause in Cause:
        wanted = sum(s.share * world.causes(s).get(cause, 0.0) for s in world.sorts) / whole
        spread = 4 * (wanted * (1 - wanted) / count) ** 0.5
        assert found[cause] / count == pytest.approx(wanted, abs=spread)


@pytest.mark.parametrize(("name", "times"), [("priors-low", 1 / 3), ("priors-high", 3.0)])
def test_priors_are_off_by_three_in_odds(name, times):
    matched, other = worlds.world("matched"), worlds.world(name)
    for sort in matched.sorts:

        def odds(world, sort=sort):
            lasts = sum(w for c, w in world.causes(sort).items() if c in LASTING)
            return lasts / (1 - lasts) if lasts < 1 else None

        if odds(matched) is not None:
            assert odds(other) == pytest.approx(times * odds(matched))


def test_what_nobody_would_see_is_no_incident():
    world = replace(worlds.world("matched"), lost=1.0, noise=0.0)
    for found, readings in drawn(world, 13, 60):
        spoken = sum(len(reading.events) for reading in readings)
        assert spoken == 1, found


def test_without_the_channel_only_burns_and_what_no_burn_sees_speak():
    codes = {
        event.code
        for _, readings in drawn(worlds.world("no-xid"), 14, 300)
        for reading in readings
        for event in reading.events
    }
    assert not {code for code in codes if code.startswith(("xid", "sxid", "aer", "nvrm"))}
    assert {code.partition(".")[0] for code in codes} >= {"dcgm", "cuda", "edac", "nic"}


def test_clocks_differ_between_machines_and_not_within_one():
    world = worlds.world("skewed-clocks")
    apart = []
    for found, readings in drawn(world, 15, 200):
        for reading in readings:
            times = [e.at for e in reading.events if e.at is not None]
            assert times == sorted(times)
            if found.site.wide and times:
                apart.append(times[0] - log.BEGIN)
    assert np.std(apart) > 30


@pytest.mark.parametrize("name", worlds.names())
def test_the_product_reads_every_world_and_finds_cases(name):
    world = worlds.world(name)
    for found, readings in drawn(world, 16, 40):
        cases, known = settled(readings)
        assert known is not None
        if world.lost == 0.0 and found.sort.name != "nic":
            assert cases, found


def test_a_parameter_that_base_has_not_is_refused(monkeypatch):
    tables = {"base": {}, "sort": [], "world": {"odd": {"storm": 1.0}}}
    monkeypatch.setattr(worlds, "_tables", lambda: tables)
    worlds.world.cache_clear()
    with pytest.raises(KeyError, match="storm"):
        worlds.world("odd")
    worlds.world.cache_clear()
