"""What forward may not do to parameters and buffers, since a plan only reads them: exchange, resize, freeze them.

While a model is traced, its parameters and buffers are stand-ins. ``tensor.data = ...`` moves a stand-in to another
storage, which no trace sees: what is computed from it afterwards would be computed from the old content.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from remat_explorer.errors import CaptureError

_BETWEEN = (
    "a static plan may only read it; change it between steps instead, under torch.no_grad(), or compute what is needed "
    "from it and leave it as it is"
)
_INTO = "a plan would not notice; write into it, as self.buffer.copy_(...) does, or assign self.buffer = ..."
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_GET_GRAD, _SET_GRAD = torch.Tensor.grad.__get__, torch.Tensor.grad.__set__  # type: ignore[attr-defined]
_REQUIRE = (torch.Tensor.requires_grad.__set__, torch.Tensor.requires_grad_)  # type: ignore[attr-defined]
_RESIZE = (torch.Tensor.resize_, torch.Tensor.resize_as_, torch.resize_as_)
_HOOK = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)
_Registered = tuple[str, torch.Tensor]  # "parameter" or "buffer", and what is registered


class ParameterGuard(TorchFunctionMode):
    """Refuses, while entered, calls that exchange what a model holds; `require_unexchanged` compares it afterwards.

    ``note`` is told of each tensor that a call makes and that is of no class of its own, as within `torch.func.vmap`.
    """

    def __init__(
        self, model: nn.Module, doer: str = "forward", note: Callable[[torch.Tensor], None] = lambda tensor: None
    ) -> None:
        super().__init__()
        self._model, self._doer, self._note = model, doer, note
        self._before = _registered(model)
        self._states = {path: _state(tensor) for path, (_, tensor) in self._before.items()}
        self._paths: dict[int, str] = {}
        for path, (_, tensor) in self._before.items():
            self._paths.setdefault(id(tensor), path)
        self._storages = {_storage(tensor): path for path, (_, tensor) in self._before.items()}
        self._refusal: CaptureError | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        look = _LOOKS.get(func)
        if look is not None and args and isinstance(args[0], torch.Tensor) and (refusal := look(self, func, *args)):
            self._refusal = CaptureError(refusal.replace("forward", self._doer, 1))
            raise self._refusal
        if func == _GET_GRAD and id(args[0]) in self._paths:
            return None  # without the warning of PyTorch about stand-ins, which are no leaves
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if type(part) is torch.Tensor and not any(part is given for given in args):  # as `contiguous` may give
                self._note(part)
        return result

    @contextlib.contextmanager
    def watching_gradients(self) -> Iterator[None]:
        """Meanwhile refuse ``.grad`` of what the model holds; autograd calls functions and hooks outside of modes."""
        thread = threading.get_ident()

        def look(how: Any, tensor: torch.Tensor, *value: Any) -> Any:
            if threading.get_ident() == thread and (refusal := self._of_gradient(how, tensor)):
                self._refusal = CaptureError(refusal.replace("forward", self._doer, 1))
                raise self._refusal
            return how(tensor, *value)

        of_all: Any = property(
            lambda tensor: look(_GET_GRAD, tensor),
            lambda tensor, value: look(_SET_GRAD, tensor, value),
            torch.Tensor.grad.__delete__,  # type: ignore[attr-defined]
        )
        torch.Tensor.grad = of_all
        try:
            yield
        finally:
            del torch.Tensor.grad  # that of its base is there again

    def require_unexchanged(self) -> None:
        """Refuse other identities, storages or modes than before, also where forward has caught the error."""
        if self._refusal is not None:
            raise self._refusal
        now = _registered(self._model)
        for path, (kind, tensor) in self._before.items():
            of = f"the {kind} {path!r}"
            if path not in now or now[path][0] != kind:
                raise CaptureError(
                    f"{self._doer} removes {of}, with which a plan is made; do that before, or between steps"
                )
            if kind == "parameter" and now[path][1] is not tensor:
                raise CaptureError(f"{self._doer} assigns another tensor to {of}, but {_BETWEEN}")
            if now[path][1] is tensor and _state(tensor) != self._states[path]:
                if tensor.requires_grad != self._states[path][-1]:
                    raise CaptureError(_freezes(of, tensor.requires_grad).replace("forward", self._doer, 1))
                raise CaptureError(f"{self._doer} exchanges the storage of {of}, but {_advice(kind)}")
        for path, (kind, _) in now.items():
            if path not in self._before:
                raise CaptureError(
                    f"{self._doer} makes the {kind} {path!r}, which a plan would not: it runs no forward. If the first "
                    "pass alone makes it, run the model once before; else make it in __init__"
                )

    def _of_data(self, func: Any, tensor: torch.Tensor, value: Any, *_: Any) -> str | None:
        if isinstance(value, torch.Tensor) and _state(tensor)[:-1] == _state(value)[:-1]:
            return None
        return f"forward gives other data to {self._name(tensor)} (.data = ...), but {self._advice(tensor)}"

    def _of_size(self, func: Any, tensor: torch.Tensor, *args: Any) -> str | None:
        if _storage(tensor) not in self._storages or _size(args) == tuple(tensor.shape):
            return None
        return f"forward calls {func.__name__} on {self._name(tensor)}, but {self._advice(tensor)}"

    def _of_modes(self, func: Any, tensor: torch.Tensor, required: bool = True) -> str | None:
        if id(tensor) not in self._paths or tensor.requires_grad == bool(required):
            return None
        return _freezes(self._name(tensor), bool(required))

    def _of_hooks(self, func: Any, tensor: torch.Tensor, *_: Any) -> str | None:
        if id(tensor) not in self._paths:
            return None
        return (
            f"forward registers a hook on {self._name(tensor)}, one more in each pass, which a plan would not; "
            "register it once, before rematerialize"
        )

    def _of_gradient(self, func: Any, tensor: torch.Tensor, *_: Any) -> str | None:
        if id(tensor) not in self._paths:
            return None
        kind, own = self._before[self._paths[id(tensor)]]
        if func == _GET_GRAD and kind == "buffer" and not own.requires_grad:
            return None  # there is none in any step
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_name == "__torch_function__":
            frame = frame.f_back
        if frame is not None and frame.f_code is nn.Module._apply.__code__:  # as of `layer.to(x.device)`
            return None
        verb = "reads" if func == _GET_GRAD else "assigns"
        return (
            f"forward {verb} the gradient of {self._name(tensor)} (.grad), which is that of steps before; "
            "do that between steps"
        )

    def _name(self, tensor: torch.Tensor) -> str:
        path = self._paths.get(id(tensor)) or self._storages.get(_storage(tensor))
        return f"the {self._before[path][0]} {path!r}" if path else f"a tensor of shape {list(tensor.shape)}"

    def _advice(self, tensor: torch.Tensor) -> str:
        path = self._paths.get(id(tensor)) or self._storages.get(_storage(tensor))
        if path:
            return _advice(self._before[path][0])
        return "a plan would not notice; compute a new tensor instead, or write into it with copy_"


_LOOKS: dict[Any, Callable[..., str | None]] = {
    _SET_DATA: ParameterGuard._of_data,
    _GET_GRAD: ParameterGuard._of_gradient,
    _SET_GRAD: ParameterGuard._of_gradient,
    **dict.fromkeys(_REQUIRE, ParameterGuard._of_modes),
    **dict.fromkeys(_HOOK, ParameterGuard._of_hooks),
    **dict.fromkeys(_RESIZE, ParameterGuard._of_size),
}


def _registered(model: nn.Module) -> dict[str, _Registered]:
    parameters, buffers = model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    return {path: ("parameter", t) for path, t in parameters} | {path: ("buffer", t) for path, t in buffers}


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return 0


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    return _storage(tensor), tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.requires_grad


def _size(args: tuple[Any, ...]) -> tuple[int, ...]:
    if args and isinstance(args[0], torch.Tensor):
        return tuple(args[0].shape)
    return tuple(args[0]) if args and isinstance(args[0], tuple | list) else tuple(args)


def _advice(kind: str) -> str:
    return _BETWEEN if kind == "parameter" else _INTO


def _freezes(what: str, required: bool) -> str:
    how = "lets a gradient be computed for" if required else "freezes"
    if required and what.startswith("the buffer"):
        return (
            f"forward {how} {what} (requires_grad), but a plan has gradients of parameters and inputs alone; make it a "
            "parameter if it is trained, else compute with self.buffer.detach(), which may require a gradient"
        )
    return (
        f"forward {how} {what} (requires_grad), but a plan is for what is trained before a step; set it between steps"
    )
