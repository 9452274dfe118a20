"""Whatever a graph calls its parts, a figure shows it, and takes none of it for markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer import figures
from remat_explorer.figures.implementation_images import implementation_images
from remat_explorer.plan import Plan
from remat_explorer.solvers import Frontier
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile

MARKUP = re.compile(r"<(?!/?(b|i|br|br/|extra|span|sup|sub)\b)[^<>]*>")  # what the figures themselves write is left out


@pytest.fixture(scope="module")
def solution() -> Any:
    """A schedule with recomputations of such a graph."""
    return rx.solve(hostile(rx.linear(8)), budget=4)


@pytest.fixture(scope="module")
def chosen() -> Any:
    """A schedule with choices of such a graph."""
    return rx.solve(hostile(chain_with_choices()), 3600, "monet")


def texts(entry: Any) -> Iterator[str]:
    """Every text of a JSON value."""
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from texts(part)


DRAWN: dict[str, Callable[[Any, Any], Any]] = {
    "schedule": lambda solution, chosen: figures.schedule_heatmap(solution.schedule),
    "memory": lambda solution, chosen: figures.memory_heatmap(solution.schedule),
    "computations": lambda solution, chosen: figures.computation_matrices([solution.schedule], ["found"]),
    "timeline": lambda solution, chosen: figures.memory_timeline(Plan.of(solution.schedule)),
    "map": lambda solution, chosen: figures.memory_map(Plan.of(solution.schedule)),
    "comparison": lambda solution, chosen: figures.compare(solution, solution),
    "network": lambda solution, chosen: figures.model_graph(solution.graph, solution.schedule, 7),
    "trade-off": lambda solution, chosen: figures.tradeoff(Frontier(solution.graph, (solution,))),
    "breakdown": lambda solution, chosen: figures.memory_breakdown([solution.graph]),
    "case": lambda solution, chosen: figures.case_study("found", solution.schedule, {"same": solution.schedule}),
    "implementations": lambda solution, chosen: implementation_images(chosen.schedule),
    "algorithms": lambda solution, chosen: figures.convolution_algorithms(chosen.schedule, 0),
}


@pytest.mark.parametrize("name", DRAWN)
def test_no_name_is_markup_in(name: str, solution: Any, chosen: Any) -> None:
    figure = json.loads(DRAWN[name](solution, chosen).to_json())
    assert [text for text in texts(figure) if MARKUP.search(text)] == []
