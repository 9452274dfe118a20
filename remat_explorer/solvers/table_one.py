"""Table 1 of the paper as data, for whoever shows the strategies: the command line and the explorer.

Source: Jain et al., Checkmate (MLSys 2020), Table 1, with the options and the sources of each method.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.errors import SolverError
from remat_explorer.solvers.method import Method


@dataclass(frozen=True)
class TableOneRow:
    """What is to be known of a strategy.

    Attributes:
        summary: what it does; of one that cannot be loaded, why not, and the rest is empty.
        general_graphs, cost_aware, memory_aware: "yes", "partly" or "no", as in `Method`.
        knob: the option that turns it, or "".
        knob_meaning: what that is, with its range.
        options: its other options.
        source: authors, year and section.
    """

    summary: str
    general_graphs: str = ""
    cost_aware: str = ""
    memory_aware: str = ""
    knob: str = ""
    knob_meaning: str = ""
    options: tuple[str, ...] = ()
    source: str = ""

    def describe(self) -> str:
        """The row as sentences: what the strategy does, what turns it, and where it comes from.

        >>> TableOneRow("it forgets everything", source="Lethe").describe()
        'it forgets everything. Source: Lethe.'
        """
        knob = f" Knob: {self.knob}, {self.knob_meaning}." if self.knob else ""
        return f"{self.summary}.{knob}" + (f" Source: {self.source}." if self.source else "")


def row(method: Method) -> TableOneRow:
    """The row of a method.

    >>> from remat_explorer.solvers.strategies.registry import STRATEGIES
    >>> row(STRATEGIES["checkpoint-all"]).cost_aware
    'no'
    """
    try:
        return TableOneRow(
            method.summary,
            str(method.general_graphs),
            str(method.cost_aware),
            str(method.memory_aware),
            method.knob.name if method.knob else "",
            method.knob.meaning if method.knob else "",
            method.options,
            method.source,
        )
    except SolverError as error:  # of another package
        return TableOneRow(str(error))
