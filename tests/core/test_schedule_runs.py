"""A schedule kept as runs says what matrices say: rules, memory and leanest retention by their dense definitions."""

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations, Retained, memory_before
from tests.solvers.monet.choice_graphs import random_graph

GRAPHS = [random_graph(seed) if seed % 4 else linear(1 + seed % 7) for seed in range(24)]


def drawn(graph: Graph, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """R and S: what is mandatory in its stage, more at random; S the leanest, some entries of it inverted."""
    draw = np.random.default_rng(seed)
    shape, ways = (graph.stages, graph.n), np.array([len(node.implementations) for node in graph.operations])
    own = np.arange(graph.n) == graph.mandatory[:, None]
    again = (draw.random(shape) < 0.3) & (np.arange(graph.n) < graph.mandatory[:, None])
    R = np.where(own | again, draw.integers(1, ways + 1, shape), 0)
    lean = Schedule(graph, R, np.zeros((graph.stages, len(graph.values)))).compact()
    S = lean.S ^ (draw.random(lean.S.shape) < noise)
    return lean.R, S


def computed_values(graph: Graph, R: np.ndarray) -> np.ndarray:
    computed = np.zeros((len(R), len(graph.values)), dtype=bool)
    for t, k in np.argwhere(R).tolist():
        computed[t, list(graph.outputs(k, int(R[t, k])))] = True
    return computed


def is_valid(graph: Graph, R: np.ndarray, S: np.ndarray) -> bool:
    """(1b) to (1e), entry by entry; what may run in place only overwrites nothing that is read again."""
    computed = computed_values(graph, R)
    there = computed | S
    reads = [(t, v) for t, k in np.argwhere(R).tolist() for v in graph.inputs(k, int(R[t, k]))]
    inputs_there = all(there[t, v] for t, v in reads)
    retained_is_there = not (S[1:] & ~there[:-1]).any() and not S[0].any()
    persistent_stays = not (there[:-1] & graph.persistent & ~S[1:]).any()
    ends = [k for k in graph.mandatory if not any(graph.readers[v] for v in graph.outputs(k))]
    all_run = computed[:, graph.persistent].any(axis=0).all() and R[:, ends].any(axis=0).all()
    return bool(inputs_there and retained_is_there and persistent_stays and all_run and runs_in_place(graph, R))


def runs_in_place(graph: Graph, R: np.ndarray) -> bool:
    read_later = set[int]()
    for t, k in np.argwhere(R)[::-1].tolist():
        way = graph.operations[k].implementations[R[t, k] - 1]
        if way.in_place and way.overwrites in read_later:
            return False
        read_later = (read_later - set(way.outputs)) | set(way.inputs)
    return True


def memory(graph: Graph, R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """U by (2) and (3): FREE says of each value and computation whether it dies there."""
    U = np.zeros(R.shape, dtype=np.int64)
    for t in range(len(R)):
        later = S[t + 1] if t + 1 < len(R) else np.zeros(S.shape[1], dtype=bool)
        held = graph.resident_bytes + int(graph.value_bytes[S[t]].sum())
        for k in range(graph.n):
            U[t, k] = held
            if not R[t, k]:
                continue
            way = graph.operations[k].implementations[R[t, k] - 1]
            U[t, k] += sum(graph.values[v].bytes for v in way.outputs) + way.workspace
            read_after = {v for j in range(k + 1, graph.n) if R[t, j] for v in graph.inputs(j, R[t, j])}
            stays = [v for v in {*way.inputs, *way.outputs} if v in read_after or later[v] or graph.persistent[v]]
            held += sum(graph.values[v].bytes for v in way.outputs)
            dead = {*way.inputs, *way.outputs} - {*stays}
            twice = [v for v in way.outputs if graph.persistent[v] and S[t, v]]
            held -= sum(graph.values[v].bytes for v in dead) + sum(graph.values[v].bytes for v in twice)
            if way.overwrites in dead and graph.heir(k, R[t, k]) not in twice:
                U[t, k] -= graph.values[way.overwrites].bytes
    return U


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_rules_and_memory_are_those_of_the_matrices(noise):
    valid = 0
    for seed, graph in enumerate(GRAPHS):
        R, S = drawn(graph, seed, noise)
        schedule = Schedule(graph, R, S)
        assert np.array_equal(schedule.R, R)
        assert np.array_equal(schedule.S, S)
        assert np.array_equal(schedule.computed, computed_values(graph, R))
        assert np.array_equal(schedule.U, memory(graph, R, S))
        assert schedule.U_peak == schedule.U.max()
        assert (schedule.violation() is None) == is_valid(graph, R, S)
        valid += schedule.violation() is None
    assert valid > 0
    assert noise == 0.0 or valid < len(GRAPHS)


def rows_of(sent):
    """The columns of each row of what `row_lists` gives."""
    (count,), counts, columns = np.split(np.frombuffer(sent, "<u4"), [1, 1 + int(np.frombuffer(sent, "<u4")[0])])
    assert count == len(counts)
    return [sorted(row.tolist()) for row in np.split(columns, np.cumsum(counts)[:-1])]


def named(matrix):
    return [np.flatnonzero(row).tolist() for row in matrix]


def test_rows_columns_lists_and_levels_are_those_of_the_matrices():
    for seed, graph in enumerate(GRAPHS):
        R, S = drawn(graph, seed, 0.02)
        schedule = Schedule(graph, R, S)
        for t in range(schedule.stages):
            assert np.array_equal(schedule.implementations_in(t), R[t])
            assert np.array_equal(schedule.retained_into(t), S[t])
            assert np.array_equal(schedule.computed_in(t), schedule.computed[t])
        assert all(np.array_equal(schedule.implementations_of(k), R[:, k]) for k in range(graph.n))
        assert all(np.array_equal(schedule.stages_of(v), S[:, v]) for v in range(S.shape[1]))
        changes = np.diff(S, axis=0, prepend=False)
        assert [rows_of(sent) for sent in schedule.row_lists()] == [named(R > 0), named(changes)]
        cells = np.flatnonzero(R)
        before = schedule.U.ravel()[np.where(cells % graph.n, cells - 1, cells)]
        assert np.array_equal(memory_before(schedule.computations, schedule.held), before)


def test_the_leanest_schedule_retains_nothing_that_could_go():
    for seed, graph in enumerate(GRAPHS):
        R, S = drawn(graph, seed, 0.0)
        for v, first, last in Schedule(graph, R, S).retained.rows():
            shorter = S.copy()
            shorter[first if graph.persistent[v] else last, v] = False
            assert not is_valid(graph, R, shorter)


@pytest.mark.parametrize(
    ("computations", "retained", "complaint"),
    [
        ([(0, 0, 1), (5, 1, 1)], [], "computations must be ascending"),
        ([(0, 0, 1), (0, 0, 1)], [], "computations must be ascending"),
        ([(0, 0, 2)], [], "'v0' has no implementation 2"),
        ([(0, 0, 1)], [(0, 1, 3)], "runs of retained values"),
        ([(0, 0, 1)], [(0, 1, 1), (0, 2, 2)], "runs of retained values"),
    ],
)
def test_runs_that_are_none_are_refused(computations, retained, complaint):
    with pytest.raises(ScheduleError, match=complaint):
        Schedule.of_runs(linear(1), 3, Computations.of(computations), Retained.of(retained))
