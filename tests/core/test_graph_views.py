"""Looking at a graph: its summary, its networkx view, and its articulation points."""

import networkx
import pytest

from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak

CAPTURED = ["mobilenet_v1", "unet", "vgg16"]


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


def test_every_byte_is_counted_once(data):
    graph = Graph.load(data / "captured" / "unet.json")
    found, transient = graph.summary(), graph.value_bytes[graph.is_backward[graph.producer] & ~graph.persistent]
    assert found.feature_bytes + found.gradient_bytes + found.kept_bytes + transient.sum() == graph.value_bytes.sum()


@pytest.mark.parametrize("name", CAPTURED)
def test_the_peak_of_a_summary_is_that_of_the_checkpoint_all_plan(data, name):
    graph = Graph.load(data / "captured" / f"{name}.json")
    assert graph.summary().peak == checkpoint_all_peak(graph)


@pytest.mark.parametrize("layers", [1, 2, 8])
def test_the_peak_of_a_chain_is_that_of_its_plan(layers):
    assert linear(layers).summary().peak == checkpoint_all_peak(linear(layers))


def test_the_peak_of_a_step_with_a_choice_is_that_of_its_plan(step):
    assert step.summary().peak == checkpoint_all_peak(step)


def test_a_printed_summary_names_what_is_resident(step):
    assert str(step.summary()).splitlines() == [
        "step: 4 operations (2 forward, 2 backward), 6 values",
        "checkpoint-all needs 1.15 KiB and costs 5",
        "resident (parameters, inputs, buffers) 0.98 KiB, features 140 B, parameter gradients 16 B, "
        "largest workspace 30 B",
    ]


def test_the_view_is_bipartite_and_acyclic_and_keeps_every_attribute(step):
    view = step.to_networkx()
    operations = {node for node, side in view.nodes(data="bipartite") if side == 0}
    assert all((source in operations) != (target in operations) for source, target in view.edges)
    assert networkx.is_directed_acyclic_graph(view)
    assert view.graph == {"name": "step", "resident_bytes": 1000}
    assert view.nodes["operation", 2] == {
        "bipartite": 0,
        "name": "df",
        "phase": "backward",
        "cost": 2.0,
        "workspace": 5,
        "implementations": 2,
    }
    assert view.nodes["value", 5] == {
        "bipartite": 1,
        "name": "w.grad",
        "phase": "backward",
        "bytes": 16,
        "persistent": True,
    }


def test_edges_say_whether_the_default_implementation_uses_them(step):
    edges = step.to_networkx().edges
    assert edges[("value", 0), ("operation", 2)]["default"]  # both implementations read x
    assert edges[("value", 2), ("operation", 2)]["default"]
    only_slow = Graph(
        "choice",
        (Value("x", 1), Value("y", 1)),
        (
            operation("f", "forward", [], [0], 1.0),
            Operation("g", "forward", (Implementation((), (1,), 1.0), Implementation((0,), (1,), 1.0, 0, "reads x"))),
        ),
    )
    assert only_slow.to_networkx().edges[("value", 0), ("operation", 1)] == {"default": False}


def test_the_view_has_every_reader_and_producer(data):
    graph = Graph.load(data / "captured" / "vgg16.json")
    view = graph.to_networkx()
    for v in range(len(graph.values)):
        assert list(view.predecessors(("value", v))) == [("operation", graph.producer[v])]
        assert {k for _, k in view.successors(("value", v))} == set(graph.readers[v])


def test_the_view_can_be_written_as_graphml(step):
    assert "w.grad" in "".join(networkx.generate_graphml(step.to_networkx()))


def test_a_chain_is_cut_by_every_operation_but_its_ends():
    assert linear(8).articulation_points() == (1, 2, 3, 4, 5, 6)


def test_a_skip_connection_hides_what_it_skips():
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


def test_a_graph_is_shown_in_a_line():
    graph = linear(500)
    assert repr(graph) == f"Graph({graph.name!r}, {graph.n:,} operations, {len(graph.values):,} values, 0 B resident)"
    assert len(repr(graph)) < 100
