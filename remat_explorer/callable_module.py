"""A package that is called like the function of its name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def make_callable(module: str, function: Callable[..., Any]) -> None:
    """Make an imported module callable: importing a package binds its name in the parent, over a function of that name.

    Args:
        module: name of a module that is being imported.
        function: what calling the module calls.
    """

    class CallableModule(ModuleType):
        """A module with a call."""

        __signature__ = inspect.signature(function)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    sys.modules[module].__class__ = CallableModule
