"""The optimal persistent schedule of chains: against the optimum of all schedules, and on chains of blocks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from remat_explorer.checker import check
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, solve
from remat_explorer.solvers.anytime.chain_starts import chain_guides
from remat_explorer.solvers.condensed import Condensed, largest_operation
from remat_explorer.solvers.persistent.block_chain import chain_of
from remat_explorer.solvers.persistent.persistent_program import (
    PersistentProgram,
    cheapest_persistent,
    needs_of,
    with_less_memory,
)
from remat_explorer.solvers.search.planner import guided_schedule, plan_schedule
from remat_explorer.solvers.solution import Status
from tests.solvers.drawn_chains import heterogeneous_chain
from tests.solvers.drawn_graphs import problems, training_graphs
from tests.solvers.exhaustive import frontier_optimum


def test_on_unit_chains_it_is_the_optimum_of_all_schedules(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear(int(entry["graph"].removeprefix("linear")))
        assert solve(chain, entry["budget"], "rotor").cost == entry["optimum"], (entry["graph"], entry["budget"])


@pytest.mark.parametrize("seed", range(12))
def test_on_random_chains_it_is_never_below_the_optimum_and_costs_what_the_program_says(seed):
    chain = heterogeneous_chain(seed, 4)
    condensed = Condensed.of(chain)
    least, most = largest_operation(chain)[1], checkpoint_all_peak(chain)
    found = 0
    for budget in range(least, most + 1, max(1, (most - least) // 3)):
        program = PersistentProgram(chain_of(condensed), budget, 500)
        assert program.run(lambda: False)
        solution = solve(chain, budget, "rotor")
        if solution.cost is None:
            assert math.isinf(program.cost)
            continue
        found += 1
        assert frontier_optimum(chain, budget) <= solution.cost <= program.cost
    assert found


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(problems(training_graphs()))
def test_no_schedule_exceeds_the_budget_and_what_is_no_chain_is_told(problem):
    graph, budget = problem
    try:
        chain_of(Condensed.of(graph))
    except SolverError:
        with pytest.raises(SolverError, match="is no chain of blocks"):
            solve(graph, budget, "rotor")
        return
    solution = solve(graph, budget, "rotor")
    if solution.schedule is not None:
        assert solution.peak is not None
        assert solution.peak <= budget


@pytest.mark.parametrize(("name", "blocks"), [("resnet50", 16), ("gpt2", 12), ("mobilenet_v1", 27), ("vgg16", 16)])
def test_captured_networks_are_chains_of_at_least_their_own_blocks(name, blocks, captured):
    chain = chain_of(Condensed.of(captured(name)))
    assert chain.blocks >= blocks


@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_blocks_divide_both_passes_and_read_nothing_but_their_own_values_and_their_input(name, captured):
    condensed = Condensed.of(captured(name))
    chain = chain_of(condensed)
    operations = [k for block in (*chain.forward, *chain.backward[::-1]) for k in block]
    assert operations == list(range(condensed.n))
    forward = frozenset(k for block in chain.forward for k in block)
    for j in range(chain.blocks + 1):
        own = frozenset(v for k in chain.forward[j] for v in condensed.outputs[k]) | chain.input(j)
        for k in (*chain.forward[j], *chain.backward[j]):
            assert {v for v in condensed.inputs[k] if condensed.producer[v] in forward} <= own


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "vgg16"])
def test_cuts_are_articulation_points_of_the_forward_pass_or_its_ends(name, captured):
    graph = captured(name)
    chain = chain_of(Condensed.of(graph))
    ends = {chain.forward[0][0], chain.forward[-2][-1]}
    assert {block[-1] for block in chain.forward[:-1]} <= ends | set(graph.articulation_points())


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "unet"])
def test_where_everything_fits_nothing_is_computed_again(name, captured):
    graph = captured(name)
    assert solve(graph, "100%", "rotor").cost == pytest.approx(graph.total_cost)


def test_a_residual_network_in_a_fifth_of_its_memory(captured):
    graph = captured("resnet50")
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    solution = solve(graph, least + (most - least) // 5, "rotor")
    assert solution.overhead is not None
    assert 1 < solution.overhead < 1.25


def test_fewer_slots_never_find_a_cheaper_schedule_than_exact_bytes():
    for seed in range(6):
        chain = chain_of(Condensed.of(heterogeneous_chain(seed, 6)))
        budget = int(0.7 * checkpoint_all_peak(chain.condensed.graph))
        costs = []
        for slots in (budget, 12, 5):
            program = PersistentProgram(chain, budget, slots)
            assert program.run(lambda: False)
            costs.append(program.cost)
        assert costs[0] == min(costs)


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
    condensed = Condensed.of(conditioned_blocks(6))
    assert chain_of(condensed).blocks == 2  # the condition, and all the rest
    chain = chain_of(condensed, small=2)
    (condition,) = chain.shared
    assert (chain.blocks, int(condensed.bytes[condition])) == (12, 1)
    assert all(condition in chain.input(j) and condition not in chain.saved[j] for j in range(12))
    assert needs_of(chain).base == 1
    best = cheapest_persistent(chain, 450)
    assert best is not None
    check(condensed.graph, best.R, best.S, 450)
    assert best.R.sum(axis=0)[0] == 1  # the condition is computed once


@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_table_is_that_of_the_three_ways(seed):
    program = PersistentProgram(chain_of(Condensed.of(heterogeneous_chain(seed, 5))), 18, 18)
    assert program.run(lambda: False)
    last, length = program.chain.blocks, program.length

    def least(s: int, t: int, m: int) -> float:
        totals = [
            cost + sum(least(a, b, m - taken) for (a, b), taken in terms)
            for _, cost, terms, enough in program._ways(s, t)
            if enough <= m and all(taken <= m for _, taken in terms)
        ]
        return min(totals, default=math.inf)

    for m in range(0, length + 1, 3):
        assert program._best[0, last, m] == pytest.approx(least(0, last, m))


@pytest.mark.parametrize("seed", range(6))
def test_what_a_schedule_holds_while_the_part_of_a_block_runs_is_what_the_program_says(seed):
    condensed = Condensed.of(heterogeneous_chain(seed, 6))
    chain = chain_of(condensed)
    program = PersistentProgram(chain, int(0.8 * checkpoint_all_peak(condensed.graph)), 100)
    assert program.run(lambda: False)
    schedule, held = condensed.schedule(program.computed(program.slots.count)), program.held()
    assert held[-1] >= held[chain.blocks]  # the first sweep is over when the last block's part begins
    for j, operations in enumerate(chain.backward):
        for v in (condensed.member[v] for v in held[j] if operations and condensed.readers[v][-1] >= operations[0]):
            there = schedule.S[operations[0], v] or schedule.R[operations[0], condensed.graph.producer[v]]
            assert there, (j, v)


def test_eased_needs_lie_between_the_largest_operation_and_the_whole_block(captured):
    chain = chain_of(Condensed.of(captured("resnet50")))
    whole = needs_of(chain)
    least, half = (with_less_memory(chain, whole, share) for share in (0.0, 0.5))
    assert (least.peak_backward <= half.peak_backward).all()
    assert (half.peak_backward <= whole.peak_backward).all()
    assert least.peak_backward.sum() < 0.9 * whole.peak_backward.sum()
    assert (with_less_memory(chain, whole, 1.0).again.peak_through == whole.again.peak_through).all()
    assert (least.restoring == whole.restoring).all()


@pytest.mark.parametrize(("name", "times"), [("resnet50", 1.2), ("gpt2", 1.1)])
def test_walks_that_keep_these_inputs_cost_less_than_walks_alone(name, times, captured):
    condensed = Condensed.of(captured(name))
    budget = int(times * largest_operation(condensed.graph)[1])
    guided = guided_schedule(condensed, budget, chain_guides(condensed, budget), lambda: False)
    alone = plan_schedule(condensed, budget, seconds=60)
    assert guided is not None
    assert alone is not None
    check(condensed.graph, guided.R, guided.S, budget)
    assert guided.cost < alone.cost


def test_what_is_no_chain_of_blocks_has_no_guides_and_no_time_means_none():
    assert chain_guides(Condensed.of(dense()), 9) == []
    assert chain_guides(Condensed.of(linear(8)), 5, over=lambda: True) == []


def dense() -> Graph:
    """Every operation reads all before it, and the first gradient a mask that the first operation made."""
    values = (*(Value(f"v{k}", 1) for k in range(9)), Value("mask", 1))
    forward = [operation(f"v{k}", "forward", range(k), [k, *([] if k else [9])], 1) for k in range(4)]
    reads = [{3, 9}, *({k - 1, 8 - k} for k in range(5, 9))]
    backward = [operation(f"v{k}", "backward", sorted(reads[k - 4]), [k], 1) for k in range(4, 9)]
    return Graph("dense", values, tuple(forward + backward))


def test_a_graph_whose_forward_pass_cannot_be_cut_is_refused():
    with pytest.raises(SolverError, match="'dense' is no chain of blocks"):
        solve(dense(), 9, "rotor")


def test_without_time_there_is_no_schedule_and_no_claim():
    solution = solve(linear(8), 6, "rotor", time_limit=0)
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, True, "many"])
def test_a_number_of_slots_that_is_none_is_quoted(wrong):
    with pytest.raises(SolverError, match=f"slots is {wrong!r}; expected"):
        solve(linear(4), 5, "rotor", slots=wrong)
