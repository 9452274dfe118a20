"""Recurrent layers and cells in a plan are those of a plain training loop: the same kernels, the same numbers."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import remat_explorer as rx
from remat_explorer.capture import fake_tensors, trace
from remat_explorer.capture.fake_tensors import workspace_bytes
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import CaptureError
from remat_explorer.plan import Plan
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.training_run import train
from tests.runtime.kinds_of_models import Made
from tests.runtime.random_schedules import random_schedule
from tests.runtime.step_outcomes import assert_same
from tests.thorough import thorough_but

CPU = torch.device("cpu")
STEPS, BATCH, INPUT, HIDDEN = 3, 7, 12, 20  # rows of 20 entries are no whole number of vectors
LAYERS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


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


def random_plan(model: nn.Module, args: tuple[Any, ...]) -> Any:
    program = trace(model, args)
    schedule = max((random_schedule(program.graph, s, 0.8, 0.01) for s in range(3)), key=lambda one: one.recomputations)
    assert schedule.recomputations > 0
    halves = ForwardBackward.of(Plan.of(schedule), program, CPU)
    return lambda *given: train(halves, model, given)[0]


def assert_a_plan_gives_the_numbers_of_a_plain_loop(model: nn.Module, args: tuple[Any, ...], around: Any = nullcontext):
    found = []
    for planned in (False, True):
        torch.manual_seed(5)
        with around():
            run = random_plan(model, args) if planned else model
        torch.manual_seed(5)
        with nullcontext() if planned else around():
            loss = run(*args)
        loss.backward()
        found.append([loss.detach(), *(parameter.grad for parameter in model.parameters()), torch.get_rng_state()])
        model.zero_grad()
    assert_same(*found)


# An LSTM is one operation for a layer; a GRU and an RNN have operations for every step, so that they take longer.
DROPOUT, F32, F64, BF16 = {"num_layers": 2, "dropout": 0.3}, torch.float32, torch.float64, torch.bfloat16
DEEP = {"num_layers": 2, "bidirectional": True, "dropout": 0.4, "batch_first": True}
QUICK: list[tuple[str, dict[str, Any], torch.dtype, bool]] = [
    *((kind, {}, F32, False) for kind in LAYERS),
    ("LSTM", DEEP, F32, False),
    ("LSTM", {"proj_size": 5}, F32, True),
    ("LSTM", {"bias": False}, F32, True),
    ("LSTM", DROPOUT, F64, True),
    ("RNN", DROPOUT, BF16, True),
]
CASES = [
    *QUICK,
    *((kind, DEEP, dtype, state) for kind in ("GRU", "RNN") for dtype, state in ((F32, False), (F64, True))),
    *((kind, DEEP, BF16, True) for kind in LAYERS),
    ("GRU", {"bias": False}, F32, False),
    ("RNN", {"nonlinearity": "relu"}, F32, True),
]


@pytest.mark.parametrize(("kind", "options", "dtype", "state"), thorough_but(CASES, *QUICK))
def test_a_plan_gives_the_gradients_of_a_plain_loop_bit_for_bit(kind, options, dtype, state):
    assert_a_plan_gives_the_numbers_of_a_plain_loop(*sequence(kind, options, dtype, state))


CASTS = [(kind, options, kept) for kind in LAYERS for options in ({}, {"num_layers": 2}) for kept in (True, False)]


@pytest.mark.parametrize(("kind", "options", "keeps_casts"), thorough_but(CASTS, CASTS[0], CASTS[3], CASTS[4]))
def test_so_it_does_under_autocast_which_casts_a_weight_once_for_all_steps(kind, options, keeps_casts):
    if kind == "LSTM" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no LSTM in bfloat16 on this processor, and plain PyTorch neither")
    low = partial(torch.autocast, "cpu", dtype=torch.bfloat16, cache_enabled=keeps_casts)
    assert_a_plan_gives_the_numbers_of_a_plain_loop(*sequence(kind, options), low)


@pytest.mark.parametrize(
    ("cell", "batch", "width"), [(nn.GRUCell, 15, 12), (nn.LSTMCell, 1, 15), (nn.LSTMCell, 33, 64), (nn.RNNCell, 4, 70)]
)
def test_cells_give_the_numbers_of_plain_pytorch_over_steps_of_any_width(cell, batch, width):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        state: Any = None
        for part in x:
            state = self.cell(part, state)
        return (state[0] if isinstance(state, tuple) else state).square().mean()

    torch.manual_seed(0)
    model = Made(forward, cell=cell(9, width))
    assert_a_plan_gives_the_numbers_of_a_plain_loop(model, (torch.randn(2, batch, 9),))


def test_a_layer_that_runs_without_gradients_takes_the_kernel_that_plain_pytorch_takes_there():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            encoded, _ = self.encoder(x)
        return self.last(encoded)[0].sin().mean()

    torch.manual_seed(0)
    model = Made(forward, encoder=nn.LSTM(64, 64).requires_grad_(False), last=nn.LSTM(64, 64))
    assert_a_plan_gives_the_numbers_of_a_plain_loop(model, (torch.randn(7, 64, 64),))


def test_each_layer_and_direction_of_an_lstm_is_one_operation_in_every_capture():
    model, args = sequence("LSTM", {"num_layers": 2, "bidirectional": True})
    graph = rx.capture(model, args)
    names = [node.details.operator for node in graph.operations if node.details is not None]
    assert names.count("mkldnn_rnn_layer") == names.count("mkldnn_rnn_layer_backward") == 4
    assert rx.capture(model, args).sha256 == graph.sha256


def test_the_workspace_of_a_long_sequence_is_known_from_short_ones(monkeypatch):
    shape, asked = (333, 33, 10, 64), []
    whole = workspace_bytes.__wrapped__(*shape)
    monkeypatch.setattr(fake_tensors, "_LONG_RUN", 0)
    run = fake_tensors._asked
    monkeypatch.setattr(fake_tensors, "_asked", lambda steps, *args: asked.append(steps) or run(steps, *args))
    assert workspace_bytes.__wrapped__(*shape) == whole
    assert all(steps < shape[0] for steps in asked) or asked == [shape[0]]


def test_packed_sequences_are_refused_with_what_to_do():
    packed = pack_padded_sequence(torch.randn(5, 3, INPUT), torch.tensor([5, 3, 2]))
    with pytest.raises(CaptureError, match=r"a packed sequence is among the inputs, .* pass it padded"):
        rx.capture(nn.LSTM(INPUT, HIDDEN), (packed,))


def test_a_step_of_a_loop_with_an_lstm_takes_what_was_predicted():
    model, args = nn.LSTM(32, 64, 2), (torch.randn(32, 16, 32),)
    options: dict[str, Any] = {"budget": "100%", "strategy": "checkpoint-all"}
    trained: Any = rx.rematerialize(model, args, loss=lambda output: output[0].square().mean(), **options)
    trained(*args).backward()
    model.zero_grad()
    with CpuMeter() as meter, meter.section():
        trained(*args).backward()
    solution = trained.rematerialization.solution
    peak = solution.graph.resident_bytes + meter.readings[0].highest
    assert 0.99 * solution.peak <= peak <= 1.01 * solution.peak
