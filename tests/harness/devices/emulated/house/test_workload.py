import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.workload import Work, Workload
from rackproof.harness.errors import SpecError

ALL = np.arange(8)
TICKS = 0.003
"""Two changes of load in a step, each at a tick."""


def work(name="training", gpus=ALL, **other):
    return Work(name, gpus, **{"compute": 1.2, "memory": 0.3, "communication": 0.5, **other})


def cap(house, watts, gpus=slice(None)):
    house.rows["limit_requested_mw"][gpus] = round(watts * 1000)


def law(house, watts):
    idle = house.bank.idle[0]
    return ((watts - idle) / (1400.0 - idle)) ** 0.24


def test_a_step_is_its_slowest_ranks(make):
    house = make()
    steps = Workload(house, [work()]).advance(20.0)
    spread = house.bank.makeup.spread
    due = 1.2 / spread.min() + 0.8
    assert len(steps) == int(20.0 / due)
    assert [step.number for step in steps] == list(range(len(steps)))
    for step in steps:
        assert step.end - step.begin == pytest.approx(due, abs=TICKS)
        assert step.begin == pytest.approx(step.number * due, abs=TICKS * (step.number + 1))
        times = 1.2 / spread
        assert step.spread == pytest.approx((times.max() - times.min()) / times.mean(), rel=0.05)


@pytest.mark.parametrize("watts", [1200.0, 1000.0, 700.0])
def test_only_compute_feels_a_cap(make, watts):
    house = make()
    jobs = Workload(house, [work()])
    cap(house, watts)
    jobs.advance(6.0)
    steps = jobs.advance(20.0)
    due = 1.2 / (house.bank.makeup.spread.min() * law(house, watts)) + 0.8
    for step in steps:
        # The excursion before a cap acts is a moment at full speed.
        assert step.end - step.begin == pytest.approx(due, abs=0.02)


def test_a_memory_bound_job_does_not_feel_it(make):
    times = []
    for watts in (1400.0, 900.0):
        house = make()
        cap(house, watts)
        jobs = Workload(house, [work(compute=0.001, memory=1.5)])
        times += [step.end - step.begin for step in jobs.advance(20.0)[1:]]
    assert times == pytest.approx([times[0]] * len(times), abs=TICKS)


def test_one_capped_rank_holds_all_and_the_spread_shows_it(make):
    house = make()
    jobs = Workload(house, [work()])
    before = jobs.advance(8.0)[-1]
    house.rows["limit_out_of_band_mw"][3] = 700_000
    after = jobs.advance(20.0)[-1]
    spread = house.bank.makeup.spread
    slowest = 1.2 / (spread[3] * law(house, 700.0))
    assert after.end - after.begin == pytest.approx(slowest + 0.8, abs=0.02)
    assert after.spread > before.spread + 0.1


def test_a_rank_that_waits_has_moved_its_memory_first(make):
    house = make(power="")
    cap(house, 500.0, 0)
    jobs = Workload(house, [work(communication=0.0, u_memory=1.0, u_communication=0.0)])
    ends, joules = [], []
    while len(ends) < 2:
        if jobs.advance(0.01):
            ends.append(house.clock.now())
            joules.append(house.bank.energy[1])
    idle, busy = house.bank.idle[1], 1.2 / house.bank.makeup.spread[1] + 0.3
    due = idle * (ends[1] - ends[0]) + (1400.0 - idle) * busy
    assert joules[1] - joules[0] == pytest.approx(due, rel=0.02)


def test_a_load_lasts_as_long_as_its_compute(make):
    house = make(power="")
    jobs = Workload(house, [work(u_memory=0.0, u_communication=0.0)])
    energy = house.bank.energy.copy()
    steps = jobs.advance(40.0)
    idle, spread = house.bank.idle, house.bank.makeup.spread
    busy = (house.bank.energy - energy - idle * 40.0) / (1400.0 - idle)
    last = min(1.2, 40.0 - steps[-1].end)  # of a step that has only begun
    assert busy == pytest.approx((len(steps) * 1.2 + last) / spread, abs=len(steps) * 0.012)


def test_power_follows_the_phases(make):
    house = make(power="")
    jobs = Workload(house, [work(u_memory=0.5, u_communication=0.2)])
    jobs.advance(30.0)
    watts = np.array([record.mean[3] for record in house.take()][100:])
    idle = house.bank.idle[0]
    top, low = (2000.0 + 8 * (idle + u * (1400.0 - idle)) for u in (1.0, 0.2))
    assert watts.max() == pytest.approx(top, rel=0.01)
    assert watts.min() == pytest.approx(low, rel=0.05)


def test_two_jobs_go_their_own_ways_and_spares_idle(make):
    house = make()
    jobs = Workload(house, [work(gpus=ALL[:4]), work("batch", ALL[4:6], compute=0.5)])
    steps = jobs.advance(10.0)
    assert [step.end for step in steps] == sorted(step.end for step in steps)
    counts = {name: sum(s.job == name for s in steps) for name in ("training", "batch")}
    assert counts == {"training": 4, "batch": 7}
    assert (house.work[6:] == 0.0).all()
    assert house.bank.power[6:] == pytest.approx(house.bank.idle[6:])


def test_a_paused_job_idles_and_goes_on_where_it_stood(make):
    house = make()
    jobs = Workload(house, [work()])
    jobs.advance(0.7)
    done = house.work.copy()
    jobs.pause("training")
    assert jobs.advance(10.0) == []
    assert (house.work == done).all()
    assert house.bank.power == pytest.approx(house.bank.idle, rel=1e-3)
    jobs.resume("training")
    (step, *_) = jobs.advance(3.0)
    whole = 1.2 / house.bank.makeup.spread.min() + 0.8
    assert step.end - step.begin == pytest.approx(10.0 + whole, abs=0.02)
    assert step.number == 0


def test_a_job_whose_gpus_are_dark_stands(make):
    house = make(power="")
    jobs = Workload(house, [work()])
    jobs.advance(5.0)
    house.sag("rack0/power", 0.0, 0.5)
    jobs.advance(1.0)
    assert house.dark.all()
    assert jobs.advance(20.0) == []
    house.restart("rack0/power")
    assert len(jobs.advance(10.0)) >= 4


def test_the_same_twice_is_the_same(make):
    records = []
    for _ in range(2):
        house = make()
        jobs = Workload(house, [work(gpus=ALL[:5]), work("batch", ALL[5:], compute=0.9)])
        steps = jobs.advance(5.0)
        cap(house, 900.0)
        steps += jobs.advance(7.3)
        records.append((steps, house.rows.tobytes()))
    assert records[0] == records[1]


def test_how_time_is_cut_does_not_change_the_steps(make):
    runs = []
    for cut in (0.5, 3.0):
        jobs = Workload(make(), [work()])
        runs.append([step for _ in range(round(30.0 / cut)) for step in jobs.advance(cut)])
    for one, other in zip(*runs, strict=True):
        assert one.end == pytest.approx(other.end, abs=0.02)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gpus": np.array([], int)}, "without GPUs"),
        ({"compute": 0.0}, "compute"),
        ({"memory": -1.0}, "memory"),
        ({"communication": float("nan")}, "communication"),
        ({"u_compute": 1.5}, "u_compute"),
        ({"u_compute": 0.0}, "u_compute"),
        ({"u_memory": -0.1}, "u_memory"),
    ],
)
def test_what_is_no_job_is_refused(wrong, said):
    with pytest.raises(SpecError, match=said):
        work(**wrong)


def test_jobs_that_share_gpus_or_names_are_refused(make):
    house = make()
    for jobs in (
        [work(gpus=ALL[:5]), work("batch", ALL[4:])],
        [work(gpus=np.array([7, 8]))],
        [work(gpus=ALL[:4]), work(gpus=ALL[4:])],
    ):
        with pytest.raises(SpecError, match="job"):
            Workload(house, jobs)
    with pytest.raises(SpecError, match="did you mean training"):
        Workload(house, [work()]).pause("trainin")
