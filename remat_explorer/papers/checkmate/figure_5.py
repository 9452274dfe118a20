"""Checkmate's Figure 5: overhead against memory budget on VGG16, MobileNet and U-Net, for every method."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from remat_explorer.papers.drawing import side_by_side
from remat_explorer.papers.hearing import joined
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.quantities import format_share
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import Frontier, Sweep, checkpoint_all_peak
from remat_explorer.solvers.strategies.registry import default_strategy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BATCHES: dict[Settings, dict[str, int]] = {
    "small": {"VGG16": 256},
    "full": {"VGG16": 256, "MobileNet": 512, "U-Net": 32},
}
METHODS = (
    "optimal",
    "checkpoint-all",
    "griewank",
    "chen-sqrt-n",
    "chen-greedy",
    "ap-sqrt-n",
    "ap-greedy",
    "linearized-sqrt-n",
    "linearized-greedy",
)
BUDGETS = {"small": 6, "full": 12}
SECONDS = {"small": None, "full": 30.0}  # of each point; None for a curve in seconds


def figure_5(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """A sweep of every method on each network; a method that needs a chain has no points where the graph is none."""
    curves: dict[str, Frontier] = {}
    for name, batch in BATCHES[settings].items():
        if cancelled():
            break
        progress(f"{name} at batch {batch}: the first points")
        curves[name] = _curve(name, batch, settings, progress, cancelled)
    rows = [row for name, frontier in curves.items() for row in rows_of(name, frontier)]
    result = " ".join(_sentence(name, frontier) for name, frontier in curves.items())

    def draw() -> Figure:
        from remat_explorer.figures import tradeoff

        figures = [tradeoff(frontier) for frontier in curves.values()]
        titles = [f"{name}, batch {BATCHES[settings][name]}" for name in curves]
        return side_by_side(figures, titles)

    return Outcome(result, tuple(rows), draw, complete=len(curves) == len(BATCHES[settings]) and not cancelled())


def _curve(name: str, batch: int, settings: Settings, progress: Tell, cancelled: Cancelled) -> Frontier:
    graph = layer_graph(name, batch)
    executor = ThreadPoolExecutor(1) if settings == "small" else None  # processes take longer to start than all of it
    budgets = BUDGETS[settings]
    with Sweep(graph, budgets, METHODS, executor, SECONDS[settings], cancelled=cancelled) as run:
        for _ in run:
            progress(f"{name} at batch {batch}: {run.progress().done} of {run.progress().points} points")
    if executor is not None:
        executor.shutdown()
    return run.frontier()


def rows_of(name: str, frontier: Frontier) -> list[dict[str, Any]]:
    """One row for each point of a sweep, and one for each method that refuses the graph.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> rows_of("chain", Frontier(linear(8), (solve(linear(8), 4),)))[0]["overhead"]
    1.5294117647058822
    """
    rows: list[dict[str, Any]] = [
        {"network": name, "strategy": point.strategy, "budget": point.budget, "peak": point.peak}
        | {"overhead": point.overhead, "gap": point.gap, "status": str(point.status)}
        for point in frontier.points
    ]
    refusing = {strategy: text for (strategy, _), text in frontier.messages.items()}
    for strategy in frontier.strategies:
        if strategy in refusing and not any(point.strategy == strategy for point in frontier.points):
            rows.append({"network": name, "strategy": strategy, "status": refusing[strategy]})
    return rows


def advantage(frontier: Frontier) -> tuple[float, int, str]:
    """The largest ratio of another method's cost to that of the optimal strategy at one budget.

    Returns:
        The ratio, at least 1 where the optimal strategy is nowhere worse; its budget in bytes; and the cheapest of the
        other methods there. (1.0, 0, "") where no other method has a schedule.
    """
    optimal, others = _parted(frontier)
    largest = (1.0, 0, "")
    for best in optimal:
        costs = [(other.cost, other.strategy) for other in others if other.budget == best.budget and other.cost]
        if costs and best.cost:
            cost, strategy = min(costs)
            largest = max(largest, (cost / best.cost, best.budget, strategy))
    return largest


def _parted(frontier: Frontier) -> tuple[list[Solution], list[Solution]]:
    """The solutions of the graph's default strategy, and those of the others."""
    by_strategy: dict[str, list[Solution]] = {}
    for solution in frontier.solutions:
        by_strategy.setdefault(solution.strategy, []).append(solution)
    optimal = by_strategy.pop(default_strategy(frontier.graph), [])
    return optimal, [solution for solutions in by_strategy.values() for solution in solutions]


def _sentence(name: str, frontier: Frontier) -> str:
    ratio, budget, other = advantage(frontier)
    optimal, others = _parted(frontier)
    reached = {other.budget for other in others if other.schedule is not None}
    alone = [best.budget for best in optimal if best.schedule is not None and best.budget not in reached]
    proven = sum(best.status is Status.OPTIMAL for best in optimal)
    budgets = len({s.budget for s in frontier.solutions})
    words = [f"proven optimal at {proven} of {budgets} budgets"]
    if other:
        share = format_share(ratio - 1)
        words.append(f"the best other method, {other}, costs up to {share} more (at {budget / 1e9:.1f} GB)")
    if alone:
        share = min(alone) / checkpoint_all_peak(frontier.graph)
        words.append(f"below {max(alone) / 1e9:.1f} GB no other method fits, down to {format_share(share)} of the peak")
    return f"{name}: {joined(words)}."


ITEM = Item(
    key="checkmate-figure-5",
    paper="Checkmate",
    place="Figure 5",
    title="overhead against memory budget, every method",
    notebook="06_trade_off_curves.ipynb",
    function="rx.sweep",
    test="tests/papers/test_items.py",
    published="the optimal schedule costs least at every budget, and reaches budgets at which no other method fits",
    remark="FLOP costs on the paper's layer graphs in place of a V100's profile, so overheads are not those of its "
    "axis. Plans free values by liveness, which helps the other methods, too.",
    compute=figure_5,
)
