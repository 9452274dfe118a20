"""The linear program of problem (9), and its rounding in two phases: what is retained, then as little R as that allows.

Two-phase rounding is deterministic (Algorithm 2) or draws S at random (appendix D and Figure 8); the schedule is always
correct, and its plan says whether it fits. Naive rounding of both R* and S* is an exhibit: R and S are tied together by
(1b) and (1c); rounded apart from each other, some operation misses an input nearly always, and where none does the
memory is likely to be too little. None of its draws is repaired.

Source: Jain et al., Checkmate (MLSys 2020), section 5.1, section 5.2 with Algorithm 2, appendix D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.checkmate_problem import CheckmateProblem
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Limits


@dataclass(frozen=True, eq=False)
class FractionalSchedule:
    """What is known of the linear program of one budget.

    No frontier-advancing schedule within ``budget`` costs less than ``bound``, the optimum. It is infinity where the
    program is infeasible, and the cost of computing everything once where it is unknown.
    """

    condensed: CondensedGraph
    budget: int  # bytes, resident bytes included
    status: Literal["solved", "infeasible", "unknown"]  # "infeasible" is proven; "unknown": too little time
    bound: float
    R: np.ndarray  # to what degree each stage computes each operation, float of shape (n, n)
    S: np.ndarray  # to what degree each group is retained into each stage, float of shape (n, g)

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.condensed.graph

    @property
    def failure(self) -> str:
        """Why there is nothing to round, in words; "" where there is."""
        if self.status == "infeasible":
            return "the linear program of problem (9) has no solution within its reduced budget"
        return "" if self.status == "solved" else "the time is too short for the linear program of problem (9)"


def solve_linear_program(condensed: CondensedGraph, budget: int, limits: Limits) -> FractionalSchedule:
    """Solve problem (9) without integrality, as far as the limits allow.

    The program has about 2 n^2 columns: a few hundred operations take minutes.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.

    Source: Jain et al., Checkmate (MLSys 2020), problem (9) and section 5.1.

    >>> from remat_explorer.instances import linear
    >>> relaxed = solve_linear_program(CondensedGraph.of(linear(8)), 4, Limits())
    >>> relaxed.status, round(relaxed.bound, 3), relaxed.S.shape
    ('solved', 22.0, (17, 16))
    """
    n, total = condensed.n, condensed.graph.total_cost
    nothing = np.zeros((n, n)), np.zeros((n, condensed.groups))
    problem = CheckmateProblem(condensed, budget, Milp(limits.solver, limits.threads, relaxed=True))
    limits.tell("building the linear program of problem (9)", lower_bound=total)
    if not problem.build(limits):
        return FractionalSchedule(condensed, budget, "unknown", total, *nothing)
    limits.tell("solving the linear program of problem (9)", lower_bound=total)
    outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
    if outcome.status == "infeasible":
        return FractionalSchedule(condensed, budget, "infeasible", np.inf, *nothing)
    if outcome.values is None:
        return FractionalSchedule(condensed, budget, "unknown", total, *nothing)
    R, S = problem.matrices(outcome.values)
    bound = max(total, outcome.bound / problem.cost_scale)
    return FractionalSchedule(condensed, budget, "solved", bound, R.clip(0, 1), S.clip(0, 1))


def reduced_budget(graph: Graph, budget: int, epsilon: float) -> int:
    """The budget of the linear program: less by the share epsilon of what is not resident anyway.

    The paper's allowance (section 5.3), (1 - epsilon) M_budget, leaves room for what rounding adds. Parameters and
    inputs are no part of it: no schedule moves them, and a tenth of them is often more than all that a schedule decides
    about. The program that the paper's authors published leaves them out of the budget, too.

    Args:
        epsilon: share from 0 to less than 1.

    >>> from remat_explorer.instances import linear
    >>> reduced_budget(linear(8), 40, 0.1)
    36
    """
    room = budget - graph.resident_bytes
    return graph.resident_bytes + int((1 - epsilon) * room + 1e-9 * abs(room))


DIGITS = 6  # of S*, so that a solver's tolerance does not decide on which side of a threshold a degree lies


def minimal_R(condensed: CondensedGraph, S: np.ndarray) -> np.ndarray:
    """The second phase: the least R that is correct with a given S. No correct R with this S is smaller anywhere.

    It starts with R = I, then computes what a checkpoint needs, until (1c) holds, and what an operation reads, until
    (1b) holds. Both loops of Algorithm 2 end at the same R in whichever order violations are repaired; here stages run
    forward, and operations backward, so that each is looked at once. S, bool of shape (n, g), is strictly lower
    triangular, by (1d) and (8b).
    """
    S = np.asarray(S, dtype=bool)
    none = np.zeros(condensed.groups, dtype=bool)  # nothing is retained after the last stage
    rows = zip(S, [*S[1:], none], strict=True)
    return np.array([minimal_row(condensed, t, kept, later) for t, (kept, later) in enumerate(rows)])


def minimal_row(condensed: CondensedGraph, t: int, kept: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Row t of `minimal_R`, which depends on two rows of S alone.

    Args:
        t: the stage.
        kept: row t of S, bool of shape (g,).
        later: row t + 1 of S; nothing, for the last stage.

    Returns:
        bool of shape (n,).
    """
    row = np.zeros(condensed.n, dtype=bool)
    row[t] = True
    row[condensed.producer[later & ~kept]] = True  # (1c): S[t+1,i] <= R[t,i] + S[t,i]
    for j in range(t, -1, -1):  # (1b): R[t,j] <= R[t,i] + S[t,i]
        if row[j]:
            read = condensed.input_groups[j]
            row[condensed.producer[read[~kept[read]]]] = True
    return row


def retained_values(condensed: CondensedGraph, S: np.ndarray) -> np.ndarray:
    """S of values from S of groups, bool of shape (n, values): persistent values stay, unread ones are not retained."""
    return condensed.spread(np.asarray(S, dtype=bool), np.arange(condensed.n)[:, None] > condensed.graph.producer)


def schedule_of(condensed: CondensedGraph, S: np.ndarray) -> Schedule:
    """The schedule of a given S and the minimal R.

    Args:
        S: as for `minimal_R`.
    """
    S = np.asarray(S, dtype=bool)
    return Schedule(condensed.graph, minimal_R(condensed, S), retained_values(condensed, S))


def round_deterministically(condensed: CondensedGraph, S: np.ndarray, threshold: float = 0.5) -> Schedule:
    """Algorithm 2: S[t,i] = 1 exactly where S*[t,i] > threshold, then the minimal R.

    The schedule is correct; whether it fits into a budget is for its plan to say.

    Args:
        S: S*, float of shape (n, g).
        threshold: above which a value is retained.
    """
    return schedule_of(condensed, S.round(DIGITS) > threshold)


@dataclass(frozen=True)
class NaiveRounding:
    """How often naive rounding is feasible."""

    samples: int
    correct: int  # draws that keep rules (1b) to (1e)
    feasible: int  # draws that keep the rules and fit into the budget
    nearest_correct: bool  # whether rounding everything to the nearest integer keeps the rules
    nearest_feasible: bool  # whether it fits into the budget as well


def naive_rounding(relaxed: FractionalSchedule, budget: int, samples: int = 1000, seed: int = 0) -> NaiveRounding:
    """Round every entry of R* and S* by itself, up with the probability that the entry is.

    Args:
        relaxed: a solved linear program.
        budget: bytes that a draw may take, resident bytes included.
        samples: how many draws.
        seed: of the random numbers.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solver_interface import Limits
    >>> from remat_explorer.solvers.methods.two_phase_rounding import solve_linear_program
    >>> chain = CondensedGraph.of(linear(8))
    >>> naive_rounding(solve_linear_program(chain, 4, Limits()), 4, samples=100).feasible
    0
    """
    random = np.random.default_rng(seed)
    condensed, correct, feasible = relaxed.condensed, 0, 0
    for _ in range(samples):
        R = random.random(relaxed.R.shape) < relaxed.R
        S = random.random(relaxed.S.shape) < relaxed.S
        if keeps_rules(condensed, R, S):
            correct += 1
            feasible += _peak(condensed, R, S) <= budget
    R, S = relaxed.R > 0.5, relaxed.S > 0.5
    nearest = keeps_rules(condensed, R, S)
    return NaiveRounding(samples, correct, feasible, nearest, nearest and _peak(condensed, R, S) <= budget)


def keeps_rules(condensed: CondensedGraph, R: np.ndarray, S: np.ndarray) -> bool:
    """Whether R and S keep rules (1b) to (1e)."""
    there = R[:, condensed.producer] | S
    if S[:1].any() or (S[1:] & ~there[:-1]).any():  # (1d), (1c)
        return False
    if not R.diagonal().all():  # (1e), in stages (8a)
        return False
    # (1b): what is read in a stage is there in the stage; (t, k) counts inputs of k that are missing
    return not (R & (~there @ condensed.reads.T)).any()


def _peak(condensed: CondensedGraph, R: np.ndarray, S: np.ndarray) -> int:
    return Plan.of(Schedule(condensed.graph, R, retained_values(condensed, S))).peak


@dataclass(frozen=True, eq=False)
class Sample:
    """One draw."""

    schedule: Schedule
    cost: float
    peak: int  # bytes of its plan, resident bytes included


@dataclass(frozen=True, eq=False)
class Scatter:
    """All draws of one linear program as two columns, for a scatter plot.

    Attributes:
        cost: float of shape (samples,), in the unit of the graph's costs.
        peak: bytes of the plans, resident bytes included, int64 of shape (samples,).
    """

    cost: np.ndarray
    peak: np.ndarray


def draw_samples(relaxed: FractionalSchedule, samples: int, seed: int) -> Iterator[Sample]:
    """Schedules whose S[t,i] is 1 with the probability S*[t,i], each entry by itself, and whose R is minimal."""
    random = np.random.default_rng(seed)
    for _ in range(samples):
        S = random.random(relaxed.S.shape) < relaxed.S
        schedule = schedule_of(relaxed.condensed, S)
        yield Sample(schedule, schedule.cost, Plan.of(schedule).peak)


def scatter(
    relaxed: FractionalSchedule, samples: int = 100, seed: int = 0, over: Callable[[], bool] = lambda: False
) -> Scatter:
    """Cost and peak of every draw, within the budget or not: what Figure 8 of the paper shows.

    Args:
        relaxed: a solved linear program.
        samples: how many.
        seed: of the random numbers.
        over: asked between draws; once True, those so far are returned.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.solver_interface import Limits
    >>> from remat_explorer.solvers.condensed_graph import CondensedGraph
    >>> from remat_explorer.solvers.methods.two_phase_rounding import solve_linear_program
    >>> cloud = scatter(solve_linear_program(CondensedGraph.of(linear(8)), 4, Limits()), samples=20)
    >>> cloud.cost.shape, bool((cloud.cost >= 17).all())
    ((20,), True)
    """
    cost, peak = [], []
    for sample in draw_samples(relaxed, samples, seed):
        cost.append(sample.cost)
        peak.append(sample.peak)
        if over():
            break
    return Scatter(np.array(cost, dtype=float), np.array(peak, dtype=np.int64))
