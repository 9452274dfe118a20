"""How many threads a solve has: those that were chosen, or two where "optimal" has two cores."""

from __future__ import annotations

import dataclasses

import pytest

from remat_explorer.cli.parser import make_parser
from remat_explorer.instances import linear
from remat_explorer.solvers import SolveJob, Sweep, registry, solve
from remat_explorer.solvers.registry import STRATEGIES, threads_of


@pytest.fixture(params=[1, 2, 64])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of cores of the machine, as far as solves know."""
    monkeypatch.setattr(registry, "cores", lambda: request.param)
    return request.param


SEARCHES = ("optimal", "monet", "moccasin")


@pytest.mark.parametrize("strategy", SEARCHES)
def test_a_search_has_a_second_thread_where_there_is_a_second_core(machine, strategy):
    assert threads_of(strategy) == min(2, machine)


def test_other_strategies_have_one_thread(machine):
    assert {threads_of(name) for name in STRATEGIES if name not in SEARCHES} == {1}


def test_threads_that_were_chosen_stay(machine):
    assert [threads_of(name, 3) for name in STRATEGIES] == [3] * len(STRATEGIES)


def test_a_strategy_gets_the_threads_that_nobody_chose(machine, monkeypatch):
    given, strategy = [], STRATEGIES["optimal"]

    def counting(graph, budget, limits):
        given.append(limits.threads)
        return strategy(graph, budget, limits)

    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=counting))
    solve(linear(8), 6)
    solve(linear(8), 6, threads=1)
    assert given == [min(2, machine), 1]


def test_a_job_asks_for_as_many_threads_as_a_call(machine):
    jobs = [SolveJob.start(linear(8), 4), SolveJob.start(linear(8), 4, threads=1)]
    for job in jobs:
        job.cancel()
    assert [job._question.threads for job in jobs] == [min(2, machine), 1]


def test_the_command_line_leaves_the_choice_open_and_gives_workers_of_a_sweep_one_thread_each():
    parse = make_parser().parse_args
    assert parse(["solve", "chain.json", "--budget", "60%"]).threads is None
    assert parse(["solve", "chain.json", "--budget", "60%", "--threads", "3"]).threads == 3
    assert parse(["sweep", "chain.json"]).threads == 1
    assert Sweep(linear(8), [4])._threads == 1
