"""The problems that the authors of MONeT solved on costs of a P100: graphs, budgets, and what they found.

Shah et al., Memory Optimization for Deep Networks (ICLR 2021), published beside their code what they measured and the
logs of their runs. A folder has them as `graph_NETWORK_MODE.json` and `results.json`; a small one is
`tests/data/monet_p100_problems`, which says where they come from.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph import Implementation, Operation
from remat_explorer.graph.rules import stands_in

UNIT = 1e-5  # seconds: objectives and bounds are in 1/100 ms
GIB = 2**30


@dataclass(frozen=True)
class Problem:
    """One network, mode and budget, and the best of the published runs.

    Attributes:
        network, mode: as published; "checkmate" is the mode in which they ran Checkmate's program.
        gib: the budget.
        cost, bound: seconds of the step; None where nothing was found or proven.
        wall: seconds of the run that found it, None where there is no log.
        status: how that run ended, in words.
    """

    network: str
    mode: str
    gib: float
    cost: float | None
    bound: float | None
    wall: float | None
    status: str

    @property
    def name(self) -> str:
        """What the row is called: the graph and the budget."""
        return f"{self.network}_{self.mode}@{self.gib:g}"

    @property
    def strategy(self) -> str:
        """What solves the same problem here."""
        return "optimal" if self.mode == "checkmate" else "monet"

    def is_worse(self, cost: float | None) -> bool:
        """Whether a cost is above the published one; costs are whole numbers of the unit."""
        return self.cost is not None and (cost is None or cost > self.cost + UNIT / 2)


def problems(folder: Path) -> list[Problem]:
    """The published problems, one for each network, mode and budget, with the best that any run of it found.

    Raises:
        RematError: if the folder has no `results.json`.
    """
    path = folder / "results.json"
    if not path.is_file():
        raise RematError(f"there is no {str(path)!r}; give the folder with results.json and graph_NETWORK_MODE.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    of: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for run in (*document["runs"], *document["solutions"]):
        mode = "checkmate" if run["method"] == "checkmate" else run["mode"]
        of[run["model"], mode, float(run["budget_gib"])].append(run)
    return [_problem(*key, runs) for key, runs in sorted(of.items())]


def _problem(network: str, mode: str, gib: float, runs: list[dict[str, Any]]) -> Problem:
    found = [run for run in runs if run.get("objective") is not None]
    best = min(found, key=lambda run: (run["objective"], "wall_s" not in run), default=runs[0])
    bounds = [run["best_bound"] for run in runs if run.get("best_bound") is not None]
    cost = UNIT * best["objective"] if found else None
    bound = UNIT * max(bounds) if bounds else None
    return Problem(network, mode, gib, cost, bound, best.get("wall_s"), best.get("status", "no log"))


def graph_of(folder: Path, problem: Problem) -> rx.Graph | None:
    """The problem's graph, by the authors' rule of what runs in place; None where the folder has none."""
    path = folder / f"graph_{problem.network}_{problem.mode}.json"
    return by_their_rule(rx.Graph.load(str(path))) if path.is_file() else None


def by_their_rule(graph: rx.Graph) -> rx.Graph:
    """The graph, where operations of the forward pass run in place only where their input dies.

    In the files they may be chosen where it lives on, too, at the cost that was measured in place. Where an operation
    has an implementation for elsewhere, MONeT asks for that one there. It comes first then: a default runs anywhere.
    """
    return replace(graph, operations=tuple(map(_in_place, graph.operations)))


def _in_place(node: Operation) -> Operation:
    """The operation with its implementations that run in place marked; the others come first."""

    def marked(way: Implementation) -> Implementation:
        only = replace(way, in_place=True)
        elsewhere = [other for other in node.implementations if other.overwrites is None]
        elsewhere += [replace(other, kinds=()) for other in elsewhere if "out of place" in other.kinds]
        fits = node.phase == "forward" and way.overwrites is not None
        return only if fits and any(stands_in(other, only) for other in elsewhere) else way

    ways = [marked(way) for way in node.implementations]
    if not any(way.in_place for way in ways):
        return node
    first = next(way for way in ways if not way.in_place)
    rest = [way for way in ways if way is not first]
    ways = [replace(first, kinds=()), *(replace(way, kinds=way.kinds or ("in place",)) for way in rest)]
    return replace(node, implementations=tuple(ways))
