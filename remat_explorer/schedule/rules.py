"""The rules (1b) to (1e) of Checkmate (Jain et al., MLSys 2020), in time that grows with what a schedule does."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule.schedule import Computations, Retained, RetainedInto


def malformed(graph: Graph, stages: int, computations: Computations, retained: Retained) -> str | None:
    """What is no entry of R or run of S at all, in words, or None.

    >>> from remat_explorer.instances import linear
    >>> malformed(linear(1), 3, Computations.of([(0, 0, 2)]), Retained.of([]))
    "'v0' has no implementation 2"
    """
    (stage, operation, code), (value, first, last) = computations, retained
    cells, n = stage * graph.n + operation, graph.n
    if ((stage < 0) | (stage >= stages) | (operation < 0) | (operation >= n)).any() or (np.diff(cells) <= 0).any():
        return f"computations must be ascending, in stages below {stages} and of operations below {n}"
    ways = np.array([len(node.implementations) for node in graph.operations])
    for i in np.flatnonzero((code < 1) | (code > ways[operation]))[:1]:
        return f"{graph.operations[operation[i]].name!r} has no implementation {code[i]}"
    outside = (value < 0) | (value >= len(graph.values)) | (first < 0) | (last < first) | (last >= stages)
    touching = (np.diff(value) < 0) | ((np.diff(value) == 0) & (first[1:] <= last[:-1] + 1))
    if outside.any() or touching.any():
        return f"runs of retained values must be ascending, apart, and in stages below {stages}"
    return None


def violation(graph: Graph, stages: int, computations: Computations, retained: Retained) -> str | None:
    """The first broken rule among (1b) to (1e), in words, or None.

    (1b) an operation's inputs are computed in its stage or retained into it; (1c) what is retained was there in the
    stage before; (1d) nothing is retained into the first stage; (1e) everything that must be computed is. Last, what
    may run in place only overwrites nothing that is read again.
    """
    rows, runs = computations.rows(), retained.rows()
    computed = {(t, v) for t, k, code in rows for v in graph.outputs(k, code)}
    violations: list[tuple[int, int, str]] = []  # stage, rule, message: the earliest is reported
    if early := [v for v, first, _ in runs if first == 0]:
        message = f"stage 0 starts with {graph.values[early[0]].name!r} in memory, but nothing has been computed yet"
        violations.append((0, 0, message))
    if unmade := [(first, v) for v, first, _ in runs if first and (first - 1, v) not in computed]:
        t, v = min(unmade)
        name = graph.values[v].name
        message = f"{name!r} is retained into stage {t}, but stage {t - 1} neither computes nor retains it"
        violations.append((t, 1, message))
    if dropped := _dropped(graph, stages, computed, retained):
        t, v = min(dropped)
        violations.append((t, 2, f"stage {t} drops the persistent value {graph.values[v].name!r}"))
    into = RetainedInto(retained, len(graph.values))
    for t, k, code in rows:
        missing = [v for v in graph.inputs(k, code) if (t, v) not in computed and not into(v, t)]
        if missing:
            message = (
                f"stage {t} computes {graph.operations[k].name!r} but its input "
                f"{graph.values[missing[0]].name!r} is neither computed nor retained"
            )
            violations.append((t, 3, message))
            break
    if violations:
        return min(violations)[2]
    return _never_computed(graph, computations, {v for _, v in computed}) or _out_of_place(graph, rows)


def _dropped(graph: Graph, stages: int, computed: set[tuple[int, int]], retained: Retained) -> list[tuple[int, int]]:
    """Stages into which a persistent value that was there in the stage before is not retained, and that value."""
    into = RetainedInto(retained, len(graph.values))
    there = [(t, v) for t, v in sorted(computed) if graph.persistent[v]]
    dropped = [(t + 1, v) for t, v in there if t + 1 < stages and not into(v, t + 1)]
    return dropped + [(last + 1, v) for v, _, last in retained.rows() if graph.persistent[v] and last + 1 < stages]


def _never_computed(graph: Graph, computations: Computations, made: set[int]) -> str | None:
    """(1e): persistent values, and every mandatory operation that no operation follows, must have run."""
    for v in np.flatnonzero(graph.persistent).tolist():
        if v not in made:
            return f"the persistent value {graph.values[v].name!r} is never computed"
    ran = set(computations.operation.tolist())
    for k in graph.mandatory.tolist():
        if k not in ran and not any(graph.readers[v] for v in graph.outputs(k)):
            return f"{graph.operations[k].name!r} is never computed"
    return None


def _out_of_place(graph: Graph, rows: list[tuple[int, int, int]]) -> str | None:
    """Where an implementation that may run in place only overwrites what is read again, in words, or None."""
    read_later = set[int]()
    for t, k, code in reversed(rows if graph.runs_in_place else ()):
        way = graph.operations[k].implementations[code - 1]
        if way.in_place and way.overwrites in read_later:
            return (
                f"stage {t} computes {graph.operations[k].name!r} with {way.name!r}, which may run in place only, "
                f"but {graph.values[way.overwrites].name!r} is read again later"
            )
        read_later.difference_update(way.outputs)
        read_later.update(way.inputs)
    return None
