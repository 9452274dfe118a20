"""MONeT's Figure 5, the case study of one network: memory along the step, and what each layer saves and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import (
    checkpoint_all,
    checkpoint_all_peak,
    default_selection,
    default_strategy,
    relative_gap,
    solve,
)
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.monet_networks import choice_graph
from reproduction.p100 import GIB, p100_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


BUDGET = 8 * GIB  # of the paper's case study
SHARE = 0.6  # of plain execution's memory, in small settings
SECONDS = {"small": 4.0, "full": 60.0}
PAID = 1e-9  # of one pass: what a layer costs more than that is no error of rounding
JOINT, PLAIN, EAGER = "with implementations", "Checkmate", "eager"


def figure_5(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The joint schedule against plain execution, and against Checkmate's within the same budget."""
    graph, budget = problem_of(settings, progress)
    selection = default_selection(graph)
    schedules: dict[str, Schedule] = {}
    bounds: dict[str, float | None] = {EAGER: None}
    problems: tuple[tuple[str, Graph, Callable[[Schedule], Schedule]], ...] = (
        (JOINT, graph, lambda schedule: schedule),
        (PLAIN, selection.graph, selection.lift),
    )
    for way, problem, on_graph in problems:
        if cancelled():
            break
        hear = progress_listener(progress, f"{graph.name}, {way}")
        limit = SECONDS[settings]
        strategy = default_strategy(problem)
        cheapest = solve(problem, budget, strategy, limit, on_progress=hear, cancelled=cancelled)
        if cheapest.schedule is not None:
            schedules[way], bounds[way] = on_graph(cheapest.schedule), cheapest.lower_bound
    schedules[EAGER] = checkpoint_all(graph)
    rows = [*(row_of(way, schedule, bounds[way], budget) for way, schedule in schedules.items()), *rows_of(schedules)]
    return Outcome(
        words(rows, settings), tuple(rows), lambda: _draw(schedules, budget), JOINT in schedules and not cancelled()
    )


def problem_of(settings: Settings, progress: Tell) -> tuple[Graph, int]:
    """The paper's network as measured on a P100 with its budget; in small settings a captured one."""
    if settings == "full":
        return p100_graph("resnet50", "icmn"), BUDGET
    progress("capturing residual_net")
    graph = choice_graph("residual_net", settings)
    return graph, int(SHARE * checkpoint_all_peak(graph))


def row_of(way: str, schedule: Schedule, bound: float | None, budget: int) -> dict[str, Any]:
    """A row for a schedule: its peak, and its cost over that of plain execution."""
    row = {"network": schedule.graph.name, "schedule": way, "peak": Plan.of(schedule).peak, "budget": budget}
    return row | {"overhead": schedule.overhead, "gap": relative_gap(schedule.cost, bound)}


def rows_of(schedules: dict[str, Schedule]) -> list[dict[str, Any]]:
    """One row for each layer: bytes kept less than by another schedule, and cost taken more, as a share of one pass."""
    from remat_explorer.figures import case_study_of

    if JOINT not in schedules:
        return []
    others = {name: schedule for name, schedule in schedules.items() if name != JOINT}
    study = case_study_of(JOINT, schedules[JOINT], others)
    rows: list[dict[str, Any]] = []
    for i, layer in enumerate(study.layers):
        row: dict[str, Any] = {"layer": layer}
        for name in others:
            row |= {f"saved against {name}": int(study.saved[name][i])}
            row |= {f"overhead against {name}": float(study.overhead[name][i])}
        rows.append(row)
    return rows


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What both schedules need and cost, and how many layers take part; see `Item.words`."""
    ways = {row["schedule"]: row for row in rows if "schedule" in row}
    eager, layers = ways[EAGER], [row for row in rows if "layer" in row]
    source = "by the authors' P100 data" if settings == "full" else "P100 roofline"
    told = f"{eager['network']}, {source}: everything kept needs {format_bytes(eager['peak'])}"
    if not layers:
        return f"{told}; within {format_bytes(eager['budget'])} no schedule was found."
    costs = " and ".join(_told(way, ways[way]) for way in (JOINT, PLAIN) if way in ways)
    saved, paid = (
        sum(test(row) for row in layers)
        for test in (
            lambda row: row[f"saved against {EAGER}"] > 0,
            lambda row: row[f"overhead against {EAGER}"] > PAID,
        )
    )
    return (
        f"{told}; within {format_bytes(eager['budget'])} {costs}. {saved} of {len(layers)} layers keep less than in "
        f"plain execution, {paid} cost more."
    )


def _told(way: str, row: Mapping[str, Any]) -> str:
    gap = "no bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return f"{way} {format_overhead(row['overhead'])} ({gap})"


def _draw(schedules: dict[str, Schedule], budget: int) -> Figure:
    from remat_explorer.figures import case_study

    first = JOINT if JOINT in schedules else next(iter(schedules))
    others = {name: schedule for name, schedule in schedules.items() if name != first}
    return case_study(first, schedules[first], others, budget)


FIGURE_5 = Item(
    key="monet-figure-5",
    paper="MONeT",
    place="Figure 5",
    title="case study: memory along the step, saving and overhead of each layer",
    notebook="08_operator_implementations.ipynb",
    function="remat_explorer.figures.case_study",
    test="tests/reproduction/test_items.py",
    published="ResNet-50 at batch 184: MONeT peaks at 8 GiB, PyTorch at 14.7 GiB, and memory grows in the forward "
    "pass of both (section 5); MONeT saves in early layers, and most overhead is recomputation in the backward pass "
    "(Figure 5)",
    remark="On the authors' own times and workspaces. Everything kept is in the fastest algorithm of each convolution, "
    "and needs the paper's 14.7 GiB. The paper's third curve is MONeT without implementations; here it is Checkmate, "
    "with those algorithms, too, with workspace, and with ReLU in place, which Figure 3's has not. Overheads are over "
    "everything kept, not over PyTorch, and what runs in place may do so where its input lives on. A layer here is an "
    "operation of the forward or the backward pass, and what is computed again counts where it was computed first, in "
    "the paper where it is needed.",
    compute=figure_5,
    words=words,
)
