"""Searches of items that end with their first schedule, or with a proof: no clock decides what they find."""

from typing import Any

import pytest

from remat_explorer.solvers import solve

ENOUGH = 900.0  # seconds, of which a search takes a few


def until_found(graph: Any, budget: Any, strategy: str, time_limit: float, **more: Any) -> Any:
    """As `solve`; where implementations are chosen, the first schedule will do."""
    found: list[bool] = []
    hear, cancelled = more.pop("on_progress"), more.pop("cancelled")

    def heard(progress: Any) -> None:
        found.append(progress.cost is not None and strategy == "monet")
        hear(progress)

    return solve(
        graph, budget, strategy, ENOUGH, on_progress=heard, cancelled=lambda: any(found) or cancelled(), **more
    )


def search_until_found(patch: pytest.MonkeyPatch, *modules: Any) -> None:
    for module in modules:
        patch.setattr(module, "solve", until_found)
