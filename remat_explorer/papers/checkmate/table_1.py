"""Checkmate's Table 1: what each method is aware of; and REVOLVE's counts, which its chain methods are held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.instances import linear
from remat_explorer.papers.drawing import text_table
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.method import row
from remat_explorer.solvers.methods.griewank import binomial_schedule, forward_steps

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
    return Outcome(words(rows, settings), rows, draw, complete=not cancelled())


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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
    traits = row(STRATEGIES[name])
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


ITEM = Item(
    key="checkmate-table-1",
    paper="Checkmate",
    place="Table 1",
    title="methods, and what they are aware of",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.solvers.method.row",
    test="tests/papers/test_exact_items.py",
    published="of ten methods Checkmate's two alone take general graphs and are fully aware of costs and memory "
    "(Table 1)",
    remark="With methods that came after the paper, or are not in its table. REVOLVE's counts are not in it either: "
    "they are the closed form of Griewank and Walther's own article.",
    compute=table_1,
    words=words,
)
