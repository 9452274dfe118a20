"""The exercises of the notebooks by name: `check` judges an answer, `hint` helps, `solution` shows one on request.

>>> check("03.5", "3 bytes")
Right: 3.
>>> hint("03.5")
A gradient reads two values: which?
>>> solution("03.5")
mine = 3
A gradient reads two values and writes a third, and all three are in memory at once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from remat_explorer.course.exercise import Exercise
from remat_explorer.course.questions import BY_HAND, FIRST_HALF, SECOND_HALF, TABLE_1, tables_of
from remat_explorer.errors import UnknownNameError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXERCISES: dict[str, Exercise] = {exercise.name: exercise for exercise in (*FIRST_HALF, *SECOND_HALF)}
_hints_given: Counter[str] = Counter()


def check(name: str, mine: Any, *given: Any) -> Figure | None:
    """Print whether an answer is right; for a schedule made by hand, return its picture, too.

    Args:
        name: of the exercise, such as "03.4".
        mine: the answer; None as long as there is none. For a schedule made by hand R and S as a tuple, or the explorer
            in which it was made.
        given: what the notebook has computed and the check needs.

    Raises:
        UnknownNameError: if there is no such exercise.
    """
    exercise = _find(name)
    print(exercise.verdict(mine, *given))
    tables = tables_of(mine) if name in BY_HAND else None
    if tables is None:
        return None
    from remat_explorer.course.exercise import attempt

    graph, budget, _ = BY_HAND[name]()
    fits = tables[0].shape == tables[1].shape == (graph.n, graph.n)
    return attempt(graph, *tables, budget) if fits else None


def hint(name: str) -> None:
    """Print the next hint; after the last one, that one again."""
    exercise = _find(name)
    said = exercise.hints[min(_hints_given[name], len(exercise.hints) - 1)]
    _hints_given[name] += 1
    print(said if said.endswith("?") else said + ".")


def solution(name: str) -> None:
    """Print an answer, as the code that gives it, and the reason."""
    exercise = _find(name)
    print(exercise.solution, exercise.why, sep="\n")


def _find(name: str) -> Exercise:
    if name not in EXERCISES:
        raise UnknownNameError("exercise", name, EXERCISES)
    return EXERCISES[name]
