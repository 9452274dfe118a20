"""Checkmate's appendix A: the integrality gap with stages and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.instances import linear
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.solvers import relax, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LAYERS = 8
BUDGETS: dict[Settings, tuple[int, ...]] = {"small": (4, 5, 6), "full": tuple(range(3, 11))}


def appendix_a(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Optimum over linear programming bound, for the chain of eight layers at several budgets."""
    rows: list[dict[str, Any]] = []
    for budget in BUDGETS[settings]:
        if cancelled():
            break
        progress(f"eight layers, budget {budget}")
        rows.append(gaps(budget))
    complete = len(rows) == len(BUDGETS[settings])
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Both gaps at the paper's budget; see `Item.words`."""
    first = next((row for row in rows if row["budget"] == 4), None)
    if first is None:
        return "Nothing was solved before the run was cancelled."
    return (
        f"Eight layers, budget 4: the optimum {first['optimum']:g} over the linear programs' {first['bound']:.6g} with "
        f"stages and {first['bound without stages']:.7g} without is {first['gap']:.2f} and "
        f"{first['gap without stages']:.2f}."
    )


def gaps(budget: int) -> dict[str, Any]:
    """Optimum, both bounds, and both integrality gaps of the chain at a budget.

    >>> found = gaps(4)
    >>> round(found["gap"], 2), round(found["gap without stages"], 2)
    (1.18, 21.56)
    """
    chain = linear(LAYERS)
    optimum = solve(chain, budget).cost
    assert optimum is not None
    bound, loose = relax(chain, budget), relax(chain, budget, "checkmate-unpartitioned")
    row = {"budget": budget, "optimum": optimum, "bound": bound, "bound without stages": loose}
    return row | {"gap": optimum / bound, "gap without stages": optimum / loose}


def _draw(rows: list[dict[str, Any]]) -> Figure:
    columns = {"gap": "with stages", "gap without stages": "without stages"}
    figure = bars(rows, "budget", columns, "optimum over linear programming bound", logarithmic=True)
    return figure.update_xaxes(title_text="budget (values of the chain)")


ITEM = Item(
    key="checkmate-appendix-a",
    paper="Checkmate",
    place="appendix A",
    title="the integrality gap",
    notebook="04_the_integer_program.ipynb",
    function="rx.relax",
    test="tests/papers/test_exact_items.py",
    published="1.18 with stages, 21.56 without (appendix A)",
    remark="The same to every published digit: 26 / 22 and 26 / 1.206107.",
    compute=appendix_a,
    words=words,
)
