"""Recurrent layers as CUDA computes them without cuDNN: a step at a time, the gates of a step in one fused operation.

Plans run them so on a device, too: see `remat_explorer.capture.eager_kernels`. On the CPU PyTorch multiplies all inputs
by the weights at once, and has no fused gates.

Source: PyTorch 2.11 to 2.13, ``aten/src/ATen/native/RNN.cpp`` (order of the operations) and
``aten/src/ATen/native/cuda/RNN.cu`` (shapes of what the fused cells give).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten
State = tuple[torch.Tensor, ...]  # hidden, and for an LSTM cell
KEPT_BY_GRU = 5  # entries that a fused cell keeps for each of the hidden state


@dataclass(frozen=True)
class Weights:
    """Those of one layer in one direction; ``projection`` is only an LSTM's."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection: torch.Tensor | None = None


Cell = Callable[[torch.Tensor, State, Weights], State]


def lstm_cell(x: torch.Tensor, state: State, weights: Weights) -> State:
    """Hidden and cell state after a step."""
    hidden, cell = state
    gates = torch.matmul(x, weights.of_input.t()), torch.matmul(hidden, weights.of_hidden.t())
    after, cell, _ = aten._thnn_fused_lstm_cell.default(*gates, cell, weights.input_bias, weights.hidden_bias)
    return (after if weights.projection is None else torch.matmul(after, weights.projection.t())), cell


def gru_cell(x: torch.Tensor, state: State, weights: Weights) -> State:
    """The hidden state after a step."""
    gates = torch.matmul(x, weights.of_input.t()), torch.matmul(state[0], weights.of_hidden.t())
    return aten._thnn_fused_gru_cell.default(*gates, state[0], weights.input_bias, weights.hidden_bias)[:1]


def simple_cell(activate: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, state: State, w: Weights) -> State:
    """The hidden state after a step of a layer without gates."""
    linear = torch.nn.functional.linear
    return (activate(linear(state[0], w.of_hidden, w.hidden_bias).add_(linear(x, w.of_input, w.input_bias))),)


def lstm(
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    has_biases: bool,
    *settings: Any,
) -> State:
    """`torch.lstm`: output, last hidden and last cell states; ``settings`` are those of `_layers`."""
    hidden, cell = states
    weights = _weights(parameters, has_biases, projects=hidden.shape[2] != cell.shape[2])
    first = list(zip(hidden.unbind(0), cell.unbind(0), strict=True))
    return _layers(lstm_cell, x, first, weights, *settings)


def one_state(
    cell: Cell,
    x: torch.Tensor,
    hidden: torch.Tensor,
    parameters: Sequence[torch.Tensor],
    has_biases: bool,
    *settings: Any,
) -> State:
    """`torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`: output and last hidden states, as `lstm`."""
    weights = _weights(parameters, has_biases)
    first = [(state,) for state in hidden.unbind(0)]
    return _layers(cell, x, first, weights, *settings)


def _weights(parameters: Sequence[torch.Tensor], has_biases: bool, projects: bool = False) -> list[Weights]:
    count = (4 if has_biases else 2) + projects
    found = []
    for place in range(0, len(parameters), count):
        own = list(parameters[place : place + count])
        projection = own.pop() if projects else None
        found.append(Weights(*own, projection=projection))
    return found


def _layers(
    cell: Cell,
    x: torch.Tensor,
    first: Sequence[State],
    weights: Sequence[Weights],
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> State:
    """Output of the last layer, and for each kind of state the last ones, stacked."""
    x = x.transpose(0, 1) if batch_first else x
    last: list[State] = []
    directions = 2 if bidirectional else 1
    for layer in range(layers):
        steps, outputs = x.unbind(0), []
        for direction in range(directions):
            place = layer * directions + direction
            state, given = first[place], []
            for step in reversed(steps) if direction else steps:
                state = cell(step, state, weights[place])
                given.append(state[0])
            outputs.append(torch.stack(given[::-1] if direction else given, 0))
            last.append(state)
        x = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if dropout and train and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    stacked = [torch.stack(kind, 0) for kind in reversed(list(zip(*last, strict=True)))]  # cells come first
    return x.transpose(0, 1) if batch_first else x, *reversed(stacked)


def _one_lstm_step(x: torch.Tensor, states: Sequence[torch.Tensor], *weights: torch.Tensor | None) -> State:
    return lstm_cell(x, tuple(states), Weights(*weights))  # type: ignore[arg-type]


def _one_gru_step(x: torch.Tensor, hidden: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
    return gru_cell(x, (hidden,), Weights(*weights))[0]  # type: ignore[arg-type]


COMPOSITES: Mapping[OpOverload, Callable[..., Any]] = {
    aten.lstm.input: lstm,
    aten.gru.input: partial(one_state, gru_cell),
    aten.rnn_tanh.input: partial(one_state, partial(simple_cell, torch.tanh)),
    aten.rnn_relu.input: partial(one_state, partial(simple_cell, torch.relu)),
    aten.lstm_cell.default: _one_lstm_step,
    aten.gru_cell.default: _one_gru_step,
}


def _fused_lstm(
    gates: torch.Tensor, _: torch.Tensor, cell: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    hidden, after = (torch.empty_like(cell, memory_format=torch.contiguous_format) for _ in range(2))
    return hidden, after, torch.empty_like(gates, memory_format=torch.contiguous_format)


def _fused_gru(_: torch.Tensor, __: torch.Tensor, hidden: torch.Tensor, *biases: torch.Tensor | None) -> State:
    kept = hidden.new_empty((hidden.shape[0], KEPT_BY_GRU * hidden.shape[1]))
    return torch.empty_like(hidden, memory_format=torch.contiguous_format), kept


def _fused_gru_backward(gradient: torch.Tensor, kept: torch.Tensor, has_bias: bool) -> tuple[torch.Tensor | None, ...]:
    rows, gates = kept.shape[0], 3 * kept.shape[1] // KEPT_BY_GRU
    of_input, of_hidden = kept.new_empty((rows, gates)), kept.new_empty((rows, gates))
    biases = (kept.new_empty(gates), kept.new_empty(gates)) if has_bias else (None, None)
    return of_input, of_hidden, torch.empty_like(gradient, memory_format=torch.contiguous_format), *biases


# What makes the FakeTensors of a call: for GRUs torch would run the kernel, and for LSTMs it insists on biases.
FUSED_CELLS: Mapping[OpOverload, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: _fused_lstm,
    aten._thnn_fused_gru_cell.default: _fused_gru,
    aten._thnn_fused_gru_cell_backward.default: _fused_gru_backward,
}
