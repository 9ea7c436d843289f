"""Limits: the user's file, word for word, and the limits that a record brings along."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.limits import Limit, Limits, from_record, parse, shipped
from rackproof.harness.errors import SpecError

GOOD = """
[[limit]]
metric = "temperature"
high = 80
unit = "C"
source = "site rule 12"
[[golden]]
item = "driver"
value = "580.105.08"
[[waiver]]
subject = "rack0/tray01/gpu0"
check = "health"
until = 2030-01-31
owner = "ops@example.org"
reason = "valve is on order"
"""


def limit(**fields):
    """A [[limit]] with some of its fields changed; None leaves one out."""
    row = {"metric": "temperature", "high": 80, "unit": "C", "source": "ours", **fields}
    return "[[limit]]\n" + "".join(
        f"{k} = {v if isinstance(v, Raw) else json.dumps(v)}\n"
        for k, v in row.items()
        if v is not None
    )


class Raw(str):
    """TOML as it stands."""

    __slots__ = ()


def waiver(**fields):
    row = {"subject": "rack0/tray01/gpu0", "check": "health", "until": Raw("2030-01-31"),
           "owner": "ops", "reason": "known", **fields}  # fmt: skip
    return "[[waiver]]\n" + "".join(
        f"{k} = {v if isinstance(v, Raw) else json.dumps(v)}\n"
        for k, v in row.items()
        if v is not None
    )


def refused(text):
    with pytest.raises(SpecError) as caught:
        parse(text, "my/limits.toml")
    message = str(caught.value)
    assert message.startswith("my/limits.toml")
    assert "\n" not in message
    return message


def test_a_file_of_all_three_tables():
    found = parse(GOOD, "limits.toml")
    temperature, driver = found.limits
    assert (temperature.high, temperature.low, temperature.layer) == (80.0, None, "user")
    assert temperature.source == "site rule 12"
    assert (driver.metric, driver.equal) == ("driver.version", "580.105.08")
    (accepted,) = found.waivers
    assert (str(accepted.until), accepted.owner) == ("2030-01-31", "ops@example.org")


def test_a_limit_in_another_unit_of_the_dimension_is_converted():
    (found,) = parse(
        limit(metric="gemm.fp32.rate", high=None, low=61000, unit="GFLOP/s"), "x"
    ).limits
    assert found.low == pytest.approx(61.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (limit(high="80"), "high must be a number"),
        (limit(high=Raw("true")), "high must be a number"),
        (limit(high=[80]), "high must be a number"),
        (limit(high=Raw("inf")), "must be finite"),
        (limit(high=Raw("nan")), "must be finite"),
        (limit(high=Raw("1" + "0" * 400)), "must be finite"),
        (limit(high=Raw("1" + "0" * 5000)), "not TOML"),
        (limit(metric="thermal.margin", high=None), "low, high or both"),
        (limit(metric="ecc.corrected.delta", unit="errors", high=-1), "negative"),
        (limit(metric="power.average", unit="W"), "only noted"),
        (limit(unit="W"), "W is power, and C is temperature"),
        (limit(unit="celsius"), "unknown unit 'celsius'"),
        (limit(unit=None), "unit must be a text"),
        (limit(unit=3), "unit must be a text"),
        (limit(source=None), "source must be a text"),
        (limit(source="  "), "source must be a text"),
        (limit(metric="temperatur"), "did you mean temperature?"),
        (limit(metric=7), "metric must be a text"),
        (limit(metric="driver.version", unit="text"), "[[golden]]"),
        (limit(low=81), "above high"),
        (limit(hihg=3), "did you mean high?"),
        (limit(subject=1), "subject must be a text"),
        (limit() + limit(), "limited twice"),
        (limit().replace("[[limit]]", "[limit]"), "write [[limit]], with two brackets"),
        (limit().replace("[[limit]]", "[[limits]]"), "did you mean limit?"),
        ("limit = 3", "two brackets"),
        ("limit = [1]", "two brackets"),
        ("", "holds no [[limit]]"),
        ("# nothing", "holds no [[limit]]"),
        ("limit = []", "holds no [[limit]]"),
        ("high > 3", "is not TOML"),
        ("{", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
        ('[[golden]]\nitem = "drivr"\nvalue = "1"', "did you mean driver?"),
        ('[[golden]]\nitem = "driver"', "must be a text or a number"),
        ('[[golden]]\nitem = "driver"\nvalue = 580', "wrong type for driver.version"),
        ('[[golden]]\nitem = "nvlink.links"\nvalue = "18"', "wrong type"),
        ('[[golden]]\nitem = "nvlink.links"\nvalue = nan', "finite"),
        ('[[golden]]\nitem = "nvlink.links"\nvalue = true', "text or a number"),
        ('[[golden]]\nitem = "gpu.serial"\nvalue = "1"', "only noted"),
        ('[[golden]]\nitem = "driver"\nvalue = "1"\n' * 2, "limited twice"),
        (waiver(serial="1"), "either subject or serial"),
        (waiver(subject=None), "either subject or serial"),
        (waiver(until="someday"), "must be a date"),
        (waiver(until=None), "must be a date"),
        (waiver(until=20300131), "must be a date"),
        (waiver(until=Raw("2030-02-31")), "not TOML"),
        (waiver(until="2030-02-31"), "must be a date"),
        (waiver(until=Raw("07:30:00")), "must be a date"),
        (waiver(owner=None), "owner must be a text"),
        (waiver(reason=""), "reason must be a text"),
        (waiver(check=["health"]), "check must be a text"),
        (waiver(untill="x"), "did you mean until?"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_place_and_reason(text, said):
    assert said in refused(text)


def test_the_message_names_table_number_and_key():
    assert refused(limit() + limit(metric="thermal.margin", high="x")) == (
        "my/limits.toml: [[limit]] 2 thermal.margin: high must be a number, and is 'x'"
    )


def test_a_date_may_be_a_text_or_carry_a_time():
    for until in ("2030-01-31", Raw("2030-01-31T12:00:00"), Raw("2030-01-31T12:00:00Z")):
        (found,) = parse(waiver(until=until), "x").waivers
        assert str(found.until) == "2030-01-31"


@given(st.text(max_size=200))
def test_any_text_is_limits_or_a_spec_error(text):
    try:
        found = parse(text, "x")
    except SpecError:
        return
    assert found.limits or found.waivers


KEYS = "metric low high unit source subject sku item value serial check until owner reason".split()
toml_values = st.one_of(
    st.integers(-(10**30), 10**30).map(str), st.floats().map(repr),
    st.sampled_from(["true", '"text"', "[1]", "{a = 1}", "2030-01-31", '""', "1e999"]),
)  # fmt: skip


@given(
    st.sampled_from(["limit", "golden", "waiver"]),
    st.dictionaries(
        st.sampled_from(KEYS),
        toml_values | st.sampled_from(['"temperature"', '"C"', '"driver"', '"spec"']),
    ),
)
def test_any_table_is_limits_or_a_spec_error(kind, row):
    text = f"[[{kind}]]\n" + "".join(f"{k} = {v}\n" for k, v in row.items())
    try:
        found = parse(text, "x")
    except SpecError:
        return
    assert from_record(json.loads(json.dumps(found.as_json()))) == found


# --- of a record --------------------------------------------------------------------------------


def test_limits_survive_the_record():
    user = parse(GOOD, "limits.toml")
    odd = Limit("driver.version", "x", "user", equal="*", subject="rack0/*", sku="b300")
    both = Limits((*user.limits, odd, *shipped()), user.waivers)
    assert from_record(json.loads(json.dumps(both.as_json()))) == both
    assert from_record({}) == Limits()


ROW = {"metric": "temperature", "source": "x", "layer": "user", "high": 80}
WAIVED = {"check": "*", "until": "2030-01-31", "owner": "o", "reason": "r", "subject": "*"}


@pytest.mark.parametrize(
    "table",
    [
        {"limit": [{**ROW, "metric": "temperatur"}]},
        {"limit": [{**ROW, "metric": ["temperature"]}]},
        {"limit": [{**ROW, "metric": None}]},
        {"limit": [{**ROW, "layer": "god"}]},
        {"limit": [{**ROW, "layer": "median"}]},
        {"limit": [{**ROW, "layer": {}}]},
        {"limit": [{**ROW, "high": "x"}]},
        {"limit": [{**ROW, "high": True}]},
        {"limit": [{**ROW, "low": float("nan")}]},
        {"limit": [{**ROW, "high": float("inf")}]},
        {"limit": [{**ROW, "high": 10**400}]},
        {"limit": [{**ROW, "high": None}]},
        {"limit": [{**ROW, "equal": 3}]},
        {"limit": [{**ROW, "high": None, "equal": "hot"}]},
        {"limit": [{**ROW, "high": None, "equal": [1]}]},
        {"limit": [{**ROW, "metric": "driver.version"}]},
        {"limit": [{**ROW, "source": 1}]},
        {"limit": [{**ROW, "subject": 1}]},
        {"limit": [{**ROW, "sku": 1}]},
        {"limit": [{**ROW, "more": 1}]},
        {"limit": [{"metric": "temperature"}]},
        {"limit": ["temperature"]},
        {"limit": 3},
        {"limit": [3]},
        {"waiver": [{**WAIVED, "until": "never"}]},
        {"waiver": [{**WAIVED, "until": 3}]},
        {"waiver": [{**WAIVED, "check": 3}]},
        {"waiver": [{**WAIVED, "serial": "1"}]},
        {"waiver": [{k: v for k, v in WAIVED.items() if k != "subject"}]},
        {"waiver": [{k: v for k, v in WAIVED.items() if k != "until"}]},
        {"waiver": [None]},
        {"waiver": "all"},
    ],
)
def test_forged_limits_are_a_spec_error(table):
    with pytest.raises(SpecError, match="record's limits cannot be read"):
        from_record(table)


# --- which apply --------------------------------------------------------------------------------


def test_the_strongest_layer_stands_first():
    rows = [
        Limit("temperature", "s", "spec", high=95),
        Limit("temperature", "a", "achieved", high=70),
        Limit("temperature", "p", "platform", high=89),
        Limit("thermal.margin", "other", "user", low=1),
    ]
    assert [x.layer for x in Limits(rows).of("temperature", "g", None)] == ["achieved", "platform"]
    rows.append(Limit("temperature", "u", "user", high=80))
    assert [x.layer for x in Limits(rows).of("temperature", "g", None)] == ["user"]
    assert Limits(rows).of("memory.rate", "g", None) == []


def test_a_limit_of_one_sku_or_subject_is_not_anothers():
    rows = [
        Limit("temperature", "1", "user", high=80, sku="b300"),
        Limit("temperature", "2", "user", high=70, subject="rack0/tray0[01]/*"),
        Limit("temperature", "3", "user", high=60),
    ]
    of = Limits(rows).of
    assert [x.source for x in of("temperature", "rack0/tray09/gpu0", "b200")] == ["3"]
    assert [x.source for x in of("temperature", "rack0/tray09/gpu0", "b300")] == ["1"]
    assert [x.source for x in of("temperature", "rack0/tray01/gpu0", "b200")] == ["2"]
    assert [x.source for x in of("temperature", "rack0/tray01/gpu0", "b300")] == ["1", "2"]
