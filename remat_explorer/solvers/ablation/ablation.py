"""What an ablation found: how much each kind of implementations is worth, alone and all together.

A schedule of one set is one of every larger set, and a bound for a set holds for every smaller one; the same goes
for larger and smaller budgets. So costs never rise with kinds or memory, and bounds never fall without them.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), Figure 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remat_explorer.documents import read_json, write_json
from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import SolutionError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes, format_overhead, format_share
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.ablation.ablation_file import ablation_document, parse_ablation
from remat_explorer.solvers.ablation.sets_of_kinds import ALL, NONE, Kinds, called, sets_of
from remat_explorer.solvers.ablation.smallest_budget import SmallestBudget
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak

WORTH_TELLING = 5e-4  # gaps from which on the table shows them


@dataclass(frozen=True, eq=False)
class Ablation:
    """Solutions of the joint problem for several sets of kinds, each at several budgets.

    Attributes:
        graph: the graph that was scheduled.
        kinds: the kinds that were tried.
        budgets: bytes, ascending.
        solutions: by set of kinds and budget.
        smallest: the smallest budget of each set, as far as it is known.
        seconds: wall time of the whole.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.ablation.ablation_run import ablation
    >>> print(ablation(linear(8), [4, 6]))
    kinds  smallest budget      4 B      6 B
    none      3 B (30.0 %)  +52.9 %  +23.5 %
    """

    graph: Graph
    kinds: Kinds
    budgets: tuple[int, ...]
    solutions: Mapping[tuple[Kinds, int], Solution]
    smallest: Mapping[Kinds, SmallestBudget]
    seconds: float = 0.0

    @property
    def sets(self) -> tuple[Kinds, ...]:
        """The sets of kinds: none, each alone, and all together."""
        return sets_of(self.kinds)

    def curve(self, kinds: str | Iterable[str] = ALL) -> tuple[Solution, ...]:
        """The solutions of one set of kinds, by budget.

        Args:
            kinds: "none", "all", a kind, or kinds.

        Raises:
            SolutionError: if the ablation has no such set.
        """
        require_arguments(Ablation.curve, locals())
        chosen = self._set(kinds)
        return tuple(self.solutions[chosen, budget] for budget in self.budgets)

    def smallest_budget(self, kinds: str | Iterable[str] = ALL) -> SmallestBudget:
        """The smallest budget of one set of kinds.

        Args:
            kinds: "none", "all", a kind, or kinds.

        Raises:
            SolutionError: if the ablation has no such set, or was cancelled before it came to it.
        """
        require_arguments(Ablation.smallest_budget, locals())
        chosen = self._set(kinds)
        if chosen not in self.smallest:
            raise SolutionError(f"the ablation ended before the smallest budget of {called(chosen, self.kinds)!r}")
        return self.smallest[chosen]

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text: its heads, then one row for each set of kinds."""
        peak = checkpoint_all_peak(self.graph)
        rows = [("kinds", "smallest budget", *map(format_bytes, self.budgets))]
        for kinds in self.sets:
            least = self.smallest.get(kinds)
            share = "" if least is None else f" ({format_share(least.known_feasible / peak)})"
            size = "" if least is None else format_bytes(least.known_feasible)
            rows.append((called(kinds, self.kinds), size + share, *(_cell(point) for point in self.curve(kinds))))
        return rows

    def save(self, path: str | Path) -> Path:
        """Write the ablation file atomically."""
        require_arguments(Ablation.save, locals())
        return write_json(path, self.to_document())

    @staticmethod
    def load(path: str | Path, graph: Graph) -> Ablation:
        """Read an ablation file of ``graph``; every schedule in it is checked again.

        Raises:
            SolutionError: if the file is no ablation, belongs to another graph, or says of a schedule what is not so.
        """
        require_arguments(Ablation.load, locals())
        document = read_json(path, SolutionError)
        try:
            return Ablation.from_document(document, graph)
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None

    def to_document(self, with_runs: bool = True) -> dict[str, Any]:
        """The ablation file as a JSON object, version 1, or what it says without the schedules.

        >>> from remat_explorer.instances import linear
        >>> Ablation(linear(2), (), (), {}, {}).to_document()["sets"]
        [{'kinds': [], 'smallest': None, 'points': []}]
        """
        fields = self.kinds, self.budgets, self.solutions, self.smallest, self.seconds
        return ablation_document(self.graph, *fields, with_runs)

    @staticmethod
    def from_document(document: Any, graph: Graph) -> Ablation:
        """The ablation of a parsed ablation file, every schedule checked again.

        Raises:
            SolutionError: as `load`.
        """
        return Ablation(graph, *parse_ablation(document, graph))

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *cells in rows:
            right = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join([f"{first:<{widths[0]}}", *right]).rstrip())
        return "\n".join(lines)

    def _set(self, kinds: str | Iterable[str]) -> Kinds:
        if isinstance(kinds, str):
            kinds = {NONE: (), ALL: self.kinds}.get(kinds, (kinds,))
        wanted = set(kinds)
        for kind in sorted(wanted.difference(self.kinds)):
            raise UnknownNameError("kind of this ablation", kind, [*self.kinds, NONE, ALL])
        chosen = tuple(kind for kind in self.kinds if kind in wanted)
        if chosen not in self.sets:
            raise SolutionError(f"the ablation has no set {', '.join(chosen)!r}: it has none, each alone, and all")
        return chosen


def _cell(solution: Solution) -> str:
    if solution.schedule is None:
        return "infeasible" if solution.status is Status.INFEASIBLE else "not found"
    gap = "" if solution.gap is not None and solution.gap < WORTH_TELLING else ", no bound"
    if solution.gap is not None and solution.gap >= WORTH_TELLING:
        gap = f" (gap {format_share(solution.gap)})"
    return format_overhead(solution.schedule.overhead) + gap
