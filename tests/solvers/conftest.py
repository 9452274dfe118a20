"""Shared instances of the solver tests: reference graphs and results, and random training graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.graph import Graph, Value, operation
from tests.search_fixtures import compiled_search  # noqa: F401
from tests.solvers import random_graphs

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


@pytest.fixture(scope="session")
def small_graph():
    """Builder of a graph with one output per operation from an entry of exact_small_graphs.json."""

    def build(entry: dict[str, Any]) -> Graph:
        names = [f"v{k}" for k in range(len(entry["cost"]))]
        values = tuple(Value(name, size) for name, size in zip(names, entry["mem"], strict=True))
        rows = enumerate(zip(names, entry["deps"], entry["cost"], strict=True))
        operations = tuple(operation(name, "forward", reads, [k], cost) for k, (name, reads, cost) in rows)
        return Graph(entry["graph"], values, operations)

    return build


@pytest.fixture(scope="session")
def random_graph():
    """Builder of a random training graph: several outputs, persistent values, workspace, resident bytes."""
    return random_graphs.random_graph


@pytest.fixture(scope="session")
def overwriting_graph():
    """Builder of a random training graph in which most operations of one output may overwrite an input."""
    return random_graphs.overwriting_graph
