"""What a model and its inputs must be before tracing starts, each requirement with its own explanation."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from remat_explorer.capture.inputs_and_outputs import named_inputs, tensors_in
from remat_explorer.capture.training_step import unwrap
from remat_explorer.errors import CaptureError

_Check = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], str | None]


def require_capturable(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, without_device: bool = False
) -> None:
    """Refuse what no trace can succeed with, before it ends in an error that names something else.

    Args:
        model, args, kwargs: as for `remat_explorer.capture`.
        without_device: whether tensors may be on a CUDA device that is not there.

    Raises:
        CaptureError: what was met, in which module or input, and what to do.

    >>> require_capturable(nn.LazyLinear(3), (torch.ones(2, 4),), None)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.CaptureError: LazyLinear cannot be captured: 'weight' of the model itself has no shape \
yet; call the model once with real inputs, which gives lazy modules their shapes
    """
    if not isinstance(model, nn.Module):
        raise CaptureError(f"a {type(model).__name__} cannot be captured; pass a torch.nn.Module")
    if not isinstance(args, tuple | list):
        raise CaptureError(f"the inputs are a {type(args).__name__}; pass a tuple of them, such as (x,)")
    for check in _CHECKS:
        if without_device and check is _devices_are_there:
            continue
        if complaint := check(model, tuple(args), dict(kwargs or {})):
            raise CaptureError(f"{type(model).__name__} cannot be captured: {complaint}")


def _has_shapes(model: nn.Module, *_: Any) -> str | None:
    for name, tensor in _state(model):
        if is_lazy(tensor):
            return (
                f"{_place(model, name)} has no shape yet; call the model once with real inputs, which gives lazy "
                "modules their shapes"
            )
    return None


def _is_written_in_python(model: nn.Module, *_: Any) -> str | None:
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            return f"{_module(path, module)} is compiled by TorchScript; use the Python module that it was made from"
    return None


def _is_not_quantized(model: nn.Module, *_: Any) -> str | None:
    for path, module in model.named_modules():
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
            return f"{_module(path, module)} is quantized and has no gradients; train the model before quantizing it"
    for name, tensor in _state(model):
        if tensor.is_quantized:
            return f"{_place(model, name)} is quantized and has no gradient; train the model before quantizing it"
    return None


def _observers_have_seen_data(model: nn.Module, *_: Any) -> str | None:
    for path, module in model.named_modules():
        observer = getattr(module, "activation_post_process", None)
        seen = getattr(observer, "min_val", None)
        if hasattr(module, "fake_quant_enabled") and isinstance(seen, torch.Tensor) and seen.numel() == 0:
            return (
                f"{_module(path, module)} has seen no data yet, and buffers of its get their size from that; call the "
                "model once with real inputs, in training mode"
            )
    return None


def _is_trainable(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    if not any(tensor.requires_grad for tensor in (*model.parameters(), *tensors_in((args, kwargs)))):
        return (
            "it has no parameter that requires a gradient, and no input does: nothing to train; "
            "use requires_grad_(True) on what shall be trained"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            return f"{_place(model, name)} was made under torch.inference_mode(); make the model outside of it"
    return None


def _parameters_are_plain(model: nn.Module, *_: Any) -> str | None:
    for name, tensor in _state(model):
        kind: Any = type(tensor)
        own = getattr(kind.__torch_function__, "__func__", None)
        if own not in (None, vars(torch.Tensor)["__torch_function__"].__func__) and not kind.__module__.startswith(
            "torch."
        ):
            return (
                f"{_place(model, name)} is a {kind.__name__}, a class that decides itself what operators do "
                "(__torch_function__), which a trace does not follow; make it a plain nn.Parameter, and do in forward "
                "what the class does"
            )
    return None


def _gradients_are_dense(model: nn.Module, *_: Any) -> str | None:
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            return f"{_module(path, module)} gives sparse gradients, whose size depends on the data; use sparse=False"
    return None


def _tensors_are_dense(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    named = itertools.chain(((_place(model, name), t) for name, t in _state(model)), named_inputs(args, kwargs))
    for name, tensor in named:
        if tensor.layout is not torch.strided or tensor.is_nested:
            kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            return f"{name} is a {kind} tensor, whose size depends on the data; pass it dense, padded where needed"
    return None


def _devices_are_there(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    if torch.cuda.is_available():
        return None
    for name, tensor in [*((_place(model, name), t) for name, t in _state(model)), *named_inputs(args, kwargs)]:
        if tensor.device.type == "cuda":
            return (
                f"{name} is on {tensor.device}, but torch finds no CUDA device here; capture it on the CPU, or its "
                'graph for CUDA without a device, with rx.capture(..., kernels="cuda")'
            )
    return None


def _devices_agree(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Meta tensors stand for tensors on any device, and a CPU scalar goes with every device."""
    homes = dict.fromkeys(t.device for _, t in _state(model) if t.device.type != "meta")
    for name, tensor in named_inputs(args, kwargs):
        anywhere = tensor.device.type == "meta" or (tensor.device.type == "cpu" and tensor.dim() == 0)
        if homes and tensor.device not in homes and not anywhere:
            home = next(iter(homes))
            return f"{name} is on {tensor.device}, but the model is on {home}; bring both to one device with .to(...)"
    return None


def _takes_these_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    forward = unwrap(model).forward
    try:
        signature = inspect.signature(forward).replace(return_annotation=inspect.Signature.empty)
    except (TypeError, ValueError):  # not every callable has one
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        advice = "see args and kwargs"
        if hasattr(model, "training_step"):  # as models of Lightning have it
            advice += ": give what training_step passes to self(...)"
        return f"its forward takes {signature}, which does not fit the inputs: {error}; {advice}"
    return None


def _inputs_are_padded(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    leaves = pytree.tree_leaves((args, kwargs), is_leaf=lambda leaf: isinstance(leaf, PackedSequence))
    if any(isinstance(leaf, PackedSequence) for leaf in leaves):
        return "a packed sequence is among the inputs, whose lengths are data; pass it padded, and mask the loss"
    return None


def _inputs_hold_no_caches(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    for name, value in [*enumerate(args), *kwargs.items()]:
        kinds = [kind for kind in type(value).__mro__ if kind.__module__.startswith("transformers.")]
        if any(kind.__name__.endswith("Cache") for kind in kinds):
            return (
                f"input {name!r} is a key/value cache ({type(value).__name__}), which forward fills and a plan would "
                "leave as it is. Train without it: use_cache=False and no such input"
            )
    return None


_CHECKS: tuple[_Check, ...] = (
    _inputs_are_padded,
    _inputs_hold_no_caches,
    _has_shapes,
    _is_written_in_python,
    _is_not_quantized,
    _observers_have_seen_data,
    _is_trainable,
    _parameters_are_plain,
    _gradients_are_dense,
    _tensors_are_dense,
    _devices_are_there,
    _devices_agree,
    _takes_these_inputs,
)


def _state(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return itertools.chain(model.named_parameters(), model.named_buffers())


def _module(path: str, module: nn.Module) -> str:
    return f"{path!r} ({type(module).__name__})" if path else "the model itself"


def _place(model: nn.Module, name: str) -> str:
    path, _, leaf = name.rpartition(".")
    return f"{leaf!r} of {_module(path, model.get_submodule(path))}"
