"""A schedule: what each stage computes (R) and what is kept into it (S), with cost and memory U.

Checkmate (Jain et al., MLSys 2020), sections 4.2 to 4.4, extended to operations with several outputs, workspace and
implementations, and to persistent values (parameter gradients, the loss), which are retained in every stage after
the one that first computes them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph


@dataclass(frozen=True, eq=False)
class Schedule:
    """R and S of one graph (section 4.2).

    Args:
        graph: the training graph, n operations and v values.
        R: (stages, n), 0 = not computed in this stage, k > 0 = computed with implementation k (1 to 9).
        S: (stages, v), whether the value is retained from stage t - 1 into stage t.

    Raises:
        ScheduleError: if a shape is wrong or an entry names an implementation that does not exist.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(1)
    >>> keep = Schedule(graph, np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    >>> keep.cost, keep.overhead, keep.violation()
    (3.0, 1.0, None)
    >>> keep.U[2].tolist()
    [2, 2, 3]
    """

    graph: Graph
    R: np.ndarray
    S: np.ndarray

    def __post_init__(self) -> None:
        R, S = np.asarray(self.R), np.asarray(self.S)
        n, v = self.graph.n, len(self.graph.values)
        if R.ndim != 2 or R.shape[1] != n or S.shape != (len(R), v):
            raise ScheduleError(f"R has shape {R.shape} and S {S.shape}; expected (stages, {n}) and (stages, {v})")
        ways = np.array([len(node.implementations) for node in self.graph.operations])
        counted = R.size == 0 or (R.min() >= 0 and (R.max(axis=0) <= ways).all())
        if not counted or (S.dtype != bool and not np.isin(S, (0, 1)).all()):
            raise ScheduleError("R must hold 0 or the number of an implementation, and S 0 or 1")
        object.__setattr__(self, "R", R.astype(np.uint8))
        object.__setattr__(self, "S", S.astype(bool))
        self.R.flags.writeable = self.S.flags.writeable = False

    @property
    def stages(self) -> int:
        """Number of stages: one for each mandatory operation when the schedule is frontier-advancing (8a)."""
        return len(self.R)

    @cached_property
    def sequence(self) -> tuple[tuple[int, int, int], ...]:
        """Every computation in order, as (stage, operation, implementation)."""
        stages, operations = np.nonzero(self.R > 0)
        return tuple((int(t), int(k), int(self.R[t, k])) for t, k in zip(stages, operations, strict=True))

    @cached_property
    def cost(self) -> float:
        """The objective (1a): sum of C_i over every computation, first or repeated."""
        operations = self.graph.operations
        costs = (operations[k].implementations[code - 1].cost for _, k, code in self.sequence)
        return float(reduce(operator.add, costs, 0.0))  # as the checker adds; `sum` is another from Python 3.12 on

    @property
    def overhead(self) -> float:
        """Cost as a ratio to computing every mandatory operation once, in its default implementation."""
        return self.cost / self.graph.total_cost if self.graph.total_cost else 1.0

    @cached_property
    def recomputations(self) -> int:
        """How many computations are repetitions."""
        return len(self.sequence) - len({k for _, k, _ in self.sequence})

    @cached_property
    def computed(self) -> np.ndarray:
        """Which values stage t computes, bool of shape (stages, values)."""
        computed = np.zeros(self.S.shape, dtype=bool)
        for t, k, code in self.sequence:
            computed[t, list(self.graph.outputs(k, code))] = True
        return computed

    @cached_property
    def U(self) -> np.ndarray:
        """Memory in use when operation k runs in stage t, equations (2) and (3), int64 of shape (stages, n).

        Resident bytes, the operation's outputs and its workspace are included; what k overwrites is not, where
        FREE[t,k] says that it dies there. Where k does not run, U is what is held at that point. A checkpoint that the
        stage does not use stays to the stage's end, as in the paper; the plan frees earlier, so its peak is never above
        ``U.max()``.
        """
        graph, bytes_of = self.graph, self.graph.value_bytes.tolist()
        U = np.empty(self.R.shape, dtype=np.int64)
        kept = np.vstack([self.S[1:], np.zeros((1, len(graph.values)), dtype=bool)]) | graph.persistent
        starts = [int(graph.value_bytes[retained].sum()) + graph.resident_bytes for retained in self.S]
        computed: list[list[tuple[int, int]]] = [[] for _ in starts]
        for t, k, code in self.sequence:
            computed[t].append((k, code))
        for t, runs in enumerate(computed):
            held = starts[t]
            last_reader = {v: k for k, code in runs for v in graph.inputs(k, code)}
            previous = -1
            for k, code in runs:
                U[t, previous + 1 : k] = held
                way = graph.operations[k].implementations[code - 1]
                held += sum(bytes_of[v] for v in way.outputs)
                U[t, k] = held + way.workspace
                previous = k
                dead = [v for v in (*way.inputs, *way.outputs) if last_reader.get(v, k) <= k and not kept[t, v]]
                again = [v for v in way.outputs if graph.persistent[v] and self.S[t, v]]  # the first version stays
                if way.overwrites in dead and graph.heir(k, code) not in again:
                    U[t, k] -= bytes_of[way.overwrites]
                held -= sum(bytes_of[v] for v in dead + again)
            U[t, previous + 1 :] = held
        return U

    def violation(self) -> str | None:
        """The first broken rule among (1b) to (1e), in words, or None.

        (1b) an operation's inputs are computed in its stage or retained into it; (1c) what is retained was there in
        the stage before; (1d) nothing is retained into the first stage; (1e) everything that must be computed is. Last,
        what may run in place only overwrites nothing that is read again.
        """
        graph, S, computed = self.graph, self.S, self.computed
        violations: list[tuple[int, int, str]] = []  # stage, rule, message: the earliest is reported
        for _, v in _first(S[:1]):
            message = f"stage 0 starts with {graph.values[v].name!r} in memory, but nothing has been computed yet"
            violations.append((0, 0, message))
        available = computed | S
        for t, v in _first(S[1:] & ~available[:-1]):
            name = graph.values[v].name
            message = f"{name!r} is retained into stage {t + 1}, but stage {t} neither computes nor retains it"
            violations.append((t + 1, 1, message))
        for t, v in _first(available[:-1] & graph.persistent & ~S[1:]):
            violations.append((t + 1, 2, f"stage {t + 1} drops the persistent value {graph.values[v].name!r}"))
        for t, k, code in self.sequence:
            missing = [v for v in graph.inputs(k, code) if not available[t, v]]
            if missing:
                message = (
                    f"stage {t} computes {graph.operations[k].name!r} but its input "
                    f"{graph.values[missing[0]].name!r} is neither computed nor retained"
                )
                violations.append((t, 3, message))
                break
        return min(violations)[2] if violations else self._missing() or self._out_of_place()

    def _missing(self) -> str | None:
        """(1e): persistent values, and every mandatory operation that no operation follows, must have run."""
        graph, ever = self.graph, self.computed.any(axis=0)
        for v in np.flatnonzero(graph.persistent & ~ever):
            return f"the persistent value {graph.values[v].name!r} is never computed"
        for k in np.flatnonzero(~self.R.any(axis=0)):
            if not graph.operations[k].optional and not any(graph.readers[v] for v in graph.outputs(int(k))):
                return f"{graph.operations[k].name!r} is never computed"
        return None

    def _out_of_place(self) -> str | None:
        """Where an implementation that may run in place only overwrites what is read again, in words, or None."""
        graph, read_later = self.graph, set[int]()
        for t, k, code in reversed(self.sequence if graph.runs_in_place else ()):
            way = graph.operations[k].implementations[code - 1]
            if way.in_place and way.overwrites in read_later:
                return (
                    f"stage {t} computes {graph.operations[k].name!r} with {way.name!r}, which may run in place only, "
                    f"but {graph.values[way.overwrites].name!r} is read again later"
                )
            read_later.difference_update(way.outputs)
            read_later.update(way.inputs)
        return None

    @property
    def is_frontier_advancing(self) -> bool:
        """(8a) to (8c): stage t is the first to compute mandatory operation m_t, and computes nothing later."""
        R, own = self.R.astype(bool), self.graph.mandatory
        if self.stages != len(own) or not R[np.arange(len(own)), own].all():
            return False
        return not (R & (np.arange(self.graph.n) > own[:, None])).any()

    def compact(self) -> Schedule:
        """The same R without what serves nothing: each value is retained only for a later read, (1c) tight.

        A value that a stage both retains and computes is no longer retained into it, and recomputations that nobody
        reads are dropped. Cost and U never rise.
        """
        graph = self.graph
        R, S = self.R.copy(), np.zeros_like(self.S)
        first = (R > 0).argmax(axis=0)
        later = np.zeros(len(graph.values), dtype=bool)
        for t in range(self.stages - 1, -1, -1):
            needed = later.copy()
            made = np.zeros_like(needed)
            for k in np.flatnonzero(R[t])[::-1]:
                outputs = list(graph.outputs(int(k), int(R[t, k])))
                if (first[k] != t or graph.operations[k].optional) and not needed[outputs].any():
                    R[t, k] = 0
                    continue
                made[outputs] = True
                needed[list(graph.inputs(int(k), int(R[t, k])))] = True
            later = needed & ~made & ~graph.persistent
            S[t] = later
        computed = Schedule(graph, R, S).computed
        S[1:] |= np.logical_or.accumulate(computed, axis=0)[:-1] & graph.persistent
        return Schedule(graph, R, S)


def _first(entries: np.ndarray) -> list[tuple[int, int]]:
    """Row and column of the first entry that is true, if any is."""
    place = int(entries.argmax()) if entries.size else 0
    row, column = divmod(place, max(1, entries.shape[1]))
    return [(row, column)] if entries.size and entries[row, column] else []
