"""Graphs: the graph file, version 1, what fingerprints see, and what is refused by name."""

import copy
import dataclasses
import json

import pytest

from remat_explorer.errors import GraphError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details

HUGE = "9223372036854775808 bytes, more than 8192 TiB"
NO_PLACE = "operations[2].implementations[1].overwrites is not a whole number of at least 0"
NOT_IN_PLACE = "operations[2].implementations[1].in_place is not true"


def whole() -> Graph:
    """A graph with everything that a file can say."""
    ways = (
        Implementation((0,), (2,), 1.5, overwrites=None),
        Implementation((0,), (2,), 0.5, 7, "only in place", overwrites=0, in_place=True, kinds=("memory",)),
        Implementation((0, 1), (2,), 2.5, 7, "bits", tolerance=4e-7, kinds=("masks", "by hand")),
    )
    operations = (
        operation("f", "forward", [], [0], 0.25, workspace=3),
        Operation("mask", "forward", (Implementation((0,), (1,), 0.5),), optional=True),
        Operation("g", "forward", ways, details=Details("features.3", "conv2d + relu", ("8x64",), "net.py:42")),
        operation("h", "backward", [2], [3], 1.0),
    )
    values = (Value("x", 4), Value("mask", 1), Value("y", 4), Value("w.grad", 8, persistent=True))
    return Graph("whole", values, operations, resident_bytes=16)


DOCUMENT = json.loads(dump_graph(whole(), details=True))


def refused(document: object) -> str:
    with pytest.raises(GraphError) as caught:
        Graph.from_document(document)
    return str(caught.value)


def test_a_round_trip_keeps_every_field_and_the_fingerprint(tmp_path, data):
    assert Graph.load(data / "graphs" / "linear8.json") == linear(8)
    graph = whole()
    graph.save(tmp_path / "graph.json")
    again = Graph.load(tmp_path / "graph.json")
    assert again == graph
    assert again.sha256 == graph.sha256
    assert [node.details for node in again.operations] == [node.details for node in graph.operations]
    assert again.kinds == ("masks", "by hand", "memory")  # that of capture first
    assert again.has_choices
    assert not linear(2).has_choices


def test_a_file_says_only_what_is_not_usual():
    usual = {"name", "phase", "implementations", "inputs", "outputs", "cost", "workspace"}
    for node in json.loads(dump_graph(linear(8)))["operations"]:
        assert node.keys() | node["implementations"][0].keys() == usual
    nodes = DOCUMENT["operations"]
    assert ["optional" in node for node in nodes] == [False, True, False, False]
    for key, stated in (("overwrites", [0, 1, 0]), ("in_place", [0, 1, 0]), ("tolerance", [0, 0, 1])):
        assert [key in way for way in nodes[2]["implementations"]] == stated
    assert ["details" in node for node in nodes] == [False, False, True, False]


def test_whole_costs_are_the_same_as_floats():
    document = json.loads(dump_graph(linear(3)))
    for node in document["operations"]:
        node["implementations"][0]["cost"] = 1
    assert Graph.from_document(document).sha256 == linear(3).sha256
    document["operations"][1]["implementations"][0]["cost"] = 2**53 + 1  # no float has it: the nearest one
    graph = Graph.from_document(document)
    assert graph.operations[1].default.cost == 2.0**53
    assert Graph.from_document(json.loads(dump_graph(graph))) == graph


def test_neither_fingerprints_nor_equality_see_details_and_the_structure_sees_no_kinds():
    graph = whole()
    plain = dataclasses.replace(
        graph, operations=tuple(dataclasses.replace(node, details=None) for node in graph.operations)
    )
    assert (plain, plain.sha256, plain.structure) == (graph, graph.sha256, graph.structure)
    document = copy.deepcopy(DOCUMENT)
    for node in document["operations"]:
        for way in node["implementations"]:
            way.pop("kinds", None)
    kindless = Graph.from_document(document)
    assert kindless.structure == graph.structure
    assert kindless.sha256 != graph.sha256


@pytest.mark.parametrize("key", ["format", "version", "name", "resident_bytes", "values", "operations"])
def test_every_missing_key_of_the_file_is_named(key):
    assert f"lacks the key {key!r}" in refused({name: DOCUMENT[name] for name in DOCUMENT if name != key})


GONE = object()


def changed(path: str, entry: object) -> dict:
    """The document with one entry changed, or gone; ``path`` names keys and numbers with dots between them."""
    document = copy.deepcopy(DOCUMENT)
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = document
    for key in way:
        place = place[key]
    if entry is GONE:
        del place[last]
    else:
        place[last] = entry
    return document


F, G = "operations.0.implementations.0", "operations.2.implementations"


@pytest.mark.parametrize(
    ("path", "entry", "message"),
    [
        ("format", "remat-explorer/solution", "the format is 'remat-explorer/solution'"),
        ("format", [[]], "the format is none of ours"),
        ("version", 2, "version 2 of 'remat-explorer/graph' is not readable here; expected version 1"),
        ("version", {}, "version {}"),
        ("name", "\ud800", r'half of a surrogate pair, which is no text: "\ud800"'),
        ("resident_bytes", 2**63, HUGE),
        ("capture", {"implementations": [[]]}, "'contract'"),
        ("values.0", json.loads("[" * 900 + "]" * 900), "values[0] is not a JSON object: [[["),
        ("values.0.bytes", GONE, """values[0] lacks the key 'bytes': {"name": "x", "persistent": false}"""),
        *(("values.1.bytes", entry, json.dumps(entry)) for entry in (-5, 1.5, "8", None, True)),
        ("values.0.bytes", 2**63, HUGE),
        ("values.0.name", "a\udc80", r'half of a surrogate pair, which is no text: "a\udc80"'),
        ("operations.0.phase", [], "phase []"),
        *(("operations.1.optional", entry, "not true") for entry in (False, 1, "yes")),
        (f"{F}.flops", 3, "unknown key 'flops'"),
        *(
            (f"{F}.cost", entry, "operations[0].implementations[0].cost is not a number of at least 0")
            for entry in (-1, "fast", True, float("nan"), float("inf"), 10**400)
        ),
        (f"{F}.workspace", 0.5, "0.5"),
        (f"{F}.workspace", 2**63, HUGE),
        (f"{F}.inputs", [2], "operation 'f' (number 0) reads 'y', which 'g' (number 2) produces: a cycle"),
        (f"{F}.inputs", [0], "reads 'x', which 'f' (number 0) produces"),
        (f"{F}.inputs", [10**30], "names value 1000000000000000000000000000000; ids are 0 to 3"),
        (f"{F}.outputs", [0, 3], "value 'w.grad' is produced by 'f' and by 'h'"),
        (f"{F}.outputs", [], "value 'x' is produced by no operation"),
        (f"{G}.2.tolerance", -1, "operations[2].implementations[2].tolerance is not a number of at least 0: -1"),
        (f"{G}.2.kinds", [], "empty list"),
        (f"{G}.2.kinds", "masks", "not a list"),
        (f"{G}.2.kinds", [3], "not a string"),
        (f"{G}.2.kinds", ["a", "a"], "'a', 'a'"),
        (f"{G}.2.kinds", [""], "empty"),
        *((f"{G}.1.overwrites", entry, f"overwrites {entry}, which is none of its inputs") for entry in (2, 99)),
        *((f"{G}.1.overwrites", entry, NO_PLACE) for entry in (None, True, -1, "y", 1.5, [1], {})),
        *((f"{G}.1.in_place", entry, NOT_IN_PLACE) for entry in (None, False, 1, "true", [True])),
        ("operations.2.details.line", GONE, "operations[2].details lacks the key 'line'"),
        ("operations.2.details.path", "/home", "unknown key 'path'"),
        ("operations.2.details.module", 3, "operations[2].details.module is not a string: 3"),
        ("operations.2.details.shapes", [[8]], "operations[2].details.shapes[0] is not a string"),
        ("operations.2.details.shapes", "8x64", "operations[2].details.shapes is not a list"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_with_its_place(path, entry, message):
    assert message in refused(changed(path, entry))


def test_sums_beyond_all_numbers_are_refused():
    dear, large = copy.deepcopy(DOCUMENT), json.loads(dump_graph(linear(2)))
    for k in (0, 1):
        dear["operations"][k]["implementations"][0]["cost"] = 1e308
        large["values"][3 * k]["bytes"] = 2**52
    assert "with 4 runs of each operation: 'f' 1e+308, 'mask' 1e+308" in refused(dear)
    assert "more than 8192 TiB" in refused(large)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is not a JSON object"),
        ('{"format": ', "line 1 column"),
        ('{"format": NaN}', "NaN, which is no number in JSON"),
        ("[" * 200_000 + "]" * 200_000, "nested too deep"),
        ("1" * 5000, "not a JSON file"),
        ("", "not a JSON file"),
    ],
)
def test_a_file_that_holds_no_object_says_what_it_is(tmp_path, content, message):
    with pytest.raises(GraphError, match="No such file"):
        Graph.load(tmp_path / "graph.json")
    (tmp_path / "graph.json").write_text(content)
    with pytest.raises(GraphError, match=message):
        Graph.load(tmp_path / "graph.json")
