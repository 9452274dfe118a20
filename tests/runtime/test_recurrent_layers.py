"""Recurrent layers in a plan are those of a plain training loop: the same kernels, the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture import fake_tensors, trace
from remat_explorer.capture.fake_tensors import workspace_bytes
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.model_placement import place
from remat_explorer.errors import CaptureError
from remat_explorer.plan import Plan
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.training_run import train
from tests.runtime.random_schedules import random_schedule
from tests.thorough import thorough_but

CPU = torch.device("cpu")
STEPS, BATCH, INPUT, HIDDEN = 3, 7, 12, 20  # rows of 20 entries are no whole number of vectors
LAYERS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "in both directions": {"bidirectional": True},
    "two layers with dropout": {"num_layers": 2, "dropout": 0.3},
    "batch first": {"batch_first": True},
    "deep": {"num_layers": 2, "bidirectional": True, "dropout": 0.4, "batch_first": True},
}


def skip_without_bfloat16_kernels() -> None:
    """Plain PyTorch itself has no such LSTM on processors without AVX-512."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no LSTM in bfloat16 on this processor")


class Sequence(nn.Module):
    """A recurrent layer and a head, as for a sequence to be labelled."""

    def __init__(self, layer: nn.RNNBase, dtype: torch.dtype) -> None:
        super().__init__()
        size = (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
        self.layer, self.head = layer.to(dtype), nn.Linear(size, 3, dtype=dtype)

    def forward(self, x: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        given = state if len(state) > 1 else state[0] if state else None
        return self.head(self.layer(x, given)[0]).float().sin().mean()


def sequence(
    kind: str, options: dict[str, Any], dtype: torch.dtype = torch.float32, state: bool = False
) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model and its inputs."""
    torch.manual_seed(0)
    layer = LAYERS[kind](INPUT, HIDDEN, **options)
    shape = (BATCH, STEPS, INPUT) if layer.batch_first else (STEPS, BATCH, INPUT)
    args = [torch.randn(shape, dtype=dtype)]
    if state:
        count = layer.num_layers * (2 if layer.bidirectional else 1)
        sizes = [layer.proj_size or HIDDEN, HIDDEN] if kind == "LSTM" else [HIDDEN]
        args += [torch.randn(count, BATCH, size, dtype=dtype) for size in sizes]
    return Sequence(layer, dtype), tuple(args)


def step_of(model: nn.Module, run: Any) -> list[torch.Tensor]:
    """Loss, gradients and random state of one step, from the same random state."""
    torch.manual_seed(5)
    loss = run()
    loss.backward()
    found = [loss.detach(), *(parameter.grad for parameter in model.parameters()), torch.get_rng_state()]
    model.zero_grad()
    return found


def assert_a_plan_that_recomputes_gives_the_numbers_of_a_plain_loop(model: nn.Module, args: tuple[Any, ...]) -> None:
    plain = step_of(model, lambda: model(*args))
    program = trace(model, args)
    schedule = max((random_schedule(program.graph, s, 0.8, 0.01) for s in range(3)), key=lambda one: one.recomputations)
    assert schedule.recomputations > 0
    halves = ForwardBackward.of(Plan.of(schedule), program, CPU)
    found = step_of(model, lambda: train(halves, model, args)[0])
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))


# An LSTM is one operation for a layer; a GRU and an RNN have operations for every step, so that they take longer.
PAIRS = [(kind, variant) for kind in LAYERS for variant in VARIANTS]
STEP_BY_STEP = [("GRU", "plain"), ("GRU", "in both directions"), ("RNN", "plain"), ("RNN", "two layers with dropout")]
QUICK = [*(pair for pair in PAIRS if pair[0] == "LSTM"), *STEP_BY_STEP]


@pytest.mark.parametrize(("kind", "variant"), thorough_but(PAIRS, *QUICK))
def test_a_plan_gives_the_gradients_of_a_plain_loop_bit_for_bit(kind, variant):
    assert_a_plan_that_recomputes_gives_the_numbers_of_a_plain_loop(*sequence(kind, VARIANTS[variant]))


PRECISIONS = [(kind, dtype) for kind in LAYERS for dtype in (torch.float64, torch.bfloat16)]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    thorough_but(PRECISIONS, ("LSTM", torch.float64), ("RNN", torch.float64), ("RNN", torch.bfloat16)),
)
def test_so_it_does_in_other_precisions_with_a_state_that_is_given(kind, dtype):
    options = VARIANTS["two layers with dropout"]
    assert_a_plan_that_recomputes_gives_the_numbers_of_a_plain_loop(*sequence(kind, options, dtype, state=True))


@pytest.mark.parametrize(
    ("kind", "options"), [("LSTM", {"proj_size": 5}), ("RNN", {"nonlinearity": "relu"}), ("LSTM", {"bias": False})]
)
def test_so_it_does_with_projections_and_another_activation(kind, options):
    assert_a_plan_that_recomputes_gives_the_numbers_of_a_plain_loop(*sequence(kind, options, state=True))


@pytest.mark.parametrize("keeps_casts", [True, False])
@pytest.mark.parametrize(("kind", "options"), [("LSTM", {}), ("GRU", {}), ("RNN", {}), ("LSTM", {"proj_size": 5})])
def test_so_it_does_under_autocast_which_casts_a_weight_once_for_all_steps(kind, options, keeps_casts):
    if kind == "LSTM":
        skip_without_bfloat16_kernels()
    model, args = sequence(kind, options)

    def forward(*given: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps_casts):
            return model(*given)

    plain = step_of(model, lambda: forward(*args))
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keeps_casts):
        program = trace(model, args)
    halves = ForwardBackward.of(Plan.of(random_schedule(program.graph, 0, 0.8, 0.01)), program, CPU)
    found = step_of(model, lambda: train(halves, model, args)[0])
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))


def test_a_layer_that_runs_without_gradients_takes_the_kernel_that_plain_pytorch_takes_there():
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.last = nn.LSTM(64, 64), nn.LSTM(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                encoded, _ = self.encoder(x)
            return self.last(encoded)[0].sin().mean()

    torch.manual_seed(0)
    model, x = Frozen(), torch.randn(7, 64, 64)
    model.encoder.requires_grad_(False)
    program = trace(model, (x,))
    halves = ForwardBackward.of(Plan.of(random_schedule(program.graph, 0, 0.0, 0.0)), program, CPU)
    plain = torch.autograd.grad(model(x), list(model.last.parameters()))
    found = torch.autograd.grad(train(halves, model, (x,))[0], list(model.last.parameters()))
    assert all(torch.equal(*pair) for pair in zip(plain, found, strict=True))


def test_each_layer_and_direction_of_an_lstm_is_one_operation():
    model, args = sequence("LSTM", {"num_layers": 2, "bidirectional": True})
    graph = rx.capture(model, args)
    names = [node.details.operator for node in graph.operations if node.details is not None]
    assert names.count("mkldnn_rnn_layer") == names.count("mkldnn_rnn_layer_backward") == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_graph_has_the_bytes_of_every_output_that_a_run_of_the_layer_gives(dtype):
    if dtype is torch.bfloat16:
        skip_without_bfloat16_kernels()
    model, args = sequence("LSTM", {"num_layers": 2, "bias": False}, dtype)
    program, real = trace(model, args), {}
    registers = program.bind(model, args)
    with torch.no_grad():
        for body in program.bodies:
            body.run(registers)
            real |= {v: registers[node].untyped_storage().nbytes() for v, node in body.outputs.items()}
    assert real == {v: program.graph.values[v].bytes for v in real}
    assert any(program.graph.values[v].name.endswith("[3]") and size > 0 for v, size in real.items())


@pytest.mark.parametrize("shape", [(700, 2, 10, 20), (333, 33, 10, 64), (512, 16, 64, 8)])
def test_the_workspace_of_a_long_sequence_is_known_from_short_ones(shape, monkeypatch):
    whole = workspace_bytes.__wrapped__(*shape)
    asked = []
    monkeypatch.setattr(fake_tensors, "_LONG_RUN", 0)
    run = fake_tensors._asked
    monkeypatch.setattr(fake_tensors, "_asked", lambda steps, *args: asked.append(steps) or run(steps, *args))
    assert workspace_bytes.__wrapped__(*shape) == whole
    assert all(steps < shape[0] for steps in asked) or asked == [shape[0]]


def test_two_captures_of_an_lstm_have_the_same_structure_whatever_torch_has_traced_before():
    model, args = sequence("LSTM", {"num_layers": 2})
    assert len({rx.capture(model, args).sha256 for _ in range(3)}) == 1


def test_packed_sequences_are_refused_with_what_to_do():
    packed = pack_padded_sequence(torch.randn(5, 3, INPUT), torch.tensor([5, 3, 2]))
    with pytest.raises(CaptureError, match=r"a packed sequence is among the inputs, .* pass it padded"):
        rx.capture(nn.LSTM(INPUT, HIDDEN), (packed,))


class Operators(TorchDispatchMode):
    """The operators that run while this is entered, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", LAYERS)
def test_the_reference_runs_what_a_plain_loop_runs(kind):
    model, args = sequence(kind, {"num_layers": 2, "dropout": 0.3})
    eager = Eager(place(model, args, None, "cpu"), None)
    with Operators() as plain:
        model(*args).backward()
    with Operators() as reference:
        eager.run()
    made = "aten.ones_like.default"  # the gradient of the loss, which the reference keeps from run to run
    assert [name for name in plain.names if name != made] == [name for name in reference.names if name != made]
    assert ("aten.mkldnn_rnn_layer_backward.default" in reference.names) == (kind == "LSTM")


def test_a_step_of_a_loop_with_an_lstm_takes_what_was_predicted():
    model, args = nn.LSTM(32, 64, 2), (torch.randn(32, 16, 32),)

    def loss(output: Any) -> torch.Tensor:
        return output[0].square().mean()

    trained: Any = rx.rematerialize(model, args, budget="100%", strategy="checkpoint-all", loss=loss)
    trained(*args).backward()
    model.zero_grad()
    with CpuMeter() as meter, meter.section():
        trained(*args).backward()
    solution = trained.rematerialization.solution
    peak = solution.graph.resident_bytes + meter.readings[0].highest
    assert 0.99 * solution.peak <= peak <= 1.01 * solution.peak
