"""What the relaxation with choices would choose at smaller and larger budgets: other choices, mostly good ones.

A linear program at one budget gives one choice, and rounding it may be unlucky. Beside it, where memory is worth a
little more or less, some operations are chosen otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.monet.relaxation_with_choices import RELAXATION, RelaxationSettings, RelaxationWithChoices
from remat_explorer.solvers.monet.tables import Tables


def choices_near(
    tables: Tables,
    budget: int,
    shares: Sequence[float],
    limits: Limits,
    columns: float,
    settings: RelaxationSettings = RELAXATION,
) -> Iterator[dict[int, int]]:
    """For each share of the budget the implementations that its linear program would choose, by operation.

    Args:
        tables: of the problem.
        budget: bytes, resident bytes included.
        shares: of the budget, such as 0.9; none is taken below what a single operation needs.
        limits: time for all of them.
        columns: of the programs of each of them together, as in `RelaxationWithChoices.improve`.
        settings: of the relaxation.
    """
    least = int(tables.problem.least_memory.max())
    for other in shares:
        if limits.over:
            return
        relaxation = RelaxationWithChoices(tables, max(least, int(other * budget)), settings)
        quiet = replace(limits, report=lambda progress: None)  # its bound is not one of this budget
        yield relaxation.improve(quiet, integral=False, columns=columns).choice()
