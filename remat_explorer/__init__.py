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

import importlib
from typing import TYPE_CHECKING, Any

if type(__loader__).__name__ == "zipimporter":
    raise ImportError(
        f"remat_explorer does not run from within an archive, {__file__!r}: it reads files that lie beside its code, "
        "and starts processes of its own; unpack the archive into a folder, or install the package with pip"
    )

if TYPE_CHECKING:
    from remat_explorer import models as models
    from remat_explorer.capture import capture as capture
    from remat_explorer.capture import loss_elsewhere as loss_elsewhere
    from remat_explorer.capture import profile as profile
    from remat_explorer.checker import check as check
    from remat_explorer.explorer import Explorer as Explorer
    from remat_explorer.fit import fit as fit
    from remat_explorer.graph import Graph as Graph
    from remat_explorer.instances import linear as linear
    from remat_explorer.plan import Plan as Plan
    from remat_explorer.report import report as report
    from remat_explorer.runtime import measure as measure
    from remat_explorer.runtime import rematerialize as rematerialize
    from remat_explorer.runtime.compiled import compile as compile
    from remat_explorer.runtime.compiled import partitioner as partitioner
    from remat_explorer.runtime.peers import compare_peers as compare_peers
    from remat_explorer.schedule import Schedule as Schedule
    from remat_explorer.solution import Solution as Solution
    from remat_explorer.solvers import Ablation as Ablation
    from remat_explorer.solvers import Frontier as Frontier
    from remat_explorer.solvers import MemoryAtOverhead as MemoryAtOverhead
    from remat_explorer.solvers import Relaxation as Relaxation
    from remat_explorer.solvers import Sweep as Sweep
    from remat_explorer.solvers import ablation as ablation
    from remat_explorer.solvers import max_batch as max_batch
    from remat_explorer.solvers import max_image as max_image
    from remat_explorer.solvers import memory_at_overhead as memory_at_overhead
    from remat_explorer.solvers import minimum_budget as minimum_budget
    from remat_explorer.solvers import relax as relax
    from remat_explorer.solvers import solve as solve
    from remat_explorer.solvers import sweep as sweep

_HOMES = {
    "Ablation": "remat_explorer.solvers",
    "Explorer": "remat_explorer.explorer",
    "Frontier": "remat_explorer.solvers",
    "Graph": "remat_explorer.graph",
    "MemoryAtOverhead": "remat_explorer.solvers",
    "Plan": "remat_explorer.plan",
    "Relaxation": "remat_explorer.solvers",
    "Schedule": "remat_explorer.schedule",
    "Solution": "remat_explorer.solution",
    "Sweep": "remat_explorer.solvers",
    "ablation": "remat_explorer.solvers",
    "capture": "remat_explorer.capture",
    "check": "remat_explorer.checker",
    "compare_peers": "remat_explorer.runtime.peers",
    "compile": "remat_explorer.runtime.compiled",
    "fit": "remat_explorer.fit",
    "linear": "remat_explorer.instances",
    "loss_elsewhere": "remat_explorer.capture",
    "measure": "remat_explorer.runtime",
    "max_batch": "remat_explorer.solvers",
    "max_image": "remat_explorer.solvers",
    "memory_at_overhead": "remat_explorer.solvers",
    "minimum_budget": "remat_explorer.solvers",
    "models": "remat_explorer.models",
    "partitioner": "remat_explorer.runtime.compiled",
    "profile": "remat_explorer.capture",
    "rematerialize": "remat_explorer.runtime",
    "relax": "remat_explorer.solvers",
    "report": "remat_explorer.report",
    "solve": "remat_explorer.solvers",
    "sweep": "remat_explorer.solvers",
}
__all__ = [
    "Ablation",
    "Explorer",
    "Frontier",
    "Graph",
    "MemoryAtOverhead",
    "Plan",
    "Relaxation",
    "Schedule",
    "Solution",
    "Sweep",
    "ablation",
    "capture",
    "check",
    "compare_peers",
    "compile",
    "fit",
    "linear",
    "loss_elsewhere",
    "max_batch",
    "max_image",
    "measure",
    "memory_at_overhead",
    "minimum_budget",
    "models",
    "partitioner",
    "profile",
    "relax",
    "rematerialize",
    "report",
    "solve",
    "sweep",
]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(_HOMES[name])
    found = home if name == "models" else getattr(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
