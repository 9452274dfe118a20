"""Schedules for a profiled graph: solved before, where the graph has the same structure, or else solved here.

A schedule belongs to the structure of its graph. A graph that was made without the GPU has another structure where
PyTorch's choice of kernels is another there. Every schedule says where it is from.
"""

from __future__ import annotations

import base64
import gzip
import json
import multiprocessing
import os
import re
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat_explorer as rx
from remat_explorer.checker import check
from remat_explorer.documents import unpack_rows
from remat_explorer.errors import RematError, ScheduleError, SolutionError, SolverError
from remat_explorer.graph import Graph, dump_graph
from remat_explorer.plan import Plan
from remat_explorer.solvers import Solution, Status, budget_of

Share = str | int  # of what keeping everything takes, "smallest", or bytes
SHARES = ("80%", "60%", "40%", "smallest")
SOLVED = ("100%", *SHARES)  # of the bundle
WITHOUT_SOLVER = ("rotor", "dtr", "ap-greedy")  # strategies that solve no linear program
FROM_BUNDLE = "from the bundle"


@dataclass(frozen=True, eq=False)
class Given:
    """A schedule and where it is from, in words."""

    solution: Solution
    source: str


def file_of(bundle: Path, model: str) -> Path:
    """Where the bundle has the schedules of a model."""
    return bundle / "schedules" / f"{re.sub(r'[^a-z0-9]+', '-', model.lower())}.json.gz"


def write_bundled(path: Path, document: dict[str, Any]) -> None:
    """Write schedules for the bundle: ``structure``, ``size``, and ``solutions`` by share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


def read_bundled(bundle: Path | None, model: str) -> dict[str, Any] | None:
    """What the bundle has for a model, or None."""
    path = file_of(bundle, model) if bundle else None
    return json.loads(gzip.decompress(path.read_bytes())) if path is not None and path.exists() else None


def solve_share(graph: Graph, share: Share, time_limit: float) -> tuple[Solution, str]:
    """A solution for a share of what keeping everything takes, or for the smallest budget, and how it was found.

    Where no back end for linear programs can be loaded, the cheapest schedule of the strategies that need none.
    """
    budget = rx.minimum_budget(graph).known_feasible if share == "smallest" else share
    try:
        return rx.solve(graph, budget, time_limit=time_limit), "solved here"
    except SolverError as error:
        found = [rx.solve(graph, budget, name, time_limit) for name in WITHOUT_SOLVER if _takes(graph, name)]
        fitting = [solution for solution in found if solution.cost is not None]
        if not fitting:
            raise SolverError(f"{error}; {', '.join(WITHOUT_SOLVER)} found no schedule") from None
        best = min(fitting, key=lambda solution: solution.cost or 0.0)
        return best, f"by {best.strategy}, since no solver can be loaded here"


def _takes(graph: Graph, strategy: str) -> bool:
    try:
        rx.solve(graph, "100%", strategy, 1.0)
    except SolverError:
        return False
    return True


class Schedules:
    """Schedules of models, solved in processes of their own while the device measures.

    Args:
        bundle: folder of what was solved before, or None.
        time_limit: seconds for each that is solved here.
    """

    def __init__(self, bundle: Path | None, time_limit: float) -> None:
        self.bundle, self.time_limit = bundle, time_limit
        workers = max(1, min(8, (os.cpu_count() or 2) - 2))
        # a process that has used the device must not be forked
        self.pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    def close(self) -> None:
        """End the processes."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def of(self, model: str, graph: Graph, shares: Sequence[Share] = SHARES) -> dict[Share, Future[Any] | Given]:
        """For each share what the bundle has, or a solve that is under way; `given` takes both."""
        bundled = read_bundled(self.bundle, model)
        found: dict[Share, Future[Any] | Given] = {}
        for share in shares:
            taken, why = self._bundled(bundled, graph, share)
            found[share] = taken or self.pool.submit(_solved, dump_graph(graph), share, self.time_limit, why)
        return found

    def _bundled(self, bundled: dict[str, Any] | None, graph: Graph, share: Share) -> tuple[Given | None, str]:
        """The schedule of the bundle, or why there is none."""
        if bundled is None:
            return None, "" if self.bundle is None else "the bundle has none"
        if bundled["structure"] != graph.structure:
            return None, "the graph captured here has another structure"
        document = bundled["solutions"].get(share)
        if document is None or document["R"] is None:
            return None, "the bundle has none for this budget"
        budget = None if share == "smallest" else budget_of(graph, share)
        try:
            return Given(on_graph(document, graph, budget), FROM_BUNDLE), ""
        except (ScheduleError, SolutionError) as error:
            return None, f"with the workspace measured here the bundle's does not fit: {error}"


def on_graph(document: dict[str, Any], graph: Graph, budget: int | None = None) -> Solution:
    """The schedule of a solution file on a graph of the same structure, within ``budget``, or at its own peak.

    Raises:
        ScheduleError: if it does not fit.
    """
    R, S = (unpack_rows(document[name], name, SolutionError) for name in ("R", "S"))
    schedule = check(graph, R, S, budget).schedule
    limit = Plan.peak_of(schedule) if budget is None else budget
    return Solution(graph, document["strategy"], Status.FEASIBLE, limit, schedule, None, document["seconds"])


def given(waiting: Future[Any] | Given, graph: Graph, seconds: float) -> Given:
    """A schedule that was there, or has been solved meanwhile.

    Args:
        waiting: what `Schedules.of` gave.
        graph: whose schedule it is.
        seconds: to wait for it, at most.

    Raises:
        RematError: if it is not there by then.
    """
    if isinstance(waiting, Given):
        return waiting
    try:
        document, source = waiting.result(max(0.0, seconds))
    except TimeoutError:
        raise RematError(f"no schedule was there after {seconds:.0f} s of waiting") from None
    return Given(Solution.from_document(document, graph), source)


def _solved(graph_text: str, share: Share, time_limit: float, why: str) -> tuple[dict[str, Any], str]:
    """Runs in a process that has no device."""
    found, how = solve_share(Graph.from_document(json.loads(graph_text)), share, time_limit)
    return found.to_document(), f"{how}: {why}" if why else how


def packed(document: Any) -> str:
    """A JSON object as text that takes little room in another one; `unpacked` reads it."""
    return base64.b64encode(gzip.compress(json.dumps(document).encode(), mtime=0)).decode()


def unpacked(text: str) -> Any:
    """The JSON object of `packed`."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def packed_graph(graph: Graph) -> str:
    """A graph file, packed."""
    return packed(json.loads(dump_graph(graph)))
