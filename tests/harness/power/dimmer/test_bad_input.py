"""Sensors that fail, clocks that jump, GPUs that refuse or vanish, hands that are not ours."""

import dataclasses

import numpy as np
import pytest

from rackproof.harness.power.dimmer import ACTS

FEED = "rack0/power"


def changed(**fields):
    """Return what a bad sensor makes of a sample."""
    return lambda sample: dataclasses.replace(
        sample, **{name: make(getattr(sample, name)) for name, make in fields.items()}
    )


def blinded(share):
    def make(values):
        bad = values.copy()
        bad[: round(share * len(bad))] = np.nan
        return bad

    return make


def running(plant, cut=0.2, **more):
    """A rack that was dimmed and has settled."""
    rack = plant(**more)
    rack.run(16.0)
    _, mean = rack.means()
    rack.limit(FEED, (1.0 - cut) * mean[-1])
    rack.run(45.0)
    return rack


def raised(rack, since):
    """Return the largest rise of a cap since then, W."""
    _, caps = rack.caps(since=since)
    return max(0.0, float(np.diff(caps).max()))


def test_acts_are_those_that_were_agreed(plant):
    rack = running(plant)
    assert {act.what for act in rack.acts} <= set(ACTS)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_lost_telemetry_holds_the_caps_and_raises_none_even_when_the_limit_is_lifted(plant, share):
    rack = running(plant)
    rack.spoil = changed(gpu=blinded(share), feed=blinded(1.0), current=blinded(share))
    rack.run(4.0)
    begin = rack.now
    rack.limit(FEED, None)
    rack.run(60.0)
    assert raised(rack, begin) == 0.0
    assert rack.said("hold")
    assert rack.said("alarm")
    rack.spoil = lambda sample: sample
    back = rack.now
    rack.run(60.0)
    at, caps = rack.caps(since=back)
    first = at[np.flatnonzero(np.diff(caps) > 0.5)[0]]
    assert first - back >= 4.0  # a full window first
    assert rack.said("resume-telemetry")


def test_a_limit_that_falls_while_all_is_dark_is_answered_from_the_last_full_window(plant):
    rack = plant()
    rack.run(16.0)
    _, mean = rack.means()
    rack.spoil = changed(gpu=blinded(1.0), feed=blinded(1.0), current=blinded(1.0))
    rack.run(6.0)
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(50.0)
    _, mean_now = rack.means()
    assert 0.9 * 0.8 * mean[-1] <= mean_now[-1] <= 0.8 * mean[-1]
    assert len(set(np.round(rack.caps(since=rack.now - 20.0)[1]))) == 1


def test_a_tenth_of_the_reads_missing_is_no_loss(plant):
    rack = plant()
    rack.spoil = changed(gpu=blinded(0.1))
    rack.run(16.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(60.0)
    assert not rack.said("hold")
    _, after = rack.means(window=12.0)
    assert 0.93 <= after[-1] / (0.8 * mean[-1]) <= 0.97


def test_a_meter_that_stands_is_not_believed_and_the_gpus_are(plant):
    rack = plant()
    rack.run(16.0)
    _, mean = rack.means()
    stands = rack.sample().feed
    rack.spoil = changed(feed=lambda _: stands.copy())
    rack.run(8.0)
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(60.0)
    assert any("not believed" in act.text for act in rack.said("alarm"))
    _, after = rack.means(window=12.0)
    assert 0.92 <= after[-1] / (0.8 * mean[-1]) <= 0.98


def test_a_meter_that_reads_less_than_its_gpus_is_not_believed(plant):
    rack = running(plant)
    rack.spoil = changed(feed=lambda values: 0.2 * values)
    begin = rack.now
    rack.run(40.0)
    assert any("not believed" in act.text for act in rack.said("alarm"))
    assert raised(rack, begin) == 0.0


@pytest.mark.parametrize("share", [0.96, 0.5])
def test_a_meter_without_fixed_load_that_reads_a_little_less_is_found(plant, kit, share):
    rack = plant(feeds=kit.feeds(fixed=(0.0,)))
    rack.run(20.0)
    assert not rack.said("alarm")
    rack.spoil = changed(feed=lambda values: share * values)
    rack.run(16.0)
    assert any("not believed" in act.text for act in rack.said("alarm"))


@pytest.mark.parametrize("smooth", [0.5, 1.0, 1.5])
def test_a_meter_that_sees_its_gpus_through_capacitors_is_believed(plant, kit, smooth):
    rack = plant(feeds=kit.feeds(fixed=(0.0,)))
    seen = {}

    def through(sample):
        # What a smoothing store leaves of the load: its mean over about `smooth` seconds.
        towards = 1.0 - np.exp(-sample.seconds / smooth)
        before = seen.get("feed", sample.feed)
        seen["feed"] = before + towards * (sample.feed - before)
        seen.setdefault("under", []).append(float((seen["feed"] / sample.gpu.sum())[0]))
        return dataclasses.replace(sample, feed=seen["feed"])

    rack.spoil = through
    rack.run(20.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(60.0)
    rack.limit(FEED, None)
    rack.run(120.0)
    assert min(seen["under"]) < 0.9  # single looks do read less
    assert not [act for act in rack.said("alarm") if "not believed" in act.text]
    assert rack.asked.min() == 1200.0


def test_a_feed_that_never_had_a_meter_is_the_sum_of_its_gpus(plant):
    rack = plant()
    rack.spoil = changed(feed=blinded(1.0))
    rack.run(16.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(60.0)
    _, after = rack.means(window=12.0)
    assert 0.93 <= after[-1] / (0.8 * mean[-1]) <= 0.97


@pytest.mark.parametrize("jump", [-500.0, 7.0e6])
def test_a_clock_that_jumps_moves_nothing_and_is_told(plant, jump):
    rack = running(plant)
    _, before = rack.caps()
    real = rack.sample
    rack.sample = lambda: dataclasses.replace(real(), at=real().at + jump)
    rack.due = 0.0
    rack.run(0.5)
    rack.due = rack.now
    for _ in range(20):
        rack.due = 0.0  # its times are on the clock that jumped
        rack.run(0.5)
    assert len(rack.said("clock-jump")) == 1
    _, caps = rack.caps(since=rack.now - 8.0)
    assert np.abs(caps - before[-1]).max() <= 0.02 * before[-1]


def test_a_look_without_a_time_is_survived(plant):
    rack = running(plant)
    real = rack.sample
    rack.sample = lambda: dataclasses.replace(real(), at=np.nan, seconds=np.nan)
    orders = rack.dimmer.step(rack.sample())
    assert np.isfinite(orders.due)
    assert orders.acts[0].what == "clock-jump"


def test_a_limit_under_what_is_possible_is_met_as_far_as_it_goes_and_said(plant):
    rack = plant()
    rack.run(16.0)
    rack.limit(FEED, 50_000.0)
    rack.run(30.0)
    _, caps = rack.caps()
    assert caps[-1] == 200.0  # the floor of the job, never less
    (alarm,) = [act for act in rack.said("alarm") if "cannot come under" in act.text]
    assert alarm.fields["unmet"] == pytest.approx(45_000 + 72 * 200 - 0.95 * 50_000, rel=0.15)


def two_jobs(kit, first=0, second=1):
    from rackproof.harness.power.dimmer import Job  # noqa: PLC0415

    return {"jobs": [Job("a", np.arange(36), first, 300.0, 2.0),
                     Job("b", np.arange(36, 72), second, 300.0, 2.0)],
            "loads": [kit.load(), kit.load(phase=0.9)]}  # fmt: skip


@pytest.mark.parametrize("told", [True, False])
def test_gpus_that_refuse_are_counted_out_and_the_others_give_more(plant, kit, told):
    rack = plant(**two_jobs(kit))
    rack.refuses[:18] = True
    rack.run(16.0)
    _, mean = rack.means()
    limit = 0.8 * mean[-1]
    rack.limit(FEED, limit)
    for _ in range(140):
        rack.run(0.5)
        if told:
            rack.acts += rack.dimmer.answer(rack.asked_for, at=rack.now).acts
    (act, *_) = rack.said("refused")
    assert (act.job, act.fields["gpus"]) == ("a", 18.0)
    assert rack.asked[:18].min() == 1200.0
    _, after = rack.means(window=12.0)
    assert 0.92 <= after[-1] / limit <= 0.98


def test_gpus_that_ignore_their_cap_are_counted_out_and_the_others_give_more(plant, kit):
    rack = plant(**two_jobs(kit))
    rack.deaf[:18] = True
    rack.run(16.0)
    _, mean = rack.means()
    limit = 0.8 * mean[-1]
    rack.limit(FEED, limit)
    rack.run(80.0)
    acts = [act for act in rack.said("refused") if "more than their cap" in act.text]
    assert [(act.job, act.fields["gpus"]) for act in acts] == [("a", 18.0)]
    _, after = rack.means(window=12.0)
    assert 0.92 <= after[-1] / limit <= 0.98


@pytest.mark.parametrize("after", [0.05, 0.2, 0.45])
@pytest.mark.parametrize("period", [1.15, 1.2, 2.0])
def test_a_look_in_which_a_cap_still_moved_shows_no_disobedience(plant, kit, period, after):
    two = two_jobs(kit)
    two["jobs"][0] = dataclasses.replace(two["jobs"][0], period=period)
    two["loads"][0] = kit.load(period=period)
    rack = plant(**two)
    rack.run(20.0)
    rack.run(after)
    rack.ac[:] = False
    rack.stated[:] = 60_000.0
    rack.look()
    rack.run(12.0)
    assert not [act for act in rack.acts if act.what == "refused"]


def test_a_counter_that_moves_every_tenth_of_a_second_accuses_nobody(plant, kit):
    """A look of 130 ms sees one or two of its moves: a half more than there was, or less."""
    rack = plant(**two_jobs(kit))
    moves = [0.0]

    def late(sample):
        moves.append(np.floor(sample.at / 0.1 + 1e-6) * 0.1)
        seen = (moves[-1] - moves[-2]) / max(sample.seconds, 1e-9)
        return dataclasses.replace(sample, gpu=sample.gpu * seen)

    rack.spoil = late
    rack.run(20.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.7 * mean[-1])
    for seconds in (12.06, 0.13, 0.49, 0.11) * 4:
        rack.run(seconds)
        rack.look()
    assert not rack.said("refused")


def test_who_obeys_again_is_capped_again(plant, kit):
    rack = plant(**two_jobs(kit))
    rack.deaf[:18] = True
    rack.run(16.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.8 * mean[-1])
    rack.run(40.0)
    assert rack.said("refused")
    told = len(rack.said("dimmer-acts"))
    rack.deaf[:] = False
    rack.run(20.0)
    rack.limit(FEED, 0.7 * mean[-1])
    rack.run(40.0)
    assert len(rack.said("dimmer-acts")) > told
    assert (rack.asked[:18] == rack.asked[18]).all()
    _, after = rack.means(window=12.0)
    assert after[-1] <= 0.98 * 0.7 * mean[-1]


def test_a_cap_of_another_hand_is_told_and_never_raised_over(plant):
    rack = running(plant)
    rack.foreign[:4] = 400.0
    rack.run(10.0)
    (act,) = rack.said("foreign-cap")
    assert act.fields["gpus"] == 4.0
    rack.limit(FEED, None)
    rack.run(130.0)
    for _, caps in rack.asks:
        assert not (caps[:4] > 1200.0).any()
    assert rack.asked[4:].min() == 1200.0
    # Nobody asked those four for more than they had been asked for when it was seen.
    assert rack.asked[:4].max() <= 1200.0 - 100.0
    rack.foreign[:4] = np.inf
    begin, before = rack.now, rack.asked[:4]
    rack.run(100.0)
    assert rack.asked[:4].min() == 1200.0
    # And they come back by the ramp, though their job is up already.
    steps = np.diff([before, *(caps[:4] for at, caps in rack.asks
                               if at > begin and np.isfinite(caps[:4]).all())], axis=0)  # fmt: skip
    assert 0.0 <= steps.min() <= steps.max() <= rack.settings.up + 1e-6


def test_a_limit_that_the_equipment_states_counts_where_it_is_the_lowest(plant):
    rack = plant()
    rack.run(16.0)
    _, mean = rack.means()
    rack.dimmer.limit(FEED, 1.5 * mean[-1], at=rack.now, why="")
    rack.dimmer.contract(FEED, 0.9 * mean[-1], at=rack.now)
    rack.stated[:] = 0.75 * mean[-1]
    rack.run(70.0)
    _, after = rack.means(window=12.0)
    assert 0.93 <= after[-1] / (0.75 * mean[-1]) <= 0.97


def test_a_gpu_that_is_gone_is_nobodys(plant):
    rack = running(plant)

    def lost(sample):
        gpu, current = sample.gpu.copy(), sample.current.copy()
        gpu[5] = current[5] = np.nan
        return dataclasses.replace(sample, gpu=gpu, current=current)

    rack.spoil = lost
    rack.run(40.0)
    begin = rack.now
    rack.limit(FEED, None)
    rack.run(80.0)
    assert not rack.said("hold")
    assert rack.asked[6] > rack.asked[5]
    assert all(np.isnan(caps[5]) for at, caps in rack.asks if at > begin)
