"""Which modules each operation comes from, and in which module a trace broke off."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from torch import nn
from torch._C._autograd import _get_sequence_nr
from torch.fx import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModulePaths:
    """Records at which autograd sequence number execution enters which module, or comes back to it.

    The numbers only grow, and the joint graph keeps them on its nodes, for a backward node that of its forward node.

    Args:
        model: the model whose modules are told apart.
    """

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

        Args:
            look: told, whenever a module is entered or left, what ran until then, as `innermost`; a layer of PyTorch's
                own counts as a part of the module that calls it.
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
