"""Looking at a graph: its summary, its networkx view, and its articulation points."""

import networkx
import pytest

from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak


@pytest.fixture
def step() -> Graph:
    """A small training step with everything that a summary tells apart."""
    values = (
        Value("x", 40),
        Value("unread", 100),
        Value("loss", 4, persistent=True),
        Value("mean (new)", 8, persistent=True),
        Value("dx", 20),
        Value("w.grad", 16, persistent=True),
    )
    slow = Implementation((0,), (4,), 9.0, 500, "slow")
    return Graph(
        "step",
        values,
        (
            operation("f", "forward", [], [0, 1, 3], 1.0, workspace=30),
            operation("loss", "forward", [0], [2], 0.5),
            Operation("df", "backward", (Implementation((0, 2), (4,), 2.0, 5), slow)),
            operation("dw", "backward", [4], [5], 1.5),
        ),
        resident_bytes=1000,
    )


def test_a_summary_sums_each_kind_of_bytes(step):
    found = step.summary()
    assert (found.name, found.forward, found.backward, found.values) == ("step", 2, 2, 6)
    assert found.resident_bytes == 1000
    assert found.feature_bytes == 140
    assert found.gradient_bytes == 16
    assert found.kept_bytes == 12
    assert found.workspace_bytes == 30  # 500 belong to an implementation that plain execution does not use
    assert found.cost == 5.0
    assert found.peak == 1000 + 40 + 100 + 8 + 30


def test_a_summary_counts_every_byte_once_and_its_peak_is_that_of_the_checkpoint_all_plan(data, step):
    captured = [Graph.load(data / "captured" / f"{name}.json") for name in ("mobilenet_v1", "unet", "vgg16")]
    for graph in (step, linear(1), linear(8), *captured):
        found, passing = graph.summary(), graph.is_backward[graph.producer] & ~graph.persistent
        assert found.peak == checkpoint_all_peak(graph)
        counted = found.feature_bytes + found.gradient_bytes + found.kept_bytes
        assert counted + graph.value_bytes[passing].sum() == graph.value_bytes.sum()  # every byte once


def test_a_printed_summary_names_what_is_resident(step):
    assert str(step.summary()).splitlines() == [
        "step: 4 operations (2 forward, 2 backward), 6 values",
        "checkpoint-all needs 1.15 KiB and costs 5 s",
        "resident (parameters, inputs, buffers) 0.98 KiB, features 140 B, parameter gradients 16 B, "
        "largest workspace 30 B",
    ]


def test_the_view_is_bipartite_and_acyclic_and_keeps_every_attribute(step):
    view = step.to_networkx()
    operations = {node for node, side in view.nodes(data="bipartite") if side == 0}
    assert all((source in operations) != (target in operations) for source, target in view.edges)
    assert networkx.is_directed_acyclic_graph(view)
    assert "w.grad" in "".join(networkx.generate_graphml(view))  # it can be written
    assert view.graph == {"name": "step", "resident_bytes": 1000}
    df, gradient = view.nodes["operation", 2], view.nodes["value", 5]
    assert df | {"cost": 2.0, "workspace": 5, "implementations": 2, "phase": "backward", "name": "df"} == df
    assert gradient | {"bytes": 16, "persistent": True, "phase": "backward", "name": "w.grad"} == gradient


def test_edges_say_whether_the_default_implementation_uses_them(step):
    edges = step.to_networkx().edges
    assert edges[("value", 0), ("operation", 2)]["default"]  # both implementations read x
    assert edges[("value", 2), ("operation", 2)]["default"]
    ways = Implementation((), (1,), 1.0), Implementation((0,), (1,), 1.0, 0, "reads x")
    operations = operation("f", "forward", [], [0], 1.0), Operation("g", "forward", ways)
    only_slow = Graph("choice", (Value("x", 1), Value("y", 1)), operations)
    assert only_slow.to_networkx().edges[("value", 0), ("operation", 1)] == {"default": False}


def test_the_view_has_every_reader_and_producer(data):
    graph = Graph.load(data / "captured" / "vgg16.json")
    view = graph.to_networkx()
    for v in range(len(graph.values)):
        assert list(view.predecessors(("value", v))) == [("operation", graph.producer[v])]
        assert {k for _, k in view.successors(("value", v))} == set(graph.readers[v])


def test_a_chain_is_cut_by_every_operation_but_its_ends_and_a_skip_connection_hides_what_it_skips():
    assert linear(8).articulation_points() == (1, 2, 3, 4, 5, 6)
    reads = [[], [0], [1], [2, 0], [3]]  # 0 -> 1 -> 2 -> 3 -> 4, and 0 -> 3
    values = tuple(Value(f"v{k}", 1) for k in range(6))
    operations = [operation(f"f{k}", "forward", read, [k], 1.0) for k, read in enumerate(reads)]
    operations.append(operation("b", "backward", [0, 1, 2, 3, 4], [5], 1.0))  # reads everything, and joins nothing
    assert Graph("skip", values, tuple(operations)).articulation_points() == (3,)


def test_no_operation_inside_the_skips_of_a_unet_cuts_it(data):
    graph = Graph.load(data / "captured" / "unet.json")
    points = graph.articulation_points()
    forward = [k for k in range(graph.n) if not graph.is_backward[k]]
    assert points
    assert set(points) < set(forward)
    assert not any("max_pool" in graph.operations[k].name for k in points)
