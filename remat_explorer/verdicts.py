"""Exercises of the notebooks: an answer is judged by what the program computes, a schedule by the checker."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from remat_explorer.checker import check
from remat_explorer.errors import ScheduleError
from remat_explorer.explanations import alive_at, cost_text, listed
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_seconds

MOST_NAMES = 12  # of values, in a sentence
UNANSWERED = "No answer yet: put yours in place of None and run the cell again."


def verdict(mine: Any, right: Any, hint: str = "", tolerance: float = 1e-6) -> str:
    """Whether an answer is right, in a sentence that does not give the right one away."""
    if mine is None:
        return UNANSWERED
    if _several(right) and _several(mine):
        same = len(set(mine)) == len(set(right)) and all(any(_same(a, b, tolerance) for b in right) for a in mine)
    else:
        same = not _several(right) and not _several(mine) and _same(mine, right, tolerance)
    if same:
        return f"Right: {_text(right)}."
    said = "There are some." if _several(mine) and not list(mine) else f"Not {_text(mine)}."
    if _several(right) != _several(mine):
        said += " Write several answers, such as [1, 2]." if _several(right) else " Write one answer, not several."
    return said + (f" Hint: {hint}" if hint.endswith("?") else f" Hint: {hint}." if hint else "")


def schedule_verdict(graph: Graph, R: np.ndarray, S: np.ndarray, budget: int, cost: float) -> str:
    """Whether a schedule made by hand is one, fits, and is cheap enough; if not, what is in the way.

    R is (stages, operations), S (stages, values).
    """
    try:
        checked = check(graph, R, S)
    except ScheduleError as error:
        return f"Not yet: {error}."
    if checked.peak > budget:
        memory = alive_at(checked.plan)
        values = sorted(row.value for row in memory.rows if row.value is not None)
        held = listed([graph.values[v].name for v in values], MOST_NAMES)
        needs = f"stage {memory.stage} needs {format_bytes(memory.total)}, above the budget of {format_bytes(budget)}"
        return f"Not yet: {needs}; at '{memory.text}' {held} are in memory."
    mine, enough = _cost(graph, checked.cost), _cost(graph, cost)
    if checked.cost > cost:
        if mine == enough:  # in the digits that people read
            mine, enough = f"{checked.cost:.6g}", f"{cost:.6g}"
        return f"Not yet: it is a schedule and it fits, but costs {mine}; {enough} is enough."
    return f"Right: cost {mine}, peak {format_bytes(checked.peak)}."


def _cost(graph: Graph, cost: float) -> str:
    """Seconds, or the units of the teaching graphs."""
    seconds = not cost_text(graph, cost).startswith("cost ")
    return format_seconds(cost) if seconds else f"{cost:g}"


def _several(answer: Any) -> bool:
    return isinstance(answer, Iterable) and not isinstance(answer, str)


def _same(mine: Any, right: Any, tolerance: float) -> bool:
    if isinstance(mine, Real) and isinstance(right, Real):
        return math.isclose(mine, right, rel_tol=tolerance)
    return str(mine).strip().lower() == str(right).strip().lower()


def _text(answer: Any) -> str:
    if _several(answer):
        return ", ".join(sorted(map(_text, answer), key=lambda text: (len(text), text))) or "none of them"
    return f"{float(answer):.6g}" if isinstance(answer, Real) else str(answer)
