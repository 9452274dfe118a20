"""Optimal tensor rematerialization: capture a model, solve for a schedule, see it, execute it.

Importing this package is cheap: torch, plotly and ipywidgets are loaded by the first name that needs them.

>>> import remat_explorer as rx
>>> solution = rx.solve(rx.linear(8), budget=4, strategy="checkpoint-all")
>>> str(solution.status)
'infeasible'
"""

import sys

# `python -m remat_explorer...` looks for modules in the working directory first. Not from here on: a file json.py of a
# downloaded folder is not run. So nothing is imported before this, not even from __future__.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").startswith("remat_explorer")
    and not sys.flags.safe_path
):
    del sys.path[0]

from typing import Any

import lazy_loader

if type(__loader__).__name__ == "zipimporter":
    raise ImportError(
        f"remat_explorer does not run from within an archive, {__file__!r}: it reads files that lie beside its code, "
        "and starts processes of its own; unpack the archive into a folder, or install the package with pip"
    )

_load, _list_names, __all__ = lazy_loader.attach_stub(__name__, __file__)  # the public names are those of the stub
sys.modules[__name__].__class__ = type(sys)  # a room that is imported is bound over its function, and called like it


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return globals().setdefault(name, version("remat-explorer"))


def __dir__() -> list[str]:
    return sorted({*globals(), *_list_names()})
