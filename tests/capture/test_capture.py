"""What a captured graph says about a model, the options that a graph remembers, and that a capture leaves nothing."""

import copy
import gc
import inspect
import json
import linecache
import os
import subprocess
import sys
from contextlib import suppress
from queue import SimpleQueue

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, graph_module
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.generated_sources import drop_new_sources, drop_source_with
from remat_explorer.capture.tracing import trace
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import CaptureError, GraphError, UnknownNameError
from tests.runtime.kinds_of_models import Made


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.MaxPool2d(2)
    return Made(lambda s, x: s.head(s.body(x).flatten(1)), body=nn.Sequential(*layers), head=nn.Linear(8 * 16, 10))


X, Y = torch.ones(4, 3, 8, 8), torch.zeros(4, dtype=torch.long)


def cross_entropy(output: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output, Y)


def names(graph: rx.Graph) -> list[str]:
    return [node.name for node in graph.operations]


def test_operations_carry_their_module_path_in_eager_order_and_values_the_bytes_of_their_tensors(model):
    graph = rx.capture(model, (X,), loss=cross_entropy)
    forward = [node.name for node in graph.operations if node.phase == "forward"]
    assert forward == [
        *("body.0 conv2d", "body.1 batch_norm + relu", "body.3 dropout", "body.4 max_pool2d"),
        *("head linear", "log_softmax", "nll_loss"),
    ]
    assert {"body.0 gradient of weight, bias", "head gradient of bias, weight"} <= set(names(graph))
    gradients = {f"{name}.grad" for name, _ in model.named_parameters()}
    buffers = {"body.1.running_mean (new)", "body.1.running_var (new)"}
    assert {value.name for value in graph.values if value.persistent} == gradients | buffers | {"loss"}

    sizes = {value.name: value.bytes for value in graph.values}
    assert sizes["body.0 conv2d"] == 4 * 8 * 8 * 8 * 4
    assert sizes["body.3 dropout [1]"] == 4 * 8 * 8 * 8  # the mask, one byte an entry
    assert sizes["head.weight.grad"] == 10 * 128 * 4


def test_resident_bytes_count_parameters_buffers_inputs_and_the_tangent_once(model):
    graph = rx.capture(model, (X,), loss=lambda output: output.sum())
    state = [*model.parameters(), *model.buffers()]
    assert graph.resident_bytes == sum(t.nbytes for t in (*state, X)) + 4


def test_capture_leaves_the_model_and_the_random_state_alone(model):
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    rx.capture(model, (X,), loss=cross_entropy)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_a_batch_that_no_machine_holds_can_be_captured(model):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2**24, 3, 8, 8)
    graph = rx.capture(model, (x,))
    assert max(value.bytes for value in graph.values) == 2**24 * 8 * 8 * 8 * 4


def test_tied_weights_have_one_gradient_and_are_resident_once():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
    model[2].weight = model[0].weight
    graph = rx.capture(model, (torch.ones(2, 8),))
    assert [value.name for value in graph.values if value.persistent] == ["output", "0.weight.grad"]
    assert graph.resident_bytes == 8 * 8 * 4 + 2 * 8 * 4 + 2 * 8 * 4
    assert "0 gradient of weight" in names(graph)
    assert not [name for name in names(graph) if name.startswith("add")]  # added where the second one is made


def test_frozen_parameters_get_no_gradient(model):
    model.body.requires_grad_(False)
    graph = rx.capture(model, (X,), loss=cross_entropy)
    gradients = {value.name for value in graph.values if value.name.endswith(".grad")}
    assert gradients == {"head.weight.grad", "head.bias.grad"}


def test_keyword_inputs_reach_the_model():
    scaled = Made(lambda s, x, *, scale, times: (s.layer(x) * scale * times).sum(), layer=nn.Linear(4, 4))
    graph = rx.capture(scaled, (torch.ones(2, 4),), {"scale": torch.ones(4), "times": 3})
    assert graph.operations[0].name == "layer linear + mul + mul"


def test_a_loss_that_is_no_scalar_is_refused(model):
    with pytest.raises(CaptureError, match=r"one element, but it gave \[4, 10\]"):
        rx.capture(model, (X,), loss=lambda output: output)


def test_capture_stays_a_function_when_its_package_is_imported_and_a_refusal_prints_nothing_else():
    import remat_explorer.capture as package

    assert callable(package)
    assert inspect.signature(package) == inspect.signature(package.capture)
    code = """
import torch, remat_explorer as rx, remat_explorer.capture.tracing
class M(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) if self.weight.sum() > 0 else x
try:
    rx.capture(M(8, 8), (torch.ones(2, 8),))
except rx.errors.CaptureError:
    print('refused', callable(rx.profile))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("refused True\n", "")  # of torch nothing is printed


def test_a_capture_leaves_the_garbage_collector_as_it_was(model):
    before = gc.get_threshold()
    inside: SimpleQueue[int] = SimpleQueue()
    put = inside.put  # of which nobody takes out again after the capture what came

    class Watching(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            put(gc.get_threshold()[0])
            return super().forward(x)

    rx.capture(Watching(2, 2), (torch.ones(1, 2),))
    assert min(inside.get() for _ in range(inside.qsize())) > before[0]
    assert gc.get_threshold() == before
    with pytest.raises(CaptureError):
        rx.capture(nn.Linear(2, 2), (torch.ones(1, 3),))
    assert gc.get_threshold() == before


@pytest.fixture
def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))


def test_gradients_of_convolutions_are_split_and_activations_joined_unless_that_is_switched_off(layers):
    found = names(rx.capture(layers, (X,)))
    assert found.index("2 gradient of weight, bias") == found.index("2 conv2d_input_gradient") - 1
    assert "0 conv2d + relu" in found
    assert "2 conv2d_backward" in names(rx.capture(layers, (X,), split_convolution_backward=False))
    assert {"0 conv2d", "1 relu"} < set(names(rx.capture(layers, (X,), contract=False)))


@pytest.mark.parametrize(
    ("name", "make"), [("momentum", lambda p: torch.optim.SGD(p, momentum=0.9)), ("adam", torch.optim.Adam)]
)
def test_optimizer_state_is_as_large_as_that_of_torch(layers, name, make):
    layers[0].requires_grad_(False)
    bare, full = (rx.capture(layers, (X,), optimizer=chosen) for chosen in ("sgd", name))
    assert bare.resident_bytes == rx.capture(layers, (X,)).resident_bytes
    optimizer = make([parameter for parameter in layers.parameters() if parameter.requires_grad])
    layers(X).sum().backward()
    optimizer.step()
    state = [entry for entries in optimizer.state.values() for entry in entries.values() if entry is not None]
    assert full.resident_bytes - bare.resident_bytes == sum(tensor.nbytes for tensor in state)


def test_a_graph_file_keeps_the_options_and_those_that_make_no_sense_are_refused(layers, tmp_path):
    graph, path = rx.capture(layers, (X,), optimizer="adam", contract=False), tmp_path / "graph.json"
    graph.save(str(path))
    assert rx.Graph.load(str(path)) == graph
    assert graph.options == CaptureOptions(contract=False, optimizer="adam")
    document = json.loads(path.read_text())
    wrong = {"neither true nor false": {"contract": 1}, "is not a string": {"optimizer": 3}}
    for message, entry in (wrong | {"unknown optimizer 'lion'": {"optimizer": "lion"}}).items():
        path.write_text(json.dumps({**document, "capture": document["capture"] | entry}))
        with pytest.raises(GraphError, match=message):
            rx.Graph.load(str(path))
    with pytest.raises(UnknownNameError, match="unknown optimizer 'Adam'; did you mean 'adam'"):
        rx.capture(layers, (X,), optimizer="Adam")


@pytest.mark.parametrize(
    "options", [{"contract": False}, {"split_convolution_backward": False}, {"optimizer": "momentum"}]
)
def test_a_schedule_runs_with_the_options_that_its_graph_was_captured_with(layers, options):
    graph = rx.profile(rx.capture(layers, (X,), **options), layers, (X,), device="cpu", repeats=1)
    measured = rx.measure(rx.solve(graph, "100%"), layers, (X,), device="cpu", repeats=1)
    assert measured.equal
    assert measured.peak == measured.predicted_peak


def test_true_kernels_and_fake_ones_give_the_same_graph(layers):
    state = torch.get_rng_state()
    layers.append(nn.Dropout())
    true, fake = rx.capture(layers, (X,), fake=False), rx.capture(layers, (X,))
    assert (true.values, true.operations) == (fake.values, fake.operations)
    assert torch.equal(state, torch.get_rng_state())


def _empty() -> GraphModule:
    return GraphModule({}, torch.fx.Graph())


def _sources() -> set[str]:
    """Names of generated sources that are kept, by torch.fx or by linecache."""
    gc.collect()
    with drop_new_sources():
        pass  # those of modules that are gone
    return set(graph_module._loader.eval_cache) | {name for name in linecache.cache if "eval_with_key" in name}


def _use(model: nn.Module, x: torch.Tensor) -> None:
    solution = rx.solve(rx.capture(model, (x,)), "100%", time_limit=5)
    rx.measure(solution, model, (x,), repeats=1)
    trained = rx.rematerialize(model, (x,), budget="100%")
    trained(x).sum().backward()
    rx.solve(solution.graph, "100%", strategy="pytorch-budget")


def test_a_process_that_captures_and_measures_keeps_no_source() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
    _use(model, x)  # what is kept once: a program is cached while its model lives
    before = _sources()
    _use(model, x)
    assert len(_sources() - before) == 0
    assert "tanh_backward" in trace(model, (x,)).module.code  # written for whoever asks for it


def test_sources_made_before_are_left_and_an_error_drops_those_of_the_trace() -> None:
    mine = _empty()
    name = type(mine).forward.__code__.co_filename
    before = _sources()
    with suppress(ZeroDivisionError), drop_new_sources():
        mine.recompile()
        kept, lost = drop_source_with(_empty()), _empty()
        raise ZeroDivisionError
    assert linecache.getlines(name)
    assert _sources() - before == {type(kept).forward.__code__.co_filename}
    assert not linecache.getlines(type(lost).forward.__code__.co_filename)


def test_a_module_may_go_while_python_checks_the_lines_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    linecache.getlines(__file__)  # a file, whose age is looked at
    modules = [drop_source_with(_empty())]
    name = type(modules[0]).forward.__code__.co_filename
    assert linecache.getlines(name)
    stat = os.stat

    def collecting(*arguments, **choices) -> os.stat_result:
        modules.clear()
        gc.collect()
        return stat(*arguments, **choices)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", collecting)
        linecache.checkcache()
    assert not modules
    drop_source_with(_empty())
    assert name not in linecache.cache
