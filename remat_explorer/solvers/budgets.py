"""Budgets of a sweep, given or spaced, and the bytes below which no schedule fits as far as single operations tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from remat_explorer.errors import QuantityError, shown
from remat_explorer.graph import Graph
from remat_explorer.quantities import parse_budget
from remat_explorer.solvers.condensed import Condensed


def largest_operation(graph: Graph) -> tuple[int, int]:
    """The operation that needs the most memory for itself, and its bytes: no schedule with stages needs less.

    >>> from remat_explorer.instances import linear
    >>> largest_operation(linear(8))
    (9, 3)
    """
    needed = Condensed.of(graph).operation_bytes
    k = int(needed.argmax())
    return k, int(needed[k])


def smallest_budget_with_stages(graph: Graph) -> int:
    """Bytes below which no schedule with stages fits; resident bytes where operations have several implementations.

    >>> from remat_explorer.instances import linear
    >>> smallest_budget_with_stages(linear(8))
    3
    """
    return graph.resident_bytes if graph.has_choices else largest_operation(graph)[1]


def smallest_budget_without_stages(graph: Graph) -> int:
    """The same without stages: the persistent outputs of earlier operations may still be to come, and do not count.

    >>> from remat_explorer.instances import linear
    >>> smallest_budget_without_stages(linear(8))
    3
    """
    if graph.has_choices:
        return graph.resident_bytes
    condensed = Condensed.of(graph)
    return int((condensed.operation_bytes - condensed.base).max()) + graph.resident_bytes


MOST_BUDGETS = 1000  # of a sweep, or for each set of an ablation
CROWDING = 2.0  # budgets grow with this power of their place, so they lie closer where the curve is steep


def spaced_budgets(least: int, most: int, count: int) -> list[int]:
    """Up to ``count`` budgets from ``least`` to ``most``, both included, closer together near ``least``.

    Cost rises steeply towards the smallest feasible budget, so evenly spaced ones would show little of it:

        B_i = least + (most - least) * (i / (count - 1)) ** 2

    Of the powers from 1 to 3, and of geometric spacing, the square left the smallest largest step of cost between
    neighbours, and nearly the smallest area between the steps and the curve, on the captured and the Keras networks.

    Args:
        least: bytes of the smallest budget, the smallest known to be feasible.
        most: bytes of the largest budget, the peak of checkpoint-all.
        count: how many; of 1, only ``most`` remains. Fewer come back where there are not so many whole bytes.

    >>> spaced_budgets(100, 200, 5)
    [100, 106, 125, 156, 200]
    >>> spaced_budgets(3, 5, 12)
    [3, 4, 5]
    """
    places = [(i / (count - 1)) ** CROWDING for i in range(count)] if count > 1 else [1.0]
    return sorted({least + round((most - least) * place) for place in places})


def read_budgets(
    budgets: Sequence[str | int | float], checkpoint_all_peak: int, smallest: Callable[[], int] | None = None
) -> list[int]:
    """Budgets in bytes, ascending, each once.

    Args:
        budgets: what `parse_budget` takes, in any order.
        checkpoint_all_peak: the 100% of a percentage, in bytes.
        smallest: finds what "smallest" stands for.

    Raises:
        QuantityError: if there is none, or one of them cannot be read.

    >>> read_budgets(["80%", 500, "0.5 KB"], 1000)
    [500, 800]
    """
    if not len(budgets):
        raise QuantityError(
            'there are no budgets to sweep over; give a number of budgets, or a list like ["60%", 4096]'
        )
    return sorted({parse_budget(budget, checkpoint_all_peak, smallest) for budget in budgets})


def require_count(count: int) -> int:
    """``count``, if so many budgets can be spaced.

    Raises:
        QuantityError: if it is not from 1 to `MOST_BUDGETS`.
    """
    if isinstance(count, bool) or not 1 <= count <= MOST_BUDGETS:
        raise QuantityError(
            f"{shown(count)} is not a number of budgets; give 1 to {MOST_BUDGETS}, or a list of budgets"
        )
    return count
