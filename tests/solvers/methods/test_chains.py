"""REVOLVE and Rotor: schedules of chains, and the bounds that hold for them."""

import math
from functools import cache
from itertools import pairwise

import pytest

import remat_explorer.solvers.methods.griewank as binomial_schedule_module
import remat_explorer.solvers.search.local_search as walks_module
from remat_explorer.checker import check_schedule
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime_search.chain_starts import chain_guides
from remat_explorer.solvers.chain_checkpointing.block_chain import chain_of
from remat_explorer.solvers.chain_checkpointing.chain_program import ChainProgram, cheapest_persistent, needs_of
from remat_explorer.solvers.chain_reversal.reversal_bound import reversal_bound
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.methods.griewank import (
    binomial_bound,
    binomial_schedule,
    binomial_within,
    fewest_slots,
    forward_steps,
    griewank,
    slot_numbers,
)
from remat_explorer.solvers.search.planner import first_within, guided_schedule, plan_schedule
from tests.solvers.drawn_graphs import chains, drawn, heterogeneous_chain, problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present


@cache
def fewest_steps(steps: int, slots: int) -> int:
    """The dynamic program: store state m next, reverse what follows it, then what precedes it."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(m + fewest_steps(steps - m, slots - 1) + fewest_steps(m, slots) for m in range(1, steps))


def forward_runs(schedule) -> int:
    """Runs of forward operations, first and repeated."""
    return int((schedule.R[:, ~schedule.graph.is_backward] > 0).sum())


def test_the_closed_form_equals_the_reference(reference):
    entries = reference("revolve_counts.json")["revolve"]
    assert len(entries) == 600
    for entry in entries:
        assert forward_steps(entry["steps"], entry["checkpoints"]) == entry["extra_forward_formula"], entry


def test_schedules_of_chains_run_as_many_forward_operations_as_the_reference(reference):
    """l steps: the l - 1 forward operations of the chain, and the loss; the input of the chain is the initial state."""
    entries = [entry for entry in reference("revolve_counts.json")["revolve"] if entry["steps"] <= 12]
    entries += [entry for entry in reference("revolve_counts.json")["revolve"] if entry["checkpoints"] == 5]
    assert len(entries) > 100
    for entry in entries:
        schedule = binomial_schedule(linear(entry["steps"] - 1), entry["checkpoints"])
        assert forward_runs(schedule) == entry["extra_forward_dp"], entry


@drawn(chains())
def test_no_chain_needs_more_forward_runs_than_the_count_and_every_schedule_passes(graph):
    steps = int((~graph.is_backward).sum()) + 1
    for slots in slot_numbers(graph):
        schedule = binomial_schedule(graph, slots)
        check_schedule(schedule)
        assert forward_runs(schedule) <= fewest_steps(steps, slots)


def test_schedules_of_too_many_computations_are_not_made(monkeypatch):
    chain, steps = linear(60), 61
    assert 1_000 < present(binomial_within(chain, 3)).recomputations <= forward_steps(steps, 1)
    for module in (binomial_schedule_module, walks_module):
        monkeypatch.setattr(module, "MOST_COMPUTATIONS", 1_000)
    least = fewest_slots(60)
    assert forward_steps(steps, least) <= 1_000 < forward_steps(steps, least - 1)
    assert binomial_within(chain, 3) is None
    condensed = CondensedGraph.of(chain)
    assert first_within(condensed, 3, lambda: False) is None
    assert first_within(condensed, least + 2, lambda: False) is not None


def test_fewer_slots_cost_more_and_need_less():
    solutions = [solve(linear(16), 100, "griewank", slots=slots) for slots in (1, 3, 6, 16)]
    costs, peaks = [found.cost or 0.0 for found in solutions], [found.peak or 0 for found in solutions]
    assert all(a > b for a, b in pairwise(costs))
    assert peaks == sorted(peaks)
    assert [next(griewank(linear(layers))).schedule.recomputations for layers in (1, 9, 60)] == [0, 0, 0]
    assert [found.label for found in griewank(linear(5), slots=99)] == ["5 slots"]
    numbers = slot_numbers(linear(500))
    assert len(numbers) <= 40
    assert (numbers[0], numbers[-1]) == (1, 500)


def test_revolve_is_proven_optimal_on_unit_chains_of_up_to_200_layers():
    for layers in (1, 2, 3, 5, 8, 13, 200):
        chain = linear(layers)
        condensed = CondensedGraph.of(chain)
        for budget in range(3, layers + 4) if layers < 200 else (5, 8, 16, 202):
            found = present(binomial_within(chain, budget))
            assert found.cost == binomial_bound(condensed, budget), (layers, budget)
            assert layers in (1, 200) or found.cost == reversal_bound(condensed, budget)
        assert math.isinf(binomial_bound(condensed, 2)) == (layers > 1)
        assert math.isinf(reversal_bound(condensed, 2))


@drawn(problems(chains(5) | chains(6, sizes=(1, 2)) | training_graphs()), 10, 60)
def test_it_is_never_above_an_optimum_that_computes_each_operation_as_often_as_it_likes(problem):
    graph, budget = problem
    bound = binomial_bound(CondensedGraph.of(graph), budget)
    assert graph.total_cost <= bound <= frontier_optimum(graph, budget, splits=None) + 1e-9


def test_on_unit_chains_it_is_the_optimum_of_all_schedules(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear(int(entry["graph"].removeprefix("linear")))
        assert solve(chain, entry["budget"], "rotor").cost == entry["optimum"], (entry["graph"], entry["budget"])


@pytest.mark.parametrize("seed", range(5))
def test_on_random_chains_it_is_never_below_the_optimum_and_costs_what_the_program_says(seed):
    chain = heterogeneous_chain(seed, 4)
    condensed = CondensedGraph.of(chain)
    least, most = largest_operation(chain)[1], checkpoint_all_peak(chain)
    found = 0
    for budget in range(least, most + 1, max(1, (most - least) // 3)):
        program = ChainProgram(chain_of(condensed), budget, 500)
        assert program.run(lambda: False)
        solution = solve(chain, budget, "rotor")
        if solution.cost is None:
            assert math.isinf(program.cost)
            continue
        found += 1
        assert frontier_optimum(chain, budget) <= solution.cost <= program.cost
    assert found


@drawn(problems(training_graphs()), 30)
def test_no_schedule_exceeds_the_budget_and_what_is_no_chain_is_told(problem):
    graph, budget = problem
    try:
        chain_of(CondensedGraph.of(graph))
    except SolverError:
        with pytest.raises(SolverError, match="is no chain of blocks"):
            solve(graph, checkpoint_all_peak(graph), "rotor")  # below what any schedule needs, no strategy is asked
        return
    solution = solve(graph, budget, "rotor")
    assert solution.schedule is None or present(solution.peak) <= budget


@pytest.mark.parametrize(("name", "blocks"), [("resnet50", 16), ("gpt2", 12)])
def test_blocks_divide_both_passes_and_read_nothing_but_their_own_values_and_their_input(name, blocks, captured):
    condensed = CondensedGraph.of(captured(name))
    chain = chain_of(condensed)
    assert chain.blocks >= blocks
    operations = [k for block in (*chain.forward, *chain.backward[::-1]) for k in block]
    assert operations == list(range(condensed.n))
    forward = frozenset(k for block in chain.forward for k in block)
    for j in range(chain.blocks + 1):
        own = frozenset(v for k in chain.forward[j] for v in condensed.outputs[k]) | chain.input(j)
        for k in (*chain.forward[j], *chain.backward[j]):
            assert {v for v in condensed.inputs[k] if condensed.producer[v] in forward} <= own


def test_a_residual_network_in_a_fifth_of_its_memory_and_in_all_of_it(captured):
    graph = captured("resnet50")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    solution = solve(graph, least + (most - least) // 5, "rotor")
    assert 1 < present(solution.overhead) < 1.25
    assert solve(graph, "100%", "rotor").cost == pytest.approx(graph.total_cost)


def conditioned_blocks(blocks: int, size: int = 100) -> Graph:
    """Pairs of operations on values of so many bytes, all of which read one value of 1 byte, as in a DiT."""
    values, operations = [Value("condition", 1)], [operation("condition", "forward", [], [0], 1)]

    def add(phase, reads: list[int]) -> int:
        values.append(Value(f"v{len(values)}", size))
        operations.append(operation(f"v{len(values) - 1}", phase, reads, [len(values) - 1], 1))
        return len(values) - 1

    inner, outer, last = [], [], []
    for _ in range(blocks):
        inner.append(add("forward", [0, *last]))
        outer.append(add("forward", [0, inner[-1]]))
        last = [outer[-1]]
    gradient = add("backward", last)
    for j in reversed(range(blocks)):
        gradient = add("backward", [0, inner[j], gradient])
        gradient = add("backward", [0, gradient, *outer[j - 1 : j]])
    return Graph("conditioned", tuple(values), tuple(operations))


def test_a_small_value_that_every_block_reads_is_shared_where_it_may_be():
    condensed = CondensedGraph.of(conditioned_blocks(6))
    assert chain_of(condensed).blocks == 2  # the condition, and all the rest
    chain = chain_of(condensed, small=2)
    (condition,) = chain.shared
    assert (chain.blocks, int(condensed.bytes[condition])) == (12, 1)
    assert all(condition in chain.input(j) and condition not in chain.saved[j] for j in range(12))
    assert needs_of(chain).base == 1
    best = present(cheapest_persistent(chain, 450))
    check_schedule(best, 450)
    assert best.R.sum(axis=0)[0] == 1  # the condition is computed once


def test_walks_that_keep_the_inputs_of_blocks_cost_less_than_walks_alone(captured):
    condensed = CondensedGraph.of(captured("resnet50"))
    budget = int(1.2 * largest_operation(condensed.graph)[1])
    guided = present(guided_schedule(condensed, budget, chain_guides(condensed, budget), lambda: False))
    check_schedule(guided, budget)
    assert guided.cost < present(plan_schedule(condensed, budget, seconds=60)).cost


def dense() -> Graph:
    """Every operation reads all before it, and the first gradient a mask that the first operation made."""
    values = (*(Value(f"v{k}", 1) for k in range(9)), Value("mask", 1))
    forward = [operation(f"v{k}", "forward", range(k), [k, *([] if k else [9])], 1) for k in range(4)]
    reads = [{3, 9}, *({k - 1, 8 - k} for k in range(5, 9))]
    backward = [operation(f"v{k}", "backward", sorted(reads[k - 4]), [k], 1) for k in range(4, 9)]
    return Graph("dense", values, tuple(forward + backward))


def test_what_is_no_chain_of_blocks_is_refused_and_has_no_guides():
    with pytest.raises(SolverError, match="'dense' is no chain of blocks"):
        solve(dense(), 9, "rotor")
    assert chain_guides(CondensedGraph.of(dense()), 9) == []
    assert chain_guides(CondensedGraph.of(linear(8)), 5, over=lambda: True) == []
