"""Stages looked at singly, and runs of stages between them looked at as one.

A run of stages t_1 .. t_2 that is merged has no memory rows: of it are known only what is in memory at its start, what
runs again in it, and what is in memory after it. Its first runs, operations t_1 .. t_2, cost nothing beyond their
first computation, and what they write is there after it for nothing. Every schedule is still represented, by a point
that costs no more, so a bound of the merged problem is a bound of the whole. With every stage single it is the whole.

What costs and sizes are multiples of, which lets bounds be rounded.

Where all costs are integers, so is the cost of every schedule. And where memory is short of one more large tensor, a
fractional point fills the room with a part of it. Counting in whole tensors forbids that: from sum w_j e_j <= h with
e_j 0 or 1 follows sum floor(w_j / d) e_j <= floor(h / d).

Lifted cover cuts of the memory rows: of what does not fit together, something is missing.

A memory row says sum of a_i x_i <= b with sizes a_i and x_i, between 0 and 1, for how present each term is. A cover is
a set C whose sizes exceed b; then the x_i of C cannot all be 1. Let it be minimal, its sizes in descending order, and
m_h the sum of the first h. A term outside of C that is at least as large as the first h of C together can stand for h
of them, so

    sum over C of x_i + sum over j outside of (largest h with m_h <= a_j) x_j <= |C| - 1

holds at every integral point (lifting by Balas, 1975). A linear program fills a row to the byte with fractions of
large values; covers say how many of them fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.linear_expression import LinearExpression, single_columns
from remat_explorer.solvers.search.compiled_state import FlatGraph

_SMALLEST_SHARE = 2e-3  # of the budget: smaller sizes are no divisors
_ALIKE = 1e-3  # relative difference up to which sizes count as the same
_LEAST_GROUPS = 3  # how many groups must have the size


_COVER_VIOLATION = 0.02  # how much a cover must be violated to be added


@dataclass(frozen=True)
class RowSettings:
    """What counts as violated, how much is added in a round, and when rounds end."""

    divisors: int = 4  # sizes that memory is counted in whole multiples of, at most
    points: int = 3  # memory rows that one round adds to a stage, at most
    paths: float = 0.02  # how much a path cut must be violated to be added


ROWS = RowSettings()


def divisors(condensed: CondensedGraph, budget: int, most: int = ROWS.divisors) -> list[int]:
    """Up to four sizes in bytes, largest first, that at least three groups have, to a thousandth."""
    sizes = np.sort(condensed.bytes[condensed.bytes > _SMALLEST_SHARE * budget])[::-1]
    common: list[int] = []
    while len(sizes) and len(common) < most:
        alike = sizes >= sizes[0] * (1 - _ALIKE)
        if alike.sum() >= _LEAST_GROUPS:
            common.append(int(sizes[alike].min()))
        sizes = sizes[~alike]
    return common


def cost_step(graph: Graph) -> float:
    """A number that every schedule's cost is a multiple of: the costs' common divisor, or 0 if they are no integers."""
    costs = [way.cost for node in graph.operations for way in node.implementations]
    if graph.total_cost >= 2**52 or any(cost != int(cost) for cost in costs):
        return 0.0
    return float(math.gcd(*(int(cost) for cost in costs)))


class MemoryRow(NamedTuple):
    """A memory row a x <= b without its fixed part; x = constant + factor * column."""

    room: int  # b, bytes
    sizes: np.ndarray  # a, bytes as floats, of shape (terms,), as all that follow
    constants: np.ndarray
    columns: np.ndarray
    factors: np.ndarray

    @staticmethod
    def of(room: int, terms: Sequence[tuple[int, LinearExpression]]) -> MemoryRow:
        """The row of sizes times expressions, each of one column."""
        sizes = np.array([size for size, _ in terms], dtype=float)
        constants, columns, factors = single_columns([term for _, term in terms]).T
        return MemoryRow(room, sizes, constants, columns.astype(np.int64), factors)

    def presence(self, values: np.ndarray) -> np.ndarray:
        """x at a point of the columns."""
        return self.constants + self.factors * values[self.columns]


class Cover(NamedTuple):
    """The cut sum of coefficients times x <= right, over terms of a row."""

    terms: tuple[int, ...]
    coefficients: tuple[int, ...]
    right: int


def violated_cover(row: MemoryRow, values: np.ndarray, violated: float = _COVER_VIOLATION) -> Cover | None:
    """A lifted cover cut that the point violates, or None; the cover is found greedily."""
    sizes, x = row.sizes, row.presence(values)
    missing = np.maximum(1 - x, 0.0)
    order = np.lexsort((-sizes, missing / sizes))
    together = np.cumsum(sizes[order])
    count = int(np.searchsorted(together, row.room, side="right")) + 1
    if row.room < 0 or count > len(order):
        return None
    cover = order[:count]
    excess = together[count - 1] - row.room
    if missing[cover].sum() >= 1 + max(x.sum() - x[cover].sum(), 0.0):
        return None  # no lifting can make up for that
    kept = []
    for i in cover[np.argsort(-missing[cover], kind="stable")].tolist():  # what is missing most is left out first
        if sizes[i] < excess:
            excess -= sizes[i]
        else:
            kept.append(i)
    sums = np.cumsum(np.sort(sizes[kept])[::-1])
    coefficients = np.searchsorted(sums, sizes, side="right")
    coefficients[kept] = 1
    right = len(kept) - 1
    if coefficients @ x <= right + violated:
        return None
    terms = np.flatnonzero(coefficients)
    return Cover(tuple(terms.tolist()), tuple(coefficients[terms].tolist()), right)


@dataclass(frozen=True, eq=False)
class Stages:
    """n stages as a sequence of single stages and merged runs."""

    condensed: CondensedGraph
    first: np.ndarray  # the first operation of each entry, ascending, int of shape (entries,)
    last: np.ndarray  # its last operation; a single stage has first = last

    @staticmethod
    def of(condensed: CondensedGraph, singles: Iterable[int] | None = None) -> Stages:
        """Stages in which ``singles`` (all of them if None) are single, and the runs between them are merged."""
        n = condensed.n
        chosen = sorted(set(range(n) if singles is None else singles))
        first = sorted({0, *chosen, *(t + 1 for t in chosen if t + 1 < n)})
        last = [*(t - 1 for t in first[1:]), n - 1]
        return Stages(condensed, np.array(first, dtype=np.int64), np.array(last, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def single(self) -> np.ndarray:
        """Whether an entry is one stage, whose memory is known; bool of shape (entries,)."""
        return self.first == self.last

    @cached_property
    def position(self) -> dict[int, int]:
        """The entry of each single stage."""
        return {int(self.first[q]): q for q in np.flatnonzero(self.single).tolist()}

    @cached_property
    def reads(self) -> np.ndarray:
        """Which groups, written before an entry, its first runs read; bool of shape (entries, groups)."""
        runs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        read = [self.condensed.read_from(a, b) & (self.condensed.producer < a) for a, b in runs]
        return np.array(read).reshape(len(self), self.condensed.groups)

    @cached_property
    def base(self) -> np.ndarray:
        """Bytes that are there all through an entry's first stage, int64 of shape (entries,)."""
        return self.condensed.base[self.first]

    def merge(self, R: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """R and S of a schedule as this sequence sees them.

        What is both in memory at the start of a merged run and computed again in it counts as computed again only. The
        result has floats 0 and 1, of shapes (entries, n) and (entries, groups).
        """
        computed = np.asarray(R) > 0
        merged = np.add.reduceat(computed, self.first, axis=0) > 0
        held = np.asarray(S)[self.first] > 0
        return merged.astype(float), (held & ~merged[:, self.condensed.producer]).astype(float)


def live_memory(
    condensed: CondensedGraph, R: np.ndarray, S: np.ndarray, stages: Stages | None = None, divisor: int = 1
) -> np.ndarray:
    """U of the liveness formulation: what must be in memory while operation k runs in stage t.

    A value is alive after its producer to the degree to which it is kept or any later reader of the stage runs: a
    maximum, so the result is also what a linear program should have charged for a fractional point. What k may
    overwrite counts at k only to the degree to which it is alive after k. The result is of shape (entries, n), 0 for
    merged runs and for k > t, and meaningful where R[t,k] > 0. It is in blocks of ``divisor`` bytes: every size is
    rounded down to whole blocks, and the base is left out if ``divisor`` is not 1.
    """
    from remat_explorer.solvers.search.relaxed_points import fill_memory  # compiled on its first use

    n = condensed.n
    wanted = np.ones(n, dtype=bool) if stages is None else stages.single
    last = np.arange(n) if stages is None else stages.last
    base = condensed.base if stages is None else stages.base
    there = base if divisor == 1 else np.zeros_like(base)
    U = np.zeros((len(S), n))
    alive = np.empty(condensed.groups)
    points = (np.ascontiguousarray(matrix, dtype=float) for matrix in (R, S))
    fill_memory(FlatGraph.of(condensed), *points, wanted, last, there, divisor, alive, U)
    return U


def possibilities(stages: Stages, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What can serve something, and what cannot be otherwise.

    An operation can usefully run again in an entry only if something it writes is read there by a first run, by another
    useful repetition, or can usefully be held afterwards. A group that a first run reads must be held from where it can
    last be computed again. The result says which operations may run again in which entry, bool (entries, n); which
    groups may be in memory at its start, and which must be, bool (entries, groups).
    """
    condensed, entries = stages.condensed, len(stages)
    reruns = np.zeros((entries, condensed.n), dtype=bool)
    holds = np.zeros((entries, condensed.groups), dtype=bool)
    must_hold = np.zeros((entries, condensed.groups), dtype=bool)
    wanted = np.zeros(condensed.groups, dtype=bool)
    must, everything = wanted.copy(), np.ones(condensed.n, dtype=bool)
    for q in range(entries - 1, -1, -1):
        first, last = int(stages.first[q]), int(stages.last[q])
        may = everything if allowed is None else np.logical_or.reduce(allowed[first : last + 1])
        wanted |= stages.reads[q]
        for k in range(first - 1, -1, -1):
            if may[k] and any(wanted[v] for v in condensed.outputs[k]):
                reruns[q, k] = True
                wanted[list(condensed.inputs[k])] = True
        wanted &= condensed.producer < first
        holds[q] = wanted
        must = (must | stages.reads[q]) & ~reruns[q, condensed.producer] & (condensed.producer < first)
        must_hold[q] = must
    return reruns, holds, must_hold


def last_use(condensed: CondensedGraph) -> np.ndarray:
    """The last stage in which each group can be worth having: for a first run, or for a recomputation that is."""
    last = np.zeros(condensed.groups, dtype=np.int64)
    for v in range(condensed.groups - 1, -1, -1):  # readers come after producers, so their outputs are done
        last[v] = max(max(j, *last[list(condensed.outputs[j])], 0) for j in condensed.readers[v])
    return last


class Point:
    """A point of a relaxation, fractional or integral: R of shape (entries, n), S of shape (entries, groups)."""

    def __init__(self, stages: Stages, R: np.ndarray, S: np.ndarray) -> None:
        self.stages, self.R, self.S = stages, R, S

    @cached_property
    def memory(self) -> np.ndarray:
        """Estimated bytes at every first run, floats of shape (n,)."""
        return estimated_memory(self.stages, self.R, self.S)

    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """What is in memory after the stages of each entry, between 0 and 1, of shape (entries, groups).

        With it, the entry of each stage, int of shape (n,): together they guide walks.
        """
        condensed = self.stages.condensed
        kept = np.vstack([self.S[1:], np.zeros((1, condensed.groups))])
        held = np.maximum(kept, self.S * self.stages.reads)
        merged = ~self.stages.single[:, None]  # when it is computed again is not known
        held[merged & (self.R[:, condensed.producer] > 0.5) & (held < 0.5)] = 0.5
        return held, np.repeat(np.arange(len(self.stages)), self.stages.last - self.stages.first + 1)


def lean_point(stages: Stages, R: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R and S without what serves nothing: where memory is left over, a linear program may hold anything."""
    condensed = stages.condensed
    needed_R, needed_S = np.zeros_like(R), np.zeros_like(S)
    need = np.zeros(condensed.groups)
    for q in range(len(stages) - 1, -1, -1):
        first, last = int(stages.first[q]), int(stages.last[q])
        need[condensed.producer >= first] = 0.0
        need[stages.reads[q]] = 1.0
        needed_R[q, first : last + 1] = 1.0
        for k in np.flatnonzero(R[q, :first] > 0)[::-1].tolist():
            outputs, inputs = list(condensed.outputs[k]), list(condensed.inputs[k])
            run = min(float(R[q, k]), float(need[outputs].max(initial=0.0)))
            needed_R[q, k] = run
            need[outputs] = np.maximum(need[outputs] - run, 0.0)
            need[inputs] = np.maximum(need[inputs], run)
        need = np.minimum(need, S[q])
        needed_S[q] = need
    return needed_R, needed_S


def estimated_memory(stages: Stages, R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """A guess of the memory at every first run, from what is held around the run of stages it is in.

    In a merged run nothing is known of when a repetition happens; what it brings is counted only where it is read.
    """
    condensed = stages.condensed
    R, S = lean_point(stages, R, S)
    estimate = (condensed.base + condensed.output_bytes + condensed.transient).astype(float)
    kept = np.vstack([S[1:], np.zeros((1, condensed.groups))])
    for q in range(len(stages)):
        first, last = int(stages.first[q]), int(stages.last[q])
        needed, old = kept[q].copy(), condensed.producer < first
        again = R[q][condensed.producer] if last > first else np.zeros(condensed.groups)
        for t in range(last, first - 1, -1):
            if condensed.credit[t]:
                estimate[t] -= condensed.credit[t] * (1 - needed[condensed.overwritten[t]])
            inputs = list(condensed.inputs[t])
            needed[inputs] = 1.0
            present = np.where(old, np.clip(needed - again, 0, 1), np.where(condensed.producer < t, needed, 0))
            present[inputs] = 1.0
            estimate[t] += present @ condensed.bytes
    return estimate


def largest_apart(values: np.ndarray, count: int, least: float, apart: int) -> list[int]:
    """The places of up to ``count`` of the largest values above ``least``, more than ``apart`` from each other."""
    values, places = values.astype(float), []
    while len(places) < count and values.max() > least:
        place = int(values.argmax())
        places.append(place)
        values[max(0, place - apart) : place + apart + 1] = -math.inf
    return places
