"""A model that commands can capture and run, such as what a function of a person's own file makes.

`load_model_file` takes `path/to/file.py:function`, where the function makes model and inputs; `capture_source` gives
the training graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import ModelError, UnknownNameError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from remat_explorer.graph import Graph


@dataclass(frozen=True, eq=False)
class Source:
    """A model, and how to make its inputs.

    Attributes:
        module: the model.
        make_args: makes the positional inputs; called under FakeTensorMode where they need not be real.
        kwargs: keyword inputs.
        loss: from the model's output to a scalar; None as for `remat_explorer.capture`.
        name: what to call its graph; None for the name of the model's class.
        sizes: batch, image and sequence of the inputs, as far as they are known.
        kernels: whose kernels are meant, as `remat_explorer.capture` takes them.
    """

    module: nn.Module
    make_args: Callable[[], tuple[Any, ...]]
    kwargs: dict[str, Any] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None
    name: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    kernels: str | None = None


def capture_source(source: Source, costs: str | None = None, options: CaptureOptions | None = None) -> Graph:
    """The training graph of a model, by the one call of `capture` that all commands share.

    Args:
        source: what to capture; no memory is taken for inputs that it can make under FakeTensorMode.
        costs: the device whose published rates give the costs; None for the CPU, or for CUDA where that is meant.
        options: what to join and split, and whose optimizer state counts.

    Raises:
        CaptureError: if it is no static training graph.
        UnknownNameError: if no rates of such a device are known.
    """
    from remat_explorer.capture import capture, fake_tensor_mode

    with fake_tensor_mode():
        args = source.make_args()
    device, chosen = costs or source.kernels or "cpu", dataclasses.asdict(options or CaptureOptions())
    chosen["kernels"] = source.kernels
    graph = capture(source.module, args, source.kwargs, source.loss, device=device, **chosen)
    return graph if source.name is None else dataclasses.replace(graph, name=source.name)


_FORM = "(model, args), (model, args, kwargs) or (model, args, kwargs, loss), where args is a tuple and kwargs a dict"


def is_model_file(text: str) -> bool:
    """Whether an argument is meant as a function of a file, with the function or without."""
    return text.endswith(".py") or ".py:" in text


def load_model_file(text: str) -> Source:
    """What the function ``path/to/file.py:function`` makes. The file's folder can be imported from while it runs."""
    file, _, name = (text, "", "") if text.endswith(".py") else text.rpartition(":")
    path = Path(file)
    if not name.isidentifier():
        raise ModelError(f"{text!r} names no function of the file; write {file}:make_model")
    if not path.is_file():
        raise ModelError(f"cannot read {file!r}: there is no such file")
    with _importable(path.resolve().parent):
        module = _module_of(path)
        function = _function(module, name, path)
        with as_model_errors(path, f"{name}() of {file!r}"):
            made = function()
    return _source(made, f"{name}() of {file!r}")


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(str(folder))


def _module_of(path: Path) -> ModuleType:
    # a name that no import statement uses: a file called torch.py must not become torch
    name = f"remat_explorer_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    with as_model_errors(path, f"loading {str(path)!r}"):
        spec.loader.exec_module(module)
    return module


class _UncachedLoader(importlib.machinery.SourceFileLoader):
    """Compiles a file anew: byte code that is kept does not tell two edits within a second from each other."""

    def get_code(self, fullname: str) -> Any:
        """The code of the file as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _function(module: ModuleType, name: str, path: Path) -> Callable[[], Any]:
    function = getattr(module, name, None)
    if not callable(function):
        own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        if not own:
            raise ModelError(f"{str(path)!r} defines no function, so none called {name!r} that makes a model")
        raise UnknownNameError(f"function of {str(path)!r}:", name, own)
    with contextlib.suppress(ValueError):  # written in C, and without a signature
        try:
            inspect.signature(function).bind()
        except TypeError as error:
            raise ModelError(
                f"{name}() of {str(path)!r} is called without arguments: {error}; give every parameter a default"
            ) from None
    return function


@contextlib.contextmanager
def as_model_errors(path: Path, what: str, leave: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Turn whatever a person's file raises into a sentence with the line of the file."""
    try:
        yield
    except leave:
        raise
    except (Exception, SystemExit) as error:  # whatever a person's file does
        reason = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        raise ModelError(f"{what} failed{_place(path, error)}: {reason}") from error


def _place(path: Path, error: BaseException) -> str:
    """The line of the file at which it went wrong, as far as that is known."""
    if isinstance(error, SyntaxError):
        return f" at line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f" at line {lines[-1]}" if lines else ""


def _source(made: Any, what: str) -> Source:
    from torch import nn

    if not isinstance(made, tuple) or not 2 <= len(made) <= 4:
        raise ModelError(f"{what} gave {_kind(made)}; return {_FORM}")
    entries: tuple[Any, ...] = (*made, None, None)
    model, args, kwargs, loss = entries[:4]
    for given, name, fits in (
        (model, "model", isinstance(model, nn.Module)),
        (args, "args", isinstance(args, tuple | list)),
        (kwargs, "kwargs", kwargs is None or isinstance(kwargs, dict)),
        (loss, "loss", loss is None or callable(loss)),
    ):
        if not fits:
            raise ModelError(f"{what} gave {_kind(given)} as {name}; return {_FORM}")
    return Source(model, lambda: tuple(args), *entries[2:4])


def _kind(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple ({', '.join(type(entry).__name__ for entry in made)})"
    return "None" if made is None else f"one {type(made).__name__}"
