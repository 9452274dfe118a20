"""Graphs: validation at construction, and the graph file, version 1."""

import copy
import json

import pytest

from remat_explorer.errors import GraphError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear


@pytest.fixture
def document():
    return json.loads(dump_graph(linear(3)))


def refused(document) -> str:
    with pytest.raises(GraphError) as caught:
        Graph.from_document(document)
    return str(caught.value)


def test_round_trip_keeps_every_field_and_the_fingerprint(tmp_path):
    graph = Graph(
        "two ways",
        (Value("x", 4), Value("w.grad", 8, persistent=True)),
        (
            operation("f", "forward", [], [0], 0.25, workspace=3),
            Operation(
                "g",
                "backward",
                (Implementation((0,), (1,), 1.5), Implementation((), (1,), 2.5, 7, "recomputed")),
            ),
        ),
        resident_bytes=16,
    )
    graph.save(tmp_path / "graph.json")
    again = Graph.load(tmp_path / "graph.json")
    assert again == graph
    assert again.sha256 == graph.sha256
    assert again.has_choices
    assert not linear(2).has_choices


def test_reference_file_of_the_chain_is_the_chain_built_here(data):
    assert Graph.load(data / "graphs" / "linear8.json") == linear(8)


def test_a_cost_of_1_and_a_cost_of_1_0_are_the_same_graph(document):
    for node in document["operations"]:
        node["implementations"][0]["cost"] = 1
    assert Graph.from_document(document).sha256 == linear(3).sha256


def test_an_integer_cost_that_no_float_has_is_the_nearest_one(document):
    document["operations"][1]["implementations"][0]["cost"] = 2**53 + 1
    graph = Graph.from_document(document)
    assert graph.operations[1].default.cost == 2.0**53
    assert Graph.from_document(json.loads(dump_graph(graph))) == graph


def test_a_cycle_is_refused_and_the_operations_are_named(document):
    document["operations"][0]["implementations"][0]["inputs"] = [2]
    assert "operation 'v0' (number 0) reads 'v2', which 'v2' (number 2) produces: a cycle" in refused(document)


def test_an_operation_that_reads_its_own_output_is_refused(document):
    document["operations"][1]["implementations"][0]["inputs"] = [1]
    assert "reads 'v1', which 'v1' (number 1) produces" in refused(document)


@pytest.mark.parametrize("key", ["format", "version", "name", "resident_bytes", "values", "operations"])
def test_every_missing_key_of_the_file_is_named(document, key):
    del document[key]
    assert f"lacks the key {key!r}" in refused(document)


def test_a_missing_key_of_a_value_is_named_with_the_entry(document):
    del document["values"][2]["bytes"]
    assert refused(document) == """value 2 lacks the key 'bytes': {"name": "v2", "persistent": false}"""


def test_an_unknown_key_of_an_implementation_is_named(document):
    document["operations"][1]["implementations"][0]["flops"] = 3
    message = refused(document)
    assert "unknown key 'flops'" in message
    assert "operation 1 ('v1')" in message


@pytest.mark.parametrize("size", [-5, 1.5, "8", None, True])
def test_a_size_that_is_no_number_of_bytes_is_quoted(document, size):
    document["values"][1]["bytes"] = size
    message = refused(document)
    assert "value 1" in message
    assert json.dumps(size) in message


@pytest.mark.parametrize(("key", "entry"), [("cost", -1), ("cost", "fast"), ("workspace", -1), ("workspace", 0.5)])
def test_a_cost_or_workspace_below_zero_is_quoted(document, key, entry):
    document["operations"][2]["implementations"][0][key] = entry
    message = refused(document)
    assert "operation 2 ('v2')" in message
    assert json.dumps(entry) in message


@pytest.mark.parametrize("cost", [float("nan"), float("inf")])
def test_a_cost_that_is_not_finite_is_refused(document, cost):
    document["operations"][2]["implementations"][0]["cost"] = cost
    assert "cost" in refused(document)


def test_another_version_is_refused_by_name(document):
    document["version"] = 2
    assert refused(document) == "version 2 of 'remat-explorer/graph' is not readable here; expected version 1"


def test_another_format_is_refused_by_name(document):
    document["format"] = "remat-explorer/solution"
    assert "the format is 'remat-explorer/solution'" in refused(document)


def test_a_value_with_two_producers_is_refused(document):
    document["operations"][2]["implementations"][0]["outputs"] = [1, 2]
    assert "value 'v1' is produced by 'v1' and by 'v2'" in refused(document)


def test_a_value_without_a_producer_is_refused(document):
    document["values"].append({"name": "orphan", "bytes": 1, "persistent": False})
    assert "value 'orphan' is produced by no operation" in refused(document)


def test_a_value_id_that_does_not_exist_is_refused(document):
    document["operations"][2]["implementations"][0]["inputs"] = [99]
    assert "names value 99" in refused(document)


@pytest.mark.parametrize("content", ["[]", "3", '"graph"'])
def test_a_file_that_is_no_object_is_quoted(tmp_path, content):
    path = tmp_path / "graph.json"
    path.write_text(content)
    with pytest.raises(GraphError, match="is not a JSON object"):
        Graph.load(path)


def test_a_file_that_is_no_json_says_where_it_stops(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text('{"format": ')
    with pytest.raises(GraphError, match="line 1 column"):
        Graph.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(GraphError, match="No such file"):
        Graph.load(tmp_path / "missing.json")


def test_parsing_never_changes_the_document(document):
    before = copy.deepcopy(document)
    Graph.from_document(document)
    assert document == before
