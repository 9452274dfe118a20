"""The two rules that most codebases invent, as strategies: of all shares, the cheapest that keeps the budget.

There is no single source: "bytes per second" is the order in which planners drop values first, and a knapsack of whole
layers what they turn to where the model is a list of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from remat_explorer.solvers.framework_rules import simple_rules
from remat_explorer.solvers.heuristics.segmentation import within_budget
from remat_explorer.solvers.method import BackgroundSweep, Candidate, Knob, Method, Support


def _method(candidates: Callable[..., Iterator[Candidate]], summary: str, of: str, symbol: str) -> Method:
    return Method(
        within_budget(candidates),
        summary,
        "a rule that many codebases invent",
        general_graphs=Support.YES,
        cost_aware=Support.YES,
        memory_aware=Support.PARTLY,
        knob=Knob("kept_share", f"share that may stay of the bytes {of}, from 0 to 1", simple_rules.kept_shares),
        candidates=candidates,
        symbol=symbol,
        background_sweep=BackgroundSweep.NEVER,
    )


BYTES_PER_SECOND = _method(
    simple_rules.greedy_by_bytes_per_second,
    "drops the values that free most bytes per second of their own operation",
    "that the backward pass reads",
    "arrow-down",
)
LAYER_KNAPSACK = _method(
    simple_rules.layer_knapsack,
    "a checkpoint around every layer but those that a knapsack keeps",
    "that checkpoints around all layers save",
    "arrow-left",
)
