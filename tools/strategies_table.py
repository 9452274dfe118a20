"""The table of docs/strategies.md, made of what every strategy says of itself: python -m tools.strategies_table."""

from __future__ import annotations

from pathlib import Path

from remat_explorer.documents import write_text
from remat_explorer.solvers import STRATEGIES

PAGE = Path(__file__).parents[1] / "docs" / "strategies.md"
BEGINS, ENDS = "<!-- table: python -m tools.strategies_table -->", "<!-- end of the table -->"
HEADS = ("strategy", "what it does", "any graph", "costs", "memory", "options", "source")


def strategies_table() -> str:
    """A row of Markdown for each strategy, in the order of the registry; the knob stands first among the options."""
    rows = [HEADS, ["---"] * len(HEADS)]
    for name, method in STRATEGIES.items():
        aware = (method.general_graphs, method.cost_aware, method.memory_aware)
        options = ", ".join(f"`{option}`" for option in method.arguments)
        rows.append([f"`{name}`", method.summary, *aware, options, method.source])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def main() -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGINS)
    write_text(PAGE, f"{before}{BEGINS}\n{strategies_table()}\n{ENDS}{rest.partition(ENDS)[2]}")


if __name__ == "__main__":
    main()
