"""Details of captured operations: module, operator, shapes, and the line of the person's own code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

import remat_explorer as rx


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.rest = nn.Sequential(nn.Linear(5, 7), nn.Tanh())

    def forward(self, x):
        hidden = relu(self.first(x))  # the line of the first layer
        return self.rest(hidden)  # the line of the rest


def loss(output):
    return output.square().sum()  # the line of the loss


@pytest.fixture(scope="module")
def operations():
    graph = rx.capture(Net(), (torch.ones(2, 3),), loss=loss)
    return {node.name: node for node in graph.operations}


def line_with(comment: str) -> str:
    """The line of this file that ends with a comment, as details give it."""
    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))
    return f"test_graph_assembly.py:{number}"


def test_module_operator_and_shape_of_a_layer(operations):
    details = operations["rest.0 linear + tanh"].details
    assert (details.module, details.operator, details.shapes) == ("rest.0", "linear + tanh", ("2x7",))


def test_the_line_is_the_one_that_calls_the_layer_or_the_function(operations):
    assert operations["first linear + relu"].details.line == line_with("the line of the first layer")
    assert operations["rest.0 linear + tanh"].details.line == line_with("the line of the rest")
    assert operations["sum"].details.line == line_with("the line of the loss")


def test_a_backward_operation_has_the_line_of_its_forward_operation(operations):
    backward = [node for node in operations.values() if node.phase == "backward" and node.details.module == "first"]
    assert backward
    assert {node.details.line for node in backward} == {line_with("the line of the first layer")}


def test_shapes_follow_the_order_of_the_outputs(operations):
    (node,) = [node for node in operations.values() if node.name.startswith("first gradient of")]
    graph = rx.capture(Net(), (torch.ones(2, 3),), loss=loss)
    k = next(k for k, other in enumerate(graph.operations) if other.name == node.name)
    sizes = [graph.values[v].bytes for v in graph.outputs(k)]
    assert [4 * torch.Size(map(int, shape.split("x"))).numel() for shape in node.details.shapes] == sizes


def test_a_sum_of_gradients_comes_from_no_single_line():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            hidden = self.layer(x).tanh()
            return hidden * hidden.sigmoid()

    graph = rx.capture(Twice(), (torch.ones(2, 4),))
    backward = [node.details for node in graph.operations if node.phase == "backward"]
    sums = [details for details in backward if details is not None and details.operator.startswith("add")]
    assert sums
    assert all(details.line == "" for details in sums)


def test_a_captured_graph_keeps_its_details_in_its_file(tmp_path, operations):
    graph = rx.capture(Net(), (torch.ones(2, 3),), loss=loss)
    graph.save(str(tmp_path / "net.json"))
    again = rx.Graph.load(str(tmp_path / "net.json"))
    assert [node.details for node in again.operations] == [node.details for node in graph.operations]
    assert str(tmp_path.parent) not in (tmp_path / "net.json").read_text()
