"""FakeTensors with the strides and the storage that kernels really give, where torch predicts others.

Torch describes many operators by Python code that computes the same numbers in another way. Shapes are right then, but
strides may not be, and where a kernel leaves its result in a larger storage (``mse_loss`` has its mean in the memory of
all squares), that does not show. Found by comparing every operator of some hundred models with its kernels (torch
2.13); what is not listed here, a profile finds.

`kernel_layout_mode` knows layouts by operator, the strides of dimensions of one entry, which torch leaves to chance
though convolutions choose between layouts by them, and the workspace of oneDNN's recurrent layers.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.cuda_operators import FUSED_CELLS
from remat_explorer.capture.cuda_target import SeenOnCuda

aten = torch.ops.aten


def fake_tensor_mode() -> FakeTensorMode:
    """A new mode, in which tensors that are not fake may be given to operators.

    >>> with fake_tensor_mode():
    ...     type(torch.ones(2)).__name__
    'FakeTensor'
    """
    _keep_device_guard()
    return FakeTensorMode(allow_non_fake_inputs=True)


def kernel_layout_mode(on_cuda: bool = False) -> FakeTensorMode:
    """A mode for FakeTensors that knows what kernels give, and lets real tensors in, such as parameters.

    It is no class of its own, since torch looks up what higher-order operators do by the class of a mode.
    """
    mode = fake_tensor_mode()
    predicted = SeenOnCuda(mode.dispatch) if on_cuda else mode.dispatch

    def dispatch(func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func in _WRITTEN:
            with mode:
                return _WRITTEN[func](*args, **(kwargs or {}))
        result = predicted(func, types, args, kwargs or {})
        if not isinstance(result, torch.Tensor | tuple | list):
            return result  # such as the device of a tensor, which is asked for as often as operators are called
        layout = _LAYOUTS.get(func)
        if layout is None and func in _LAYOUTS_ON_CPU and args[0].device.type == "cpu" and not on_cuda:
            layout = _LAYOUTS_ON_CPU[func]
        if layout is None:
            return _with_kernel_strides(mode, func, result, args, kwargs or {})
        with torch.no_grad(), mode:
            return pytree.tree_map_only(torch.Tensor, lambda tensor: layout(tensor, args), result)

    mode.dispatch = dispatch  # type: ignore[method-assign]
    return mode


@functools.cache
def _keep_device_guard() -> None:
    """Have the guard made by a thread that does not end, once in a process."""
    if not torch.backends.cuda.is_built() or torch.cuda.is_available():
        return
    made = threading.Event()

    def keep() -> None:
        torch._C._ensureCUDADeviceGuardSet()
        made.set()
        threading.Event().wait()

    threading.Thread(target=keep, daemon=True, name="remat-device-guard").start()
    made.wait()


_Strides = tuple[int, ...]
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
_COPIES = (aten.clone.default,)  # entry by entry, but laid out as their source
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _with_kernel_strides(
    mode: FakeTensorMode, func: Any, result: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """What a view, or an operation entry by entry, gives with the strides of its kernel; else what was predicted."""
    if not isinstance(result, torch.Tensor) or 1 not in result.shape or not _is_concerned(func):
        return result
    tensors = [part for part in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(part, torch.Tensor)]
    if not all(type(n) is int for tensor in (*tensors, result) for n in (*tensor.shape, *tensor.stride())):
        return result  # sizes are not known
    if func in _VIEWS:
        strides = _of_view(func, args[0], args[1])
    else:
        strides = _of_iteration(tensors, tuple(result.shape), _has_number_for_tensor(func, args))
    if strides is None:
        return result
    long = [place for place, size in enumerate(result.shape) if size > 1]
    if strides == result.stride() or any(strides[place] != result.stride()[place] for place in long):
        return result  # as predicted, or of a kernel that takes its operands in another order
    with torch.no_grad(), mode:
        if func in _VIEWS:
            return args[0].as_strided(result.shape, strides, result.storage_offset())
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


@cache
def _is_concerned(func: Any) -> bool:
    """Whether the strides of a call are looked after here."""
    if not isinstance(func, OpOverload) or func in _COPIES:
        return False
    return func in _VIEWS or torch.Tag.pointwise in func.tags


def _of_view(view: OpOverload, source: torch.Tensor, sizes: Sequence[int]) -> _Strides | None:
    """By the kernel for a tensor without content, and not by what Python has in its place while a step is traced.

    None where it refuses, as it does if a stride of the source was predicted otherwise than its kernel gives it.
    """
    with unset_fake_temporarily(), torch._C._DisablePythonDispatcher():
        try:
            return view(torch.empty_strided(source.shape, source.stride(), device="meta"), sizes).stride()
        except RuntimeError:
            return None


def _of_iteration(tensors: Sequence[torch.Tensor], shape: tuple[int, ...], has_number: bool) -> _Strides:
    """By the rules of PyTorch's TensorIterator (aten/src/ATen/TensorIterator.cpp) for a result that it allocates."""
    if not has_number and all(tensor.shape == shape for tensor in tensors):
        if all(tensor.is_contiguous() for tensor in tensors):
            return make_contiguous_strides_for(shape)
        last = _CHANNELS_LAST.get(len(shape))
        if last is not None and all(tensor.is_contiguous(memory_format=last) for tensor in tensors):
            return make_channels_last_strides_for(shape)  # type: ignore[reportArgumentType]
        if all(tensor.stride() == tensors[0].stride() for tensor in tensors):
            return tensors[0].stride()
    return _dense(shape, _sorted_by_strides([_broadcast(tensor, shape) for tensor in tensors], shape))


def _sorted_by_strides(operands: Sequence[_Strides], shape: tuple[int, ...]) -> list[int]:
    """Dimensions by ascending stride; the first operand that tells two apart decides, and else their order."""
    order = list(range(len(shape)))[::-1]
    for end in range(1, len(order)):
        place = end
        for before in range(end - 1, -1, -1):
            larger = _is_larger(order[before], order[place], operands, shape)
            if larger > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif larger < 0:
                break
    return order


def _is_larger(one: int, other: int, operands: Sequence[_Strides], shape: tuple[int, ...]) -> int:
    for strides in operands:
        if strides[one] == 0 or strides[other] == 0:
            continue
        if strides[one] != strides[other]:
            return 1 if strides[one] > strides[other] else -1
        if shape[one] > shape[other]:
            return 1
    return 0


def _broadcast(tensor: torch.Tensor, shape: tuple[int, ...]) -> _Strides:
    """Strides in the shape of the result: 0 where entries are repeated."""
    missing = len(shape) - tensor.dim()
    sizes = zip(tensor.shape, shape[missing:], tensor.stride(), strict=True)
    return (0,) * missing + tuple(0 if have == 1 != wanted else stride for have, wanted, stride in sizes)


def _dense(shape: tuple[int, ...], order: Sequence[int]) -> _Strides:
    """Strides without gaps, the dimensions of ``order`` from fast to slow."""
    strides, step = [0] * len(shape), 1
    for place in order:
        strides[place] = step
        step *= shape[place]
    return tuple(strides)


def _has_number_for_tensor(func: OpOverload, args: Sequence[Any]) -> bool:
    """Whether an operand is a number, which becomes a tensor without dimensions."""
    return any(place < len(args) and isinstance(args[place], int | float | complex) for place in _operands(func))


@cache
def _operands(func: OpOverload) -> list[int]:
    """The places of arguments that are tensors."""
    tensor = torch._C.TensorType.get()
    return [place for place, argument in enumerate(func._schema.arguments) if argument.type.isSubtypeOf(tensor)]


_PAGE = 4096  # bytes; oneDNN begins each part of a workspace on a new one
_LONG_RUN = 2**31  # floating-point operations of a run that shall only tell a size


def _layer(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Output, last hidden and cell state, and the workspace that the backward pass reads."""
    _, _, _, _, hx, cx, reverse, _, mode, hidden_size, _, has_biases, _, _, train = args
    steps, batch, size = x.shape
    workspace = 0
    if torch.is_grad_enabled():
        workspace = workspace_bytes(steps, batch, size, hidden_size, mode, x.dtype, bool(reverse), has_biases, train)
    output = x.new_empty((steps, batch, hidden_size))
    return output, hx.new_empty(hx.shape), cx.new_empty(cx.shape), x.new_empty(workspace, dtype=torch.uint8)


def _layer_backward(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Gradients of input, both weights, both biases, hidden and cell state; in single precision, whatever these have.

    A layer without biases has zeros for them, in the shape of the weights; their gradient has one entry a row.
    """
    ih, hh, bias, _, hx, cx = args[:6]
    shapes = (x.shape, ih.shape, hh.shape, bias.shape[:1], bias.shape[:1], hx.shape, cx.shape)
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in shapes)


# What makes the FakeTensors of a call: those of torch have a workspace of no bytes, and give the gradients of both
# biases one storage or two, depending on what was traced before.
RECURRENT_LAYERS: Mapping[OpOverload, Callable[..., Any]] = {
    aten.mkldnn_rnn_layer.default: _layer,
    aten.mkldnn_rnn_layer_backward.default: _layer_backward,
}


def traced_kernel(node: Node) -> Callable[..., Any]:
    """What runs for a call of the joint graph: its target, or for a layer with a workspace a function of this file.

    A plan runs without gradients, and oneDNN then takes another kernel, with other last digits and without a workspace.
    """
    trains = node.target is aten.mkldnn_rnn_layer.default and node.meta["val"][3].numel() > 0
    return layer_with_workspace if trains else node.target  # type: ignore[return-value]


def layer_with_workspace(*args: Any) -> Any:
    """A recurrent layer by the kernel that training takes: output, last hidden and cell state, workspace."""
    with torch.enable_grad():
        return aten.mkldnn_rnn_layer.default(*args)


@cache
def workspace_bytes(
    steps: int,
    batch: int,
    size: int,
    hidden_size: int,
    mode: int = 2,
    dtype: torch.dtype = torch.float32,
    reverse: bool = False,
    has_biases: bool = True,
    train: bool = True,
) -> int:
    """Bytes that one oneDNN layer keeps for its backward pass. The library is asked by a run on zeros.

    A workspace has parts whose bytes are multiples of the number of steps, and each begins on a page of its own. So two
    short runs tell the size of a long one exactly, if their numbers of steps leave as much of a page as the long one.
    ``mode`` is the kind of layer, as torch numbers them; 2 is an LSTM.
    """

    def asked(length: int) -> int:
        return _asked(length, batch, size, hidden_size, mode, dtype, reverse, has_biases, train)

    period = _PAGE // math.gcd(_PAGE, batch * dtype.itemsize)
    short = steps % period + period
    if short + period >= steps or 8 * steps * batch * hidden_size * (size + hidden_size) < _LONG_RUN:
        return asked(steps)
    first, second = asked(short), asked(short + period)
    return first + (second - first) * ((steps - short) // period)


def _asked(
    steps: int,
    batch: int,
    size: int,
    hidden_size: int,
    mode: int,
    dtype: torch.dtype,
    reverse: bool,
    has_biases: bool,
    train: bool,
) -> int:
    with _disable_current_modes(), no_autocast(), torch.inference_mode(False), torch.enable_grad():
        rows = 4 * hidden_size
        bias = torch.zeros(rows, dtype=dtype)
        weights = (torch.zeros(rows, size, dtype=dtype), torch.zeros(rows, hidden_size, dtype=dtype), bias, bias)
        state, x = torch.zeros(batch, hidden_size, dtype=dtype), torch.zeros(steps, batch, size, dtype=dtype)
        kind = (mode, hidden_size, 1, has_biases, False, False, train)
        return aten.mkldnn_rnn_layer(x, *weights, state, state, reverse, [], *kind)[3].untyped_storage().nbytes()


_HAS_OVERLAP: Any = torch._debug_has_internal_overlap  # type: ignore[reportPrivateImportUsage]
_NO_REDUCTION = 0  # of a loss: one entry for each of the input
_Layout = Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]  # from a result and the arguments


def _in_format(result: torch.Tensor, args: Sequence[Any], form: torch.memory_format) -> torch.Tensor:
    """A new tensor without gaps in this format: ``result`` itself where it is one, which is nearly always."""
    if all(type(n) is int for n in (*result.shape, *result.stride(), result.storage_offset())):
        last = form in (torch.channels_last, torch.channels_last_3d)
        strides: Any = make_channels_last_strides_for if last else make_contiguous_strides_for
        storage = result.untyped_storage()
        if result.stride() == tuple(strides(result.shape)) and storage.nbytes() == result.nbytes:
            given = {part.untyped_storage()._cdata for part in args if isinstance(part, torch.Tensor)}
            if storage._cdata not in given:
                return result
    return torch.empty_like(result, memory_format=form)


def _contiguous(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    return _in_format(result, args, torch.contiguous_format)


def _contiguous_like(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Contiguous where the first argument is, even where it could be said to have channels last; else as suggested."""
    return _contiguous(result, args) if args[0].is_contiguous() else _suggested(0)(result, args)


def _like(position: int) -> _Layout:
    """Laid out as an argument: `torch.empty_like`."""
    return lambda result, args: torch.empty_like(args[position])


def _suggested(position: int) -> _Layout:
    """In the memory format of an argument, without gaps."""

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        if result.dim() != args[position].dim():
            return result
        return _in_format(result, args, suggest_memory_format(args[position]))

    return layout


def _elementwise(*positions: int) -> _Layout:
    """As an operation on these arguments, in this order, gives its result."""

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        first, *others = (args[position] for position in positions)
        for other in others:
            first = aten.add.Tensor(first, other)
        return first if first.dtype == result.dtype else torch.empty_like(first, dtype=result.dtype)

    return layout


def _reduced_in_place(reduction: int, *operands: int) -> _Layout:
    """One number in the storage of what was added up, or what is not reduced; of arguments by their positions."""

    def layout(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        if (args[reduction] if len(args) > reduction else 1) == _NO_REDUCTION:
            return result if len(operands) > 1 else torch.empty_like(args[0])
        shape = torch.broadcast_shapes(*(args[position].shape for position in operands))
        return _in_storage_of(shape.numel() * result.element_size(), result)

    return layout


def _folded(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """`col2im` makes room for its input first, and that remains where it is larger."""
    return _in_storage_of(args[0].numel() * args[0].element_size(), result)


def _window(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A periodic window, the default, is a longer symmetric one without the last entry."""
    periodic = args[1] if len(args) > 1 else True
    return _in_storage_of((result.numel() + 1) * result.element_size(), result) if periodic else result


def _all_of_storage(result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A copy of the whole storage of the first argument, whatever part of it the argument sees."""
    source = args[0]
    if _HAS_OVERLAP(source) == 1 or not source.untyped_storage().nbytes():
        return result
    return _in_storage_of(source.untyped_storage().nbytes(), source)


def _in_storage_of(size: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor laid out as ``like`` is in a new storage of ``size`` bytes, or in a larger one where it has no room."""
    room = like.storage_offset() + sum((n - 1) * step for n, step in zip(like.shape, like.stride(), strict=True)) + 1
    made = torch.empty(max(size // like.element_size(), room), dtype=like.dtype, device=like.device)
    return made.as_strided_(like.shape, like.stride(), like.storage_offset())


_WRITTEN = {**RECURRENT_LAYERS, **FUSED_CELLS}
_LAYOUTS: dict[OpOverload, _Layout] = {
    aten.mse_loss.default: _reduced_in_place(2, 0, 1),
    aten.smooth_l1_loss.default: _reduced_in_place(2, 0, 1),
    aten.soft_margin_loss.default: _reduced_in_place(2, 0, 1),
    aten.binary_cross_entropy.default: _reduced_in_place(3, 0),
    aten.binary_cross_entropy_backward.default: _like(1),
    aten.mse_loss_backward.default: _contiguous,
    aten.smooth_l1_loss_backward.default: _contiguous,
    aten.huber_loss_backward.default: _contiguous,
    aten.elu_backward.default: _elementwise(0, 5),
    aten.softplus_backward.default: _elementwise(0, 1),
    aten.hardswish_backward.default: _elementwise(0, 1),
    aten.hardsigmoid_backward.default: _elementwise(0, 1),
    aten.hardtanh_backward.default: _elementwise(0, 1),
    aten.native_layer_norm_backward.default: _contiguous,
    aten.xlogy.Tensor: _elementwise(0, 1),
    aten.uniform.default: _like(0),
    aten.poisson.default: _contiguous,
    aten.col2im.default: _folded,
    aten.copy.default: _all_of_storage,
    aten.slice_scatter.default: _all_of_storage,
    aten.select_scatter.default: _all_of_storage,
    aten.diagonal_scatter.default: _all_of_storage,
    aten.as_strided_scatter.default: _all_of_storage,
    aten.hann_window.default: _window,
    aten.hamming_window.default: _window,
    aten.blackman_window.default: _window,
}
_LAYOUTS_ON_CPU: dict[OpOverload, _Layout] = {
    aten.log_sigmoid_forward.default: _contiguous,
    aten.glu_backward.default: _contiguous,
    aten.roll.default: _suggested(0),
    aten.max_unpool2d.default: _suggested(0),
    aten.reflection_pad2d_backward.default: _suggested(1),
    aten.replication_pad2d_backward.default: _suggested(1),
    aten._native_batch_norm_legit_functional.default: _contiguous_like,
    aten._native_batch_norm_legit_no_training.default: _contiguous_like,
    aten._native_batch_norm_legit.no_stats: _contiguous_like,
    aten.native_batch_norm.default: _contiguous_like,
    aten.native_batch_norm_backward.default: _suggested(1),
}
