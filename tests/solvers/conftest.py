"""Shared instances of the solver tests: reference graphs and results, and random training graphs."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.graph import Graph
from tests.search_fixtures import compiled_search, fitting_worker  # noqa: F401
from tests.solvers import random_graphs
from tests.solvers.helpers import simple_graph

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def reference():
    """Reader of a reference file in tests/data."""

    def read(name: str) -> list[dict[str, Any]]:
        return json.loads((DATA / name).read_text())

    return read


@pytest.fixture(scope="session")
def captured():
    """Loader of a captured full-size graph."""
    return lambda name: Graph.load(str(DATA / "captured" / f"{name}.json"))


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """An executor with one thread of this process."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="session")
def residual() -> Graph:
    """A small network, captured with all kinds of implementations and profiled once."""
    return Graph.load(str(DATA / "ablation" / "residual.json"))


@pytest.fixture(scope="session")
def small_graph():
    """Builder of a graph with one output per operation from an entry of exact_small_graphs.json."""
    return lambda entry: simple_graph(entry["deps"], entry["mem"], entry["cost"], name=entry["graph"])


@pytest.fixture(scope="session")
def random_graph():
    """Builder of a random training graph: several outputs, persistent values, workspace, resident bytes."""
    return random_graphs.random_graph


@pytest.fixture(scope="session")
def overwriting_graph():
    """Builder of a random training graph in which most operations of one output may overwrite an input."""
    return random_graphs.overwriting_graph
