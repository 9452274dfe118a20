"""The compiled search, loaded before a clock begins to run."""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.solvers.base import Progress


def load_search(report: Callable[[Progress], None] = lambda progress: None) -> None:
    """Load the planner's machine code, or compile it, which takes about fifteen seconds once on a machine.

    Args:
        report: called with a `Progress` if it must be compiled.

    >>> load_search()
    """
    from remat_explorer.solvers.search.compilation import warm_up  # imports the compiler

    warm_up(lambda doing: report(Progress(0.0, doing)))
