"""What a search knows only gets better, whoever tells it and in whatever order."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve
from remat_explorer.solvers.base import Incumbent, Limits, Progress


def schedules() -> list[Schedule]:
    """Schedules of one chain within ever larger budgets: the later, the cheaper."""
    found = [solve(linear(8), budget).schedule for budget in (4, 5, 6, 10)]
    return [schedule for schedule in found if schedule is not None]


def test_only_a_cheaper_schedule_is_kept_and_told():
    heard: list[Progress] = []
    known = Incumbent(Limits(report=heard.append))
    dearest, *_, cheapest = schedules()
    for schedule in (dearest, None, cheapest, dearest):
        known.keep(schedule)
    assert known.schedule is cheapest
    assert [progress.schedule for progress in heard] == [dearest, cheapest]


def test_a_schedule_in_hand_refutes_that_there_is_none():
    known = Incumbent(Limits(), schedules()[0], 17.0)
    known.raise_bound(math.inf)
    assert known.bound == 17.0
    assert not known.answer().infeasible


def test_without_a_schedule_an_infinite_bound_is_infeasibility():
    known = Incumbent(Limits())
    assert not known.within(0.1)
    known.raise_bound(math.inf)
    assert known.within(0.1)
    assert known.answer().infeasible


def test_a_steps_report_is_never_worse_than_what_is_known():
    heard: list[Progress] = []
    dearest, *_, cheapest = schedules()
    known = Incumbent(Limits(report=heard.append), cheapest, 17.0)
    step = Progress(0.5, "a step", dearest, 16.0)
    for progress in (step, replace(step, schedule=None, lower_bound=None)):
        known.pass_on(progress)
    assert [(progress.schedule, progress.lower_bound) for progress in heard] == [(cheapest, 17.0)] * 2
    Incumbent(Limits(report=heard.append), dearest).pass_on(Progress(0.5, "a step", cheapest, 16.0))
    assert (heard[-1].schedule, heard[-1].lower_bound) == (cheapest, 16.0)


def test_of_several_threads_the_cheapest_schedule_and_the_highest_bound_stay():
    known, found = Incumbent(Limits()), schedules()

    def work(turn: int) -> None:
        for i in range(200):
            known.keep(found[(turn + i) % len(found)])
            known.raise_bound(float((turn * 7 + i) % 16))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert known.schedule is found[-1]
    assert known.bound == 15.0
