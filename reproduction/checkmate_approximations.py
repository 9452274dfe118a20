"""Checkmate's Table 2, approximations over the optimum; and its talk's item, the seconds of two-phase rounding.

Table 2: budgets are B = largest operation + f (checkpoint-all peak - largest operation). The optimum is the cheapest
schedule that is known at a budget, and a proof tells where no other can be cheaper. A linear program that is not solved
within its limit is no failure of its rounding, and counts as "not in time".

The talk: the linear program with its rounding and the integer program are both problem (9) within the same budget. The
search that this project uses in place of the integer program stands beside them. Processor time counts, so that a busy
machine does not.

Source: Jain et al., Checkmate (MLSys 2020), Table 2; slides of its talk, "How well does 2P rounding approximate ILP?".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_seconds, format_share
from remat_explorer.solvers import Progress, Solution, Status, checkpoint_all_peak, largest_operation, solve
from remat_explorer.solvers.search.compilation import warm_up
from reproduction.drawing import bars
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.layer_graphs import LAYERS, layer_graph, moves_charged

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


ROUNDING, FIRST = "checkmate-approx", "first answer"
METHODS = ("ap-sqrt-n", "ap-greedy", "griewank", ROUNDING, FIRST)
PROVEN = 1e-4  # gap that counts as a proof


@dataclass(frozen=True)
class ApproximationLimits:
    """Seconds of each solve, and of each linear program that is rounded."""

    time_limit: float = 10.0
    rounding_limit: float = 100.0


@dataclass
class Course:
    """The first schedule that the optimal strategy tells of, and whether its proof is close enough to end.

    Attributes:
        cancelled: asked as well.
        first: the report with the first schedule.
        cost, bound: the best so far.
    """

    cancelled: Callable[[], bool] = lambda: False
    first: Progress | None = None
    cost: float = math.inf
    bound: float = 0.0

    def hear(self, progress: Progress) -> None:
        """Take in a report."""
        if progress.cost is not None:
            self.first = self.first or progress
            self.cost = min(self.cost, progress.cost)
        self.bound = max(self.bound, progress.lower_bound or 0.0)

    def over(self) -> bool:
        """Whether there is nothing more to find, or somebody asked to stop."""
        return self.cancelled() or self.cost - self.bound <= PROVEN * self.cost < math.inf


@dataclass
class Ratios:
    """Cost over the cheapest known, budget by budget, of one method on one graph.

    Attributes:
        found: the ratios where there is a schedule.
        late: budgets at which the linear program was not solved in time.
        refused: why the method does not take the graph, or "".
    """

    found: list[float] = field(default_factory=list)
    late: int = 0
    refused: str = ""

    @property
    def mean(self) -> float | None:
        """The geometric mean, or None where there is no schedule.

        >>> Ratios([2.0, 8.0]).mean
        4.0
        """
        return math.exp(sum(map(math.log, self.found)) / len(self.found)) if self.found else None


@dataclass(frozen=True)
class ApproximationComparison:
    """Every method on one graph.

    Attributes:
        points: for each budget with a schedule what is known there, for JSON.
        ratios: by method.
        proven: budgets at which the optimum is proven.
    """

    points: list[dict[str, Any]]
    ratios: dict[str, Ratios]
    proven: int


def budget_at(graph: Graph, fraction: float) -> int:
    """The budget B of a fraction f, in bytes.

    >>> from remat_explorer.instances import linear
    >>> budget_at(linear(8), 0), budget_at(linear(8), 1)
    (3, 10)
    """
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    return int(least + fraction * (most - least))


def compare(
    graph: Graph,
    fractions: list[float],
    limits: ApproximationLimits,
    tell: Callable[[str], None] = lambda text: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> ApproximationComparison:
    """Every method at every budget of a graph.

    Args:
        graph: the training graph.
        fractions: values of f.
        limits: seconds.
        tell: hears a line for each budget.
        cancelled: asked between steps; once True the budgets so far are returned.
    """
    ratios, points, proven = {name: Ratios() for name in METHODS}, [], 0
    for fraction in sorted(fractions):
        if cancelled():
            break
        budget = budget_at(graph, fraction)
        best, costs = costs_at(graph, budget, limits, cancelled)
        numbers = [cost for cost in (best.cost, *map(costs.get, METHODS)) if isinstance(cost, float | int)]
        if not numbers:
            tell(f"{graph.name} at {fraction:g}: no schedule is known")
            continue
        proven += best.gap is not None and best.gap <= PROVEN
        count(ratios, costs, min(numbers))
        point = {"fraction": fraction, "budget": budget, "cheapest": min(numbers), "lower_bound": best.lower_bound}
        points.append(point | {"optimal": best.cost, "gap": best.gap, "costs": costs})
        tell("  ".join([f"{graph.name} at {fraction:g}", str(best), *(f"{name} {costs[name]}" for name in METHODS)]))
    return ApproximationComparison(points, ratios, proven)


def count(ratios: dict[str, Ratios], costs: dict[str, Any], cheapest: float) -> None:
    """Add the costs of one budget to the ratios of each method.

    Args:
        ratios: by method; changed in place.
        costs: as `costs_at` returns them.
        cheapest: cost of the cheapest known schedule.
    """
    for name, ratio in ratios.items():
        if costs[name] == "not in time":
            ratio.late += 1
        elif isinstance(costs[name], str):
            ratio.refused = costs[name]
        elif costs[name] is not None:
            ratio.found.append(costs[name] / cheapest)


def costs_at(
    graph: Graph, budget: int, limits: ApproximationLimits, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Solution, dict[str, Any]]:
    """The optimal strategy's solution at a budget, and the cost of each method there.

    A cost is None where a method has no schedule, "not in time" where its linear program was not solved, and a
    sentence where it refuses the graph.
    """
    course = Course(cancelled)
    best = solve(graph, budget, time_limit=limits.time_limit, threads=1, on_progress=course.hear, cancelled=course.over)
    costs: dict[str, Any] = {FIRST: None if course.first is None else course.first.cost}
    costs["first answer seconds"] = None if course.first is None else course.first.seconds
    for name in METHODS[:-1]:
        heard: list[str] = []
        limit = limits.rounding_limit if name == ROUNDING else limits.time_limit
        try:
            solution = solve(graph, budget, name, limit, on_progress=lambda now, heard=heard: heard.append(now.doing))
        except SolverError as error:
            costs[name] = str(error)
            continue
        late = solution.cost is None and any("too short" in doing for doing in heard)
        costs[name] = "not in time" if late else solution.cost
        costs[f"{name} seconds"] = solution.seconds
        costs[f"{name} said"] = heard[-1] if heard else ""
    return best, costs


# Jain et al., Checkmate (MLSys 2020), Table 2; None where the paper has no figure.
TABLE_2_PUBLISHED: dict[str, dict[str, float | None]] = {
    "MobileNet": {"ap-sqrt-n": 1.14, "ap-greedy": 1.07, "griewank": 7.07, ROUNDING: 1.06},
    "VGG16": {"ap-sqrt-n": 1.28, "ap-greedy": 1.06, "griewank": 1.44, ROUNDING: 1.01},
    "VGG19": {"ap-sqrt-n": 1.54, "ap-greedy": 1.39, "griewank": 1.75, ROUNDING: 1.00},
    "U-Net": {"ap-sqrt-n": 1.27, "ap-greedy": 1.23, "griewank": None, ROUNDING: 1.03},
    "ResNet50": {"ap-sqrt-n": 1.20, "ap-greedy": 1.25, "griewank": None, ROUNDING: 1.05},
}
PAPERS_METHODS = ("ap-sqrt-n", "ap-greedy", "griewank", ROUNDING)  # its columns
NAMES: dict[str, str] = dict(
    zip(METHODS, ("AP √n", "AP greedy", "Griewank", "two-phase rounding", "'optimal', its first answer"), strict=True)
)
TABLE_2_NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("VGG16", "VGG19"), "full": tuple(TABLE_2_PUBLISHED)}
CHARGED: dict[Settings, tuple[str, ...]] = {"small": ("VGG16",), "full": tuple(TABLE_2_PUBLISHED)}
FRACTIONS: dict[Settings, list[float]] = {"small": [0.1, 0.4, 0.7], "full": [0.05, 0.1, 0.2, 0.4, 0.7, 0.9]}
LIMITS = {"small": ApproximationLimits(5.0, 10.0), "full": ApproximationLimits(10.0, 300.0)}


def table_2(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Geometric means across budgets; the batch does not matter, as budgets grow with it."""
    return run(TABLE_2_NETWORKS[settings], layer_graph, settings, progress, cancelled)


def table_2_moves_charged(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The same where pooling, padding and concatenation cost what they move."""
    return run(CHARGED[settings], lambda name: moves_charged(layer_graph(name)), settings, progress, cancelled)


def run(
    networks: Sequence[str],
    graph_of: Callable[[str], Graph],
    settings: Settings,
    progress: Tell,
    cancelled: Cancelled,
) -> Outcome:
    """Every method on each network, within the limits of the settings."""
    rows: list[dict[str, Any]] = []
    for name in networks:
        if cancelled():
            break
        progress(f"{name}: the first budget")
        comparison = compare(graph_of(name), FRACTIONS[settings], LIMITS[settings], progress, cancelled)
        rows += _rows(name, comparison)
    return table_2_outcome(rows, complete=len(rows) == len(networks) * len(METHODS) and not cancelled())


def table_2_from_results(details: Sequence[dict[str, Any]]) -> Outcome:
    """The outcome of an earlier measurement.

    Args:
        details: of the file that ``benchmarks/approximation.py`` writes, one entry for each network.
    """
    names = {file: name for name, file in LAYERS.items()}
    rows: list[dict[str, Any]] = []
    for entry in details:
        ratios = {name: Ratios() for name in METHODS}
        for point in entry["points"]:
            count(ratios, point["costs"], point["cheapest"])
        rows += _rows(names[entry["graph"]], ApproximationComparison(entry["points"], ratios, entry["proven"]))
    return table_2_outcome(rows, complete=len(rows) == len(TABLE_2_PUBLISHED) * len(METHODS))


def table_2_outcome(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network and method."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    return Outcome(table_2_words(rows, "full"), tuple(rows), lambda: _draw_table_2(rows, networks), complete)


def table_2_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The means of every method; see `Item.words`."""
    if not rows:
        return "Nothing was solved."
    parts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        means = {row["method"]: row for row in rows if row["network"] == network}
        told = ", ".join(_mean(means[method]) for method in PAPERS_METHODS)
        proven = f"optimum proven at {means[FIRST]['optimum proven']} of {means[FIRST]['budgets']}"
        parts.append(f"{network} {told}; {NAMES[FIRST]}, {_mean(means[FIRST])} ({proven})")
    names = ", ".join(NAMES[method] for method in PAPERS_METHODS)
    return f"Cost over the cheapest known, in FLOPs, with the budgets that were met, {names}: {'. '.join(parts)}."


def _rows(network: str, comparison: ApproximationComparison) -> list[dict[str, Any]]:
    return [
        {"network": network, "method": method, "ratio": ratio.mean, "budgets with a schedule": len(ratio.found)}
        | {"budgets": len(comparison.points), "not in time": ratio.late, "refused": ratio.refused}
        | {"optimum proven": comparison.proven, "published": TABLE_2_PUBLISHED[network].get(method)}
        for method, ratio in comparison.ratios.items()
    ]


def _mean(row: Mapping[str, Any]) -> str:
    late = f"{row['not in time']} not in time" if row["not in time"] else ""
    if row["ratio"] is None:
        return f"none ({late})" if late else "none"
    return f"{row['ratio']:.3f} at {row['budgets with a schedule']}{f' ({late})' if late else ''}"


def _draw_table_2(rows: list[dict[str, Any]], networks: list[str]) -> Figure:
    by_network = [
        {"network": name} | {row["method"]: row["ratio"] for row in rows if row["network"] == name} for name in networks
    ]
    figure = bars(by_network, "network", NAMES, "cost over the optimum")
    return figure.update_yaxes(range=[0.9, None])


TABLE_2 = Item(
    key="checkmate-table-2",
    paper="Checkmate",
    place="Table 2",
    title="approximations over the optimum",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/reproduction/test_items.py",
    published="AP √n, AP greedy, Griewank, two-phase rounding: MobileNet 1.14, 1.07, 7.07, 1.06, VGG16 1.28, 1.06, "
    "1.44, 1.01, VGG19 1.54, 1.39, 1.75, 1.00, U-Net 1.27, 1.23, none, 1.03, ResNet-50 1.20, 1.25, none, 1.05 (Table "
    "2); two-phase rounding at most 1.06 (section 6.5)",
    remark="The paper's ratios are in FLOPs, too, as section 6.5 says; by the authors' program they may be in a V100's "
    "milliseconds. The paper does not print its budgets, so means need not agree; two do. The order is another where "
    "Griewank is close to the optimum (VGG16, VGG19), and on U-Net and ResNet-50. Here pooling and concatenation cost "
    "nothing. On U-Net the linear program then keeps small fractions of many values, rounding drops them, and what is "
    "computed again needs more memory than there is: few roundings fit. Its linear program had 100 s for each budget. "
    "A mean is over the budgets that a method meets, so means of one row are over different ones.",
    compute=table_2,
    words=table_2_words,
)

TABLE_2_MOVES_CHARGED = Item(
    key="checkmate-table-2-moves-charged",
    paper="Checkmate",
    place="Table 2, moves charged",
    title="approximations over the optimum, where pooling and concatenation cost what they move",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/reproduction/test_items.py",
    published=TABLE_2.published.partition("; ")[0],
    remark="One operation for each element that is read or written, added to the FLOPs, and twice that for the "
    "gradient. The linear program had 300 s for each budget in place of 100; all else is as in Table 2. The order of "
    "MobileNet's and U-Net's methods is the published one, that of VGG16's and VGG19's but for Griewank; on ResNet-50 "
    "AP greedy is ahead of AP √n, with means over different budgets.",
    compute=table_2_moves_charged,
    words=table_2_words,
)


TALK_PUBLISHED = {"ResNet50": 43.0, "MobileNet": 440.0}
TALK_NETWORKS: dict[Settings, tuple[str, ...]] = {"small": ("VGG16",), "full": ("VGG16", "MobileNet", "ResNet50")}
PROGRAM, SEARCH = "checkmate-ilp", "optimal"
TALK_METHODS = {ROUNDING: "two-phase rounding", PROGRAM: "integer program (9)", SEARCH: "the search here"}
FRACTION = 0.2  # of the way from what one operation needs to keeping everything, as Table 2 counts it here
TALK_SECONDS: dict[Settings, dict[str, float]] = {
    "small": {ROUNDING: 10.0, PROGRAM: 10.0, SEARCH: 5.0},
    "full": {ROUNDING: 300.0, PROGRAM: 600.0, SEARCH: 60.0},
}


def talk(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every method on each network at one budget."""
    rows: list[dict[str, Any]] = []
    warm_up()  # what is compiled once is no time of a method
    for name in TALK_NETWORKS[settings]:
        graph = layer_graph(name)
        budget = budget_at(graph, FRACTION)
        for method in TALK_METHODS:
            if cancelled():
                break
            hear = progress_listener(progress, f"{name}, {TALK_METHODS[method]}")
            begun = time.process_time()
            limit = TALK_SECONDS[settings][method]
            solution = solve(graph, budget, method, limit, on_progress=hear, cancelled=cancelled)
            row = {"network": name, "operations": graph.n, "budget": budget, "method": method}
            row |= {"status": str(solution.status), "cost": solution.cost, "gap": solution.gap}
            row |= {"seconds": solution.seconds, "processor seconds": time.process_time() - begun}
            rows.append(row | {"published": TALK_PUBLISHED.get(name)})
    complete = len(rows) == len(TALK_METHODS) * len(TALK_NETWORKS[settings])
    return Outcome(talk_words(rows, settings), tuple(rows), lambda: _draw_talk(rows), complete)


def talk_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The times of all methods and their ratio, network by network; see `Item.words`."""
    told = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = {row["method"]: row for row in rows if row["network"] == network}
        parts = "; ".join(f"{TALK_METHODS[method]} {_told(row)}" for method, row in mine.items())
        told.append(f"{network}, {mine[ROUNDING]['operations']} operations: {parts}.{_ratio(mine)}")
    return " ".join(told) or "Nothing was solved before the run was cancelled."


def _told(row: Mapping[str, Any]) -> str:
    spent = format_seconds(row["processor seconds"])
    if row["cost"] is None:
        return f"without a schedule after {spent}"
    if row["method"] == ROUNDING:
        return spent
    gap = "no bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return f"proves its schedule in {spent}" if row["status"] == Status.OPTIMAL else f"has {gap} after {spent}"


def _ratio(mine: Mapping[str, Mapping[str, Any]]) -> str:
    """How many times as long the integer program takes, at least."""
    if ROUNDING not in mine or PROGRAM not in mine or mine[ROUNDING]["cost"] is None:
        return ""
    least = "" if mine[PROGRAM]["status"] == Status.OPTIMAL else "more than "
    times = mine[PROGRAM]["processor seconds"] / mine[ROUNDING]["processor seconds"]
    return f" The program takes {least}{times:.0f} times as long as rounding."


def _draw_talk(rows: Sequence[Mapping[str, Any]]) -> Figure:
    by_network: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = by_network.setdefault(row["network"], {"network": row["network"]})
        entry[row["method"]] = row["processor seconds"]
        if row["method"] == PROGRAM and row["status"] != Status.OPTIMAL:
            entry["network"] = f"{row['network']} (integer program not proven)"
    return bars(list(by_network.values()), "network", TALK_METHODS, "processor seconds", logarithmic=True)


TALK = Item(
    key="checkmate-talk",
    paper="Checkmate",
    place="talk",
    title="seconds of two-phase rounding and of the integer program",
    notebook="05_heuristics_and_rounding.ipynb",
    function="rx.solve",
    test="tests/reproduction/test_items.py",
    published="a speedup of 43 times for ResNet-50 and 440 for MobileNet, beside Table 2 (talk)",
    remark="The slide says neither at which budgets, nor what either took, nor what counts as done; neither the paper "
    "nor its first version prints the two numbers. The script in the authors' artifact divides medians over budgets, "
    "of the linear program without rounding, and takes U-Net's for every network. So they cannot be reproduced, only "
    "put beside: here by HiGHS on one thread, where the paper has Gurobi on 24 cores and more, at one budget, a fifth "
    "of the way from what one operation needs to keeping everything. The program ends after ten minutes of a shared "
    "machine. What rounding gives may cost more, as in Table 2.",
    compute=talk,
    words=talk_words,
)
