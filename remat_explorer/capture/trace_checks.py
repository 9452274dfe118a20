"""What forward does anew in each step and a plan would not; checks are entered around a trace, and refuse afterwards.

`RandomSourceCheck`: random numbers of Python and NumPy, and seeds. `RepeatedPassCheck`: clocks, iterators, counters,
and settings. `ThreadCheck`: threads. `TensorLeakCheck`: tensors that stay alive in objects outside of the model.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import random
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.attributes import Changes
from remat_explorer.capture.snapshots import LONG, PLAIN, Snapshot, TensorSnapshot
from remat_explorer.capture.source_locations import file_name, place_of
from remat_explorer.capture.system_questions import SystemQuestions
from remat_explorer.errors import CaptureError

_SEEDING = [
    (place, name)
    for place in (torch, torch.random, torch.cuda, torch.cuda.random)
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")
    if hasattr(place, name)
]
_SEEDS = (
    "cannot be captured as a static training graph: {}, forward sets the seed or the state of torch's generator, as "
    "torch.random.fork_rng does at its end, and a plan draws from the generator as a step finds it. Set it before "
    "the step"
)
_VERSION = torch.Tensor._version.__get__  # type: ignore[attr-defined]
_DIVISIONS = ("div_", "divide_", "true_divide_", "__idiv__", "__itruediv__")
_DIVISIONS_INTO = ("div", "divide", "true_divide")  # where out= is given
_CLOCKS = [name + unit for name in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns")]
_LATER = 86_461  # seconds by which clocks are ahead in each further pass
_FORKING = (torch.random.__file__, contextlib.__file__)  # of torch.random.fork_rng, which sets the state at its end
_IN_HOOKS = types.CellType, types.FunctionType, types.MethodType, functools.partial
_Made = tuple[weakref.ref[torch.Tensor], Any, bool]  # with its place, and whether the backward pass has made it


class RandomSourceCheck:
    """While entered, notices who draws from the generators of `random` and `numpy.random`, and who sets torch's seed.

    The generators of Python and NumPy are left as they were.
    """

    elsewhere = 0  # how often another thread has set torch's seed

    def __enter__(self) -> RandomSourceCheck:
        self._before = self._last = _states()
        self._drawn: tuple[str, str] | None = None
        self._seeded, self._thread = "", threading.get_ident()
        with ExitStack() as stack:
            for place, name in _SEEDING:
                stack.enter_context(mock.patch.object(place, name, self._noticed(getattr(place, name))))
            self._patches = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        random.setstate(self._before[0])
        np.random.set_state(self._before[1])

    def _noticed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What sets a seed, and notes where forward calls it; torch's own calls, as a checkpoint's, restore a state."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            caller: types.FrameType | None = sys._getframe(1)
            while caller is not None and caller.f_code.co_filename in _FORKING:
                caller = caller.f_back
            if threading.get_ident() != self._thread:
                RandomSourceCheck.elsewhere += 1
            elif caller and file_name(caller.f_code.co_filename) and (place := place_of(caller)):
                self._seeded = self._seeded or f"at {file_name(place[0])}:{place[1]}"
            return original(*args, **kwargs)

        return call

    def look(self, module: str) -> None:
        """Compare with the last look; ``module`` is what ran since then, as people name it."""
        now = _states()
        if self._drawn is None:
            if now[0] != self._last[0]:
                self._drawn = "random", module
            elif not _equal(now[1], self._last[1]):
                self._drawn = "numpy.random", module
        self._last = now

    def refuse(self, model: nn.Module, cause: BaseException | None = None) -> None:
        """Raise an error if anything was drawn, with generator and first module, or a seed was set, with the place."""
        self.look("")
        if self._seeded:
            raise CaptureError(f"{type(model).__name__} {_SEEDS.format(self._seeded)}") from cause
        if self._drawn is None:
            return
        generator, module = self._drawn
        place = f"in {module}, " if module else ""
        raise CaptureError(
            f"{type(model).__name__} cannot be captured as a static training graph: {place}forward "
            f"draws from Python's {generator}, and a plan would repeat in every step what was drawn during the "
            "capture. Draw with torch.rand, and use torch.where instead of `if`; or switch off what is done at random "
            "(layers that are dropped, masks of SpecAugment)"
        ) from cause


class ThreadCheck:
    """While entered, notices threads that forward starts, and whether one of them computes with tensors of the trace.

    Modes of PyTorch, and so a trace, are those of one thread.
    """

    def __enter__(self) -> ThreadCheck:
        self._place = self._computed = ""
        own, start, dispatch = threading.get_ident(), threading.Thread.start, FunctionalTensor.__torch_dispatch__

        def start_noted(thread: threading.Thread) -> None:
            if threading.get_ident() == own and (place := place_of(sys._getframe(1))):
                self._place = self._place or f"at {file_name(place[0])}:{place[1]}"
            start(thread)

        def dispatch_noted(tensor: Any, *args: Any, **kwargs: Any) -> Any:  # outside of the trace's modes alone
            if threading.get_ident() != own and self._place:
                self._computed = self._place
                raise CaptureError(self._words())
            return dispatch(tensor, *args, **kwargs)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(threading.Thread, "start", start_noted))
            stack.enter_context(mock.patch.object(FunctionalTensor, "__torch_dispatch__", dispatch_noted))
            self._patches = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def refuse(self, cause: BaseException | None = None) -> None:
        """Raise an error if a thread that forward has started has computed."""
        if self._computed:
            raise CaptureError(self._words()) from cause

    def _words(self) -> str:
        return (
            f"{self._computed}, forward starts a thread that computes with tensors, and a trace follows one thread "
            "alone. Compute in the thread that calls forward, one after another: operators of PyTorch use several "
            "cores by themselves"
        )


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state(legacy=True)


def _equal(first: Any, second: Any) -> bool:
    return first[2] == second[2] and np.array_equal(first[1], second[1])


class RepeatedPassCheck(TorchFunctionMode):
    """Compares the calls into torch of each pass, for which it is entered, with those of the first, number by number.

    All passes of one trace begin with the same attributes and variables. So what differs was read elsewhere: from a
    clock, an iterator, a generator of random numbers that the model holds, or a counter that no name leads to. Clocks
    of `time` that forward asks are a day ahead in each further pass, so that what waits for them shows. In the first
    one ``questions`` notes what else forward asks for. Settings of PyTorch that a pass leaves changed are put back.
    """

    def __init__(self, questions: SystemQuestions) -> None:
        super().__init__()
        self._passes, self._questions = 0, questions
        self._anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()  # which a trace switches on
        self._first: list[Any] | None = None
        self._calls: list[Any] = []
        self._refusal: CaptureError | None = None

    @property
    def has_refused(self) -> bool:
        """Whether the calls of two passes were found to differ."""
        return self._refusal is not None

    def __enter__(self) -> RepeatedPassCheck:
        self._calls = []
        with ExitStack() as stack:
            stack.enter_context(torch.autograd.set_detect_anomaly(*self._anomaly))
            for name in _CLOCKS:
                ahead = _LATER * self._passes * (1_000_000_000 if name.endswith("_ns") else 1)
                stack.enter_context(mock.patch.object(time, name, _ahead(getattr(time, name), ahead)))
            if not self._passes:
                stack.enter_context(self._questions)
            self._patches = stack.pop_all()
        self._passes += 1
        self._seed = torch.initial_seed(), RandomSourceCheck.elsewhere
        self._kernels, self._settings = _kernel_settings(), _settings()
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self._patches.close()
        changed = [(name, value) for name, value in _settings().items() if value != self._settings[name]]
        for name, _ in changed:
            _SETTINGS[name][1](self._settings[name])
        if error is not None:
            return
        if self._refusal is not None:  # forward has caught it
            raise self._refusal
        self._questions.refuse()
        for name, value in changed:
            raise CaptureError(
                f"forward leaves {name} at {value}, which holds for everything after it, but not where a plan runs in "
                "its place. Set it before the step"
            )
        self._require_kernels()
        if torch.initial_seed() != self._seed[0] and RandomSourceCheck.elsewhere == self._seed[1]:
            raise CaptureError(f"the model {_SEEDS.format('by torch.default_generator')}")
        if self._first is None:
            self._first = self._calls
        elif len(self._calls) < len(self._first):
            self._refusal = _differs(self._first[len(self._calls)], None)
            raise self._refusal

    def _require_kernels(self) -> None:
        for name, value in _kernel_settings().items():
            if value != self._kernels[name]:
                raise CaptureError(
                    f"forward sets {name} to {value} for a part of it, which chooses other kernels there when the "
                    "model runs, but not when its plan does. Set it around the call of the model, or before"
                )

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _VERSION and file_name(sys._getframe(1).f_code.co_filename):
            raise CaptureError(
                "forward reads the count of writes to a tensor (._version), which is another in a trace. Clear what is "
                "computed from parameters where they change, after each step of the optimizer"
            )
        name = getattr(func, "__name__", "")
        self._require_kernels()
        into = name in _DIVISIONS or (name in _DIVISIONS_INTO and kwargs and kwargs.get("out") is not None)
        if into and args[0].dtype is torch.complex64:
            raise CaptureError(
                "forward divides a complex64 tensor in place or with out=, which PyTorch rounds otherwise than the "
                "division that a plan has for it: write `y = y / z` in place of `y /= z`"
            )
        if isinstance(func, type) or name == "__get__":  # compilers ask in their first pass
            return func(*args, **(kwargs or {}))
        call, number = (func, _seen(args), _seen(kwargs or {})), len(self._calls)
        self._calls.append(call)
        if self._first is not None and self._refusal is None:
            first = self._first[number] if number < len(self._first) else None
            if first != call:
                self._refusal = _differs(first, call)
                raise self._refusal
        return self._questions.unwatched(func, args, kwargs or {})


def _kernel_settings() -> dict[str, Any]:
    """What kernels read when they run, so that a trace does not show it."""
    backends: Any = torch.backends
    settings = {
        "torch.backends.mkldnn.enabled": backends.mkldnn.enabled,
        "torch.backends.mkldnn.matmul.fp32_precision": backends.mkldnn.matmul.fp32_precision,
        "torch.backends.mkldnn.conv.fp32_precision": backends.mkldnn.conv.fp32_precision,
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.set_num_threads": torch.get_num_threads(),
        "torch.set_flush_denormal": _flushes(),
    }
    if torch.cuda.is_available():
        settings |= {
            "torch.backends.cudnn.enabled": backends.cudnn.enabled,
            "torch.backends.cudnn.conv.fp32_precision": backends.cudnn.conv.fp32_precision,
            "torch.backends.cuda.matmul.fp32_precision": backends.cuda.matmul.fp32_precision,
        }
    return settings


def _flushes(least: float = sys.float_info.min) -> bool:
    """Whether numbers below the least normal one become 0, in this thread."""
    return least / 2 == 0


_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {  # how each is read, and set
    "torch.set_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.set_default_device": (torch.get_default_device, torch.set_default_device),
    "torch.set_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.set_num_threads": (torch.get_num_threads, torch.set_num_threads),
    "torch.set_flush_denormal": (_flushes, torch.set_flush_denormal),
}


def _settings() -> dict[str, Any]:
    return {name: read() for name, (read, _) in _SETTINGS.items()}


def _ahead(clock: Callable[[], Any], seconds: int) -> Callable[[], Any]:
    """A clock that is ahead for forward alone, in the thread that runs it."""
    own = threading.get_ident()

    def ahead() -> Any:
        late = seconds and threading.get_ident() == own and place_of(sys._getframe(1))
        return clock() + seconds if late else clock()

    return ahead


class _Constant:
    """A tensor that is no part of the trace; it equals another of the same content."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Constant):
            return False
        mine, theirs = self._tensor, other._tensor
        if mine is theirs:
            return True
        with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
            if (mine.shape, mine.dtype, mine.device) != (theirs.shape, theirs.dtype, theirs.device):
                return False
            return torch.equal(mine, theirs) or torch.allclose(mine, theirs, rtol=0, atol=0, equal_nan=True)

    def __repr__(self) -> str:
        return f"a tensor of shape {list(self._tensor.shape)}"


def _seen(value: Any) -> Any:
    """What can be compared of an argument: numbers, in containers too, contents of constants, and layouts."""
    if isinstance(value, torch.Tensor):
        inside = is_functorch_wrapped_tensor(value) or torch._is_functional_tensor(value)  # pyright: ignore
        if type(value) in (torch.Tensor, nn.Parameter) and not inside:
            return _Constant(value)
        return (FunctionalTensor, tuple(value.shape), value.dtype)
    if isinstance(value, slice):
        return slice, _seen(value.start), _seen(value.stop), _seen(value.step)
    if isinstance(value, PLAIN):
        return type(value), repr(value)
    if isinstance(value, np.ndarray):
        return np.ndarray, value.shape, value.dtype.str, None if value.dtype == object else hash(value.tobytes())
    if isinstance(value, list | tuple | dict):
        base: Any = next(base for base in (list, tuple, dict) if isinstance(value, base))
        if base.__len__(value) > LONG:
            return base, base.__len__(value)
        return base, *map(_seen, getattr(base, "values" if base is dict else "__iter__")(value))
    return type(value)


def _differs(first: Any, second: Any) -> CaptureError:
    pair = _difference(first, second)
    if pair is None:
        names = [getattr(call[0], "__name__", "another function") if call else "nothing" for call in (first, second)]
        met = f"calls {names[0]} in one pass and {names[1]} at the same place of the next"
    else:
        met = f"computes with {pair[0]} in one pass and with {pair[1]} in the next"
    return CaptureError(
        f"forward {met}, although they begin alike: it reads a clock, an iterator, a random generator or a counter "
        "that no name leads to, and a plan would repeat in every step what was read during the capture. Pass it as an "
        "input, keep it in a buffer, or draw with torch.rand; an iterator has moved on by this try, so make it anew. "
        "Where it is a cache that the first pass fills, as functools.lru_cache does, run the model once before"
    )


def _difference(first: Any, second: Any) -> tuple[str, str] | None:
    """The first numbers or contents in which two calls of the same function differ."""
    if isinstance(first, _Constant) and isinstance(second, _Constant):
        return None if first == second else (repr(first), "another content")
    if not isinstance(first, tuple) or not isinstance(second, tuple) or first[:1] != second[:1] or first == second:
        return None
    if len(first) == len(second) == 2 and first[0] in PLAIN and isinstance(first[1], str):
        return first[1], second[1]
    if first[0] is np.ndarray:
        return "an array", "another one"
    return next((found for pair in zip(first, second, strict=False) if (found := _difference(*pair))), None)


class TensorLeakCheck:
    """While entered, notes every tensor that a trace makes, to find those that are alive after it.

    ``place`` tells where in the person's code execution is, and whether it is in the backward pass, from the autograd
    sequence number of the operation that is differentiated, or None.
    """

    def __init__(self, place: Callable[[int | None], tuple[Any, bool]]) -> None:
        self._place = place
        self._made: list[_Made] = []  # tensors compare entry by entry

    def __enter__(self) -> TensorLeakCheck:
        self._plain = plain = vars(FunctionalTensor)["__new__"]

        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = plain.__func__(*args, **kwargs)
            self.note(tensor)
            return tensor

        FunctionalTensor.__new__ = staticmethod(make)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        FunctionalTensor.__new__ = self._plain  # type: ignore[method-assign]

    def note(self, tensor: torch.Tensor) -> None:
        """Note a tensor that has just been made."""
        node = torch._C._current_autograd_node()
        self._made.append((weakref.ref(tensor), *self._place(None if node is None else node._sequence_nr())))

    def clear_caches(self) -> None:
        """Empty those of `functools.lru_cache` in which tensors of the trace are, which are of no use to anybody."""
        holders: list[Any] = [tensor for one, *_ in self._made if (tensor := one()) is not None]
        for _ in range(3):  # a cache, or a dictionary or tuple in one
            found = gc.get_referrers(*holders) if holders else []
            for cache in found:
                if isinstance(cache, functools._lru_cache_wrapper):
                    cache.cache_clear()
            holders = [one for one in found if type(one) in (dict, tuple) and one is not holders]

    def require_none_alive(self, model: nn.Module, changes: Changes, words: Callable[[Any], str]) -> None:
        """Raise an error if a tensor of the trace, which is over, is alive in a place that nobody could restore.

        ``changes`` are what the trace is known to have left, ``words`` what people call a place.
        """
        made, self._made = self._made, []
        told = {id(tensor) for change in changes.values() for content in change for tensor in _tensors_of(content)}
        if not any(_held(made, told)):
            return
        gc.collect()
        for tensor, holder, place, in_backward in _held(made, told):
            who = "a gradient hook or the backward of a custom Function" if in_backward else "forward or the loss"
            where = words(place)
            of = "in the backward pass of what is computed " if in_backward else ""
            made_at = f", made {of}{where}," if where else ""
            instead = (
                "take gradients from .grad, or by a hook on a parameter, which is called in each step"
                if in_backward
                else "return it from forward, or keep it in an attribute of the model"
            )
            raise CaptureError(
                f"{type(model).__name__} cannot be captured as a static training graph: {who} leaves a tensor of shape "
                f"{list(tensor.shape)}{made_at} in an object outside of the model (held by a {type(holder).__name__}), "
                "such as a queue, a generator, a thread's local storage or a name that is computed. A plan would not "
                f"put it there in each step: {instead}. What is there now is without content: take it out"
            )


def _held(made: list[_Made], told: set[int]) -> Iterator[tuple[torch.Tensor, Any, Any, bool]]:
    """What is alive of what was made, with an object that holds it, beside what autograd and ``told`` hold."""
    pairs = [(tensor, rest) for one, *rest in made if (tensor := one()) is not None and id(tensor) not in told]
    if not pairs:
        return
    gc.unfreeze()  # what is frozen is not looked into
    tensors, places = [tensor for tensor, _ in pairs], [rest for _, rest in pairs]
    del pairs
    held: dict[int, Any] = {}
    for holder in gc.get_referrers(*tensors):
        if holder is not tensors and not _is_of_autograd(holder):
            held |= {id(part): holder for part in gc.get_referents(holder)}
    for tensor, (place, in_backward) in zip(tensors, places, strict=True):
        if id(tensor) in held:
            yield tensor, held[id(tensor)], place, in_backward


def _is_of_autograd(holder: Any) -> bool:
    """Whether it may be part of a gradient hook, which autograd keeps in a circle, or looks for tensors itself."""
    if type(holder) is tuple:  # such as the arguments of a partial function
        return any(isinstance(one, functools.partial) for one in gc.get_referrers(holder))
    return isinstance(holder, (*_IN_HOOKS, types.FrameType, TensorSnapshot))


def _tensors_of(content: Snapshot) -> Iterator[torch.Tensor]:
    if isinstance(content.value, TensorSnapshot):
        yield content.value.tensor
    for _, item in content.items:
        yield from _tensors_of(item)
