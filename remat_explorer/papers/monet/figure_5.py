"""MONeT's Figure 5, the case study of one network: memory along the step, and what each layer saves and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.monet.networks import choice_graph
from remat_explorer.quantities import format_overhead
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, solve
from remat_explorer.solvers.monet.selections import default_selection
from remat_explorer.solvers.strategies.registry import default_strategy

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORK = {"small": "residual_net", "full": "resnet50"}
SHARE = 0.6  # of plain execution's memory, where Checkmate alone has a schedule, too
SECONDS = {"small": 4.0, "full": 120.0}
PAID = 1e-9  # of one pass: what a layer costs more than that is no error of rounding
JOINT, PLAIN, EAGER = "with implementations", "Checkmate", "eager"


def figure_5(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The joint schedule against plain execution, and against Checkmate's within the same budget."""
    name = NETWORK[settings]
    progress(f"capturing {name}")
    graph = choice_graph(name, settings)
    budget, selection = int(SHARE * checkpoint_all_peak(graph)), default_selection(graph)
    schedules: dict[str, Schedule] = {}
    problems: tuple[tuple[str, Graph, Callable[[Schedule], Schedule]], ...] = (
        (JOINT, graph, lambda schedule: schedule),
        (PLAIN, selection.graph, selection.lift),
    )
    for way, problem, on_graph in problems:
        if cancelled():
            break
        hear = heard(progress, f"{name}, {way}")
        limit = SECONDS[settings]
        strategy = default_strategy(problem)
        cheapest = solve(problem, budget, strategy, limit, on_progress=hear, cancelled=cancelled).schedule
        if cheapest is not None:
            schedules[way] = on_graph(cheapest)
    schedules[EAGER] = checkpoint_all(graph)
    rows = rows_of(schedules)
    return Outcome(
        words(rows, settings), tuple(rows), lambda: _draw(schedules, budget), JOINT in schedules and not cancelled()
    )


def rows_of(schedules: dict[str, Schedule]) -> list[dict[str, Any]]:
    """One row for each layer: bytes kept less than by another schedule, and cost taken more, as a share of one pass."""
    from remat_explorer.figures.networks.case_study import case_study_of

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
    """What both schedules cost; see `Item.words`. The overhead of a schedule is the sum over its layers."""
    told = f"{NETWORK[settings]} within {SHARE:.0%} of plain execution's memory, P100 roofline"
    if not rows:
        return f"{told}: no schedule was found."
    joint = 1 + sum(row[f"overhead against {EAGER}"] for row in rows)
    costs = f"with implementations {format_overhead(joint)}"
    if f"overhead against {PLAIN}" in rows[0]:
        plain = joint - sum(row[f"overhead against {PLAIN}"] for row in rows)
        costs += f" and {PLAIN} {format_overhead(plain)}"
    saved, paid = (
        sum(test(row) for row in rows)
        for test in (
            lambda row: row[f"saved against {EAGER}"] > 0,
            lambda row: row[f"overhead against {EAGER}"] > PAID,
        )
    )
    return f"{told}: {costs}. {saved} of {len(rows)} layers keep less than in plain execution, {paid} cost more."


def _draw(schedules: dict[str, Schedule], budget: int) -> Figure:
    from remat_explorer.figures import case_study

    first = JOINT if JOINT in schedules else next(iter(schedules))
    others = {name: schedule for name, schedule in schedules.items() if name != first}
    return case_study(first, schedules[first], others, budget)


ITEM = Item(
    key="monet-figure-5",
    paper="MONeT",
    place="Figure 5",
    title="case study: memory along the step, saving and overhead of each layer",
    notebook="08_operator_implementations.ipynb",
    function="remat_explorer.figures.case_study",
    test="tests/papers/test_items.py",
    published="ResNet-50 at batch 184: MONeT peaks at 8 GiB, PyTorch at 14.7 GiB, and memory grows in the forward "
    "pass of both (section 5); MONeT saves in early layers, and most overhead is recomputation in the backward pass "
    "(Figure 5)",
    remark="The same network at the same batch, at 60 % of its memory in place of 8 GiB. Every number is predicted, "
    "by a P100's published rates, without workspace. Their gaps are not recorded, so neither is claimed to be "
    "optimal.",
    compute=figure_5,
    words=words,
)
