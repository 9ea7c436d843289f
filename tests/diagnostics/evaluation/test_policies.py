"""The baselines do what their names say; the classifier is asked by the product's own path."""

import pytest

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import Episode, Said
from rackproof.diagnostics.evaluation import policies
from rackproof.diagnostics.evaluation.baselines import BASELINES
from rackproof.diagnostics.evaluation.bench import Scene
from rackproof.diagnostics.retest.model import Outcome, Test
from rackproof.diagnostics.rules.xid import rule_of
from rackproof.harness.model import Event
from tests.diagnostics.evaluation.test_answers import incident

PLACE = ("r1-t02", "pci:0008:01:00.0")
HOUR = 3600.0


class Paper:
    """A bench that fails a given number of runs of each test."""

    def __init__(self, struck):
        self.struck, self.asked, self.left = struck, [], 7200.0

    def run(self, place, test, runs):
        self.asked.append((test, runs))
        return Outcome(test, runs, min(runs, self.struck), 0)


def case(code, times=(0.0,)):
    rule = rule_of(code)
    episodes = [
        Episode.of((*PLACE, rule.family, ("epoch",)),
                   [Said(Event(PLACE[1], f"xid.{code}", "…", at), rule, *PLACE)])
        for at in times
    ]  # fmt: skip
    return Case(*PLACE, rule, episodes)


def scene(*cases, earlier=None):
    known = {} if earlier is None else {PLACE: earlier}
    return Scene(cases, incident("transient").site, known, 2160.0)


def said(policy, *cases, struck=0, earlier=None):
    bench = Paper(struck)
    (told,) = policy(scene(*cases, earlier=earlier), bench)
    assert told.place == PLACE
    return told.component, told.persistence, told.action, bench.asked


@pytest.mark.parametrize(
    ("variant", "code", "action"),
    [
        ("as the table says", 48, "reset-gpu"),
        ("as the table says", 64, "rma"),
        ("as the table says", 31, "restart-app"),
        ("swap from prior 0.5", 95, "swap-to-spare"),
        ("swap from prior 0.5", 48, "reset-gpu"),
        ("swap from prior 0.2", 48, "swap-to-spare"),
        ("swap from prior 0.2", 79, "reboot-node"),
    ],
)
def test_codes_only_asks_nothing(variant, code, action):
    _, _, done, asked = said(BASELINES["codes only"][variant], case(code))
    assert (done, asked) == (action, [])


@pytest.mark.parametrize(
    ("variant", "code", "struck", "told"),
    [
        ("three", 48, 3, ("hbm", "persistent", "swap-to-spare")),
        ("three", 48, 1, ("hbm", "intermittent", "watch")),
        ("three", 48, 0, ("hbm", "transient", "none")),
        ("three", 149, 3, ("nvlink", "persistent", "check-cabling")),
        ("reset, then three; links swap", 149, 3, ("nvlink", "persistent", "swap-to-spare")),
        ("three", 119, 3, ("driver", "persistent", "update-software")),
        ("three", 31, 3, ("app", "transient", "restart-app")),
    ],
)
def test_three_burns(variant, code, struck, told):
    found = said(BASELINES["three burns"][variant], case(code), struck=struck)
    assert found[:3] == told


def test_burns_come_after_the_reset_that_a_variant_asks_for():
    asked = said(BASELINES["three burns"]["reset, then five"], case(48))[3]
    assert asked == [(Test.RESET, 1), (Test.AGAIN, 5)]


@pytest.mark.parametrize(
    ("earlier", "times", "action"),
    [
        (0, (0.0,), "reset-gpu"),
        (1, (0.0,), "swap-to-spare"),
        (None, (0.0,), "reset-gpu"),
        (0, (0.0, 2 * HOUR), "swap-to-spare"),
        (0, (0.0, 60.0), "reset-gpu"),
    ],
    ids=["first", "second", "no-history", "twice-in-the-log", "twice-within-the-hour"],
)
def test_lemons_count_cases_of_one_gpu(earlier, times, action):
    assert said(BASELINES["lemons"]["2 cases"], case(48, times), earlier=earlier)[2] == action


def test_lemons_heed_what_is_terminal():
    assert said(BASELINES["lemons"]["5 cases"], case(64))[1:3] == ("persistent", "rma")


def test_the_classifier_stays_within_the_budget_and_says_what_it_believes():
    bench = Paper(1)
    bench.left = 600.0
    (told,) = policies.classifier(scene(case(48)), bench)
    assert bench.asked
    assert 0.0 <= bench.left < 600.0
    assert sum(told.belief.values()) == pytest.approx(1.0)


def test_the_classifier_asks_no_test_where_there_is_no_budget():
    bench = Paper(1)
    bench.left = 0.0
    policies.classifier(scene(case(48)), bench)
    assert bench.asked == []
