"""Plans that were made are remembered: for as long as their schedules live, and no more than there is room for."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from remat_explorer import plan as plans
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.solution import Solution, Status

GRAPH = linear(2)


def fresh() -> Schedule:
    return checkpoint_all(GRAPH)


def test_two_schedules_with_the_same_rows_have_plans_of_their_own() -> None:
    first, second = fresh(), fresh()
    assert Plan.of(first) is not Plan.of(second)
    assert Plan.of(first) == Plan.of(second)


def test_all_solutions_that_carry_a_schedule_share_its_plan() -> None:
    schedule = fresh()
    solutions = [Solution(GRAPH, name, Status.FEASIBLE, 99, schedule, None, 0.0) for name in ("one", "another")]
    assert solutions[0].plan is solutions[1].plan is Plan.of(schedule)


def test_threads_that_ask_at_the_same_time_get_the_same_plan() -> None:
    schedule = fresh()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Plan.of(schedule), range(64)))
    assert all(plan is found[0] for plan in found)


def test_neither_schedule_nor_plan_outlives_those_who_need_them() -> None:
    schedule = fresh()
    gone = weakref.ref(schedule), weakref.ref(Plan.of(schedule))
    assert Plan.peak_of(schedule) == Plan.of(schedule).peak
    del schedule
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.parametrize(("limit", "value"), [("MOST_PLANS", 2), ("MOST_STATEMENTS", 2 * 10)])
def test_the_plan_asked_for_longest_ago_is_forgotten_first(monkeypatch, limit, value) -> None:
    monkeypatch.setattr(plans, limit, value)
    schedules = [fresh() for _ in range(3)]
    assert len(Plan.of(schedules[0]).statements) == 10
    made = [Plan.of(schedule) for schedule in schedules[:2]]
    assert Plan.of(schedules[0]) is made[0]
    made.append(Plan.of(schedules[2]))
    assert [Plan.of(schedules[k]) is made[k] for k in (0, 2, 1)] == [True, True, False]


def test_a_peak_is_remembered_when_its_plan_is_forgotten(monkeypatch) -> None:
    schedule = fresh()
    peak = Plan.peak_of(schedule)
    monkeypatch.setattr(plans, "MOST_PLANS", 1)
    Plan.of(fresh())
    monkeypatch.setattr(Plan, "from_sequence", None)
    assert Plan.peak_of(schedule) == peak
