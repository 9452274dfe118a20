"""Every kind of file that this package reads: one that it has written, and all that can be done with a mutant of it."""

import dataclasses
import json
import tempfile
from collections.abc import Callable
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
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.ablation.ablation_result import Ablation
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.solution import Solution, capture_options_of
from remat_explorer.solvers.solver_interface import checkpoint_all
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
    graph = plain()
    kept = Solution(graph, "optimal", Status.OPTIMAL, 9, checkpoint_all(graph), graph.total_cost, 0.1, "highs")
    table = rx.ablation(choosing(), ["100%"], ["masks"], time_limit=1.0)
    frontier = rx.Frontier(graph, (kept,), {}, 0.1)
    question = Question(graph, 9, "optimal", "highs", 60.0)
    store_solution(question, kept)
    store_profile(dict(PROFILE), Profile((1.0,), (0,), (False,), (4,), 0))
    store_plans(PLANS, [PLAN])
    kept_in: dict[str, tuple[Path, Callable[[], object]]] = {
        "kept solution": (entry_path("solution", question.key), lambda: load_solution(question)),
        "kept profile": (entry_path("profile", dict(PROFILE)), lambda: load_profile(dict(PROFILE), 1, 1)),
        "kept algorithms": (entry_path("cudnn", PLANS), lambda: load_plans(PLANS)),
    }
    read = {name: json.loads(path.read_text()) for name, (path, _) in kept_in.items()}
    return {
        "graph": FileKind(json.loads(dump_graph(graph, details=True)), in_a_file(_graph)),
        "graph with choices": FileKind(json.loads(dump_graph(choosing(), details=True)), in_a_file(_graph)),
        "solution": FileKind(kept.to_document(), in_a_file(_solution)),
        "sweep": FileKind(frontier.to_document(), in_a_file(_sweep)),
        "ablation": FileKind(table.to_document(), in_a_file(_ablation)),
        **{name: FileKind(read[name], in_the_cache(*where)) for name, where in kept_in.items()},
    }


def in_a_file(use: Callable[[str], str]) -> Callable[[str], str]:
    def written(text: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mutant.json")
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            return use(str(path))

    return written


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


def _solution(path: str) -> str:
    of_call(lambda: capture_options_of(path))
    of_call(lambda: str(Solution.load_schedule(path, plain())))
    return of_call(lambda: str(Solution.load(path, plain())))


def _sweep(path: str) -> str:
    return of_call(lambda: _read_sweep(path))


def _read_sweep(path: str) -> None:
    frontier = Frontier.load(path, plain())
    assert "nan" not in str(frontier)
    frontier.nondominated()
    frontier.best("100%")


def _ablation(path: str) -> str:
    return of_call(lambda: str(Ablation.load(path, choosing())))


def in_the_cache(path: Path, use: Callable[[], object]) -> Callable[[str], str]:
    def listed(text: str) -> str:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        of_command(["cache", "list"])
        ended = of_command(["cache", "list", "--json"])
        of_call(use)
        return ended

    return listed


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} in a document")
