"""The liveness formulation: memory rows and cuts over its variables, added where they are needed.

The memory at a point (t, k), while operation k runs in stage t, is one row over R, S and L, where the continuous L,
bounded from below, stands for "alive": retained into stage t + 1, or read by an operation that still runs in stage t.
The row is Checkmate's (2) and (3), and L what (5) has not freed. An input that k overwrites where it dies counts at
(t, k) only if it is alive after k, which is the same maximum over fewer readers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.common_divisors import divisors
from remat_explorer.solvers.bounds.cover_cuts import MemoryRow, violated_cover
from remat_explorer.solvers.bounds.liveness_columns import LivenessColumns
from remat_explorer.solvers.bounds.row_settings import ROWS, RowSettings
from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.linear_expression import ONE, LinearExpression, require
from remat_explorer.solvers.milp import Milp


class LivenessModel(LivenessColumns):
    """The whole problem for one graph and one budget.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        milp: an empty problem to build into.
        stages: which stages are single and which are merged; all single if None.
        allowed: which operation may run again in which stage, bool of shape (n, n); any if None.
        settings: of rounded rows and cover cuts.

    Attributes:
        L: the columns that stand for "alive", by entry, group and first reader.
        points: the (stage, operation) whose memory row is in the problem.
    """

    def __init__(
        self,
        condensed: Condensed,
        budget: int,
        milp: Milp,
        stages: Stages | None = None,
        allowed: np.ndarray | None = None,
        settings: RowSettings = ROWS,
    ) -> None:
        super().__init__(condensed, milp, stages, allowed)
        self.budget, self.settings = budget, settings
        self.unit = float(max(condensed.bytes.max(initial=0), 1))
        self.divisors = divisors(condensed, budget, settings.divisors)
        self.L: dict[tuple[int, int, int], LinearExpression] = {}
        self.points: set[tuple[int, int]] = set()
        self._memory_rows: list[MemoryRow] = []
        self._covers: list[set[tuple[int, ...]]] = []

    def build(self, limits: Limits) -> bool:
        """Add columns, rules (1b) and (1c), and the memory rows (t, t); False if the time ran out before the end."""
        for step in (self.add_columns, self.add_rules, self._add_own_memory):
            for q in range(len(self.stages)):
                if limits.over:
                    return False
                step(q)
        return True

    def _add_own_memory(self, q: int) -> None:
        if self.stages.single[q]:
            self.add_memory_row(int(self.stages.first[q]), int(self.stages.first[q]))

    def add_memory_row(self, t: int, k: int) -> bool:
        """Limit the memory while operation k runs in stage t; False if that row is already there.

        With the row come rounded ones: what is present takes at least as many whole blocks of d bytes as its sizes
        hold, and no more than the budget holds (a Chvatal-Gomory cut for each divisor d).
        """
        if (t, k) in self.points:
            return False
        self.points.add((t, k))
        terms = self._memory(t, k)
        room = self.budget - int(self.condensed.base[t])
        scaled = [(size / self.unit, term) for size, term in terms]
        require(self.milp, scaled, "<", room / self.unit)
        left = room - sum(size for size, term in terms if term == ONE)
        self._memory_rows.append(MemoryRow.of(left, [(size, term) for size, term in terms if term.columns]))
        self._covers.append(set())
        for d in self.divisors:
            rounded = [(size // d, term) for size, term in terms if size >= d and term != ONE]
            if sum(count for count, _ in rounded) > left // d:
                require(self.milp, rounded, "<", left // d)
        return True

    def add_covers(self, values: np.ndarray) -> int:
        """Add the cover cut of each memory row that a point violates, and return how many."""
        added = 0
        for row, covers in zip(self._memory_rows, self._covers, strict=True):
            cover = violated_cover(row, values, self.settings.covers) if len(row.sizes) else None
            if cover is not None and cover.terms not in covers:
                covers.add(cover.terms)
                of = list(cover.terms)
                weights = np.array(cover.coefficients, dtype=float)
                right = cover.right - float(weights @ row.constants[of])
                self.milp.row(row.columns[of].tolist(), (weights * row.factors[of]).tolist(), "<", right)
                added += 1
        return added

    def _memory(self, t: int, k: int) -> list[tuple[int, LinearExpression]]:
        """Bytes beyond the stage's base, as sizes and how present each is."""
        problem, q = self.condensed, self.stages.position[t]
        terms = [(int(problem.output_bytes[k] + problem.transient[k]), self.R[q][k])]
        for v in range(problem.groups):
            if problem.producer[v] >= t:
                break
            credit = int(problem.credit[k]) if v == problem.overwritten[k] else 0
            present = self._alive(q, v, k) if problem.producer[v] < k else self.S[q][v]
            terms.append((int(problem.bytes[v]) - credit, present))
            if credit:
                terms.append((credit, self._alive_after(q, v, k)))
        return [(size, term) for size, term in terms if size and not term.is_zero]

    def _alive(self, q: int, v: int, k: int) -> LinearExpression:
        """Whether v, computed before k, is in memory when k runs in entry q, a single stage."""
        t = int(self.stages.first[q])
        if self.stages.reads[q, v]:
            return ONE
        readers = [j for j in self.condensed.readers[v] if k <= j < t and not self.R[q][j].is_zero]
        return self._largest(q, v, readers)

    def _alive_after(self, q: int, v: int, k: int) -> LinearExpression:
        """Whether v, read by k, is still in memory once k has run in entry q."""
        return self._alive(q, v, k + 1) if k < self.stages.first[q] else self.S[q + 1][v]

    def _largest(self, q: int, v: int, readers: list[int]) -> LinearExpression:
        """At least S[t+1,v] and R[t,j] of every reader: L[t,v,j] chains them, so that points share columns."""
        kept = self.S[q + 1][v]
        if not readers:
            return kept
        key = (q, v, readers[0])
        if key not in self.L:
            rest = self._largest(q, v, readers[1:])
            if rest.is_zero:
                self.L[key] = self.R[q][readers[0]]
            else:
                self.L[key] = largest = LinearExpression.of(self.milp.column())
                require(self.milp, [(1.0, self.R[q][readers[0]]), (-1.0, largest)], "<")
                require(self.milp, [(1.0, rest), (-1.0, largest)], "<")
        return self.L[key]

    def add_path_cut(self, begin: int, end: int, path: Sequence[int]) -> None:
        """A value at the end of a path that is there in entry ``end`` was held, or made from what was.

        R[t2,p(v0)] + S[t2,v0] <= sum over the path of S[t1,v] + sum over t1 <= t <= t2 of R[t,p(last)], where v0, v1,
        ... are groups, each an input of the one before (`path_cuts`).
        """
        producer = self.condensed.producer
        terms = [(1.0, self.R[end][producer[path[0]]]), (1.0, self.S[end][path[0]])]
        terms += [(-1.0, self.S[begin][v]) for v in path]
        terms += [(-1.0, self.R[q][producer[path[-1]]]) for q in range(begin, end + 1)]
        require(self.milp, terms, "<")

    def add_cover_row(self, t: int, k: int, R: np.ndarray, S: np.ndarray) -> None:
        """Forbid an integral point that exceeds the budget at (t, k) by less than the solver's tolerance.

        The present terms alone exceed the budget, so they cannot all be present: a cover inequality.
        """
        room = self.budget - int(self.condensed.base[t])
        terms = sorted(self._memory(t, k), key=lambda pair: -pair[0])
        values = self.point(R, S)
        cover: list[LinearExpression] = []
        for size, term in terms:
            if room >= 0 and term.at(values) > 0.5:
                cover.append(term)
                room -= size
        require(self.milp, [(1.0, term) for term in cover], "<", len(cover) - 1)

    def point(self, R: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The value of every column at integral R (entries, n) and S (entries, groups)."""
        values = np.zeros(self.milp.columns)
        for terms, matrix in zip(self.terms, (R, S), strict=True):
            free = terms[..., 1] >= 0
            values[terms[free][:, 1].astype(int)] = np.abs((matrix[free] > 0) - terms[free][:, 0])
        for (q, v, j), term in self.L.items():
            if term is not self.R[q][j]:
                readers = [i for i in self.condensed.readers[v] if j <= i < self.stages.first[q]]
                kept = q + 1 < len(S) and S[q + 1, v] > 0
                values[term.columns[0]] = float(kept or (R[q, readers] > 0).any())
        return values

    def start(self, R: np.ndarray, S: np.ndarray) -> np.ndarray:
        """The point of a schedule's R (n, n) and S (n, groups), to begin a solve with."""
        return self.point(*self.stages.merge(R, S))
