"""A model run with other tensors than its own, and left as it was."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.step.sharding import drop_hooks
from remat_explorer.errors import CaptureError

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict, deque)
_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Undo every change of attributes, and of containers held by attributes, in ``model`` and its parts.

    Hooks are such dictionaries: a library may add its own in the first pass, and note on an attribute that it has.

    A forward pass may keep an output or fill a cache. While it is traced, those are tensors without content, which
    neither a second pass nor the person may find there. The contents of tensors are not looked after.
    """
    saved = [(module, dict(module.__dict__)) for module in model.modules()]
    contents: list[tuple[Any, Any]] = []
    for _, attributes in saved:
        contents += [(value, value.copy()) for value in attributes.values() if type(value) in _CONTAINERS]
        contents += [(attributes[name], attributes[name].copy()) for name in _REGISTRIES]
    try:
        yield
    finally:
        for module, attributes in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        for value, content in contents:
            value.clear()
            value.extend(content) if isinstance(value, list | deque) else value.update(content)


@contextlib.contextmanager
def borrowed(model: nn.Module, tensors: dict[int, torch.Tensor]) -> Iterator[None]:
    """Let ``model`` run with ``tensors`` in place of its own parameters and buffers, and leave it as it was.

    Hooks that would gather sharded parameters do not run; what stands for such a parameter is all of it.
    A tensor that has several names, or whose module has, is replaced in every place. A buffer that the model assigns
    anew is written into the given tensor, as an assignment in place would do.

    Args:
        model: any module.
        tensors: by the identity of the tensor that each stands for.

    Raises:
        CaptureError: if a buffer is assigned anew with another shape or type.
    """
    with left_as_it_was(model):
        drop_hooks(model)
        for module in model.modules():
            registry: dict[str, Any]
            for registry in (module._parameters, module._buffers):
                registry.update({name: tensors[id(t)] for name, t in registry.items() if t is not None})
            if isinstance(module, nn.RNNBase):  # keeps a second list of its weights
                weights = [getattr(module, name, None) for name in module._flat_weights_names]
                references = [weight if weight is None else weakref.ref(weight) for weight in weights]
                module._flat_weights, module._flat_weight_refs = weights, references  # or it would notice
        lent = dict(model.named_buffers(remove_duplicate=False))
        yield
        for path, buffer in model.named_buffers(remove_duplicate=False):
            if path in lent and buffer is not lent[path]:
                _write_back(path, buffer, lent[path])


def _write_back(path: str, new: torch.Tensor, lent: torch.Tensor) -> None:
    if (new.shape, new.dtype) != (lent.shape, lent.dtype):
        raise CaptureError(
            f"the buffer {path!r} is {lent.dtype} of shape {list(lent.shape)} before the forward pass, and {new.dtype} "
            f"of shape {list(new.shape)} after it: it must keep both. If the model makes it in its first pass, run "
            "one pass before, on inputs of this size"
        )
    with torch.no_grad():
        lent.copy_(new)
