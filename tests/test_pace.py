"""Fewer threads beside other work, and costs that follow the races, on a scripted clock."""

from __future__ import annotations

import pytest
from tiny import PROMPT, engine_for, oracle, write
from tiny import Script as Target

from specdemo.engine.cost import CostModel, Measured
from specdemo.engine.pace import BLIND_WAIT, FIRST_WAIT, Pace
from specdemo.hardware import OtherWork, _quota, thread_counts, usable_cores

WIDTHS = [1, 16, 32]


def curve(factor=1.0):
    ms = {1: 20.0 * factor, 16: 30.0 * factor, 32: 45.0 * factor}
    return CostModel(ms, 18.0 * factor, WIDTHS, dict.fromkeys(WIDTHS, 0.01 * factor), 0.01 * factor)


class Machine:
    """Two cores, of which others keep ``busy`` busy; None: the system does not say."""

    def __init__(self, busy=0.0, curves=None):
        self.busy, self.clock, self.set = busy, 100.0, []
        self.pace = Pace(
            Measured(curves or {2: curve(), 1: curve(1.4)}, True),
            self,
            self.set.append,
            lambda: self.clock,
        )

    def cores(self):
        return self.busy

    def start(self):
        pass

    def passes(self, *ms, width=1):
        for one in ms:
            self.pace.rest()
            self.pace.note(width, one, self.pace.costs.ms[width])
            self.clock += one / 1e3


def test_two_slow_passes_running_mean_fewer_threads_until_it_is_quiet():
    machine = Machine(busy=1.0)
    pace = machine.pace
    pace.begin()
    machine.passes(20, 20, 900, 20, 900)
    assert machine.set == [], "one slow pass is an accident"
    machine.passes(850)
    assert machine.set == [1] and pace.threads == 1 and pace.costs.ms[1] == 28.0
    machine.passes(*[28.0] * 200)
    assert machine.set == [1], "the other work goes on"
    machine.busy = 0.0
    machine.passes(*[28.0] * 200)
    assert machine.set == [1, 2] and pace.costs.ms[1] == 20.0
    assert "2 there are" in pace.remark()
    pace.begin()
    assert pace.remark() is None


def test_what_the_system_does_not_say_is_tried_and_ever_more_rarely():
    machine = Machine(busy=None)
    machine.passes(900, 900)
    tries = []
    for _ in range(20_000):
        before = len(machine.set)
        machine.passes(900 if machine.pace.threads == 2 else 28)
        if len(machine.set) > before and machine.set[-1] == 2:
            tries.append(machine.clock)
    gaps = [b - a for a, b in zip(tries, tries[1:], strict=False)]
    assert tries[0] - 100 >= BLIND_WAIT and gaps[-1] > 60 and FIRST_WAIT < BLIND_WAIT
    assert sum(1 for one in machine.set if one == 2) * 1.8 < 0.1 * (machine.clock - 100)


def test_slow_passes_beside_others_are_no_cost():
    machine = Machine(busy=1.0)
    machine.passes(900, 900, *[28.0] * 30)
    assert not machine.pace.end()
    assert machine.pace.curves == {2: curve(), 1: curve(1.4)}


@pytest.mark.parametrize("factor", [1.9, 0.06])
def test_costs_follow_the_races_both_ways(factor):
    """The fault: a load beside other work left 567 ms for every width, for all later races."""
    machine = Machine(curves={1: curve(1 / factor)})
    machine.passes(*[20.0] * 10)
    machine.passes(*[30.0] * 10, width=16)
    better = machine.pace.end()
    costs = machine.pace.costs
    assert costs.ms == pytest.approx({1: 20.0, 16: 30.0, 32: 45.0}, rel=1e-6), "32: as the others"
    assert costs.one_row_ms == pytest.approx(18.0) and costs.slope[16] == pytest.approx(0.01)
    assert better == (factor < 1), "what was slow only now is not to be remembered"
    kept = machine.pace.undisturbed[1]
    assert kept.ms[16] == pytest.approx(30.0 if factor < 1 else 30.0 / factor)


def test_small_differences_and_few_passes_change_nothing():
    machine = Machine(curves={1: curve()})
    machine.passes(*[24.0] * 50)
    machine.pace.end()
    machine.passes(200.0, 200.0, 200.0)
    machine.pace.end()
    assert machine.pace.costs == curve()


def test_a_lane_tells_with_how_many_threads_it_ran_and_predicts_by_their_costs():
    engine = engine_for(Target.saying(len(PROMPT), list(range(1, 30))))
    widths = [1, 2, 4, 8, 16, 32, 64]
    slow = CostModel(dict.fromkeys(widths, 1000.0), 1000.0, widths)
    engine.pace = Pace(
        Measured({2: engine.costs, 1: slow}, True), Machine(busy=1.0), lambda count: None
    )
    engine.pace._use(1)
    lane = write(engine, max_new=8)
    assert lane.advance()[0].threads == 1
    engine.pace._use(2)
    spec = write(engine, oracle_drafter(), max_new=12)
    assert spec.predicted_ms < 100 and spec.advance()[-1].threads is None
    engine.pace._use(1)
    verdict = spec.advance()[-1]
    assert verdict.threads == 1 and verdict.baseline_ms == 1000.0 and verdict.predicted_ms > 1000


def test_costs_that_are_not_sure_are_measured_on_after_races(monkeypatch):
    engine = engine_for(Target.saying(len(PROMPT), list(range(1, 30))))
    widths, kept, asked = engine.costs.widths, [], []
    high = CostModel(dict.fromkeys(widths, 50.0), 50.0, widths)
    low = CostModel(dict.fromkeys(widths, 20.0) | {64: 60.0}, 20.0, widths)

    def calibrate(target, widths, threads, seconds):
        asked.append((list(threads), seconds))
        return Measured({1: low}, len(asked) > 1)

    monkeypatch.setattr("specdemo.engine.engine.calibrate", calibrate)
    monkeypatch.setattr("specdemo.engine.engine.thread_counts", lambda device, most: [most])
    engine.pace, engine.keep = Pace(Measured({1: high}, False), Machine()), kept.append
    for _ in range(3):
        engine.begin_race()
        engine.end_race()
    assert len(asked) == 2 and asked[0][0] == [1] and asked[0][1] < 0.5
    assert engine.costs.ms == dict.fromkeys(widths, 20.0) | {64: 50.0}
    assert [found.sure for found in kept] == [False, True]
    engine.measure_again()
    assert engine.costs.ms[64] == 60.0, "all anew, whatever was known"


def oracle_drafter():
    from tiny import Proposes

    return Proposes(oracle(list(range(1, 30)), len(PROMPT), 3))


# -- the machine -----------------------------------------------------------------------------------


def test_cores_by_affinity_and_quota(tmp_path, monkeypatch):
    monkeypatch.setattr("specdemo.hardware._own_cores", lambda: {0, 1, 2, 3, 4, 5, 6, 7})
    assert usable_cores(tmp_path) == 8
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores(tmp_path) == 8
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert usable_cores(tmp_path) == 2
    (tmp_path / "cpu.max").write_text("20000 100000\n")
    assert usable_cores(tmp_path) == 1, "less than one core is one thread"
    (tmp_path / "cpu.max").write_text("what?\n")
    assert usable_cores(tmp_path) == 8


def test_the_least_quota_of_the_groups_above_counts(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/outer/inner\n")
    (tmp_path / "fs/outer/inner").mkdir(parents=True)
    (tmp_path / "fs/outer/cpu.max").write_text("300000 100000\n")
    assert _quota(tmp_path / "fs", own) == 3
    (tmp_path / "fs/outer/inner/cpu.max").write_text("150000 100000\n")
    assert _quota(tmp_path / "fs", own) == 1.5


def test_a_quota_of_version_1(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("400000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert _quota(tmp_path, tmp_path / "nowhere") == 4
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert _quota(tmp_path, tmp_path / "nowhere") is None


def test_numbers_of_threads(monkeypatch):
    import torch

    monkeypatch.setattr("specdemo.hardware.usable_cores", lambda: 6)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    assert thread_counts(torch.device("cpu")) == [6, 5, 3]
    assert thread_counts(torch.device("cpu"), 2) == [2, 1]
    assert thread_counts(torch.device("cpu"), 1) == [1]
    assert thread_counts(torch.device("cuda")) == [6]


def test_other_work_is_what_this_process_did_not_do(tmp_path, monkeypatch):
    stat, clock, own = tmp_path / "stat", [10.0], [5.0]
    monkeypatch.setattr("specdemo.hardware._own_cores", lambda: {0, 1})
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.process_time", lambda: own[0])
    monkeypatch.setattr("os.sysconf", lambda name: 100)

    def write_stat(*busy):
        rows = [f"cpu{i} {ticks} 0 0 77 3 0 0 0 9 9" for i, ticks in enumerate(busy)]
        stat.write_text("\n".join(["cpu 1 2 3", *rows, "intr 5"]))

    write_stat(1000, 1000, 1000)
    work = OtherWork(stat)
    clock[0] += 0.1
    assert work.cores() is None, "too short"
    clock[0], own[0] = 12.0, 6.0
    write_stat(1150, 1150, 9000)  # 3 s busy on our two cores, of which 1 was ours; core 2 is not
    assert work.cores() == pytest.approx(1.0)
    stat.unlink()
    assert work.cores() is None
