"""Which module and which line of the person's code each operation of a trace comes from.

`ModulePaths` and `SourceLines` record at which autograd sequence number execution enters a module or a line. The
numbers only grow, and the joint graph keeps them on its nodes, for a backward node that of its forward node.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch._C._autograd import _get_sequence_nr
from torch.fx import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.operation_details import SourceFile

_CONTEXT = 4  # lines before and after one that calls into torch
SourceLine = tuple[str, int]  # path and number of a line
_MODULES = str(Path(torch.nn.__file__).parent / "modules")
_STANDARD = Path(linecache.__file__).parent
_OWN = Path(__file__).parent
# torch, the capture, the wrapper around a model of the zoo, and code that is in no file
_PASSED_OVER = (str(Path(torch.__file__).parent), str(_OWN), str(_OWN.parent / "models" / "loaded_model.py"), "<")


class SourceLines(TorchFunctionMode):
    """While entered, records at which autograd sequence number which line calls into torch.

    The numbers only grow, and the joint graph keeps them on its nodes, for a backward node that of its forward node.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spans: list[tuple[int, SourceLine]] = []
        self._files: dict[str, SourceFile] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        place = place_of(sys._getframe(1))
        if place is not None and (not self._spans or self._spans[-1][1] != place):
            self._spans.append((_get_sequence_nr(), place))
        return func(*args, **(kwargs or {}))

    def of(self, node: Node) -> str:
        """File and line that ``node`` comes from, "net.py:42", or nothing; sums of gradients come from several."""
        place = self._place(node)
        return "" if place is None else f"{file_name(place[0])}:{place[1]}"

    def file_of(self, node: Node) -> SourceFile | None:
        """The file that `of` names, with the lines that were met."""
        place = self._place(node)
        if place is None:
            return None
        if place[0] not in self._files:
            met = {number for _, (path, number) in self._spans if path == place[0]}
            self._files[place[0]] = _excerpt(place[0], met)
        return self._files[place[0]]

    def _place(self, node: Node) -> SourceLine | None:
        number = node.meta.get("seq_nr")
        return None if node.meta.get("is_gradient_acc") or number is None else self.at(number)

    def at(self, number: int | None) -> SourceLine | None:
        """The line of an autograd sequence number; of None the last one that was met."""
        at = len(self._spans) if number is None else bisect_right(self._spans, number, key=lambda span: span[0])
        return self._spans[at - 1][1] if at else None


def place_of(frame: FrameType | None) -> SourceLine | None:
    """The innermost line of model or loss that is the person's own.

    Nothing is found outside of `TrainingStep.results_of`, as for what the export itself calls.
    """
    place = None
    while frame is not None:
        if frame.f_code is TrainingStep.results_of.__code__:
            return place
        if place is None and file_name(frame.f_code.co_filename):
            place = frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _excerpt(path: str, met: set[int]) -> SourceFile:
    """Lines of a file that were met, and those around them; a notebook's cells are in Python's cache of lines."""
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    wanted = {n for number in met for n in range(number - _CONTEXT, number + _CONTEXT + 1) if 1 <= n <= len(lines)}
    return SourceFile(file_name(path), path, tuple((n, lines[n - 1].rstrip("\n")) for n in sorted(wanted)))


def line_of_read(frame: FrameType | None) -> tuple[str, str]:
    """The line that reads a number out of a tensor, with its text.

    It is the innermost one of the person's own, else that of a module of PyTorch, as of `nn.BatchNorm1d`.
    """
    module = None
    while frame is not None and frame.f_code is not TrainingStep.results_of.__code__:
        path = frame.f_code.co_filename
        if file_name(path):
            return _line(frame)
        module = module or (frame if path.startswith(_MODULES) else None)
        frame = frame.f_back
    return _line(module) if module else ("", "")


def _line(frame: FrameType) -> tuple[str, str]:
    path = frame.f_code.co_filename
    text = linecache.getline(path, frame.f_lineno, frame.f_globals).strip()
    return f"{file_name(path) or Path(path).name}:{frame.f_lineno}", text


@cache
def file_name(path: str) -> str:
    """What a file of the person's own is called, or nothing; there are as many frames as calls, but few files.

    >>> file_name("/home/me/net.py"), file_name("/tmp/ipykernel_7/2174200069.py")
    ('net.py', 'notebook cell')
    """
    if path.startswith(_PASSED_OVER):
        return ""
    file = Path(path)
    if _STANDARD in file.parents and not {"site-packages", "dist-packages"} & {*file.parts}:
        return ""  # such as contextlib, whose decorators stand around forwards
    return "notebook cell" if file.parent.name.startswith("ipykernel_") else file.name


class ModulePaths:
    """Records at which autograd sequence number execution enters which module, or comes back to it."""

    def __init__(self, model: nn.Module) -> None:
        self._names: dict[int, str] = {}
        for name, module in model.named_modules():
            self._names.setdefault(id(module), name)
        self._short = self._without_wrapper(model)
        self._spans: list[tuple[int, str, tuple[str, ...]]] = []
        self._entered: list[tuple[nn.Module, str]] = []
        self._calls: Counter[str | None] = Counter()  # a trace runs the model more than once

    @staticmethod
    def _without_wrapper(model: nn.Module) -> str:
        """The name of an only child that has children: the name of a mere wrapper's content tells nothing."""
        children = list(model.named_children())
        return children[0][0] if len(children) == 1 and any(True for _ in children[0][1].children()) else ""

    def at(self, path: str, around: Iterable[str] = ()) -> None:
        """Note that execution is now in the module with this path, in those ``around`` it that nobody was told of."""
        self._note(path, tuple(around))
        if around:
            self._calls |= dict.fromkeys((*around, ""), 1)

    def _note(self, path: str, around: tuple[str, ...]) -> None:
        self._spans.append((_get_sequence_nr(), path, around))

    @contextlib.contextmanager
    def watching(self, look: Callable[[str], None] = lambda module: None) -> Iterator[None]:
        """Follow every module that is called.

        ``look`` is told, whenever a module is entered or left, what ran until then, as `innermost`; a layer of
        PyTorch's own counts as a part of the module that calls it.
        """

        def within() -> tuple[str, ...]:  # a part that several modules share has the path of the first of them
            return tuple(path for module, path in self._entered if self._names.get(id(module)) == path)

        def enter(module: nn.Module, _: object) -> None:
            if not _is_plain_layer(module):
                look(self.innermost)
            outer = self._entered[-1][1] if self._entered else ""
            self._entered.append((module, self._names.get(id(module), outer)))
            self._calls[self._names.get(id(module))] += 1
            self._note(self._entered[-1][1], within())

        def leave(module: nn.Module, _: object, __: object) -> None:
            if not _is_plain_layer(module):
                look(self.innermost)
            while self._entered and self._entered.pop()[0] is not module:
                pass  # a module that raised was never left, and the model went on without it
            self._note(self._entered[-1][1] if self._entered else "", within())

        handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
        self._entered.clear()
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def innermost(self) -> str:
        """The module entered last and not left, for people: ``'layers.3' (Attention)``, or nothing at all."""
        named = [(module, path) for module, path in self._entered if path and self._names.get(id(module)) == path]
        return f"{named[-1][1]!r} ({type(named[-1][0]).__name__})" if named else ""

    def of(self, node: Node) -> str:
        """The path of the module that ``node`` comes from, without what adds no information."""
        return self._shown(self._path(node).split("."))

    def once_around(self, node: Node) -> tuple[str, ...]:
        """Paths of the modules within which ``node`` runs and that were called once, as `of` has them, outer first."""
        once = (self._shown(path.split(".")) for path in self._span(node)[1] if self._calls[path] == self._calls[""])
        return tuple(dict.fromkeys(path for path in once if path))

    def path_at(self, number: int | None) -> str:
        """The path at an autograd sequence number, as the model has it; of None that of the module that runs now."""
        return self._at(number)[0]

    def _path(self, node: Node) -> str:
        return self._span(node)[0]

    def _span(self, node: Node) -> tuple[str, tuple[str, ...]]:
        number = node.meta.get("seq_nr")
        return ("", ()) if number is None else self._at(number)

    def _at(self, number: int | None) -> tuple[str, tuple[str, ...]]:
        at = len(self._spans) if number is None else bisect_right(self._spans, number, key=lambda span: span[0])
        return self._spans[at - 1][1:] if at else ("", ())

    def _shown(self, parts: list[str]) -> str:
        short = parts[0] == self._short != ""
        return ".".join(part for part in parts[short:] if part != "_orig_mod")


def _is_plain_layer(module: nn.Module) -> bool:
    """Whether nothing runs in a module but code of `torch.nn`: no child, no hook, and no forward of a person's own."""
    if not type(module).__module__.startswith("torch.nn.modules."):
        return False
    held = object.__getattribute__(module, "__dict__")  # no read of the model's that a trace would record
    return "forward" not in held and not (held["_modules"] or held["_forward_hooks"] or held["_forward_pre_hooks"])
