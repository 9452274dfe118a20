"""Every kind of file that this package reads: one that it has written, and all that can be done with a mutant of it."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import remat_explorer as rx
from remat_explorer.cache_folder import entry_path
from remat_explorer.capture.implementations.cudnn_plans import ExecutionPlan, load_plans, store_plans
from remat_explorer.capture.profile_cache import Profile, load_profile, store_profile
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.documents import to_json
from remat_explorer.graph import Graph
from remat_explorer.graph.file import dump_graph
from remat_explorer.graph.parts import Implementation
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details
from remat_explorer.solvers.ablation.ablation_result import Ablation
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.solution import Solution, Status, capture_options_of
from remat_explorer.solvers.sweeps.frontier import Frontier
from tests.fuzz.outcomes import of_call, of_command

PROFILE = {"graph": "0" * 64, "device": "cpu", "processor": "none", "gpu": None}
PLANS = {"problem": {"part": "forward", "sizes": [[1], [1], [1]], "dtype": "float32"}, "device": "none"}
PLAN = ExecutionPlan(4, (("TILE_M", 1),), "eng4", 0, 0.1)


@cache
def plain() -> Graph:
    """A chain, with everything in its file that a file can have."""
    graph, details = linear(2), Details("features.3", "conv2d", ("8x64",), "net.py:4")
    first = dataclasses.replace(graph.operations[0], details=details)
    return dataclasses.replace(graph, operations=(first, *graph.operations[1:]), options=CaptureOptions())


@cache
def choosing() -> Graph:
    """A chain with three implementations of an operation, one of which may run in place only."""
    graph = plain()
    node = graph.operations[3]
    lean = Implementation(node.default.inputs, node.default.outputs, 2.0, 1, "lean", None, 1e-7, ("masks",))
    operations = list(graph.operations)
    taken = node.default.inputs[0]
    only = dataclasses.replace(
        node.default, name="in place", cost=0.5, overwrites=taken, kinds=("masks",), in_place=True
    )
    operations[3] = dataclasses.replace(node, implementations=(node.default, lean, only))
    return dataclasses.replace(graph, operations=tuple(operations))


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        document: what such a file holds.
        use: reads a file with a mutant in it, and returns how that ended.
    """

    document: Any
    use: Callable[[str], str]


@cache
def file_kinds() -> dict[str, FileKind]:
    """The kinds by their names."""
    graph = plain()
    kept = Solution(graph, "optimal", Status.OPTIMAL, 9, checkpoint_all(graph), graph.total_cost, 0.1, "highs")
    table = rx.ablation(choosing(), ["100%"], ["masks"], time_limit=1.0)
    frontier = rx.Frontier(graph, (kept,), {}, 0.1)
    question = Question(graph, 9, "optimal", "highs", 60.0)
    store_solution(question, kept)
    store_profile(dict(PROFILE), Profile((1.0,), (0,), (False,), (4,), 0))
    store_plans(PLANS, [PLAN])
    entries = {kind: _entry(kind, key) for kind, key in _keys(question)}
    return {
        "graph": FileKind(json.loads(dump_graph(graph, details=True)), _use_graph),
        "graph with choices": FileKind(json.loads(dump_graph(choosing(), details=True)), _use_graph),
        "solution": FileKind(kept.to_document(), _use_solution),
        "sweep": FileKind(frontier.to_document(), _use_sweep),
        "ablation": FileKind(table.to_document(), _use_ablation),
        "kept solution": FileKind(_read(entries["solution"]), lambda text: _use_kept(text, question)),
        "kept profile": FileKind(_read(entries["profile"]), _use_profile),
        "kept algorithms": FileKind(_read(entries["cudnn"]), _use_plans),
    }


def _keys(question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from (("solution", question.key), ("profile", dict(PROFILE)), ("cudnn", PLANS))


def _entry(kind: str, key: dict[str, Any]) -> Path:
    return entry_path(kind, key)


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _in_a_file(text: str, use: Callable[[str], str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mutant.json")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return use(str(path))


def _use_graph(text: str) -> str:
    return _in_a_file(text, _graph)


def _graph(path: str) -> str:
    shown = of_command(["show", path, "--json"])
    ended = of_call(lambda: _solve_all(Graph.load(path)))
    assert (shown == "exit 64") == (ended == "GraphError"), (shown, ended)
    return ended


def _solve_all(graph: Graph) -> None:
    assert Graph.from_document(json.loads(dump_graph(graph))) == graph
    all_kept = rx.solve(graph, "100%", "checkpoint-all")
    best = rx.solve(graph, "100%", "monet" if graph.has_choices else "optimal", time_limit=0.2)
    for solution in (all_kept, best):
        again = json.loads(to_json(solution.to_document()), parse_constant=_refuse)
        assert Solution.from_document(again, graph).cost == solution.cost
        assert "nan" not in str(solution)
    assert all_kept.schedule is not None
    assert best.status is not Status.INFEASIBLE, "keeping everything fits"


def _use_solution(text: str) -> str:
    return _in_a_file(text, _solution)


def _solution(path: str) -> str:
    of_call(lambda: capture_options_of(path))
    of_call(lambda: str(Solution.load_schedule(path, plain())))
    return of_call(lambda: str(Solution.load(path, plain())))


def _use_sweep(text: str) -> str:
    return _in_a_file(text, lambda path: of_call(lambda: _read_sweep(path)))


def _read_sweep(path: str) -> None:
    frontier = Frontier.load(path, plain())
    assert "nan" not in str(frontier)
    frontier.nondominated()
    frontier.best("100%")


def _use_ablation(text: str) -> str:
    return _in_a_file(text, lambda path: of_call(lambda: str(Ablation.load(path, choosing()))))


def _use_kept(text: str, question: Question) -> str:
    ended = _listed(_entry("solution", question.key), text)
    of_call(lambda: load_solution(question))
    return ended


def _use_profile(text: str) -> str:
    ended = _listed(_entry("profile", dict(PROFILE)), text)
    of_call(lambda: load_profile(dict(PROFILE), 1, 1))
    return ended


def _use_plans(text: str) -> str:
    ended = _listed(_entry("cudnn", PLANS), text)
    of_call(lambda: load_plans(PLANS))
    return ended


def _listed(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    of_command(["cache", "list"])
    return of_command(["cache", "list", "--json"])


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} in a document")
