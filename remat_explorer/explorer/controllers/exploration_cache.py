"""What was known of a model when it was last explored: on the screen before anything is searched for.

To import torch and to capture a model of the zoo takes seconds, and gives the same graph as the last time. So the graph
and its trade-off curve are kept in the cache folder. Other models and graphs are known by their graph, so that their
curve is there once they are captured. Nothing of a file is believed that can be checked: the graph is read as any graph
file is, every schedule passes the checker, and the captured graph takes the place of the kept one.

What is known of the network that is shown where nobody has chosen one comes with the package (`FIRST_LOOK`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from remat_explorer import __version__
from remat_explorer.cache_folder import cache_folder, entry_path, evict, used_now
from remat_explorer.documents import read_json, require_format, require_keys, write_json
from remat_explorer.entry_checks import require_bytes
from remat_explorer.errors import RematError, SolutionError
from remat_explorer.explorer.controllers.model_sources import DEFAULT_SIZES, NO_MODULE
from remat_explorer.explorer.controllers.screen import auto_select, forget_model, show_schedule
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import switch_default_strategy
from remat_explorer.graph import Graph, dump_graph
from remat_explorer.solvers import Frontier

_FORMAT, _VERSION = "remat-explorer/look", 1
MAX_CHECKED_OPERATIONS = 4000  # of all schedules that are kept: each is checked before the first is on the screen
MIN_OPERATIONS = 100  # up to which a graph that is no model of the zoo is searched faster than an entry is worth
MAX_CACHE_BYTES = 32 * 2**20  # of all entries together; above that the longest unused go
FIRST_LOOK = Path(__file__).parent / "first_look.json"  # `python -m tools.first_look` writes it
VERSIONS = ("package", "torch")  # of a key, which that file does not have: the captured graph decides
NOT_CAPTURED = "The model has not been captured yet: load it again"


class ExplorationCache:
    """Keeps what is known of the state's model once it is loaded, and again when its trade-off curve is filled.

    Args:
        state: followed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        state.observe(self._keep, ["busy", "sweeping"])

    def _keep(self, change: Any) -> None:
        ended = change["old"] == "loading" if change["name"] == "busy" else change["new"] is None
        if ended and not self._state.busy:
            store_exploration(self._state)


def store_exploration(state: State) -> bool:
    """Keep what is known of a model; whether something was kept."""
    document = exploration_document(state)
    if document is None:
        return False
    with suppress(RematError, OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("look", document["key"]), document)
        evict("look", MAX_CACHE_BYTES)
        return True
    return False


def exploration_document(state: State) -> dict[str, Any] | None:
    """What is kept of a model, as JSON; None where nothing is."""
    graph, frontier, smallest = state.graph, state.frontier, state.smallest
    key = cache_key(state, graph)
    if key is None or None in (graph, frontier, smallest) or state.costs_are_measured or state.stale:
        return None
    if state.no_execution == NOT_CAPTURED:  # what is shown comes from the cache
        return None
    assert graph is not None
    assert frontier is not None
    shown = frontier.best(state.budget)
    if frontier.graph is not graph or shown is None:
        return None
    points = (shown, *_spread(frontier.nondominated(), MAX_CHECKED_OPERATIONS // graph.n))
    chosen = {id(point.schedule) for point in points}
    curve = Frontier(
        graph,
        tuple(point for point in frontier.solutions if id(point.schedule) in chosen),
        own=tuple(point for point in frontier.own if id(point.schedule) in chosen),
    )
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "key": key,
        "graph": json.loads(dump_graph(graph, details=True)),
        "budget": state.budget,
        "keep_all": state.checkpoint_all_peak,
        "curve": curve.to_document(),
    }


def show_cached(state: State, budget: str | int | float | None = None, captured: Graph | None = None) -> bool:
    """Put what is kept of the state's model on the screen; whether there was anything.

    Args:
        state: all that is known about the model before is forgotten.
        budget: what `State.set_budget` takes; None for the one that was kept.
        captured: the model's graph, if it is captured already.
    """
    key = cache_key(state, captured)
    found = None if key is None else _find(key, captured)
    if key is None or found is None:
        return False
    graph, kept, keep_all, frontier = found
    with state.at_once():
        forget_model(state)
        switch_default_strategy(state, graph)
        state.graph, state.inputs, state.no_execution, state.smallest = graph, None, NOT_CAPTURED, None
        state.checkpoint_all_peak, state.costs_are_measured, state.budget = keep_all, False, kept
        with suppress(RematError):
            if budget is not None:
                state.set_budget(budget)
        best = frontier.best(state.budget) or frontier.nondominated()[-1]
        show_schedule(state, best.schedule, best)
        state.frontier = frontier  # last: the matrices, which follow the schedule, are drawn before plotly is imported
        auto_select(state)
        state.stale = False
    return True


def replace_by_captured(state: State, graph: Graph, inputs: Any, no_execution: str) -> bool:
    """Let the captured graph take the place of the kept one that is on the screen; whether the two are the same.

    What the person has selected meanwhile stays.
    """
    kept, frontier = state.graph, state.frontier
    if kept is None or frontier is None or kept.sha256 != graph.sha256:
        return False
    if kept is graph:
        state.inputs, state.no_execution = inputs, no_execution
        return True
    curve = Frontier.from_document(frontier.to_document(), graph)
    best = curve.best(state.budget) or curve.nondominated()[-1]
    with state.at_once():
        state.graph, state.inputs, state.no_execution, state.frontier = graph, inputs, no_execution, curve
        show_schedule(state, best.schedule, best)
    return True


def cache_key(state: State, graph: Graph | None = None) -> dict[str, Any] | None:
    """What two explorations of a model must share to show the same; None where nothing is kept.

    Args:
        state: which model, and how it is asked for.
        graph: once it is captured; only models of the zoo are known before.

    >>> cache_key(State(model="mlp"))["batch"], cache_key(State(model="my_model.py:make_model"))
    (8192, None)
    """
    begin = (
        None if state.no_execution == NO_MODULE else DEFAULT_SIZES.get(state.model)
    )  # a graph may have a model's name
    if state.measured_costs:
        return None
    chosen = state.implementations if isinstance(state.implementations, str) else list(state.implementations)
    if begin is None:
        if graph is None or graph.n <= MIN_OPERATIONS:
            return None
        return {"graph": graph.sha256, "implementations": chosen, "package": __version__}
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return None
    sizes = {"batch": state.batch or begin.get("batch"), "image": state.image or begin.get("image")}
    asked = {"model": state.model, **sizes, "device": state.device, "implementations": chosen}
    return {**asked, "package": __version__, "torch": torch}


def _spread(points: Sequence[Any], most: int) -> list[Any]:
    """At most so many of some points, evenly, the first and the last among them.

    >>> _spread("abcdefg", 3), _spread("ab", 3), _spread("abc", 1)
    (['a', 'd', 'g'], ['a', 'b'], [])
    """
    if len(points) <= most:
        return list(points)
    return [points[round(k * (len(points) - 1) / (most - 1))] for k in range(most)] if most > 1 else []


def _find(key: dict[str, Any], captured: Graph | None) -> tuple[Graph, int, int, Frontier] | None:
    """Graph, budget, peak of keeping everything, and curve that are kept for a key, or come with the package.

    What comes with the package is newer than what was kept before it was installed.
    """
    kept = entry_path("look", key)
    for path in sorted((kept, FIRST_LOOK), key=_written, reverse=True):
        with suppress(RematError, KeyError, TypeError, ValueError):
            found = _read(path, key, captured)
            if path == kept:
                used_now("look", key)
            return found
    return None


def _written(path: Path) -> float:
    """When a file was written, in seconds since 1970; 0 where there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path, key: dict[str, Any], captured: Graph | None) -> tuple[Graph, int, int, Frontier]:
    """What a file holds for a key.

    Raises:
        RematError: if the file is none of this key, is damaged, or says of a schedule what is not so.
    """
    document = read_json(path, SolutionError)
    names = ("format", "version", "key", "graph", "budget", "keep_all", "curve")
    require_keys(document, names, "the kept look", SolutionError)
    require_format(document, _FORMAT, _VERSION, SolutionError)
    expected = {name: key[name] for name in key if path != FIRST_LOOK or name not in VERSIONS}
    if document["key"] != expected:
        raise SolutionError("the kept look is one of another model")
    budget, keep_all = (require_bytes(document[name], name, SolutionError) for name in ("budget", "keep_all"))
    graph = captured or Graph.from_document(document["graph"])
    frontier = Frontier.from_document(document["curve"], graph)
    if not frontier.scheduled():
        raise SolutionError("the kept look has no schedule")
    return graph, budget, keep_all, frontier
