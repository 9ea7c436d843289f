"""The evaluation as text: every table has its rows, and the page says what is a ceiling."""

import io

import pytest

from rackproof.reports import evaluation


def part(count, of):
    share = count / of if of else None
    return {"count": count, "of": of, "share": share, "low": 0.1, "high": 0.9}


def policy(name, loss):
    recall = {cause: part(1, 2) for cause in evaluation.CAUSES}
    return {"name": name, "variant": f"{name} variant", "loss": loss, "tests": 1.5, "asked": 2.0,
            "cause": part(5, 10), "component": part(6, 10), "false_rma": part(0, 8),
            "replaced": 1, "replaced_healthy": 0, "missed_persistent": part(0, 0),
            "missed_intermittent": part(1, 2), "intermittent_watched": part(1, 3),
            "recall": recall}  # fmt: skip


def score(own, other):
    return {
        "cases": 10,
        "policies": [policy("classifier", own), policy("codes only", other)],
        "against": [{"baseline": "codes only", "variant": "v", "difference": own - other,
                     "low": own - other - 1, "high": own - other + 1,
                     "better": own - other + 1 < 0, "worse": own - other - 1 > 0}],
        "confusion": {cause: {cause: 3, "open": 1} for cause in evaluation.CAUSES},
        "components": {"hbm": {**part(3, 4), "instead": {"sm": 1}}},
        "calibration": {"of": 10, "brier": 0.25, "brier_of_base_rates": 0.7,
                        "bins": [{"low": 0.9, "high": 1.0, "sure": 0.95, "right": 9, "of": 10,
                                  "share": 0.9, "from": 0.6, "to": 0.98}]},
    }  # fmt: skip


BODY = {
    "schema": "rackproof.evaluation/1", "verdict": "PASS", "seed": 7, "cases": 10,
    "worlds": {"matched": score(4.0, 9.0), "no-xid": score(8.0, 8.5)},
    "misspecified": score(8.0, 8.5),
}  # fmt: skip


def test_the_page_has_every_world_and_says_what_is_a_ceiling():
    page = evaluation.page(BODY, ["A fact."])
    assert "A fact." in page
    assert "ceiling" in page
    for name in ("matched", "misspecified", "no-xid"):
        assert f"\n## {name}: " in page
    assert "| GPU intermittent → watch | 0.33 (0.10–0.90) | 3 |" in page
    assert "| 0 of 8 (0.100–0.900) |" in page  # false RMA
    assert "Brier score 0.250" in page
    assert "5.0 (4.0 to 6.0)" in page  # less by
    assert "0.5 (-0.5 to 1.5)" in page


def test_tables_are_whole():
    page = evaluation.page(BODY)
    blocks = [block for block in page.split("\n\n") if block.startswith("| ")]
    assert len(blocks) >= 2 + 3 + 2 * 3
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_terminal_ends_with_the_verdict():
    file = io.StringIO()
    evaluation.head(7, 10, ["matched", "no-xid"], file)
    evaluation.conclusion(BODY, None, file)
    lines = file.getvalue().rstrip().splitlines()
    assert lines[-1].startswith("PASS  matched 4.0 GPU-hours, better than 1 of 1 baselines")
    assert "better than 0 of 1 baselines" in lines[-1]


@pytest.mark.parametrize(
    ("entry", "text"),
    [(part(0, 0), "–"), (part(1, 2), "0.50 (0.10–0.90)")],
    ids=["nothing", "some"],
)
def test_a_share_of_nothing_is_a_dash(entry, text):
    assert evaluation.percent(entry) == text
