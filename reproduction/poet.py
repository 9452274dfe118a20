"""POET's program on POET's own graphs: recompute or page, for the least energy within a deadline.

    R[t,v] <= R[t,u] + S[t,u]                      for u read by v: it is computed again in stage t, or was kept
    S[t+1,v] <= S[t,v] + R[t,v] + I[t,v]           kept into the next stage; I is paged in, and there from then on
    H[t+1,v] <= H[t,v] + O[t,v]                    on flash; O is paged out
    I[t,v] <= H[t,v];  O[t,v] <= S[t,v]
    U[t,k+1] = U[t,k] - FREE[t,.,k] M + R[t,k+1] M <= B        memory, as Checkmate's (5) and (6)
    sum of seconds R <= deadline sum of seconds;   least sum of joules R + joules_in I + joules_out O

Paging takes energy and no time. `moments_bound` is a relaxation of it: what is there in the last step of a few stages,
and what was recomputed and paged between them. `energy_of` checks every row of a plan without any of these programs.

Source: Patil et al., POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging, ICML
2022; bytes, seconds, joules and edges are those of its repository (`data/poet_graphs.json`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.errors import ScheduleError, UnknownNameError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.solvers import Milp, solve
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.layer_graphs import DATA

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


LINEAR, CIFAR_A72, CIFAR_M4 = "linear/m0", "resnet18_cifar/a72", "resnet18_cifar/m4"
LINEAR_BUDGETS = (7416, 3800, 3296, 3256, 3216)  # bytes; from 4400 on nothing is paid for
WITHOUT_PAGING = 3296  # bytes: the linear network is also solved without paging there
A72_BUDGET, M4_BUDGET, M4_DEADLINE = 3_000_000, 737_719, 1.5
SECONDS = {
    "small": {"program": 20.0, "search": 4.0, "bound": 4.0},
    "full": {"program": 60.0, "search": 60.0, "bound": 110.0},
}
MOMENTS = {"small": (4,), "full": (8, 133)}
PROVEN = 1e-6  # relative gap that counts as none


@dataclass(frozen=True, eq=False)
class EnergyGraph:
    """Layers and gradients in their only order, with what POET's cost models say of each.

    Attributes:
        name: network and device, such as "linear/m0".
        bytes, seconds, joules: of each node's output and of computing it.
        joules_in, joules_out: of paging its output in and out.
        reads: the nodes that each reads, ascending.
    """

    name: str
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    joules: tuple[float, ...]
    joules_in: tuple[float, ...]
    joules_out: tuple[float, ...]
    reads: tuple[tuple[int, ...], ...]

    @staticmethod
    def load(name: str) -> EnergyGraph:
        """The graph of that name.

        Raises:
            UnknownNameError: if there is none.

        >>> graph = EnergyGraph.load("linear/m0")
        >>> graph.n, round(graph.once, 8)
        (27, 0.10467864)
        """
        graphs = json.loads((DATA / "poet_graphs.json").read_text(encoding="utf-8"))["graphs"]
        if name not in graphs:
            raise UnknownNameError("graph of POET", name, graphs)
        entry = graphs[name]
        edges = {tuple(edge) for edge in entry["edges"]}  # one is twice in the list: see docs/findings.md
        reads = tuple(tuple(sorted(u for u, v in edges if v == k)) for k in range(len(entry["bytes"])))
        columns = {key: tuple(entry[key]) for key in ("bytes", "seconds", "joules", "joules_in", "joules_out")}
        return EnergyGraph(name, reads=reads, **columns)

    @property
    def n(self) -> int:
        """Number of nodes, and of stages."""
        return len(self.bytes)

    @property
    def once(self) -> float:
        """Joules of computing everything once: no plan takes less."""
        return math.fsum(self.joules)

    @cached_property
    def readers(self) -> list[list[int]]:
        """The nodes that read each, ascending."""
        return [[k for k in range(self.n) if v in self.reads[k]] for v in range(self.n)]

    def to_graph(self) -> Graph:
        """The same without paging, with joules as costs: Checkmate's problem."""
        forward = max(k for k in range(self.n) if self.reads[k] in ((k - 1,), ()))
        names = [f"{k}" for k in range(self.n)]
        nodes = (
            operation(names[k], "forward" if k <= forward else "backward", self.reads[k], [k], self.joules[k])
            for k in range(self.n)
        )
        return Graph(self.name, tuple(map(Value, names, self.bytes)), tuple(nodes))


@dataclass(frozen=True, eq=False)
class PagingPlan:
    """R, S, I and O: what each stage computes, begins with, pages in and pages out; n x n, 0 or 1."""

    R: np.ndarray
    S: np.ndarray
    page_in: np.ndarray
    page_out: np.ndarray

    @staticmethod
    def without_paging(R: np.ndarray, S: np.ndarray) -> PagingPlan:
        """Of a schedule of Checkmate's problem."""
        return PagingPlan(R.astype(int), S.astype(int), np.zeros(R.shape, int), np.zeros(R.shape, int))

    @staticmethod
    def keeping(graph: EnergyGraph) -> PagingPlan:
        """Compute once, and keep each value until its last reader."""
        last = [max(readers, default=v) for v, readers in enumerate(graph.readers)]
        S = [[int(v < t <= last[v]) for v in range(graph.n)] for t in range(graph.n)]
        return PagingPlan.without_paging(np.eye(graph.n), np.array(S))


def energy_of(graph: EnergyGraph, plan: PagingPlan, budget: int, deadline: float | None = None) -> tuple[float, int]:
    """Joules and peak bytes of a plan, after every rule was looked at.

    Raises:
        ScheduleError: naming the first rule that is broken.

    >>> graph = EnergyGraph.load("resnet18_cifar/a72")
    >>> joules, peak = energy_of(graph, PagingPlan.keeping(graph), 3_000_000)
    >>> round(joules, 8), peak
    (7.88951018, 2453760)
    """
    R, S, page_in, page_out = plan.R, plan.S, plan.page_in, plan.page_out
    flash: set[int] = set()
    peak = 0
    for t in range(graph.n):
        kept, run = set(np.flatnonzero(S[t]).tolist()), np.flatnonzero(R[t]).tolist()
        arriving, leaving = set(np.flatnonzero(page_in[t]).tolist()), set(np.flatnonzero(page_out[t]).tolist())
        if t not in run or max(run) > t:
            raise ScheduleError(f"stage {t} does not end with node {t}")
        if arriving - flash or leaving - kept:
            raise ScheduleError(f"stage {t} pages in what is not on flash, or out what is not in memory")
        following = set(np.flatnonzero(S[t + 1]).tolist()) if t + 1 < graph.n else set()
        if following - kept - set(run) - arriving:
            raise ScheduleError(f"stage {t + 1} begins with what nobody left there")
        there = dict.fromkeys(kept, 1)
        for k in run:
            if any(v not in there for v in graph.reads[k]):
                raise ScheduleError(f"stage {t} computes node {k}, whose inputs are not there")
            there[k] = there.get(k, 0) + 1  # twice, if it was there before
            peak = max(peak, sum(graph.bytes[v] * count for v, count in there.items()))
            for v in graph.reads[k]:
                if v not in following and not any(j > k for j in graph.readers[v] if R[t, j]):
                    there[v] -= 1
            there = {v: count for v, count in there.items() if count}
        flash |= leaving
    if peak > budget:
        raise ScheduleError(f"the plan needs {peak} bytes of {budget}")
    if deadline is not None and float((R @ np.array(graph.seconds)).sum()) > deadline * sum(graph.seconds) * (
        1 + 1e-12
    ):
        raise ScheduleError("the plan takes longer than its deadline")
    parts = ((R, graph.joules), (page_in, graph.joules_in), (page_out, graph.joules_out))
    return math.fsum(float(count) * joules[v] for table, joules in parts for v, count in enumerate(table.sum(0))), peak


def solve_program(
    graph: EnergyGraph, budget: int, deadline: float | None, paging: bool, seconds: float, cancelled: Cancelled
) -> tuple[PagingPlan | None, float]:
    """POET's program by HiGHS: its plan, and what no plan takes less than, in joules; infinite where there is none."""
    n, once = graph.n, graph.once
    problem = Milp()
    column = problem.column

    def square(upper: Any, joules: Sequence[float] | None = None) -> list[list[int]]:
        cost = [0.0] * n if joules is None else [x / once for x in joules]
        return [[column(cost[i], 0.0, float(upper(t, i)), integer=True) for i in range(n)] for t in range(n)]

    R = [
        [column(graph.joules[i] / once, float(i == t), float(i <= t), integer=True) for i in range(n)] for t in range(n)
    ]
    S = square(lambda t, i: i < t)
    joules = (None, graph.joules_in, graph.joules_out)
    flash, into, out = (square(lambda t, i: paging and i < t, cost) for cost in joules)
    U = [[column(0.0, 0.0, 1.0) for _ in range(n)] for _ in range(n)]
    share = [size / budget for size in graph.bytes]
    edges = [(i, k) for k in range(n) for i in graph.reads[k]]

    def at_most(terms: Sequence[tuple[int, float]], right: float = 0.0) -> None:
        columns, factors = zip(*terms, strict=True)
        problem.row(columns, factors, "<", right)

    def equal(terms: Sequence[tuple[int, float]]) -> None:
        columns, factors = zip(*terms, strict=True)
        problem.row(columns, factors, "=", 0.0)

    for t in range(n):
        for u, v in edges:
            at_most([(R[t][v], 1), (R[t][u], -1), (S[t][u], -1)])
        for v in range(n):
            at_most([(into[t][v], 1), (flash[t][v], -1)])
            at_most([(out[t][v], 1), (S[t][v], -1)])
            if t + 1 < n:
                at_most([(S[t + 1][v], 1), (S[t][v], -1), (R[t][v], -1), (into[t][v], -1)])
                at_most([(flash[t + 1][v], 1), (flash[t][v], -1), (out[t][v], -1)])
        freed: list[list[tuple[int, float]]] = [[] for _ in range(n)]
        for i, k in edges:
            keeps = [(R[t][j], 1.0) for j in graph.readers[i] if j > k] + ([(S[t + 1][i], 1.0)] if t + 1 < n else [])
            free, most = column(integer=True), 1 + len(keeps)
            freed[k].append((free, share[i]))
            at_most([(free, -1), (R[t][k], 1), *((c, -1.0) for c, _ in keeps)])  # freed if nothing speaks against it
            at_most([(free, most), (R[t][k], -1), *keeps], most - 1)
        equal([(U[t][0], 1), (R[t][0], -share[0]), *((S[t][v], -share[v]) for v in range(n))])
        for k in range(n - 1):
            equal([(U[t][k + 1], 1), (U[t][k], -1), (R[t][k + 1], -share[k + 1]), *freed[k]])
    if deadline is not None:
        whole = sum(graph.seconds)
        at_most([(R[t][v], graph.seconds[v] / whole) for t in range(n) for v in range(t + 1)], deadline)
    outcome = problem.solve(seconds, cancelled=cancelled)
    if outcome.values is None:
        return None, outcome.bound * once if outcome.status == "infeasible" else max(outcome.bound, 1.0) * once
    point = outcome.values
    tables = (np.rint(point[np.array(table)]).astype(int) for table in (R, S, into, out))
    return PagingPlan(*tables), max(outcome.bound, 1.0) * once


def moments_bound(graph: EnergyGraph, budget: int, count: int, seconds: float, cancelled: Cancelled) -> float:
    """What no plan within the budget takes less than, in joules, from the last steps of about so many stages.

    Of each value v and interval q, which ends with the first run of a node: s, it is there at that end; x, it is
    computed again; f and g, it is paged in and out. Every row holds for every plan.
    """
    problem, once = Milp(), graph.once
    column = problem.column
    there: list[dict[int, int]] = []
    out: list[dict[int, int]] = []
    low = -1
    for high in _moments(graph, budget, count):
        s = {v: column(0.0, float(v in graph.reads[high]), 1.0, integer=True) for v in range(high)}
        g = {v: column(graph.joules_out[v] / once, integer=True) for v in range(high)}
        f = {v: column(graph.joules_in[v] / once, integer=True) for v in range(low)}
        x = {v: column(graph.joules[v] / once, integer=True) for v in range(low)}
        out.append(g)
        left = (budget - graph.bytes[high]) / budget
        problem.row(list(s.values()), [graph.bytes[v] / budget for v in s], "<", left)
        for v in range(low):
            got = [there[-1][v], f[v], x[v]]
            needs = [s[v], g[v], *(x[k] for k in graph.readers[v] if k < low)]
            for need in needs:
                problem.row([need, *got], [1, -1, -1, -1], "<", 0.0)
            if any(low < k <= high for k in graph.readers[v]):
                problem.row(got, [1, 1, 1], ">", 1.0)
            sent = [part[v] for part in out if v in part]
            problem.row([f[v], *sent], [1.0] + [-1.0] * len(sent), "<", 0.0)
        there.append(s)
        low = high
    bound = problem.solve(seconds, cancelled=cancelled).bound
    return once * (1 + max(0.0, bound) * (1 - 1e-7)) if math.isfinite(bound) else once


def _moments(graph: EnergyGraph, budget: int, count: int) -> list[int]:
    """The heaviest node of each of so many parts with as much excess over the budget, and the last node."""
    plan, kept = PagingPlan.keeping(graph), np.array(graph.bytes)
    held = plan.S @ kept + kept
    excess = np.maximum(held - budget, 0)
    until = np.cumsum(excess) / max(1, excess.sum())
    chosen = {graph.n - 1}
    for low, high in pairwise(np.linspace(0.0, 1.0, count + 1)):
        part = np.flatnonzero((until > low) & (until <= high + 1e-12) & (excess > 0))
        if len(part):
            chosen.add(int(part[held[part].argmax()]))
    return sorted(chosen)


def poet(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Three of POET's instances, each with what is proven about it."""
    rows: list[dict[str, Any]] = []
    limits = SECONDS[settings]
    linear = EnergyGraph.load(LINEAR)
    for budget, paging in (*((budget, True) for budget in LINEAR_BUDGETS), (WITHOUT_PAGING, False)):
        if cancelled():
            break
        progress(f"{linear.name} within {budget} B")
        plan, bound = solve_program(linear, budget, None, paging, limits["program"], cancelled)
        rows.append(row_of(linear, budget, None, paging, plan, bound))
    if not cancelled():
        progress(CIFAR_A72)
        a72 = EnergyGraph.load(CIFAR_A72)
        rows.append(row_of(a72, A72_BUDGET, None, True, PagingPlan.keeping(a72), a72.once))
    if not cancelled():
        rows.append(_m4_row(settings, progress, cancelled))
    whole = len(rows) == len(LINEAR_BUDGETS) + 3 and not cancelled()
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), whole)


def _m4_row(settings: Settings, progress: Tell, cancelled: Cancelled) -> dict[str, Any]:
    """The schedule of Checkmate's problem, without paging, and a bound that allows for paging."""
    graph, limits = EnergyGraph.load(CIFAR_M4), SECONDS[settings]
    hear = progress_listener(progress, CIFAR_M4)
    found = solve(graph.to_graph(), M4_BUDGET, "optimal", limits["search"], on_progress=hear, cancelled=cancelled)
    plan = None if found.schedule is None else PagingPlan.without_paging(found.schedule.R, found.schedule.S)
    bound = graph.once
    for count in MOMENTS[settings]:
        progress(f"{CIFAR_M4}: a bound from {count} moments")
        bound = max(bound, moments_bound(graph, M4_BUDGET, count, limits["bound"], cancelled))
    row = row_of(graph, M4_BUDGET, M4_DEADLINE, True, plan, bound)
    return row | {"bound without paging": found.lower_bound}


def row_of(
    graph: EnergyGraph, budget: int, deadline: float | None, paging: bool, plan: PagingPlan | None, bound: float
) -> dict[str, Any]:
    """A row for what was found, after its rules were looked at."""
    row: dict[str, Any] = {"instance": graph.name, "budget": budget, "deadline": deadline, "paging": paging}
    if plan is None:
        status = "infeasible" if math.isinf(bound) else "unknown"
        return row | {"status": status, "joules": None, "bound": None if math.isinf(bound) else bound}
    joules, peak = energy_of(graph, plan, budget, deadline)
    bound = min(bound, joules)
    status = "optimal" if joules - bound <= PROVEN * joules else "feasible"
    paged = plan.page_in * np.array(graph.joules_in) + plan.page_out * np.array(graph.joules_out)
    row |= {"status": status, "joules": joules, "bound": bound, "joules of paging": float(paged.sum()), "peak": peak}
    return row | {"recomputations": int(plan.R.sum()) - graph.n, "pages in": int(plan.page_in.sum())}


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What each instance takes and what is proven; see `Item.words`."""
    linear = [row for row in rows if row["instance"] == LINEAR and row["paging"]]
    least = [row for row in linear if row["joules"] is not None]
    told = []
    if least:
        proven = "proven" if all(row["status"] != "feasible" for row in linear) else "not all proven"
        costs = ", ".join(f"{row['joules']:.8f} J at {row['budget']} B" for row in (least[0], *least[-2:]))
        none = "".join(f", none at {row['budget']} B" for row in linear if row["status"] == "infeasible")
        told.append(f"Linear network on the M0: {costs}{none}, {proven}; paging takes {_paged(least)}")
    for row in rows:
        if row["instance"] == LINEAR and not row["paging"] and row["joules"]:
            told[-1:] = [*told[-1:], f"Without paging {row['joules']:.8f} J at {row['budget']} B"]
        if row["instance"] == CIFAR_A72:
            kept = f"everything kept needs {row['peak']} of {row['budget']} B and takes {row['joules']:.5f} J"
            told.append(f"ResNet-18 on the A72: {kept}, the sum of all layers, with no paging, proven least")
        if row["instance"] == CIFAR_M4 and row["joules"]:
            what = f"{row['joules']:.5f} J with {row['recomputations']} recomputations and {row['pages in']} pages"
            told.append(f"On the M4 within {row['budget']} B: {what}, at least {row['bound']:.5f} J{_without(row)}")
    return ". ".join(told) + "."


def _paged(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where paging takes something, and what."""
    some = [f"{row['joules of paging']:.8f} J of it at {row['budget']} B" for row in rows if row["joules of paging"]]
    return " and ".join(some) or "nothing"


def _without(row: Mapping[str, Any]) -> str:
    """What is proven if nothing may be paged."""
    proven = row["bound without paging"] is not None and row["joules"] <= row["bound without paging"] * (1 + PROVEN)
    return "; without paging that is proven best" if proven else ""


def _draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    from reproduction.drawing import bars

    shown = [
        {"at": f"{row['instance']}, {row['budget']} B", **_shares(row)}
        for row in rows
        if row["paging"] and row["joules"]
    ]
    columns = {"found": "found", "proven": "no plan takes less"}
    return bars(shown, "at", columns, "energy over computing everything once (%)")


def _shares(row: Mapping[str, Any]) -> dict[str, float]:
    once = EnergyGraph.load(row["instance"]).once
    return {"found": 100 * (row["joules"] / once - 1), "proven": 100 * (row["bound"] / once - 1)}


POET = Item(
    key="poet",
    paper="POET",
    place="repository",
    title="paging or recomputing, for the least energy",
    notebook="12_send_it_away.ipynb",
    function="remat_explorer.solve",
    test="tests/reproduction/test_poet.py",
    published="On the A72 within 3000000 B ResNet-18 takes 7.8 J of computing and 0.001 J of paging, which is called "
    "optimal (repository)",
    remark="Graphs, bytes, seconds and joules are those of POET's repository; the program is written from its "
    "equations. Paging takes energy and no time. The other reading of the published paging: a solver that stops within "
    "a gap of 0.01 % may return it, but that gap is 0.0008 J here, so the tolerance alone does not explain it. On the "
    "M4 the plan is the best schedule without paging, while the bound allows for paging.",
    compute=poet,
    words=words,
)
