"""An exercise of the notebooks: how an answer is judged, hints one after the other, and a solution on request."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.exercises import UNANSWERED, verdict
from remat_explorer.graph import Graph
from remat_explorer.solvers import solve


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
        if unanswered(mine):
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


def unanswered(mine: Any) -> bool:
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
