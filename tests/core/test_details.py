"""Details of operations: kept by the graph file, seen by no fingerprint."""

import copy
import dataclasses
import json

import pytest

from remat_explorer.errors import GraphError
from remat_explorer.graph import Graph
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details
from remat_explorer.solvers import solve
from remat_explorer.solvers.solution import Solution

DETAILS = Details("features.3", "conv2d + relu", ("8x64x32x32",), "net.py:42")


def detailed(graph: Graph) -> Graph:
    """The same graph, with details on its second operation only."""
    first, second, *rest = graph.operations
    return dataclasses.replace(graph, operations=(first, dataclasses.replace(second, details=DETAILS), *rest))


def test_the_graph_file_keeps_details_and_operations_without_them(tmp_path):
    detailed(linear(3)).save(str(tmp_path / "graph.json"))
    operations = Graph.load(str(tmp_path / "graph.json")).operations
    assert operations[1].details == DETAILS
    assert operations[0].details is None
    assert "details" not in json.loads((tmp_path / "graph.json").read_text())["operations"][0]


def test_neither_fingerprints_nor_equality_see_details():
    plain = linear(3)
    assert detailed(plain).sha256 == plain.sha256
    assert detailed(plain).structure == plain.structure
    assert detailed(plain) == plain


def test_a_solution_of_a_graph_without_details_belongs_to_the_same_graph_with_them(tmp_path):
    plain = linear(8)
    path = solve(plain, budget=4, strategy="checkmate-ilp").save(tmp_path / "solution.json")
    assert Solution.load(path, detailed(plain)).cost == Solution.load(path, plain).cost == 26


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("line"), "the details of operation 1 lacks the key 'line'"),
        (lambda d: d.update(path="/home"), "unknown key 'path'"),
        (lambda d: d.update(module=3), "the module of operation 1 is not a string: 3"),
        (lambda d: d.update(shapes=[[8, 64]]), "a shape of operation 1 is not a string"),
        (lambda d: d.update(shapes="8x64"), "the shapes of operation 1 is not a list"),
    ],
)
def test_details_that_are_none_are_refused_by_name(change, message):
    document = json.loads(dump_graph(detailed(linear(3)), details=True))
    broken = copy.deepcopy(document)
    change(broken["operations"][1]["details"])
    with pytest.raises(GraphError, match=message):
        Graph.from_document(broken)
