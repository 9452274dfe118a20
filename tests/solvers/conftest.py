"""Shared instances of the solver tests: reference graphs and results, and random training graphs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.graph import Graph, Phase, Value, operation
from tests.search_fixtures import compiled_search  # noqa: F401

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
    return _random_graph


@pytest.fixture(scope="session")
def overwriting_graph():
    """Builder of a random training graph in which most operations of one output may overwrite an input."""
    return _overwriting_graph


def _overwriting_graph(seed: int, layers: int) -> Graph:
    graph, random = _random_graph(seed, layers), np.random.default_rng(seed)
    values, operations = list(graph.values), []
    for node in graph.operations:
        way = node.default
        dying = [v for v in way.inputs if not values[v].persistent]
        if len(way.outputs) == 1 and dying and random.random() < 0.8:
            (output,), a = way.outputs, int(random.choice(dying))
            persistent = not graph.readers[output] and random.random() < 0.5
            values[output] = replace(values[output], bytes=values[a].bytes, persistent=persistent)
            way = replace(way, overwrites=a)
        operations.append(replace(node, implementations=(way,)))
    return replace(graph, values=tuple(values), operations=tuple(operations))


def _random_graph(seed: int, layers: int) -> Graph:
    random = np.random.default_rng(seed)
    values: list[Value] = []
    operations = []
    saved: list[list[int]] = []

    def value(most: int, persistent: bool = False) -> int:
        values.append(Value(f"v{len(values)}", int(random.integers(1, most + 1)), persistent))
        return len(values) - 1

    def add(phase: Phase, reads: set[int], writes: list[int], cost: int, workspace: int = 0) -> None:
        operations.append(operation(f"o{len(operations)}", phase, sorted(reads), writes, cost, workspace))

    for i in range(layers):
        reads = {saved[i - 1][0]} if i else set()
        if i > 1 and random.random() < 0.4:
            reads.add(saved[int(random.integers(0, i - 1))][0])
        writes = [value(5)]
        if random.random() < 0.4:
            writes.append(value(3))
        saved.append(writes)
        statistics = [value(1, persistent=True)] if random.random() < 0.25 else []
        workspace = int(random.integers(0, 3)) if random.random() < 0.4 else 0
        add("forward", reads, writes + statistics, int(random.integers(1, 6)), workspace)
    gradient = value(1)
    add("backward", {saved[-1][0]}, [gradient], 1)
    for i in reversed(range(layers)):
        reads = {gradient} | {v for v in saved[i] if random.random() < 0.8}
        if i and random.random() < 0.6:
            reads.add(saved[i - 1][0])
        gradient = value(5)
        writes = [gradient] + ([value(1, persistent=True)] if random.random() < 0.6 else [])
        add("backward", reads, writes, int(random.integers(1, 8)))
    return Graph(f"random{seed}", tuple(values), tuple(operations), resident_bytes=int(random.integers(0, 4)))
