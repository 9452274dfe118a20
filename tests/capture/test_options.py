"""The options of a capture: what they change, and that a graph remembers them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import CaptureError, GraphError, UnknownNameError

X = torch.ones(4, 3, 8, 8)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))


def names(graph: rx.Graph) -> list[str]:
    return [node.name for node in graph.operations]


def test_the_weight_gradient_of_a_split_convolution_comes_before_its_input_gradient(model):
    found = names(rx.capture(model, (X,)))
    assert found.index("2 gradient of weight, bias") == found.index("2 conv2d_input_gradient") - 1


def test_an_unsplit_convolution_computes_its_gradients_in_one_operation(model):
    assert "2 conv2d_backward" in names(rx.capture(model, (X,), split_convolution_backward=False))


def test_an_uncontracted_graph_has_an_operation_for_each_activation(model):
    assert "0 conv2d + relu" in names(rx.capture(model, (X,)))
    assert {"0 conv2d", "1 relu"} < set(names(rx.capture(model, (X,), contract=False)))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda parameters: torch.optim.SGD(parameters, lr=0.1)),
        ("momentum", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)),
        ("adam", torch.optim.Adam),
    ],
)
def test_optimizer_state_is_as_large_as_that_of_torch(model, name, make):
    model[0].requires_grad_(False)
    bare, full = rx.capture(model, (X,)), rx.capture(model, (X,), optimizer=name)
    optimizer = make([parameter for parameter in model.parameters() if parameter.requires_grad])
    model(X).sum().backward()
    optimizer.step()
    state = [entry for entries in optimizer.state.values() for entry in entries.values() if entry is not None]
    assert full.resident_bytes - bare.resident_bytes == sum(tensor.nbytes for tensor in state)


def test_an_unknown_optimizer_lists_the_known_ones(model):
    with pytest.raises(UnknownNameError, match="unknown optimizer 'Adam'; did you mean 'adam'"):
        rx.capture(model, (X,), optimizer="Adam")


def test_a_graph_file_keeps_the_options(model, tmp_path):
    graph = rx.capture(model, (X,), optimizer="adam", contract=False)
    graph.save(str(tmp_path / "graph.json"))
    loaded = rx.Graph.load(str(tmp_path / "graph.json"))
    assert loaded.options == CaptureOptions(contract=False, optimizer="adam")
    assert loaded == graph


OPTIONS = {"contract": True, "split_convolution_backward": True, "optimizer": None, "fake": True}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"contract": True}, "capture"),
        ({**OPTIONS, "contract": 1}, "contract that is not true or false"),
        ({**OPTIONS, "optimizer": 3}, "neither a string nor null"),
        ({**OPTIONS, "optimizer": "lion"}, "unknown optimizer 'lion'"),
    ],
)
def test_options_that_make_no_sense_are_refused(model, tmp_path, entry, message):
    path = tmp_path / "graph.json"
    rx.capture(model, (X,)).save(str(path))
    path.write_text(json.dumps({**json.loads(path.read_text()), "capture": entry}))
    with pytest.raises(GraphError, match=message):
        rx.Graph.load(str(path))


@pytest.mark.parametrize(
    "options", [{"contract": False}, {"split_convolution_backward": False}, {"optimizer": "momentum"}]
)
def test_a_schedule_runs_with_the_options_that_its_graph_was_captured_with(model, options):
    graph = rx.profile(rx.capture(model, (X,), **options), model, (X,), device="cpu")
    measured = rx.measure(rx.solve(graph, "100%"), model, (X,), device="cpu", repeats=1)
    assert measured.equal
    assert measured.peak == measured.predicted_peak


def test_true_kernels_and_fake_ones_give_the_same_graph(model):
    state = torch.get_rng_state()
    model.append(nn.Dropout())
    true, fake = rx.capture(model, (X,), fake=False), rx.capture(model, (X,))
    assert (true.values, true.operations) == (fake.values, fake.operations)
    assert torch.equal(state, torch.get_rng_state())


@pytest.fixture(scope="module")
def padded() -> nn.Module:
    """A layer before an operator that takes twice the bytes that its fake kernel says."""

    @torch.library.custom_op("remat_explorer_tests::padded_double", mutates_args=())
    def padded_double(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(2 * x.numel())[: x.numel()].view(x.shape).copy_(2 * x)

    padded_double.register_fake(torch.empty_like)
    padded_double.register_autograd(lambda context, gradient: 2 * gradient)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return padded_double(self.layer(x)).sum()

    return Padded()


def test_an_operator_whose_fake_kernel_is_wrong_is_seen_as_it_is_with_true_kernels(padded):
    def bytes_of(fake: bool) -> int:
        graph = rx.capture(padded, (torch.ones(8, 4),), fake=fake)
        return next(value.bytes for value in graph.values if "padded_double" in value.name)

    assert (bytes_of(True), bytes_of(False)) == (128, 256)


def test_a_graph_of_true_kernels_runs_at_the_predicted_peak(padded):
    inputs = (padded, (torch.ones(8, 4),))
    graph = rx.profile(rx.capture(*inputs, fake=False), *inputs, device="cpu")
    measured = rx.measure(rx.solve(graph, "100%"), *inputs, device="cpu", repeats=1)
    assert measured.peak == measured.predicted_peak
    assert measured.equal


def test_true_kernels_need_true_tensors(model):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4, 3, 8, 8)
    with pytest.raises(CaptureError, match="fake=False needs real tensors"):
        rx.capture(model, (x,), fake=False)
