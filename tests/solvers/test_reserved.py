"""Budgets of reserved bytes: what is found fits, claims are true, and the number of solves and the time are bounded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.allocator import AllocatorSettings, predict_allocator, reserved_of
from remat_explorer.cache_folder import cache_folder
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import SolveJob
from remat_explorer.solvers.solve import MOST_SOLVES, explain_unfit, solve, within_reserved
from remat_explorer.solvers.solver_interface import Answer, Limits, Progress, checkpoint_all
from tests.solvers.helpers import present

MIB = 1 << 20
CHAIN_BYTES = 12 * MIB  # each is a segment of its own


def chain(layers: int = 8, size: int = 11 * MIB) -> Graph:
    """The linear chain with values of ``size`` bytes: of 11 MiB, each takes 12 MiB of the allocator."""
    unit = rx.linear(layers)
    return replace(unit, values=tuple(replace(value, bytes=size) for value in unit.values))


def test_where_nothing_is_wasted_the_answer_is_that_for_requested_bytes_and_proven() -> None:
    budget = 4 * CHAIN_BYTES
    found = solve(chain(size=CHAIN_BYTES), budget, budget_means="reserved")
    assert reserved_of(present(found.schedule)) == budget
    assert (found.cost, found.status) == (26.0, Status.OPTIMAL)


def test_a_schedule_that_reserves_more_is_not_taken_though_it_is_cheaper() -> None:
    # 5 * 11 MiB fit into 55 MiB requested. Of the allocator, 5 blocks take 60 MiB: only four fit.
    graph, budget = chain(), 5 * 11 * MIB
    requested = solve(graph, budget)
    assert reserved_of(present(requested.schedule)) > budget
    heard: list[Progress] = []
    found = solve(graph, budget, budget_means="reserved", on_progress=heard.append)
    assert reserved_of(present(found.schedule)) <= budget
    assert (found.cost, requested.cost) == (26.0, 22.0)
    assert found.status is Status.FEASIBLE  # the bound is that of 55 MiB requested
    assert found.lower_bound == requested.lower_bound == 22.0
    reported = [progress.schedule for progress in heard if progress.schedule is not None]
    assert reported
    assert all(reserved_of(schedule) <= budget for schedule in reported)
    assert max(progress.lower_bound or 0.0 for progress in heard) <= 22.0


def test_what_is_found_for_a_network_reserves_no_more_than_the_budget(captured) -> None:
    heard: list[Progress] = []
    stop = {"on_progress": heard.append, "cancelled": lambda: any(progress.schedule for progress in heard)}
    found = solve(captured("mobilenet_v1"), "80%", time_limit=600, budget_means="reserved", **stop)
    assert predict_allocator(present(found.plan)).peak_reserved <= found.budget
    assert found.lower_bound is None or found.lower_bound <= present(found.cost)


def test_where_nothing_is_found_the_answer_says_what_was_reserved_unless_not_even_requested_bytes_fit() -> None:
    # Three values at a time are the least: 33 MiB requested, 36 MiB reserved.
    infeasible = solve(chain(), 2 * 11 * MIB, budget_means="reserved")
    assert (infeasible.schedule, infeasible.status) == (None, Status.INFEASIBLE)
    found = solve(chain(), 35 * MIB, budget_means="reserved")
    assert (found.schedule, found.status) == (None, Status.UNKNOWN)
    assert "the least reserved bytes of a schedule were 36.0 MiB" in str(found)
    assert "reserves at most 35.0 MiB" in explain_unfit(found)
    assert "expandable_segments:True" in explain_unfit(found)


def test_expandable_segments_waste_less_and_find_more(monkeypatch: pytest.MonkeyPatch) -> None:
    # Five values of 11 MiB fit into three granules of 20 MiB, 60 MiB.
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    found = solve(chain(), 60 * MIB, budget_means="reserved")
    assert predict_allocator(present(found.plan), AllocatorSettings(expandable_segments=True)).peak_reserved == 60 * MIB
    assert (found.cost, found.status) == (22.0, Status.OPTIMAL)


def never_fits(asked: list[tuple[int, float]], schedule: Schedule) -> Any:
    def solve_at(budget: int, limits: Limits) -> Answer:
        asked.append((budget, limits.time_limit))
        return Answer(schedule, lower_bound=17.0)

    return solve_at


def test_the_number_of_solves_is_bounded_and_they_share_the_time() -> None:
    asked: list[tuple[int, float]] = []
    found = within_reserved(150 * MIB, Limits(60.0), never_fits(asked, checkpoint_all(chain(16))))
    assert found.schedule is None
    assert 2 < len(asked) <= MOST_SOLVES
    assert all(seconds <= 30.0 for _, seconds in asked)  # a share of what is left
    assert len({budget for budget, _ in asked}) == len(asked)
    assert asked[0][0] == 150 * MIB
    asked.clear()  # no further solve begins when the time is up
    found = within_reserved(150 * MIB, Limits(0.0), never_fits(asked, checkpoint_all(chain(16))))
    assert len(asked) == 1
    assert found.limit.startswith("the time limit of")


def test_what_a_budget_cannot_mean_is_quoted() -> None:
    with pytest.raises(QuantityError, match="known for requested bytes only"):
        solve(rx.linear(4), "smallest", budget_means="reserved")
    with pytest.raises(UnknownNameError, match="unknown meaning of a budget 'allocated'"):
        solve(rx.linear(4), "60%", budget_means="allocated")


def test_a_kept_answer_is_for_its_meaning_and_the_settings_of_the_allocator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph, budget = chain(), 5 * 11 * MIB
    costs = [solve(graph, budget, cache=True, budget_means=means).cost for means in ("requested", "reserved")]
    assert costs == [22.0, 26.0]
    assert solve(graph, budget, cache=True).cost == 22.0
    assert cache_folder() == tmp_path
    kept = list(tmp_path.rglob("*.json"))
    assert len(kept) == 2
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    solve(graph, budget, cache=True, budget_means="reserved")
    assert len(list(tmp_path.rglob("*.json"))) == 3


def test_a_kept_answer_that_reserves_too_much_is_not_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph, budget = chain(), 5 * 11 * MIB
    cheap = solve(graph, budget)
    solve(graph, budget, cache=True, budget_means="reserved")
    (path,) = tmp_path.rglob("*.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"time_limit": 1e9, "solution": cheap.to_document()}))
    found = solve(graph, budget, cache=True, budget_means="reserved")
    assert found.cost == 26.0


def test_a_job_in_the_background_takes_the_meaning_too() -> None:
    job = SolveJob.start(chain(), 5 * 11 * MIB, budget_means="reserved", time_limit=20)
    assert job.wait(120)
    found = job.solution()
    assert reserved_of(present(found.schedule)) <= found.budget
    assert found.cost == 26.0
