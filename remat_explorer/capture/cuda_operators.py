"""Every operator that PyTorch takes apart in another way on CUDA than on the CPU, and what stands in for it.

Which kernel of attention CUDA takes, and how it is called, are PyTorch's rules as tables. Source: PyTorch 2.11 to 2.14,
``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (`select_sdp_backend` and the conditions of each kernel),
``sdp_utils_cpp.h`` and ``attention.cpp`` (`scaled_dot_product_attention`, which pads). What a person has switched off
with `torch.nn.attention.sdpa_kernel` is off here, too.

Recurrent layers are computed as CUDA does without cuDNN: a step at a time, the gates of a step in one fused operation.
Plans run them so on a device, too: see `remat_explorer.capture.eager_kernels`. On the CPU PyTorch multiplies all inputs
by the weights at once, and has no fused gates. Source: PyTorch 2.11 to 2.13, ``aten/src/ATen/native/RNN.cpp`` (order of
the operations) and ``aten/src/ATen/native/cuda/RNN.cu`` (shapes of what the fused cells give).
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload
from torch.nn.functional import pad

from remat_explorer.capture.cuda_target import CudaTarget
from remat_explorer.errors import CaptureError

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
KINDS = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}  # by the numbers of `torch.nn.attention.SDPBackend`
USUAL = ["flash", "efficient", "math", "cudnn"]  # PyTorch's own order, where no person has set another
ALIGNED = 8  # entries: flash attention's widths, and rows of the mask of efficient attention
CUDNN_PREFERRED = 91500  # cuDNN's versions above it; older ones fail for some lengths
SIXTEENTHS = (2, 12)  # PyTorch that gives cuDNN no other shares to drop (pull request 174245)
_State = tuple[torch.Tensor, ...]  # hidden, and for an LSTM cell
KEPT_BY_GRU = 5  # entries that a fused cell keeps for each of the hidden state
ZEROS, BILINEAR = 0, 0  # of grid sampling: padding, interpolation
MOST_CHANNELS = 1024  # that cuDNN samples


def composites(target: CudaTarget) -> dict[OpOverload, Callable[..., Any]]:
    """What to run for each such operator while a model is traced for ``target``."""
    return {
        **COMPOSITES,
        aten.scaled_dot_product_attention.default: partial(_attention, target),
        aten.softmax.int: partial(_softmax, aten._softmax.default),
        aten.log_softmax.int: partial(_softmax, aten._log_softmax.default),
        aten.grid_sampler.default: _grid_sampler,
        aten.rms_norm.default: _rms_norm,
        aten.ctc_loss.IntList: _ctc_loss,
        aten.ctc_loss.Tensor: _ctc_loss,
    }


@dataclass(frozen=True)
class Call:
    """A call of `scaled_dot_product_attention` on a device of some compute capability."""

    capability: tuple[int, int]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    causal: bool = False
    scale: float | None = None
    grouped: bool = False

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self.query, self.key, self.value

    @property
    def trains(self) -> bool:
        """Whether a backward pass will follow."""
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)


def chosen_kernel(call: Call) -> str:
    """One of "cudnn", "flash", "efficient" and "math"; a CaptureError if every kernel that would do is switched off."""
    switches = torch.backends.cuda
    allowed: dict[str, Callable[[], bool]] = {
        "cudnn": switches.cudnn_sdp_enabled,
        "flash": switches.flash_sdp_enabled,
        "efficient": switches.mem_efficient_sdp_enabled,
        "math": switches.math_sdp_enabled,
    }
    fits = {"cudnn": _fits_cudnn, "flash": _fits_flash, "efficient": _fits_efficient, "math": lambda call: True}
    order = [KINDS[number] for number in torch._C._get_sdp_priority_order() if number in KINDS]
    if order == USUAL and _prefers_cudnn(call.capability):
        order = ["cudnn", *order[:-1]]
    for kind in order:
        if allowed[kind]() and fits[kind](call):
            return kind
    raise CaptureError("no kernel of attention that is switched on takes these tensors on CUDA; allow math, too")


def attention(call: Call) -> torch.Tensor:
    """The call as CUDA makes it: by the operator of its kernel, padded where that needs it."""
    kind = chosen_kernel(call)
    query, key, value = call.tensors
    mask = _additive(call.mask, query.dtype)
    setting: dict[str, Any] = {"scale": call.scale}
    given = call.dropout, call.causal
    if kind == "flash":
        width = query.shape[-1]
        padded = [_padded(tensor) for tensor in call.tensors]
        setting["scale"] = 1 / math.sqrt(width) if call.scale is None else call.scale
        output = aten._scaled_dot_product_flash_attention.default(*padded, *given, False, **setting)[0]
        return output if output.shape[-1] == width else output[..., :width]
    if kind == "math":
        return aten._scaled_dot_product_attention_math.default(
            query, key, value, mask, *given, None, **setting, enable_gqa=call.grouped
        )[0]
    if kind == "cudnn":
        return aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, mask, call.trains, *given, False, **setting
        )[0]
    if mask is not None:
        mask = _aligned(mask).expand(*query.shape[:3], key.shape[2])
    return aten._scaled_dot_product_efficient_attention.default(
        query, key, value, mask, call.trains, *given, **setting
    )[0]


def _prefers_cudnn(capability: tuple[int, int]) -> bool:
    """Whether cuDNN's attention comes first: on Hopper and on data-centre Blackwell, with a new cuDNN.

    Where this build of torch has none, the one is meant that comes with its build for CUDA 13.
    """
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1":
        return False
    version = torch.backends.cudnn.version() if torch.backends.cuda.is_built() else None
    return capability[0] in (9, 10) and (version is None or version > CUDNN_PREFERRED)


def _pytorch() -> tuple[int, ...]:
    """PyTorch's version, its first two numbers."""
    return tuple(map(int, torch.__version__.split(".")[:2]))


def _fits_cudnn(call: Call) -> bool:
    widths = call.query.shape[-1], call.value.shape[-1]
    return (
        call.capability >= (8, 0)
        and _fits_any(call, ignore_width_1=True, alike=False)
        and not torch.are_deterministic_algorithms_enabled()
        and _have_type(call, HALF)
        and _fits_mask(call)
        and all(width % 8 == 0 for width in widths)
        and (max(widths) <= 128 or (widths == (192, 128) and call.capability[0] in (9, 10)))
        and (call.dropout * 16 == int(call.dropout * 16) or _pytorch() < SIXTEENTHS)
        and call.key.shape[2] != 1
        and not (call.dropout and call.query.shape[2] == 1)
    )


def _fits_flash(call: Call) -> bool:
    width = call.query.shape[-1]
    few_registers = (8, 6) <= call.capability <= (8, 9) or call.capability >= (12, 0)
    return (
        (8, 0) <= call.capability <= (12, 1)
        and call.mask is None
        and _fits_any(call, ignore_width_1=True)
        and width == call.key.shape[-1] == call.value.shape[-1]
        and width <= 256
        and not (call.trains and few_registers and width > 192 and (width <= 224 or call.dropout > 0))
        and not (call.causal and call.query.shape[2] != call.key.shape[2])
        and _have_type(call, HALF)
    )


def _fits_efficient(call: Call) -> bool:
    half = call.query.dtype in HALF
    modern = call.capability >= (8, 0)
    tensor_cores = modern or (call.capability >= (7, 0) and half)
    alignment = max(4 if modern else 1, (8 if half else 4) if tensor_cores else 1)
    widths = call.query.shape[-1], call.value.shape[-1]
    types = (torch.float16, torch.float32, torch.bfloat16) if modern else (torch.float16, torch.float32)
    return (
        (5, 0) <= call.capability <= (12, 1)
        and _fits_any(call, groups=False)
        and call.key.shape[-1] == widths[0]
        and all(width > 0 and width % alignment == 0 for width in widths)
        and _have_type(call, types)
    )


def _fits_any(call: Call, ignore_width_1: bool = False, groups: bool = True, alike: bool = True) -> bool:
    """What every kernel but "math" asks: four dimensions, as many samples and heads, rows without gaps.

    Where ``groups`` are taken, a head of the key serves several of the query, if the call asks for that; ``alike`` is
    whether key and value have as many heads then.
    """
    if any(tensor.dim() != 4 for tensor in call.tensors):
        return False
    samples, heads = zip(*(tensor.shape[:2] for tensor in call.tensors), strict=True)
    fewer = heads[1:]
    if call.grouped and groups:
        fits_heads = (
            min(fewer) > 0 and all(heads[0] % few == 0 for few in fewer) and (len(set(fewer)) == 1 or not alike)
        )
    else:
        fits_heads = len(set(heads)) == 1
    dense = all(tensor.stride(-1) == 1 for tensor in call.tensors) or (ignore_width_1 and call.query.shape[-1] == 1)
    return (
        len(set(samples)) == 1
        and fits_heads
        and call.query.shape[2] > 0
        and call.key.shape[2] > 0
        and dense
        and (call.mask is None or call.mask.stride(-1) == 1)
    )


def _have_type(call: Call, types: tuple[torch.dtype, ...]) -> bool:
    kinds = {tensor.dtype for tensor in call.tensors}
    return len(kinds) == 1 and kinds <= set(types)


def _fits_mask(call: Call) -> bool:
    """A mask of two or four dimensions, each as long as the scores' or 1, that gets no gradient."""
    mask = call.mask
    if mask is None:
        return True
    full = (*call.query.shape[:3], call.key.shape[2])
    sides = zip(mask.shape, full[-mask.dim() :], strict=True)
    return mask.dim() in (2, 4) and not mask.requires_grad and all(size in (1, whole) for size, whole in sides)


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A mask that is added: 0 where a truth value is true, minus infinity elsewhere."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    missing = -tensor.shape[-1] % ALIGNED
    return pad(tensor, (0, missing)) if missing else tensor


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """The mask with rows that begin at multiples of 8 entries, as a view of a padded one where they do not."""
    if mask.stride(-1) == 1 and all(step % ALIGNED == 0 for step in mask.stride()[:-1]):
        return mask
    length = mask.shape[-1]
    return pad(mask, (0, ALIGNED - length % ALIGNED))[..., :length]


@dataclass(frozen=True)
class _Weights:
    """Those of one layer in one direction; ``projection`` is only an LSTM's."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None
    projection: torch.Tensor | None = None


_Cell = Callable[[torch.Tensor, _State, _Weights], _State]


def _lstm_cell(x: torch.Tensor, state: _State, weights: _Weights) -> _State:
    """Hidden and cell state after a step."""
    hidden, cell = state
    gates = torch.matmul(x, weights.of_input.t()), torch.matmul(hidden, weights.of_hidden.t())
    after, cell, _ = aten._thnn_fused_lstm_cell.default(*gates, cell, weights.input_bias, weights.hidden_bias)
    return (after if weights.projection is None else torch.matmul(after, weights.projection.t())), cell


def _gru_cell(x: torch.Tensor, state: _State, weights: _Weights) -> _State:
    """The hidden state after a step."""
    gates = torch.matmul(x, weights.of_input.t()), torch.matmul(state[0], weights.of_hidden.t())
    return aten._thnn_fused_gru_cell.default(*gates, state[0], weights.input_bias, weights.hidden_bias)[:1]


def _simple_cell(
    activate: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, state: _State, w: _Weights
) -> _State:
    """The hidden state after a step of a layer without gates."""
    linear = torch.nn.functional.linear
    return (activate(linear(state[0], w.of_hidden, w.hidden_bias).add_(linear(x, w.of_input, w.input_bias))),)


def lstm(
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    has_biases: bool,
    *settings: Any,
) -> _State:
    """`torch.lstm`: output, last hidden and last cell states; ``settings`` are those of `_layers`."""
    hidden, cell = states
    weights = _weights(parameters, has_biases, projects=hidden.shape[2] != cell.shape[2])
    first = list(zip(hidden.unbind(0), cell.unbind(0), strict=True))
    return _layers(_lstm_cell, x, first, weights, *settings)


def _one_state(
    cell: _Cell,
    x: torch.Tensor,
    hidden: torch.Tensor,
    parameters: Sequence[torch.Tensor],
    has_biases: bool,
    *settings: Any,
) -> _State:
    """`torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`: output and last hidden states, as `lstm`."""
    weights = _weights(parameters, has_biases)
    first = [(state,) for state in hidden.unbind(0)]
    return _layers(cell, x, first, weights, *settings)


def _weights(parameters: Sequence[torch.Tensor], has_biases: bool, projects: bool = False) -> list[_Weights]:
    count = (4 if has_biases else 2) + projects
    found = []
    for place in range(0, len(parameters), count):
        own = list(parameters[place : place + count])
        projection = own.pop() if projects else None
        found.append(_Weights(*own, projection=projection))
    return found


def _layers(
    cell: _Cell,
    x: torch.Tensor,
    first: Sequence[_State],
    weights: Sequence[_Weights],
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> _State:
    """Output of the last layer, and for each kind of state the last ones, stacked."""
    x = x.transpose(0, 1) if batch_first else x
    last: list[_State] = []
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


def _one_lstm_step(x: torch.Tensor, states: Sequence[torch.Tensor], *weights: torch.Tensor | None) -> _State:
    return _lstm_cell(x, tuple(states), _Weights(*weights))  # type: ignore[arg-type]


def _one_gru_step(x: torch.Tensor, hidden: torch.Tensor, *weights: torch.Tensor | None) -> torch.Tensor:
    return _gru_cell(x, (hidden,), _Weights(*weights))[0]  # type: ignore[arg-type]


COMPOSITES: Mapping[OpOverload, Callable[..., Any]] = {
    aten.lstm.input: lstm,
    aten.gru.input: partial(_one_state, _gru_cell),
    aten.rnn_tanh.input: partial(_one_state, partial(_simple_cell, torch.tanh)),
    aten.rnn_relu.input: partial(_one_state, partial(_simple_cell, torch.relu)),
    aten.lstm_cell.default: _one_lstm_step,
    aten.gru_cell.default: _one_gru_step,
}


def _fused_lstm(
    gates: torch.Tensor, _: torch.Tensor, cell: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    hidden, after = (torch.empty_like(cell, memory_format=torch.contiguous_format) for _ in range(2))
    return hidden, after, torch.empty_like(gates, memory_format=torch.contiguous_format)


def _fused_gru(_: torch.Tensor, __: torch.Tensor, hidden: torch.Tensor, *biases: torch.Tensor | None) -> _State:
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


def _attention(
    target: CudaTarget,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    return attention(
        Call(target.capability, query, key, value, attn_mask, dropout_p, is_causal, scale, grouped=enable_gqa)
    )


def _softmax(operator: OpOverload, x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """From half to full precision in one kernel. Source: ``aten/src/ATen/native/SoftMax.cpp``."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        return operator(x, dim, True)
    return operator(x if dtype is None else x.to(dtype), dim, False)


def _grid_sampler(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """By PyTorch's kernels, where cuDNN does not take it. Source: ``GridSampler.cpp``, `cond_cudnn_grid_sampler`."""
    two = x.dim() == 4
    if two and (interpolation, padding, align_corners) == (BILINEAR, ZEROS, True) and x.shape[1] <= MOST_CHANNELS:
        raise CaptureError(
            "grid_sample is cuDNN's on CUDA, whose results are not known without a device; capture it there, or with "
            "align_corners=False"
        )
    operator = aten.grid_sampler_2d.default if two else aten.grid_sampler_3d.default
    return operator(x, grid, interpolation, padding, align_corners)


def _rms_norm(*args: Any, **kwargs: Any) -> Any:
    warnings.warn(
        "rms_norm is one fused operation on CUDA, but several in a graph that is made without a device: that of the "
        "device has fewer operations and values, and a schedule of this one does not run there",
        stacklevel=2,
    )
    return aten.rms_norm.default._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def _ctc_loss(*args: Any, **kwargs: Any) -> Any:
    raise CaptureError("which kernel CUDA takes for the CTC loss depends on lengths and cuDNN; capture on the device")
