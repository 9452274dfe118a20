"""What the code of a model reaches outside of the model: globals, closures, defaults, classes, other objects.

Found by the names that the code mentions, without running it. Code of libraries is looked into where the model itself
is made of it; what it calls in turn is not. What is reached in other ways, such as by a name that is computed, is not
found.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all

from remat_explorer.capture.snapshots import PLAIN

UNSET = object()
_OWN = __name__.partition(".")[0]
_FOREIGN = (sys.stdlib_module_names - {"__main__"}) | {"torch", "numpy", "builtins"}
_LIBRARIES = ("site-packages", "dist-packages")
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, staticmethod, classmethod, property)
_CODE = (*_FUNCTIONS, functools._lru_cache_wrapper)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_FEW = 64  # entries up to which functions and objects in a container are looked into
_OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__", "__qualname__")
_CALLED = ("forward", "backward", "setup_context")  # by PyTorch, without their names
_ENVIRONMENT = frozenset(["environ", "getenv"])
_BY_TEXT = frozenset(["getattr", "hasattr", "attrgetter", "vars", "__dict__"]) | _ENVIRONMENT  # reads what a text names
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")


class Variable:
    """A place outside of a model's attributes; it equals another of the same place.

    Args:
        words: what people call it.
        owner: a namespace, a class, a cell of a closure, or what is held for ever.
        name: in the owner, if that has names.

    >>> space = {"seen": 1}
    >>> variable = Variable("seen", space, "seen")
    >>> variable.put(2)
    >>> variable.get(), variable == Variable("it", space, "seen")
    (2, True)
    """

    def __init__(self, words: str, owner: Any, name: str | None = None) -> None:
        self.words, self._owner, self._name = words, owner, name
        self._key = (id(owner), name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def get(self) -> Any:
        """What is there now, or `UNSET`."""
        owner, name = self._owner, self._name
        if isinstance(owner, types.CellType):
            try:
                return owner.cell_contents
            except ValueError:  # not assigned yet
                return UNSET
        if name is None:
            return owner
        return (vars(owner) if isinstance(owner, type) else owner).get(name, UNSET)

    def put(self, value: Any) -> None:
        """Let it be ``value``; `UNSET` removes it."""
        owner, name = self._owner, self._name
        if isinstance(owner, types.CellType):
            if value is UNSET:
                del owner.cell_contents
            else:
                owner.cell_contents = value
        elif isinstance(owner, type) and name is not None:
            type.__delattr__(owner, name) if value is UNSET else type.__setattr__(owner, name, value)
        elif name is not None:
            owner.pop(name, None) if value is UNSET else owner.__setitem__(name, value)


def reachable_variables(model: nn.Module, *called: Any) -> tuple[list[Variable], frozenset[str], list[type]]:
    """Every variable that the code of a model, of its hooks and of what is ``called`` beside it reaches by name.

    With the names that this code mentions when it does not make objects, and the classes of a person's own that it
    meets.
    """
    search = _Search(model, called)
    return search.found, frozenset(search.read), search.classes


class _Search:
    """A walk through the names that code mentions."""

    def __init__(self, model: nn.Module, called: tuple[Any, ...]) -> None:
        self.found: list[Variable] = []
        self._own = {id(vars(module)) for module in model.modules()}
        self._seen: set[Any] = set()
        self._kept: list[Any] = []  # so that no identity is used twice
        self._names: dict[str, None] = {}
        self.read: set[str] = set()
        self._classes: dict[type, None] = {}
        self._modules: dict[str, types.ModuleType] = {}
        self._waiting: list[tuple[Any, bool]] = []
        for module in model.modules():
            self._enter_class(type(module), libraries=True)
            for name, value in vars(module).items():
                if name not in ("_parameters", "_buffers", "_modules"):
                    self._look_into(value, libraries=True)
        for kind in ("forward", "forward_pre", "backward", "backward_pre"):
            self._look_into(getattr(hooks_of_all, f"_global_{kind}_hooks"))
        for value in called:
            self._look_into(value, libraries=True)
            if not isinstance(value, nn.Module | types.FunctionType | type(None)):
                self._add("what is called for the loss", value)
        while self._waiting:
            self._follow(*self._waiting.pop())

    @property
    def classes(self) -> list[type]:
        return [kind for kind in self._classes if type(kind) is type and not issubclass(kind, nn.Module)]

    def _add(self, words: str, owner: Any, name: str | None = None) -> None:
        variable = Variable(words, owner, name)
        self.found.append(variable)
        self._look_into(variable.get())

    def _look_into(self, value: Any, deep: bool = True, libraries: bool = False) -> None:
        """Note the code that belongs to a value."""
        if value is UNSET or isinstance(value, (*PLAIN, torch.Tensor)) or not self._is_new(value):
            return
        if isinstance(value, _CODE):
            self._waiting.append((value, libraries))
        elif isinstance(value, type):
            self._enter_class(value)
        elif isinstance(value, nn.Module):
            self._enter_class(type(value))
            if id(vars(value)) not in self._own:
                self._enter_module(value)
        elif isinstance(value, _CONTAINERS):
            base: Any = next(base for base in _CONTAINERS if isinstance(value, base))  # classes of people may do else
            if deep and base.__len__(value) <= _FEW:
                for entry in list(getattr(base, "values" if base is dict else "__iter__")(value)):
                    self._look_into(entry, deep=base not in (set, frozenset), libraries=libraries)
        elif isinstance(value, types.ModuleType):
            self._enter_space(value)
        elif not _is_foreign(type(value).__module__):
            self._enter_class(type(value))
            for held in list((getattr(value, "__dict__", None) or {}).values()) if deep else ():
                self._look_into(held, deep=False)

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        return True

    def _enter_module(self, module: nn.Module) -> None:
        """A module that is not the model's, such as one in a plain list: all of its attributes."""
        kind = type(module).__name__
        self.found.append(Variable(f"the attributes of a {kind} that is no part of the model", vars(module)))
        for name, value in list(vars(module).items()):
            if name not in ("_parameters", "_buffers"):
                self._look_into(value)

    def _enter_class(self, kind: type, libraries: bool = False) -> None:
        for base in kind.__mro__:
            if base in self._classes or _is_foreign(base.__module__) or not (libraries or _is_own(base.__module__)):
                continue
            self._classes[base] = None
            for name, value in list(vars(base).items()):
                if name in self._names or name in _CALLED or (name.startswith("__") and name not in _OF_CLASSES):
                    self._enter_attribute(base, name, value, libraries)

    def _enter_attribute(self, kind: type, name: str, value: Any, libraries: bool = False) -> None:
        if isinstance(value, _FUNCTIONS) or hasattr(type(value), "__get__"):
            self._look_into(value, libraries=libraries)
        elif (kind, name) not in self._seen and name not in _OF_CLASSES and not name.startswith("_abc_"):
            self._seen.add((kind, name))
            self._add(f"the attribute {name!r} of the class {kind.__name__}", kind, name)

    def _mention(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self._names:
                continue
            self._names[name] = None
            for kind in list(self._classes):
                if name in vars(kind):
                    self._enter_attribute(kind, name, vars(kind)[name])
            for module in list(self._modules.values()):
                self._enter_global(vars(module), name)

    def _follow(self, function: Any, libraries: bool) -> None:
        """Note what a function reaches."""
        parts: tuple[Any, ...] = ()
        if isinstance(function, functools.partial):
            parts = (function.func, *function.args, *function.keywords.values())
        elif isinstance(function, property):
            parts = (function.fget, function.fset)
        elif isinstance(function, types.MethodType):
            parts = (function.__func__, function.__self__)
            if not isinstance(function.__self__, nn.Module | type):
                self.found.append(Variable(f"the object of {function.__qualname__}", function.__self__))
        elif isinstance(function, types.FunctionType):
            self._follow_function(function, libraries)
        else:  # a static method, a class method, or a cache around a function
            parts = (getattr(function, "__wrapped__", None) or getattr(function, "__func__", None),)
        for value in parts:
            self._look_into(value, libraries=libraries)

    def _follow_function(self, function: types.FunctionType, libraries: bool) -> None:
        within = function.__globals__.get("__name__", "")
        foreign = _is_foreign(within) or not (libraries or _is_own(within))
        name = function.__qualname__.replace("<locals>.", "")
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if foreign:  # such as what torch.no_grad() makes of a function
                held = Variable("", cell).get()
                if isinstance(held, _FUNCTIONS):
                    self._look_into(held, libraries=libraries)
            elif free != "__class__" and self._is_new(cell):
                self._add(f"the variable {free!r} around {name}", cell)
        if foreign:
            return
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if not isinstance(value, PLAIN):
                self._add(f"a default argument of {name}", value)
        mentioned = (*function.__code__.co_names, *function.__code__.co_freevars)
        is_named = function.__name__ in mentioned and function.__name__[0] != "_"
        if is_named or vars(function).keys() - {"__wrapped__"}:
            self.found.append(Variable(f"the attributes of the function {name}", vars(function)))
        for value in vars(function).values():
            self._look_into(value, libraries=libraries)
        for mentioned, is_assigned in _globals_in(function.__code__).items():
            self._enter_global(function.__globals__, mentioned, is_assigned)
        names = tuple(_names_in(function.__code__))
        if not _BY_TEXT.isdisjoint(names):
            texts = {**_texts_in(function.__code__), **_values_of(function)}
            names += tuple(texts)
            for text in texts if not _ENVIRONMENT.isdisjoint(names) else ():
                if (text, _ENVIRONMENT) not in self._seen:
                    self._seen.add((text, _ENVIRONMENT))
                    self._add(f"the environment variable {text!r}", os.environ, text)
        for imported in _imports_in(function.__code__):
            self._enter_space(sys.modules.get(imported))
        if function.__name__ != "__init__":
            self.read.update(names)
        self._mention(names)

    def _enter_space(self, module: Any) -> None:
        """A module of Python, of which the names that code mentions are variables."""
        if module is not None and _is_own(module.__name__) and module.__name__ not in self._modules:
            self._modules[module.__name__] = module
            for mentioned in list(self._names):
                self._enter_global(vars(module), mentioned)

    def _enter_global(self, space: dict[str, Any], name: str, is_assigned: bool = False) -> None:
        place = (id(space), name)
        if (name not in space and not is_assigned) or name.startswith("__") or place in self._seen:
            return
        self._seen.add(place)
        value = space.get(name, UNSET)
        if isinstance(value, types.ModuleType):
            self._enter_space(value)
        elif isinstance(value, type | types.FunctionType | functools._lru_cache_wrapper) and not is_assigned:
            self._look_into(value)
        else:
            self._add(f"the global variable {name!r}", space, name)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


@functools.lru_cache(10_000)
def _texts_in(code: types.CodeType) -> dict[str, None]:
    """Texts in code that may be names."""
    found: dict[str, None] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _texts_in(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            found[constant] = None
    return found


@functools.lru_cache(10_000)
def _imports_in(code: types.CodeType) -> frozenset[str]:
    """The modules that code imports when it runs."""
    nested = [_imports_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    own = (step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME")
    return frozenset(own).union(*nested)


def _values_of(function: types.FunctionType) -> dict[str, None]:
    """Texts that may be names in the global variables that a function reads."""
    values = (function.__globals__.get(name) for name in _globals_in(function.__code__))
    return {value: None for value in values if isinstance(value, str) and value.isidentifier()}


@functools.lru_cache(10_000)
def _globals_in(code: types.CodeType) -> dict[str, bool]:
    """The global variables that code reads or writes, and whether it writes them."""
    found: dict[str, bool] = {}
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL:
            found[step.argval] = found.get(step.argval, False) or step.opname == "STORE_GLOBAL"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for name, is_assigned in _globals_in(constant).items():
                found[name] = found.get(name, False) or is_assigned
    return found


@functools.cache
def _is_foreign(module: Any) -> bool:
    """Whether code is of Python, of PyTorch, or of this package."""
    return not isinstance(module, str) or module.partition(".")[0] in _FOREIGN or module.startswith(f"{_OWN}.")


@functools.cache
def _is_own(module: Any) -> bool:
    """Whether code is of a person's own, and of no library that is installed."""
    if _is_foreign(module):
        return False
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    return not any(folder in path for folder in _LIBRARIES)
