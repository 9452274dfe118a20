"""The strategies with transfers: known optima, bounds that hold, and never worse than either choice alone."""

import itertools
import math
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.offload import Send, TransferPlan, Transfers, TransferSolution, best_known, check_transfers
from remat_explorer.plan import Plan
from remat_explorer.solvers import largest_operation
from remat_explorer.solvers.condensed_graph import CondensedGraph, one_by_one
from remat_explorer.solvers.offload import offload_search
from remat_explorer.solvers.offload.half_stages import half_stage_bound
from remat_explorer.solvers.offload.transfer_moments import transfer_moments_bound
from remat_explorer.solvers.search.renewal_search import Renewals
from remat_explorer.solvers.search.renewals import Copies
from remat_explorer.solvers.solver_interface import Limits
from tests.offload.small_graphs import Instance, drawn_graph, drawn_instances, instances
from tests.offload.transfer_runs import random_plan
from tests.thorough import thorough, thorough_but

DATA = Path(__file__).parents[1] / "data"
REFERENCE = instances()


def solved(one: Instance, seconds: float = 5.0, strategy: str = "offload") -> TransferSolution:
    """The answer, or the best in so many seconds."""
    return rx.solve(one.graph, one.budget, strategy, seconds, transfers=one.transfers)


@pytest.mark.parametrize("part", [pytest.param(k, marks=[pytest.mark.thorough] * (k > 0)) for k in range(5)])
def test_every_known_optimum_is_found_and_no_bound_is_above_it(part: int) -> None:
    for one in REFERENCE[part::5]:
        if one.timeout:
            continue
        solution = solved(one, 6.0)
        assert solution.cost == one.makespan, (one.graph.name, one.budget, one.transfers)
        if one.makespan is None:
            assert str(solution.status) == "infeasible"
        else:
            assert solution.lower_bound is not None
            assert solution.lower_bound <= one.makespan * (1 + 1e-9)
            assert solution.plan is not None
            assert check_transfers(solution.plan, one.budget).makespan == one.makespan


@pytest.mark.parametrize("number", [18, 46, 78])
def test_optima_are_found_that_send_when_the_host_has_room_or_what_is_computed_again(number: int) -> None:
    one = drawn_instances()[number]
    solution = solved(one)
    assert solution.cost == one.makespan
    assert solution.plan is not None
    sent_at = {s.value: s.stage for s in solution.plan.statements if isinstance(s, Send)}
    assert any(stage > one.graph.producer[v] for v, stage in sent_at.items())  # not behind the first computation


def test_the_bound_of_half_stages_proves_most_known_optima() -> None:
    equal, total = 0, 0
    for one in REFERENCE[::6]:
        if one.makespan is None or one.timeout or one.transfers.host_bytes is not None:
            continue
        condensed = one_by_one(CondensedGraph.of(one.graph))
        copies = Copies.of(condensed, one.transfers)
        bound = half_stage_bound(condensed, one.budget, copies, True, Limits(3.0))
        few = transfer_moments_bound(condensed, one.budget, copies, True, Limits(3.0))
        assert max(bound, few) <= one.makespan * (1 + 1e-6)
        total += 1
        equal += bound > one.makespan * (1 - 1e-6)
    assert equal >= 0.8 * total > 20


def test_without_bandwidth_the_answer_is_that_of_optimal() -> None:
    for name, budget in (("linear4", 3), ("linear5", 4), ("skip", 10), ("weights", 11)):
        graph = next(one.graph for one in REFERENCE if one.graph.name == name)
        plain = rx.solve(graph, budget)
        for transfers in (Transfers(0, 0), Transfers(1, 0), Transfers(1, 1, host_bytes=0)):
            solution = rx.solve(graph, budget, "offload", transfers=transfers)
            assert (solution.cost, solution.lower_bound, solution.status) == (
                plain.cost,
                plain.lower_bound,
                plain.status,
            )
            assert solution.plan is not None
            assert plain.plan is not None
            assert solution.plan.statements == plain.plan.statements


@pytest.mark.parametrize("seed", thorough_but(range(6), 0, 1))
def test_more_of_anything_costs_no_more(seed: int) -> None:
    """Of proven answers: budget, bandwidth and host memory only help, latency does not."""
    graph = drawn_graph(seed)
    least = largest_operation(graph)[1]

    def cost(budget: int, *transfers: float, **rest: int) -> float | None:
        solution = rx.solve(graph, budget, "offload", 3.0, transfers=Transfers(*transfers, **rest))  # type: ignore
        return solution.cost if str(solution.status) == "optimal" else None

    ladders = [
        [cost(budget, 0.5, 0.5) for budget in (least, least + 1, least + 3)],
        [cost(least + 1, rate, rate) for rate in (0.25, 1.0, 4.0, float("inf"))],
        [cost(least + 1, 1.0, 1.0, latency) for latency in (4.0, 1.0, 0.0)],
    ]
    known = 0
    for ladder in ladders:
        for dear, cheap in itertools.pairwise([one for one in ladder if one is not None]):
            known += 1
            assert cheap <= dear * (1 + 1e-9)
    assert known > 2


@pytest.mark.parametrize("seed", thorough_but(range(20, 26), 20, 21))
def test_the_answer_is_no_worse_than_recomputation_or_sending_alone(seed: int) -> None:
    graph = drawn_graph(seed, 12)
    budget = largest_operation(graph)[1] + seed % 3
    transfers = Transfers(0.7, 0.9, 0.1, duplex=seed % 2 == 0)
    both = rx.solve(graph, budget, "offload", 3.0, transfers=transfers)
    sent = rx.solve(graph, budget, "offload-only", 3.0, transfers=transfers)
    plain = rx.solve(graph, budget)
    costs = [one.cost for one in (sent, plain) if one.cost is not None]
    if costs:
        assert both.cost is not None
        assert both.cost <= min(costs) * (1 + 1e-9)
    if sent.plan is not None:
        assert sent.plan.computing == pytest.approx(graph.total_cost)


@pytest.mark.parametrize("seed", [45, thorough(64)])
def test_the_plan_does_not_depend_on_how_fast_anything_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the bound comes, and however long moves take: they are counted, and so is their heat."""
    graph, go_on = drawn_graph(seed, 12), Renewals.go_on
    budget, plans = largest_operation(graph)[1] + seed % 3, []
    for delay in (0.0, 0.02):

        def late(*arguments: Any, delay: float = delay) -> float:
            time.sleep(20 * delay)
            return half_stage_bound(*arguments)

        def slow(*arguments: Any, delay: float = delay) -> None:
            time.sleep(delay)
            go_on(*arguments)

        monkeypatch.setattr(offload_search, "half_stage_bound", late)
        monkeypatch.setattr(Renewals, "go_on", slow)
        solution = rx.solve(graph, budget, "offload", 60.0, transfers=Transfers(0.7, 0.9, 0.1))
        assert solution.plan is not None
        assert solution.plan.sent_bytes > 0
        plans.append(solution.plan.statements)
    assert plans[0] == plans[1]


def test_the_plan_of_a_network_is_checked_and_better_than_recomputation_alone() -> None:
    graph = Graph.load(DATA / "captured" / "unet.json")
    budget = int(0.5 * 7.4 * 2**30)
    plain = rx.solve(graph, budget, time_limit=4)
    solution = rx.solve(graph, budget, "offload", 10, transfers=Transfers(25e9, 25e9, 1e-5))
    assert solution.cost is not None
    assert plain.cost is not None
    assert solution.cost < plain.cost
    assert solution.lower_bound is not None
    assert graph.total_cost * 0.999999 <= solution.lower_bound <= solution.cost
    assert solution.plan is not None
    checked = check_transfers(solution.plan, budget, solution.cost, solution.lower_bound)
    assert checked.peak == solution.peak


@pytest.mark.parametrize(("strategy", "budget"), [("torchtitan-offload", "63%"), ("offload-layer-inputs", "26.5%")])
def test_the_rules_of_others_are_plans_that_send_and_are_no_faster_than_the_bound(strategy: str, budget: str) -> None:
    graph = Graph.load(DATA / "captured" / "gpt2.json")
    solution = rx.solve(graph, budget, strategy, transfers=Transfers(25e9, 25e9, 1e-5))
    assert solution.plan is not None
    assert solution.plan.sent_bytes > 1e8
    assert solution.plan.computing > graph.total_cost  # some layers run twice, too
    assert solution.lower_bound == graph.total_cost
    check_transfers(solution.plan, solution.budget, solution.cost)
    without = rx.solve(graph, budget, strategy, transfers=Transfers(0, 0))
    assert without.plan is None or without.plan.sent_bytes == 0


def test_a_cancelled_search_ends_long_before_its_limit_with_what_it_has() -> None:
    graph, said = Graph.load(DATA / "captured" / "unet.json"), []
    solution = rx.solve(
        graph,
        int(0.5 * 7.4 * 2**30),
        "offload",
        3600,
        transfers=Transfers(1e9, 1e9),
        on_progress=lambda report: said.append(report.doing),
        cancelled=lambda: any(words.startswith("found a plan") for words in said),
    )
    assert solution.plan is not None
    assert solution.limit == "an interruption"
    assert solution.seconds < 600


def test_a_file_gives_the_same_solution_and_a_changed_one_is_refused(tmp_path) -> None:
    one = next(one for one in REFERENCE if one.graph.name == "skip" and one.budget == 9 and one.transfers.out == 2)
    solution = solved(one)
    again = TransferSolution.load(solution.save(tmp_path / "plan.json"), one.graph)
    assert (again.plan, again.cost, again.status) == (solution.plan, solution.cost, solution.status)
    for key, wrong in (("cost", 1.0), ("peak", 1), ("host_peak", 99), ("lower_bound", 99.0), ("budget", 5)):
        document = solution.to_document()
        document[key] = wrong
        with pytest.raises(rx.errors.SolutionError):
            TransferSolution.from_document(document, one.graph)
    document = solution.to_document()
    del document["plan"][3]
    with pytest.raises(rx.errors.SolutionError, match="refused"):
        TransferSolution.from_document(document, one.graph)


def test_what_is_asked_wrongly_says_what_to_do() -> None:
    graph = rx.linear(3)
    with pytest.raises(SolverError, match="needs transfers"):
        rx.solve(graph, 4, "offload")
    with pytest.raises(UnknownNameError, match="offload-only"):
        rx.solve(graph, 4, "optimal", transfers=Transfers(1, 1))
    with pytest.raises(SolverError, match="does not take slots"):
        rx.solve(graph, 4, "offload", transfers=Transfers(1, 1), slots=3)


def test_no_kept_answer_of_the_one_problem_is_given_for_the_other() -> None:
    graph, transfers = rx.linear(6), Transfers(1, 1)
    for _ in range(2):
        assert rx.solve(graph, 4, cache=True).cost == rx.solve(graph, 4).cost
        sent = rx.solve(graph, 4, "offload", transfers=transfers, cache=True)
        less = rx.solve(graph, 4, "offload", transfers=Transfers(0.25, 0.25), cache=True)
        assert (sent.transfers, less.transfers) == (transfers, Transfers(0.25, 0.25))
        assert sent.cost is not None
        assert less.cost is not None
        assert sent.cost < less.cost


def test_a_plan_that_is_known_for_less_is_no_slower_with_more() -> None:
    """Of 1,000 random graphs, each with a random plan: what it takes with more of everything, one after another."""
    faster = 0
    for seed in range(1000):
        graph, draw = drawn_graph(seed, 5 + seed % 5), random.Random(seed)
        if graph.value_bytes.sum() == 0:
            continue
        plan = random_plan(graph, seed, odd=seed % 2 == 1, costs=False)
        room, given = plan.host_peak, plan.transfers
        less = Transfers(given.out, given.back, given.latency + draw.random(), room, given.duplex)
        known = replace(plan, transfers=less)
        solution = TransferSolution(
            graph, less, "offload", rx.solvers.Status.FEASIBLE, plan.peak, known, graph.total_cost, 0.0
        )
        budget, transfers, before = plan.peak, less, known.makespan
        more: list[dict[str, Any]] = [{"out": 2 * less.out}, {"back": math.inf}, {"latency": 0.0}]
        more += [{"host_bytes": None}, {"duplex": True}, {"host_bytes": room + 1}]
        draw.shuffle(more)
        for change in more:
            budget, transfers = budget + draw.randrange(2), replace(transfers, **change)
            found = best_known([solution], budget, transfers, "offload")
            assert found is not None
            assert found.plan is not None
            assert check_transfers(found.plan, budget).makespan <= before * (1 + 1e-12)
            faster += found.plan.makespan < before * (1 - 1e-9)
            before = found.plan.makespan
        assert best_known([solution], plan.peak - 1, transfers, "offload") is None
        if room:
            assert best_known([solution], budget, replace(transfers, host_bytes=room - 1), "offload") is None
    assert faster > 500


def test_a_solve_with_the_cache_takes_no_longer_than_what_is_kept_for_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph = drawn_graph(45, 12)
    budget, less = largest_operation(graph)[1], Transfers(0.7, 0.9, 0.1, 30)
    first = rx.solve(graph, budget, "offload", 3.0, transfers=less, cache=True)
    assert first.plan is not None
    assert first.plan.sent_bytes > 0
    for more in (less, replace(less, out=1.0), replace(less, latency=0.0), replace(less, host_bytes=None)):
        for memory in (budget, budget + 3):
            at_once = rx.solve(graph, memory, "offload", 0.0, transfers=more, cache=True)
            assert at_once.cost is not None
            assert at_once.cost <= first.plan.makespan
            alone = rx.solve(graph, memory, "offload", 0.0, transfers=more)
            assert alone.cost is None or alone.cost >= at_once.cost
            assert (at_once.lower_bound or 0.0) <= at_once.cost
    tighter = rx.solve(graph, budget, "offload", 0.0, transfers=replace(less, back=0.5), cache=True)
    assert tighter.cost is not None
    assert tighter.cost >= (first.lower_bound or 0.0)
    assert (tighter.lower_bound or 0.0) >= (first.lower_bound or 0.0)  # what no plan undercuts with more, none does
    plain = rx.solve(graph, budget, time_limit=3, cache=True)
    slow = rx.solve(graph, budget, "offload", 0.0, transfers=Transfers(1e-6, 1e-6), cache=True)
    once = rx.solve(graph, budget, "offload-only", 0.0, transfers=Transfers(1e-6, 1e-6), cache=True)
    if plain.cost is not None:
        assert slow.cost is not None
        assert slow.cost <= plain.cost
    assert once.plan is None or once.plan.computing == pytest.approx(graph.total_cost)


def test_a_budget_below_the_largest_operation_is_infeasible() -> None:
    solution = rx.solve(rx.linear(3), 2, "offload", transfers=Transfers(1, 1))
    assert (str(solution.status), solution.plan, solution.lower_bound) == ("infeasible", None, None)


def test_a_schedule_is_a_plan_that_sends_nothing() -> None:
    schedule = rx.solve(rx.linear(8), 4).schedule
    assert schedule is not None
    plan = TransferPlan.from_plan(Plan.of(schedule), Transfers(1, 1))
    assert (plan.makespan, plan.peak, plan.sent_bytes) == (schedule.cost, 4, 0)
