"""The picture of a power-step burn: drawn from a record that nothing is believed of."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from rackproof.diagnostics.judge import judge
from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.devices import connect
from rackproof.harness.model import Measurement
from rackproof.harness.spec import load
from rackproof.reports.html.power_drawing import BASE, LEFT, RIGHT, TOP, pictures
from rackproof.reports.html.power_traces import SENSORS, SMOOTHED, gpus, racks
from rackproof.reports.html.render import render

RACK, GPU = "rack0/power", "rack0/tray00/gpu0"
GOOD = {
    "edge": {"t": [0.0, 0.01], "raw": [1000, 2000], "mains": [1500, 1600]},
    "waves": [{"f": 5.0, "t": [0.0, 0.3], "raw": [1, 2], "mains": [3, None]}],
    "lines": {"raw": [[5.0, 10]], "mains": []},
    "looks": {"t": [0.0, 1.0], "charge": [0.5, None], "strain": [0.0, 0.1]},
}
SENSED = {"waves": [{"f": 1.0, "t": [0.1, 0.6], "instant": [700, 70], "average": [380, 385]}]}


def trace(body: object, metric: str = "power.step.trace", subject: str = RACK) -> Measurement:
    text = body if isinstance(body, str) else json.dumps(body)
    return Measurement("power.step", subject, metric, text, "text")


@pytest.fixture(scope="module")
def burnt():
    """What one rack showed in both burns."""
    bench = connect(load("gb300-nvl72"), seed=5)
    seen = []
    try:
        for name in ("power.step", "power.smoothing"):
            seen += execute(BURNS[name], bench, "fabric", Settings("acceptance", 5))
    finally:
        bench.close()
    return seen


@pytest.fixture
def record(run_of: Callable, case: Callable, burnt):
    """A record with these two burns, and its judgement."""
    made, _ = run_of(case(trays=None))
    made = replace(made, seen=[*made.seen, *burnt])
    return made, judge(made)


def test_a_run_shows_all_that_was_asked_for(record):
    shown = pictures(*record)
    assert [picture.subject for picture in shown] == [RACK, GPU, GPU]
    titles = [chart.title for chart in shown[0].charts]
    assert titles == [
        "A rising edge", "0.1 Hz", "0.5 Hz", "2 Hz", "5 Hz", "Lines of the spectrum",
        "State of charge", "Trip integral of the breaker",
    ]  # fmt: skip
    assert [curve.name for curve in shown[0].charts[0].curves] == ["GPUs", "mains"]
    assert {curve.name for chart in shown[1].charts for curve in chart.curves} == {
        "instantaneous sensor", "averaging sensor",
    }  # fmt: skip
    assert shown[2].charts[0].rules[0][2] == "floor 1,120 W"
    assert [curve.firm for curve in shown[2].charts[0].curves] == [False, True]


def test_every_point_lies_on_its_sheet(record):
    for picture in pictures(*record):
        for chart in picture.charts:
            for curve in chart.curves:
                pairs = re.findall(r"(-?[\d.]+) (-?[\d.]+)", curve.path) or curve.dots
                for x, y in pairs:
                    assert LEFT - 2 <= float(x) <= RIGHT + 2
                    assert TOP <= float(y) <= BASE


def test_a_wave_is_drawn_in_order_of_its_phase(record):
    for chart in pictures(*record)[0].charts[1:5]:
        for curve in chart.curves:
            across = [x for x, _ in curve.dots]
            assert across == sorted(across)


def test_a_charge_that_swings_faster_than_the_looks_is_an_area(record):
    """Between the lowest and the highest of each stretch; a line would draw another wave."""
    made, judgement = record
    charge, strain = pictures(made, judgement)[0].charts[-2:]
    (area,), (line,) = charge.curves, strain.curves
    assert (area.area, line.area) == (True, False)
    ups = [float(up) for _, up in re.findall(r"(-?[\d.]+) (-?[\d.]+)", area.path)]
    high, low = ups[: len(ups) // 2], ups[: len(ups) // 2 - 1 : -1]
    assert all(top <= foot for top, foot in zip(high, low, strict=True))
    (looks,) = (trace.looks for trace in racks(made.seen).values())
    seen = looks.values["charge"]
    height = BASE - TOP
    assert min(high) == pytest.approx(BASE - max(seen) * height, abs=0.1)
    assert max(low) == pytest.approx(BASE - min(seen) * height, abs=0.1)


def test_the_page_holds_the_pictures_and_each_has_a_title(record):
    page = render(*record, fingerprint="ab" * 32, name="run")
    assert page.count('<figure class="chart">') == 14
    assert page.count("<title>Power over one period of a wave of 5 Hz</title>") == 1
    assert "&#34;edge&#34;" not in page  # the raw trace is not evidence of a part
    assert '"edge"' not in page


def test_a_run_without_the_burn_has_no_such_section(run_of, case):
    made, judgement = run_of(case())
    assert pictures(made, judgement) == []
    assert "h-power" not in render(made, judgement, fingerprint="ab" * 32, name="run")


def test_a_limit_of_the_site_is_drawn(run_of, case, burnt):
    limits = '[[limit]]\nmetric = "power.step.mains.line"\nunit = "W"\nhigh = 40000\n'
    limits += 'source = "the site"\n'
    made, _ = run_of(case(trays=None, limits=limits))
    made = replace(made, seen=[*made.seen, *burnt])
    (spectrum,) = (c for c in pictures(made, judge(made))[0].charts if "spectrum" in c.title)
    assert "limit 40 kW" in [text for _, _, text in spectrum.rules]


def test_the_last_trace_of_a_subject_counts():
    later = GOOD | {"lines": {"raw": [[7.0, 70]], "mains": []}}
    assert racks([trace(GOOD), trace(later)])[RACK].lines["raw"] == ((7.0, 70.0),)


def test_what_was_not_read_is_no_zero():
    (found,) = racks([trace(GOOD)]).values()
    assert found.waves[0].series.values["mains"] == (3.0, None)
    blind = GOOD | {"looks": {"t": [0.0, 1.0], "charge": [None, None], "strain": [None, 0.5]}}
    (found,) = racks([trace(blind)]).values()
    assert list(found.looks.values) == ["strain"]


BAD = [
    "", "x", "[]", "null", "1", "[" * 100_000, json.dumps({}), "{" * 50, '{"edge": 1e999}',
    json.dumps(GOOD | {"edge": {"t": [], "raw": "1"}}),
    json.dumps(GOOD | {"waves": [{"f": 0, "t": [], "raw": [], "mains": []}]}),
    json.dumps(GOOD | {"waves": [{"f": True, "t": [], "raw": [], "mains": []}]}),
    json.dumps(GOOD | {"lines": {"raw": [[1]], "mains": []}}),
    json.dumps(GOOD | {"lines": {"raw": [[1, float("inf")]], "mains": []}}),
    json.dumps(GOOD | {"looks": {"t": [1e300], "charge": [0], "strain": [0]}}),
    json.dumps(GOOD | {"looks": {"t": [0.0] * 3000, "charge": [], "strain": []}}),
    json.dumps(GOOD | {"looks": {"t": ["</script>"], "charge": [0], "strain": [0]}}),
    json.dumps(GOOD) + " " * (1 << 19),
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_text_that_is_no_trace_draws_nothing(text, run_of, case):
    assert racks([trace(text)]) == {}
    made, judgement = run_of(case())
    made = replace(made, seen=[*made.seen, trace(text)])
    assert pictures(made, judgement) == []


@pytest.mark.parametrize(
    "body",
    [{}, {"waves": {}}, {"waves": [{"f": 1.0}]}, {"waves": [[]]}, {"waves": [{"f": "1"}]}, []],
)
def test_a_gpus_text_that_is_no_trace_draws_nothing(body):
    assert gpus([trace(body, SENSORS, GPU)], SENSORS) == {}
    assert gpus([trace(body, SMOOTHED, GPU)], SMOOTHED) == {}


def test_flat_and_empty_series_are_drawn_without_a_crash(run_of, case):
    made, judgement = run_of(case())
    flat = GOOD | {
        "edge": {"t": [0.0, 0.0], "raw": [0, 0], "mains": []},
        "waves": [{"f": 0.1, "t": [0.0], "raw": [0], "mains": [None]}],
        "lines": {"raw": [[0.0001, 0], [1e9, 5]], "mains": []},
        "looks": {"t": [], "charge": [], "strain": []},
    }
    one = trace(SENSED, SENSORS, GPU)
    made = replace(made, seen=[*made.seen, trace(flat), one])
    shown = pictures(made, judgement)
    assert [chart.title for chart in shown[0].charts] == [
        "A rising edge", "0.1 Hz", "Lines of the spectrum",
    ]  # fmt: skip
    page = render(made, judgement, fingerprint="ab" * 32, name="run")
    assert page.count('<figure class="chart">') == 4
