"""An exercise of the notebooks: how an answer is judged, hints one after the other, and a solution on request.

A learner's own R and S are drawn after an attempt: the cell that breaks a rule in red, and memory beside the budget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.figures import LIGHT, schedule_heatmap
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve
from remat_explorer.verdicts import UNANSWERED, verdict

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def faulty_cell(graph: Graph, R: np.ndarray, S: np.ndarray) -> tuple[str, int, int] | None:
    """The first cell that breaks (1b), (1c) or (1d): "R" or "S", stage, and column; None if no cell does.

    >>> from remat_explorer.instances import linear
    >>> faulty_cell(linear(1), np.eye(3), np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]]))
    ('R', 1, 1)
    """
    for t in range(graph.n):
        for i in np.flatnonzero(S[t]):
            maker = int(graph.producer[i])
            if t == 0 or not (S[t - 1, i] or R[t - 1, maker]):
                return "S", t, int(i)
        for k in np.flatnonzero(R[t]):
            if not all(S[t, i] or R[t, int(graph.producer[i])] for i in graph.inputs(int(k))):
                return "R", t, int(k)
    return None


def attempt(graph: Graph, R: np.ndarray, S: np.ndarray, budget: int) -> Figure:
    """R, S, and the most memory of each stage beside the budget.

    Args:
        graph: the training graph, with as many stages as operations.
        R: (stages, operations).
        S: (stages, values).
        budget: bytes.
    """
    schedule = Schedule(graph, R, S)
    figure: Any = schedule_heatmap(schedule)
    wrong = faulty_cell(graph, np.asarray(R), np.asarray(S))
    if wrong:
        table, stage, column = wrong
        side = {"row": 1, "col": 1 if table == "R" else 2}
        box = {"x0": column - 0.5, "x1": column + 0.5, "y0": stage - 0.5, "y1": stage + 0.5}
        figure.add_shape(type="rect", fillcolor=LIGHT.over, line={"color": LIGHT.over, "width": 3}, **box, **side)
        title = f"{table}[{stage}, {column}], in red, breaks a rule"
    else:
        most = schedule.U.max(axis=1)
        title = _said(most, budget)
        colours = [LIGHT.over if bytes_ > budget else LIGHT.kept for bytes_ in most]
        bars = {"x": most, "y": np.arange(graph.n), "orientation": "h", "marker": {"color": colours}}
        figure.add_bar(**bars, xaxis="x3", yaxis="y3", name="memory", showlegend=False)
        figure.update_layout(
            xaxis={"domain": [0, 0.36]},
            xaxis2={"domain": [0.39, 0.75]},
            xaxis3={"domain": [0.8, 1], "anchor": "y3", "title": "bytes", "rangemode": "tozero"},
            yaxis3={"anchor": "x3", "matches": "y", "showticklabels": False},
        )
        for heading, middle in zip(figure.layout.annotations, (0.18, 0.57), strict=True):
            heading.update(x=middle, xref="paper")
        figure.add_annotation(figure.layout.annotations[0], x=0.9, text="most in the stage")
        line = {"color": LIGHT.budget, "dash": "dash"}
        ends = {"x0": budget, "x1": budget, "y0": -0.5, "y1": graph.n - 0.5}
        figure.add_shape(type="line", xref="x3", yref="y3", line=line, **ends)
    return figure.update_layout(title=title)


def _said(most: np.ndarray, budget: int) -> str:
    """Which stages need more than the budget, and how much.

    >>> _said(np.array([2, 9, 3]), 8), _said(np.array([2, 9, 10]), 8)
    ('Budget 8 bytes: stage 1 needs 9', 'Budget 8 bytes: 2 stages need more, most of all stage 2 with 10')
    """
    over = np.flatnonzero(most > budget)
    if not len(over):
        return f"Budget {budget} bytes: every stage fits"
    stage = int(most.argmax())
    if len(over) == 1:
        return f"Budget {budget} bytes: stage {stage} needs {int(most[stage])}"
    return f"Budget {budget} bytes: {len(over)} stages need more, most of all stage {stage} with {int(most[stage])}"


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        name: notebook and number, such as "03.4".
        right: computes the right answer, from what the notebook hands to `check` behind the learner's own, if anything.
        hints: sentences without a full stop, each saying more than the one before.
        solution: Python that answers it, to stand before the check.
        why: what the solution rests on.
        tolerance: relative difference up to which two numbers are the same.
        judged: judges an answer that is no number, name or list; it begins with "Right" if the answer is right.
    """

    name: str
    right: Callable[..., Any]
    hints: tuple[str, ...]
    solution: str
    why: str
    tolerance: float = 1e-6
    judged: Callable[..., str] | None = None

    def verdict(self, mine: Any, *given: Any) -> str:
        """What is said to an answer: right, not right, or that there is none yet."""
        if is_unanswered(mine):
            return UNANSWERED
        said = (
            self.judged(mine, *given)
            if self.judged
            else verdict(as_meant(mine), as_meant(self.right(*given)), tolerance=self.tolerance)
        )
        return said if said.startswith("Right") else f'{said} (A hint: rx.course.hint("{self.name}").)'


def least_cost(graph: Graph, budget: int) -> float:
    """What the best schedule within a budget costs; infinity if there is none.

    >>> from remat_explorer.instances import linear
    >>> least_cost(linear(8), 5), least_cost(linear(8), 2)
    (22.0, inf)
    """
    cost = solve(graph, budget).cost
    return math.inf if cost is None else cost


def is_unanswered(mine: Any) -> bool:
    """Whether nothing has been written yet: None, the dots of Python, or an empty text."""
    return mine is None or mine is ... or (isinstance(mine, str) and not mine.strip())


def as_meant(answer: Any) -> Any:
    """An answer without what people write around it: "(1b)" is "1b", "4 bytes" is 4, "0, 1" is [0, 1].

    >>> as_meant("(1b)"), as_meant(" Eq. (1b). "), as_meant("4 bytes"), as_meant("0, 1, 2"), as_meant("Memory")
    ('1b', '1b', 4.0, [0.0, 1.0, 2.0], 'memory')
    """
    if isinstance(answer, list | tuple | set | frozenset):
        return [as_meant(each) for each in answer]
    if not isinstance(answer, str):
        return answer
    text = re.sub(r"^(equation|eq|rule)\b\.?", "", answer.strip().lower()).strip(" .()[]\"'`")
    if "," in text:
        return [as_meant(part) for part in text.split(",") if part.strip()]
    number = re.fullmatch(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*(bytes?|kib|%|layers?|examples?|x|times)?", text)
    return float(number.group(1)) if number else text.replace("_", "-")
