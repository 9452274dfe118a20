"""Operators that PyTorch takes apart in another way on CUDA: their operations and bytes, without a device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import CaptureError
from tests.thorough import thorough_but

STEPS, BATCH, SIZE, HIDDEN = 3, 4, 6, 8


def first_mean(output: Any) -> torch.Tensor:
    return (output[0] if isinstance(output, tuple) else output).float().mean()


def captured(model: nn.Module, x: torch.Tensor, kernels: str | None = "cuda") -> rx.Graph:
    return rx.capture(model, (x,), loss=first_mean, kernels=kernels)


def left(graph: rx.Graph, operation: str, phase: str = "forward") -> list[list[int]]:
    """Bytes of the outputs of each operation whose name has such a part."""
    nodes = [node for node in graph.operations if operation in node.name and node.phase == phase]
    return [[graph.values[v].bytes for v in node.default.outputs] for node in nodes]


def sequence() -> torch.Tensor:
    return torch.ones(STEPS, BATCH, SIZE)


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_keeps_four_gates_of_each_step_beside_its_states(bias):
    graph = captured(nn.LSTM(SIZE, HIDDEN, bias=bias), sequence())
    state, gates = BATCH * HIDDEN * 4, BATCH * 4 * HIDDEN * 4
    assert left(graph, "lstm_cell") == STEPS * [[state, state, gates]]
    assert left(graph, "mm") == 2 * STEPS * [[gates]]  # of input and of hidden state, for each step


@pytest.mark.parametrize("bias", [True, False])
def test_a_gru_keeps_five_entries_for_each_of_its_state(bias):
    graph = captured(nn.GRU(SIZE, HIDDEN, bias=bias), sequence())
    assert left(graph, "gru_cell") == STEPS * [[BATCH * HIDDEN * 4, BATCH * 5 * HIDDEN * 4]]
    of_gates, of_state = BATCH * 3 * HIDDEN * 4, BATCH * HIDDEN * 4
    backward = [[b for b in made if b >= of_state] for made in left(graph, "gru_cell_backward", "backward")]
    assert backward[:-1] == (STEPS - 1) * [[of_gates, of_gates, of_state]]


def test_a_layer_without_gates_multiplies_step_by_step():
    graph = captured(nn.RNN(SIZE, HIDDEN), sequence())
    assert len(left(graph, "linear")) == 2 * STEPS
    assert len(left(graph, "tanh")) == STEPS


@pytest.mark.parametrize("kind", thorough_but([nn.LSTM, nn.GRU, nn.RNN], nn.LSTM, nn.RNN))
def test_layers_in_both_directions_drop_between_them(kind):
    layers = kind(SIZE, HIDDEN, 2, dropout=0.5, bidirectional=True, batch_first=True)
    graph = captured(layers, torch.ones(BATCH, STEPS, SIZE))
    assert left(graph, "dropout") == [[STEPS * BATCH * 2 * HIDDEN * 4, STEPS * BATCH * 2 * HIDDEN]]
    assert len(left(graph, "tanh" if kind is nn.RNN else "_cell")) == 2 * 2 * STEPS


def test_a_projected_state_is_as_wide_as_its_projection():
    graph = captured(nn.LSTM(SIZE, HIDDEN, proj_size=2), sequence())
    assert len(left(graph, "lstm_cell")) == STEPS
    assert left(graph, "mm").count([BATCH * 2 * 4]) == STEPS


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.long, self.gated = nn.LSTMCell(SIZE, HIDDEN), nn.GRUCell(SIZE, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.long(x)
        return self.gated(x, hidden)


def test_single_cells_are_fused():
    graph = captured(Cells(), torch.ones(BATCH, SIZE))
    state = BATCH * HIDDEN * 4
    assert left(graph, "gru_cell") == [[state, 5 * state]]
    assert left(graph, "lstm_cell")[0][:1] == [state]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_a_byte_an_entry_in_every_precision(dtype):
    graph = captured(
        nn.Sequential(nn.Linear(SIZE, HIDDEN), nn.Dropout(0.1)).to(dtype), torch.ones(BATCH, SIZE).to(dtype)
    )
    assert left(graph, "dropout") == [[BATCH * HIDDEN * dtype.itemsize, BATCH * HIDDEN]]


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2, 3, 8, 8, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_keeps_statistics_in_full_precision(dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).to(dtype)
    entries = 2 * 4 * 8 * 8 * dtype.itemsize
    assert left(captured(model, images(dtype)), "batch_norm")[0][:3] == [entries, 4 * 4, 4 * 4]


def test_batch_norm_in_evaluation_has_copies_of_its_statistics_on_cuda_and_none_on_the_cpu():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4).eval())
    entries = 2 * 4 * 8 * 8 * 4
    assert left(captured(model, images()), "batch_norm") == [[entries, 4 * 4, 4 * 4]]
    assert left(captured(model, images(), None), "batch_norm") == [[entries, 0, 0]]


def test_a_convolution_and_max_pooling_have_the_bytes_that_they_have_on_the_cpu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2))
    graph = captured(model, images())
    assert left(graph, "conv2d") == [[2 * 4 * 6 * 6 * 4]]
    assert left(graph, "max_pool2d") == [[2 * 4 * 3 * 3 * 4, 2 * 4 * 3 * 3 * 8]]
    assert graph.values == captured(model, images(), None).values


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float32, 0), (torch.float64, 1)])
def test_channels_stay_last_in_a_convolution_but_not_in_double_precision(dtype, copies):
    class Wants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inside: Any = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4))
            self.inside = inside.to(dtype=dtype, memory_format=torch.channels_last)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inside(x).contiguous(memory_format=torch.channels_last).exp()

    graph = captured(Wants(), images(dtype).contiguous(memory_format=torch.channels_last))
    assert len(left(graph, "clone")) == copies


class Softmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(SIZE, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inside(x).softmax(-1, dtype=torch.float32)


@pytest.mark.parametrize(("dtype", "casts"), [(torch.float16, 0), (torch.bfloat16, 1), (torch.float32, 0)])
def test_softmax_in_full_precision_takes_float16_as_it_is(dtype, casts):
    graph = captured(Softmax().to(dtype), torch.ones(BATCH, SIZE, dtype=dtype))
    assert left(graph, "softmax") == [[BATCH * HIDDEN * 4]]
    assert len(left(graph, "cast")) == casts


class Samples(nn.Module):
    def __init__(self, align_corners: bool) -> None:
        super().__init__()
        self.inside, self.align_corners = nn.Conv2d(3, 3, 1), align_corners

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = x.new_zeros(2, 4, 4, 2)
        return nn.functional.grid_sample(self.inside(x), grid, align_corners=self.align_corners)


def test_grid_sampling_that_cudnn_takes_is_refused_and_other_sampling_is_not():
    assert left(captured(Samples(False), images()), "grid_sampler_2d") == [[2 * 3 * 4 * 4 * 4]]
    with pytest.raises(CaptureError, match="cuDNN's on CUDA"):
        captured(Samples(True), images())


def test_rms_norm_says_that_the_device_has_fewer_operations():
    with pytest.warns(UserWarning, match="rms_norm is one fused operation on CUDA"):
        captured(nn.Sequential(nn.Linear(SIZE, HIDDEN), nn.RMSNorm(HIDDEN)), torch.ones(BATCH, SIZE))
