"""Details of captured operations, and gradients that come as autograd would leave them."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.plan import Plan
from remat_explorer.runtime import Interpreter, StepOutcome
from tests.runtime.kinds_of_models import Made


def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = relu(self.first(x))  # the line of the first layer
    return self.rest(hidden)  # the line of the rest


def loss(output: torch.Tensor) -> torch.Tensor:
    return output.square().sum()  # the line of the loss


@pytest.fixture(scope="module")
def graph() -> rx.Graph:
    model = Made(forward, first=nn.Linear(3, 5), rest=nn.Sequential(nn.Linear(5, 7), nn.Tanh()))
    return rx.capture(model, (torch.ones(2, 3),), loss=loss)


def line_with(comment: str) -> str:
    """The line of this file that ends with a comment, as details give it."""
    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))
    return f"test_graph_assembly.py:{number}"


def test_details_have_module_operator_shape_and_the_line_that_calls_the_layer_or_the_function(graph):
    operations: dict[str, Any] = {node.name: node for node in graph.operations}
    details = operations["rest.0 linear + tanh"].details
    assert (details.module, details.operator, details.shapes) == ("rest.0", "linear + tanh", ("2x7",))
    assert details.line == line_with("the line of the rest")
    assert operations["first linear + relu"].details.line == line_with("the line of the first layer")
    assert operations["sum"].details.line == line_with("the line of the loss")
    backward = [node for node in operations.values() if node.phase == "backward" and node.details.module == "first"]
    assert backward
    assert {node.details.line for node in backward} == {line_with("the line of the first layer")}


def test_shapes_follow_the_order_of_the_outputs(graph):
    k, node = next((k, node) for k, node in enumerate(graph.operations) if node.name.startswith("first gradient of"))
    sizes = [graph.values[v].bytes for v in graph.outputs(k)]
    assert [4 * torch.Size(map(int, shape.split("x"))).numel() for shape in node.details.shapes] == sizes


def test_a_sum_of_gradients_comes_from_no_single_line():
    def forward(self, x):
        hidden = self.layer(x).tanh()
        return hidden * hidden.sigmoid()

    graph = rx.capture(Made(forward, layer=nn.Linear(4, 4)), (torch.ones(2, 4),))
    backward = [node.details for node in graph.operations if node.phase == "backward"]
    sums = [details for details in backward if details is not None and details.operator.startswith("add")]
    assert sums
    assert all(details.line == "" for details in sums)


def test_a_captured_graph_keeps_its_details_in_its_file(tmp_path, graph):
    graph.save(str(tmp_path / "net.json"))
    again = rx.Graph.load(str(tmp_path / "net.json"))
    assert [node.details for node in again.operations] == [node.details for node in graph.operations]
    assert str(tmp_path.parent) not in (tmp_path / "net.json").read_text()


X = torch.ones(2, 4)


def of(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(shape))


MODELS = {  # linear in their parameters, so that gradients coincide
    "one gradient for both": Made(lambda s, x: (x * (s.a + s.b)).sum(), a=of(2, 4), b=of(2, 4)),
    "the tangent itself": Made(lambda s, x: x.sum() + s.a, a=of()),
    "one number seen as many": Made(lambda s, x: (x + s.a).sum(), a=of(2, 4)),
    "many views of one tensor": Made(lambda s, x: ((s.a + s.b) * x[:1]).sum(), a=of(4), b=of(1, 4)),
}


def outcome(model: nn.Module) -> StepOutcome:
    program = trace(model, (X,))
    plan = Plan.from_sequence(program.graph, [(k, k, 1) for k in range(program.graph.n)])
    return Interpreter(plan, program, torch.device("cpu")).run(program.bind(model, (X,)))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_those_of_eager_training_and_writing_to_one_changes_no_other_tensor(name):
    graph = rx.capture(MODELS[name], (X,))
    measured = rx.measure(rx.solve(graph, "100%"), MODELS[name], (X,), device="cpu", repeats=1)
    assert measured.equal
    assert measured.peak <= measured.budget
    found = outcome(MODELS[name])
    tensors = [*found.outputs, *found.gradients.values(), *MODELS[name].parameters(), X]
    for first, second in itertools.combinations(tensors, 2):
        assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    for gradient in found.gradients.values():
        gradient.add_(1)  # fails for a tensor whose entries share memory


def test_a_gradient_has_the_strides_of_its_parameter():
    model: Any = Made(lambda s, x: (s.weight @ x.t()).sum(), weight=nn.Parameter(torch.ones(4, 3).t()))
    gradient = outcome(model).gradients["weight"]
    model(X).backward()
    assert model.weight.grad is not None
    assert gradient.stride() == model.weight.grad.stride() == (1, 3)
    assert torch.equal(gradient, model.weight.grad)
