"""What MONeT's authors measured on a P100, what their solver found in a day, and what is found here by these costs.

A graph of a mode has the implementations that may be chosen in it, each with the time and the workspace that were
measured. Costs are seconds. A run's objective is a prediction by the same times. What runs in place in the forward pass
does so only where its input dies, as in the authors' program.

A schedule that does not choose algorithms gets the fastest ones afterwards, as in the paper ("greedily post-optimized",
section 5 and appendix D): what is kept and recomputed stays, and only workspace that is free during a convolution is
used. Its published run was not kept as a schedule, only as an objective with default algorithms: so that run has no
overhead.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), https://github.com/utsaslab/monet-schedules, and
the README of https://github.com/utsaslab/MONeT for plain PyTorch. The first has no licence file: what is here are its
facts, numbers alone, in another form.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from remat_explorer.errors import GraphError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, stands_in
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import Solution, solve
from reproduction.item import Cancelled, Tell, progress_listener
from reproduction.layer_graphs import DATA

NETWORKS = {"resnet50": 184, "googlenet": 320, "unet": 11, "vgg16": 176, "mobilenet_v2": 272}  # with the batch
MODES = {  # the paper's word for each mode of its program; in all of them ReLU may run in place
    "i": "none",
    "ic": "conv-optimized",
    "im": "output-activated",
    "in": "intermediate-activated",
    "icmn": "all",
}
GIB = 2**30
# Published runs of another problem than the published one: of other costs, or of a ReLU6 that reads its input.
OTHER_PROBLEM = (
    ("resnet50", "im", 10.0),
    ("resnet50", "in", 8.0),
    ("resnet50", "in", 9.0),
    ("resnet50", "in", 10.0),
    ("mobilenet_v2", "i", 8.0),
)


def p100_graph(network: str, mode: str, ruled: bool = False) -> Graph:
    """The training graph of a network with the implementations of a mode.

    Args:
        network: a key of `NETWORKS`.
        mode: a key of `MODES`, or "checkmate" for one implementation of each operation, without workspace.
        ruled: whether an operation of the forward pass may run in place only where its input dies, as the authors'
            program asks. Otherwise it may where the input lives on, too, at the same cost.

    Raises:
        UnknownNameError: if nothing of that network and mode was published.

    >>> p100_graph("vgg16", "ic").n
    97
    """
    names = _archive().namelist()
    if (name := f"{network}_{mode}.json") not in names:
        raise UnknownNameError("graph of the P100", f"{network}_{mode}", [n.removesuffix(".json") for n in names])
    graph = Graph.from_document(json.loads(_archive().read(name)))
    return replace(graph, operations=tuple(map(_in_place, graph.operations))) if ruled else graph


def _in_place(node: Operation) -> Operation:
    """The operation with its implementations that run in place marked; the others come first.

    A default runs anywhere, and where an operation has no implementation for elsewhere, there is nothing to ask for.
    """

    def marked(way: Implementation) -> Implementation:
        only = replace(way, in_place=True)
        elsewhere = [other for other in node.implementations if other.overwrites is None]
        elsewhere += [replace(other, kinds=()) for other in elsewhere if "out of place" in other.kinds]
        fits = node.phase == "forward" and way.overwrites is not None
        return only if fits and any(stands_in(other, only) for other in elsewhere) else way

    ways = [marked(way) for way in node.implementations]
    if not any(way.in_place for way in ways):
        return node
    first = next(way for way in ways if not way.in_place)
    rest = [way for way in ways if way is not first]
    ways = [replace(first, kinds=()), *(replace(way, kinds=way.kinds or ("in place",)) for way in rest)]
    return replace(node, implementations=tuple(ways))


def has_graph(network: str, mode: str) -> bool:
    """Whether costs of a network in a mode were published.

    >>> has_graph("mobilenet_v2", "im"), has_graph("mobilenet_v2", "in")
    (True, False)
    """
    return f"{network}_{mode}.json" in _archive().namelist()


@cache
def published_runs() -> dict[tuple[str, str, float], dict[str, Any]]:
    """The best that any run found, by network, mode and budget in GiB: "ms" of the schedule, "bound ms", "seconds".

    "status" is how that run ended, "first seconds" when it had a schedule, "hour ms" the best after an hour. Without
    its log there is none of these, and without a schedule no "ms".

    >>> published_runs()["vgg16", "icmn", 8.0]["ms"]
    1383.33
    """
    return {(run["network"], run["mode"], run["budget GiB"]): run for run in _document()["runs"]}


def pytorch(network: str) -> dict[str, Any]:
    """What plain PyTorch takes of a network: measured "GiB", and "ms", which objectives and measured overheads imply.

    >>> pytorch("resnet50")["GiB"], round(pytorch("resnet50")["ms"])
    (15.06, 877)
    """
    return _document()["pytorch"][network]


def memory_at(network: str, overhead: float) -> float | None:
    """GiB at an overhead over PyTorch, by linear interpolation between the measured runs; None where none is dearer.

    Args:
        network: a key of `NETWORKS`.
        overhead: such as 0.1.

    >>> round(memory_at("resnet50", 0.1), 2), memory_at("vgg16", 0.1)
    (5.74, None)
    """
    runs = ((run["overhead_percent"] / 100, run["memory_gb"]) for run in pytorch(network)["measured"])
    return interpolated(runs, overhead)


def interpolated(runs: Iterable[tuple[float, float]], overhead: float) -> float | None:
    """Memory at an overhead by linear interpolation between runs, or None where all are cheaper or all dearer.

    Args:
        runs: overhead and memory of each, the overhead as a share on top.
        overhead: such as 0.1.

    >>> interpolated([(0.2, 5.0), (0.0, 9.0)], 0.1)
    7.0
    """
    for (cheaper, more), (dearer, less) in pairwise(sorted(runs, key=lambda run: (run[0], -run[1]))):
        if cheaper <= overhead <= dearer:
            return more + (less - more) * (overhead - cheaper) / (dearer - cheaper)
    return None


def smallest_run(network: str) -> tuple[float, float]:
    """GiB and overhead of the measured run with the least memory.

    >>> smallest_run("vgg16")
    (5.51, 0.0911)
    """
    run = min(pytorch(network)["measured"], key=lambda run: run["memory_gb"])
    return run["memory_gb"], run["overhead_percent"] / 100


@cache
def _document() -> dict[str, Any]:
    return json.loads(_archive().read("runs.json"))


@cache
def _archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(DATA / "monet_p100_graphs.zip")


CONVOLUTION = "convolution"  # in the names of the published operations


def cost_with_fastest_algorithms(schedule: Schedule, algorithms: Graph, budget: int) -> float:
    """Cost of the schedule where each convolution takes the fastest algorithm that fits at that moment, in seconds.

    Args:
        schedule: for a graph whose convolutions have one implementation each.
        algorithms: the same network with all algorithms of them, whose times count: modes were measured apart.
        budget: bytes.

    Raises:
        GraphError: if the two graphs have not as many convolutions.
    """
    graph = schedule.graph
    choices = _choices(graph, algorithms)
    plan = Plan.of(schedule)
    total = 0.0
    for statement, during in zip(plan.statements, plan.timeline.during, strict=True):
        if isinstance(statement, Compute):
            own = graph.operations[statement.operation].implementations[statement.implementation - 1]
            room = budget - int(during) + own.workspace
            fitting = (one.cost for one in choices.get(statement.operation, ()) if one.workspace <= room)
            total += min(fitting, default=own.cost)
    return total


def _choices(graph: Graph, algorithms: Graph) -> dict[int, tuple[Implementation, ...]]:
    """All implementations of each convolution, found by their order: both graphs run them in the same one."""
    mine, theirs = (
        [k for k, one in enumerate(each.operations) if CONVOLUTION in one.name] for each in (graph, algorithms)
    )
    if len(mine) != len(theirs):
        raise GraphError(
            f"{graph.name!r} has {len(mine)} convolutions, {algorithms.name!r} {len(theirs)}; give one network"
        )
    return {k: algorithms.operations[other].implementations for k, other in zip(mine, theirs, strict=True)}


CHOOSING = ("ic", "icmn")  # modes that choose algorithms themselves
PUBLISHED = ", published"
CHECKMATE = "checkmate"  # the mode of Checkmate's problem
NAMES = MODES | {CHECKMATE: "Checkmate-O"}
MS = 1000.0
ROUNDING = 1e-6  # as a share of a cost, less than a hundredth of a millisecond
Find = Callable[[str, str, float], dict[str, Any] | None]


def searched_row(
    network: str, mode: str, budget: float, seconds: float, progress: Tell, cancelled: Cancelled
) -> dict[str, Any]:
    """A row for the best schedule that is found here.

    Args:
        network, mode: as `p100_graph` takes them; Checkmate's own problem has one implementation of each operation.
        budget: GiB.
        seconds: of the search.
        progress: hears what is being done.
        cancelled: asked by the search.

    Returns:
        A row as `published_row` has it; "ms" and "gap" are of the search, before algorithms are chosen afterwards.
    """
    hear = progress_listener(progress, f"{network} at {budget:g} GiB, {NAMES[mode]}")
    graph, size, strategy = p100_graph(network, mode, ruled=True), int(budget * GIB), strategy_of(mode)
    solution = solve(graph, size, strategy, seconds, on_progress=hear, cancelled=cancelled)
    outcome = {"cost": solution.cost, "gap": solution.gap, "status": str(solution.status)}
    return _row_of_search(network, mode, budget, outcome | {"fastest": fastest_cost(solution, network, mode)})


def fastest_cost(solution: Solution, network: str, mode: str) -> float | None:
    """Cost of a solution of a mode once its convolutions have the fastest algorithms that fit, in seconds.

    Args:
        solution: within its budget.
        network, mode: as `p100_graph` takes them; a mode that chooses algorithms itself keeps its own.

    Returns:
        None where there is no schedule.
    """
    if solution.schedule is None or solution.budget is None or mode in CHOOSING:
        return solution.cost
    return cost_with_fastest_algorithms(solution.schedule, p100_graph(network, "ic"), solution.budget)


def strategy_of(mode: str) -> str:
    """The strategy that solves the problem of a mode.

    >>> strategy_of("checkmate"), strategy_of("icmn")
    ('optimal', 'monet')
    """
    return "optimal" if mode == CHECKMATE else "monet"


def row_from_results(details: Mapping[str, Any], network: str, mode: str, budget: float) -> dict[str, Any] | None:
    """`searched_row` from an earlier measurement, or None where that has not all of the row.

    Args:
        details: of the file that ``benchmarks/monet_p100.py`` writes.
        network, mode, budget: as `searched_row` takes them.

    >>> ours = {"cost": 1.38333, "gap": 0.0, "status": "optimal", "fastest": 1.38333}
    >>> row = row_from_results({"vgg16_icmn@8": {"ours": ours}}, "vgg16", "icmn", 8.0)
    >>> row["ms"], round(row["overhead"], 3)
    (1383.33, 0.98)
    """
    outcome = details.get(f"{network}_{mode}@{budget:g}", {}).get("ours")
    return _row_of_search(network, mode, budget, outcome) if outcome and "fastest" in outcome else None


def _row_of_search(network: str, mode: str, budget: float, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a search: "cost", "gap" and "status" of it, and "fastest", as `fastest_cost` has it."""
    ms, afterwards = (None if seconds is None else MS * seconds for seconds in (outcome["cost"], outcome["fastest"]))
    row = _row(network, NAMES[mode], budget, ms, afterwards)
    return row | {"gap": outcome["gap"], "status": outcome["status"]}


def published_row(network: str, mode: str, budget: float) -> dict[str, Any] | None:
    """A row for the published run, or None where there is none.

    >>> row = published_row("vgg16", "icmn", 8.0)
    >>> row["group"], row["ms"], round(row["overhead"], 3)
    ('all, published', 1383.33, 0.98)
    """
    run = published_runs().get((network, mode, float(budget)))
    if run is None:
        return None
    row = _row(network, MODES[mode] + PUBLISHED, budget, run["ms"], run["ms"] if mode in CHOOSING else None)
    ms, bound = run["ms"], run["bound ms"]
    gap = None if ms is None or bound is None or bound > ms else 1 - bound / ms  # a bound above is of another run
    return row | {"gap": gap, "status": run["status"]}


def _row(network: str, group: str, budget: float, ms: float | None, post_optimized: float | None) -> dict[str, Any]:
    plain = pytorch(network)
    row = {"network": network, "group": group, "budget GiB": float(budget), "share": budget / plain["GiB"], "ms": ms}
    return row | {"overhead": None if post_optimized is None else post_optimized / plain["ms"]}


def rows_of(
    networks: Sequence[str],
    budgets: Sequence[float],
    searched: Sequence[float],
    find: Find,
) -> list[dict[str, Any]]:
    """Published runs at all ``budgets``, and what is found here at those that are ``searched``, network by network.

    Args:
        networks: keys of `NETWORKS`.
        budgets, searched: GiB.
        find: the row of a network, mode and budget, or None.
    """
    rows: list[dict[str, Any] | None] = []
    for network in networks:
        for mode in MODES:
            rows += [published_row(network, mode, budget) for budget in budgets]
            if has_graph(network, mode):
                rows += [find(network, mode, budget) for budget in searched]
    return [row for row in rows if row is not None]


def row_finder(seconds: float, progress: Tell, cancelled: Cancelled) -> Find:
    """Finds rows by `searched_row`, and none once it is cancelled; arguments as there."""

    def find(network: str, mode: str, budget: float) -> dict[str, Any] | None:
        return None if cancelled() else searched_row(network, mode, budget, seconds, progress, cancelled)

    return find


def count_searches(networks: Sequence[str], searched: Sequence[float]) -> int:
    """How many searches there are.

    >>> count_searches(["mobilenet_v2"], [8, 10])
    8
    """
    return len(searched) * sum(has_graph(network, mode) for network in networks for mode in MODES)


def is_published(row: Mapping[str, Any]) -> bool:
    """Whether a row is a published run.

    >>> is_published(published_row("vgg16", "icmn", 8.0))
    True
    """
    return row["group"].endswith(PUBLISHED)


def overheads_in_words(rows: Sequence[Mapping[str, Any]], budget: float) -> str:
    """Each mode's overhead over PyTorch at a budget, beside the published run's, in words.

    Args:
        rows: of one network.
        budget: GiB.
    """
    here = {row["group"]: row for row in rows if row["budget GiB"] == budget}
    parts = []
    for group in MODES.values():
        if group in here:
            run = here.get(group + PUBLISHED, {}).get("overhead")
            beside = "" if run is None else f", their objective {format_overhead(run)}"
            parts.append(f"{group} {_told(here[group])}{beside}")
    return "; ".join(parts)


def _told(row: Mapping[str, Any]) -> str:
    if row["overhead"] is None:
        return "infeasible" if row["status"] == "infeasible" else "no schedule"
    gap = "no bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return f"{format_overhead(row['overhead'])} ({gap})"


def against_published(rows: Sequence[Mapping[str, Any]], wanted: Callable[[str], bool]) -> tuple[int, int, float]:
    """How often what is found here costs at most as much as the published run, of how many, and the largest excess.

    Published runs of another problem are left out. Their costs are whole hundredths of a millisecond.

    Args:
        rows: of any networks.
        wanted: which groups.
    """
    other = {(network, MODES[mode], gib) for network, mode, gib in OTHER_PROBLEM}
    theirs = {_problem(row): row["ms"] for row in rows if is_published(row) and row["ms"] is not None}
    excess = [
        row["ms"] / theirs[_problem(row)] - 1
        for row in rows
        if not is_published(row) and wanted(row["group"]) and row["ms"] is not None
        if _problem(row) in theirs.keys() - other
    ]
    return sum(one <= ROUNDING for one in excess), len(excess), max(excess, default=0.0)


def _problem(row: Mapping[str, Any]) -> tuple[str, str, float]:
    """Network, mode in words, and GiB."""
    return row["network"], row["group"].removesuffix(PUBLISHED), row["budget GiB"]
