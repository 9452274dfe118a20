"""Checkmate's methods: what each is aware of (Table 1), and its overhead against the memory budget (Figure 5).

Table 1's item has REVOLVE's counts as well, which the methods for chains are held to. Figure 5 is on VGG16, MobileNet
and U-Net.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from remat_explorer.instances import linear
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import STRATEGIES, Frontier, Status, Sweep, binomial_schedule, forward_steps
from remat_explorer.solvers import table_one_row as row_of_method
from reproduction.checkmate_largest_batch import kept_for_good_peak
from reproduction.drawing import side_by_side, text_table
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell
from reproduction.layer_graphs import layer_graph
from reproduction.p100 import p100_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


STEPS = {"small": 10, "full": 32}
COLUMNS = {
    "strategy": "strategy",
    "general graphs": "general graphs",
    "cost aware": "cost aware",
    "memory aware": "memory aware",
    "knob": "knob",
}


def table_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The registry's rows, and forward steps of Griewank and Walther's schedules by chain length and slots."""
    methods = [properties(name) for name in STRATEGIES]
    counts: list[dict[str, Any]] = []
    for steps in range(2, STEPS[settings] + 1):
        if cancelled():
            break
        progress(f"REVOLVE: chains of {steps} steps")
        counts += revolve_counts(steps)

    def draw() -> Figure:
        return text_table(methods, COLUMNS)

    rows = (*methods, *counts)
    return Outcome(table_1_words(rows, settings), rows, draw, complete=not cancelled())


def table_1_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """How many methods, and how many counts agree; see `Item.words`."""
    counts = [row for row in rows if "slots" in row]
    equal = sum(count["forward runs"] == count["t(l, c)"] for count in counts)
    return (
        f"{len(rows) - len(counts)} methods with what they are aware of; the schedules of 'griewank' run as many "
        f"forward steps as REVOLVE's t(l, c) in {equal} of {len(counts)} pairs of chain length and slots."
    )


def properties(name: str) -> dict[str, str]:
    """The row of Table 1 of a strategy.

    >>> properties("checkpoint-all")["memory aware"]
    'no'
    """
    traits = row_of_method(STRATEGIES[name])
    cells = {"strategy": name, "general graphs": traits.general_graphs, "cost aware": traits.cost_aware}
    return cells | {"memory aware": traits.memory_aware, "knob": traits.knob, "source": traits.source}


def revolve_counts(steps: int) -> list[dict[str, int]]:
    """Forward runs of the schedules for a chain, for every number of slots, beside the closed form.

    Args:
        steps: l, at least 2: one more than the forward operations, as the loss is a step, too.

    Source: Griewank and Walther, Algorithm 799: revolve (ACM Transactions on Mathematical Software 26, 2000).

    >>> revolve_counts(4)[1]
    {'steps': 4, 'slots': 2, 'forward runs': 4, 't(l, c)': 4}
    """
    chain = linear(steps - 1)
    counts = []
    for slots in range(1, steps + 1):
        runs = int((binomial_schedule(chain, slots).R[:, ~chain.is_backward] > 0).sum())
        counts.append({"steps": steps, "slots": slots, "forward runs": runs, "t(l, c)": forward_steps(steps, slots)})
    return counts


TABLE_1 = Item(
    key="checkmate-table-1",
    paper="Checkmate",
    place="Table 1",
    title="methods, and what they are aware of",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.solvers.method.table_one_row",
    test="tests/reproduction/test_exact_items.py",
    published="of ten methods Checkmate's two alone take general graphs and are fully aware of costs and memory "
    "(Table 1)",
    remark="With methods that came after the paper, or are not in its table. REVOLVE's counts are not in it either: "
    "they are the closed form of Griewank and Walther's own article.",
    compute=table_1,
    words=table_1_words,
)


BATCHES: dict[Settings, dict[str, int]] = {
    "small": {"VGG16": 256},
    "full": {"VGG16 on a P100": 176, "MobileNet": 512, "U-Net": 32},
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
MEASURED = {"VGG16 on a P100": ("vgg16", "checkmate")}  # not a layer graph: operations with measured times
BUDGETS = {"small": 6, "full": 12}
GB = 10**9
DEVICE_MEMORY = 16 * GB  # of the V100 that the paper compares methods at
KEPT = "every value kept to the end"
LINEARIZED = ("linearized-greedy", "linearized-sqrt-n")  # the best and the next best other method there
FIGURE_5_SECONDS = {"small": None, "full": 30.0}  # of each point; None for a curve in seconds


def figure_5(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """A sweep of every method on each network; a method that needs a chain has no points where the graph is none."""
    curves: dict[str, Frontier] = {}
    for name, batch in BATCHES[settings].items():
        if cancelled():
            break
        progress(f"{name} at batch {batch}: the first points")
        curves[name] = _curve(name, batch, settings, progress, cancelled)
    rows = [row for name, frontier in curves.items() for row in rows_of(name, frontier)]
    rows += [kept_to_the_end(name, BATCHES[settings][name]) for name in curves if name not in MEASURED]

    def draw() -> Figure:
        from remat_explorer.figures import tradeoff

        figures = [tradeoff(frontier) for frontier in curves.values()]
        titles = [f"{name}, batch {BATCHES[settings][name]}" for name in curves]
        return side_by_side(figures, titles)

    complete = len(curves) == len(BATCHES[settings]) and not cancelled()
    return Outcome(figure_5_words(rows, settings), tuple(rows), draw, complete)


def _curve(name: str, batch: int, settings: Settings, progress: Tell, cancelled: Cancelled) -> Frontier:
    graph = p100_graph(*MEASURED[name]) if name in MEASURED else layer_graph(name, batch)
    executor = ThreadPoolExecutor(1) if settings == "small" else None  # processes take longer to start than all of it
    budgets = BUDGETS[settings]
    with Sweep(graph, budgets, METHODS, executor, FIGURE_5_SECONDS[settings], cancelled=cancelled) as run:
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


def kept_to_the_end(name: str, batch: int) -> dict[str, Any]:
    """A row for what keeping every forward value to the end of the step takes, as the published program counts.

    >>> kept_to_the_end("U-Net", 32)["peak"]
    23048189592
    """
    graph = layer_graph(name)
    peak = graph.resident_bytes + batch * kept_for_good_peak(graph)
    return {"network": name, "strategy": KEPT, "peak": peak, "status": "by the published program's accounting"}


def figure_5_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What is proven of each network, and by how much the other methods miss it; see `Item.words`."""
    names = list(dict.fromkeys(row["network"] for row in rows))
    return " ".join(_sentence(name, [row for row in rows if row["network"] == name]) for name in names)


def advantage(rows: Sequence[Mapping[str, Any]]) -> tuple[float, int, str]:
    """The largest ratio of another method's cost to that of the optimal strategy at one budget.

    Args:
        rows: of one network.

    Returns:
        The ratio, at least 1 where the optimal strategy is nowhere worse; its budget in bytes; and the cheapest of the
        other methods there. (1.0, 0, "") where no other method has a schedule.
    """
    largest = (1.0, 0, "")
    for best in optimal_rows(rows):
        costs = cheapest_of_others(rows, best["budget"])
        if costs and best["overhead"]:
            strategy = min(costs, key=lambda name: costs[name])
            largest = max(largest, (costs[strategy] / best["overhead"], best["budget"], strategy))
    return largest


def optimal_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows of the optimal strategy, one for each budget that was asked for."""
    return [row for row in rows if row["strategy"] == METHODS[0] and "budget" in row]


def cheapest_of_others(rows: Sequence[Mapping[str, Any]], budget: int) -> dict[str, float]:
    """The least overhead of each other method within a budget, where it has a schedule.

    >>> row = {"strategy": "griewank", "budget": 4, "peak": 4}
    >>> cheapest_of_others([row | {"overhead": 1.5}, row | {"overhead": 1.25}], 5)
    {'griewank': 1.25}
    """
    least: dict[str, float] = {}
    for row in rows:
        if row["strategy"] != METHODS[0] and row.get("overhead") and row["peak"] <= budget:
            least[row["strategy"]] = min(row["overhead"], least.get(row["strategy"], row["overhead"]))
    return least


def _sentence(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    optimal = optimal_rows(rows)
    solved = [row for row in optimal if row["overhead"]]
    open_gaps = [row["gap"] for row in solved if row["status"] != Status.OPTIMAL and row["gap"] is not None]
    told = f"proven optimal at {sum(row['status'] == Status.OPTIMAL for row in optimal)} of {len(optimal)} budgets"
    parts = [told + (f" (largest gap at the others {format_share(max(open_gaps))})" if open_gaps else "")]
    ratio, budget, other = advantage(rows)
    if other:
        share = format_share(ratio - 1)
        parts.append(f"the best other method costs up to {share} more ({other}, at {budget / GB:.1f} GB)")
    alone = [row["budget"] for row in solved if not cheapest_of_others(rows, row["budget"])]
    peaks: dict[str, int] = {}
    for row in rows:
        if row.get("overhead"):
            peaks[row["strategy"]] = max(row["peak"], peaks.get(row["strategy"], 0))
    kept = peaks.get("checkpoint-all", 0)
    if alone and kept:
        share = format_share(min(alone) / kept)
        parts.append(f"at {max(alone) / GB:.1f} GB and below no other method fits, down to {share} of the largest peak")
    return f"{name}: {'; '.join(parts + _at_the_papers_memory(name, rows))}."


def _at_the_papers_memory(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """U-Net's ratios at 16 GB, at least: the optimal schedule is that of the largest budget below."""
    within = [row["overhead"] for row in optimal_rows(rows) if row["overhead"] and row["peak"] <= DEVICE_MEMORY]
    others = cheapest_of_others(rows, DEVICE_MEMORY)
    if name != "U-Net" or not within:
        return []
    least = min(within)
    thousandths = {other: math.floor(1000 * others[other] / least) for other in LINEARIZED if other in others}
    ratios = [f"{other} at least {ratio / 1000:.3f} times as much" for other, ratio in thousandths.items()]
    everything = (f"{KEPT} takes {row['peak'] / GB:.2f} GB" for row in rows if row["strategy"] == KEPT)
    return [
        ", ".join([f"within 16 GB the optimal schedule costs at most {format_overhead(least)}", *ratios]),
        *everything,
    ]


FIGURE_5 = Item(
    key="checkmate-figure-5",
    paper="Checkmate",
    place="Figure 5",
    title="overhead against memory budget, every method",
    notebook="06_trade_off_curves.ipynb",
    function="rx.sweep",
    test="tests/reproduction/test_items.py",
    published="the solver's schedules have the lowest overhead within the budget (Figure 5); U-Net at 16 GB 1.20 "
    "times as fast as linearized greedy, 1.38 times as linearized √n (Figure 5); U-Net at batch 32 with less than 10 "
    "% overhead, where keeping everything takes 23 GB (section 6.3)",
    remark="FLOP costs on layer graphs made by the rules of the authors' artifact, in place of a V100's profile, so "
    "overheads are not those of its axis. MobileNet is at batch 512 and U-Net at 32, as in its commands, which have "
    "VGG16 at 256. VGG16 is what MONeT's authors measured on a P100 at batch 176, with one implementation of each "
    "operation and no workspace: on its layer graph one operation alone needs 84 % of what keeping everything takes, "
    "69 % where every value stays to the end, and there is little to trade. Plans free values after their last use, "
    "which helps the other methods, too: so U-Net needs less than 23 GB to keep everything.",
    compute=figure_5,
    words=figure_5_words,
)
