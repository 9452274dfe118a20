"""What every solve returns: a checked schedule with its cost, peak, and how good it is proven to be; and its file.

What a file says is proven is held against schedules that are found at once: a bound by itself shows no proof. A
schedule within a budget refutes that there is none, and any bound above its cost. Tried are the schedules of the file
itself, the one that computes everything once, and that of a simulated run. What they do not refute is believed, but for
"infeasible" in the cache: that must be proven again at once, or it is solved anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import check, check_schedule
from remat_explorer.documents import pack_rows, quote, read_json, unpack_rows, write_json
from remat_explorer.entry_checks import Table, as_it_is, read_document, read_entry, require_arguments, require_text
from remat_explorer.errors import QuantityError, RematError, ScheduleError, SolutionError, SolverError, UnknownNameError
from remat_explorer.graph import MOST_IMPLEMENTATIONS, Graph, options_document, parse_options
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Plan
from remat_explorer.quantities import begins_at_smallest, format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Computations, Schedule
from remat_explorer.solution_summary import LIMIT, PROVEN, SUMMARY, SolutionSummary, Status, relative_gap
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.memory.lowest_peak import least_working_set, limiting_operation
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.registry import STRATEGIES, method_of
from remat_explorer.solvers.solver_interface import Limits, checkpoint_all, checkpoint_all_peak

FORMAT, VERSION = "remat-explorer/solution", 1


@dataclass(frozen=True, eq=False)
class Solution:
    """A checked answer to "the cheapest schedule of this graph within this budget".

    Attributes:
        graph: the graph that was scheduled.
        strategy: name of the method.
        status: see `Status`.
        budget: bytes, resident bytes included.
        schedule: R and S, or None when none is known.
        lower_bound: no schedule within the budget costs less; None when nothing is proven.
        seconds: wall time that the strategy took.
        solver: name of the MILP back end, or "" where none was used.
        limit: what ended the search before it had proven its answer, such as "the time limit of 60.0 s"; "" where
            nothing did, or it is not known.

    Cost and peak are the checker's, never a strategy's own claim.
    """

    graph: Graph
    strategy: str
    status: Status
    budget: int
    schedule: Schedule | None
    lower_bound: float | None
    seconds: float
    solver: str = ""
    limit: str = ""

    def __post_init__(self) -> None:
        require_arguments(Solution.__init__, vars(self))

    @property
    def cost(self) -> float | None:
        """Cost of the schedule, in the unit of the graph's costs."""
        return self.schedule.cost if self.schedule else None

    @property
    def overhead(self) -> float | None:
        """Cost as a ratio to checkpoint-all, which computes everything once."""
        return self.schedule.overhead if self.schedule else None

    @property
    def plan(self) -> Plan | None:
        """The statements that execute the schedule, freed as early as possible."""
        return Plan.of(self.schedule) if self.schedule else None

    @property
    def peak(self) -> int | None:
        """Predicted peak of the plan in bytes, resident bytes included."""
        return Plan.peak_of(self.schedule) if self.schedule else None

    @property
    def gap(self) -> float | None:
        """(cost - lower bound) / cost, or None when either is unknown."""
        return relative_gap(self.cost, self.lower_bound)

    def __str__(self) -> str:
        if self.schedule is None or self.peak is None:
            ended = f", ended by {self.limit}" if self.limit else ""
            return f"strategy {one_line(self.strategy)}: {self.status} within {format_bytes(self.budget)}{ended}"
        status = f"proven {self.status}" if self.status is Status.OPTIMAL else str(self.status)
        proven = "no bound proven" if self.gap is None else f"gap {format_share(self.gap)}"
        return (
            f"strategy {one_line(self.strategy)}: {status}, overhead {format_overhead(self.schedule.overhead)}, "
            f"predicted peak {format_bytes(self.peak)} of {format_bytes(self.budget)}, {proven}, "
            f"{format_seconds(self.seconds)}"
        )

    def to_document(self) -> dict[str, Any]:
        """The solution file as a JSON object, version 1."""
        R, S = (None, None) if self.schedule is None else (pack_rows(self.schedule.R), pack_rows(self.schedule.S))
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": _graph_entry(self.graph),
            "strategy": self.strategy,
            "status": str(self.status),
            "budget": self.budget,
            "cost": self.cost,
            "peak": self.peak,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "seconds": self.seconds,
            "solver": self.solver,
            "R": R,
            "S": S,
            **({"limit": self.limit} if self.limit else {}),
        }

    def save(self, path: str | Path) -> Path:
        """Write the solution file atomically."""
        require_arguments(Solution.save, locals())
        return write_json(path, self.to_document())

    @staticmethod
    def load(path: str | Path, graph: Graph) -> Solution:
        """Read a solution file of ``graph``.

        Raises:
            SolutionError: if the file is not a solution, belongs to another graph, its cost and peak are not those of
                its schedule, or a schedule that is found at once refutes its bound, or that nothing fits.
        """
        require_arguments(Solution.load, locals())
        document = read_json(path, SolutionError)
        try:
            return _unrefuted(Solution.from_document(document, graph))
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None

    @staticmethod
    def load_schedule(path: str | Path, graph: Graph) -> Solution:
        """The schedule of a solution file, for a graph of the same structure whose costs were measured anew.

        The file's lower bound belongs to its own costs, so the solution has none, unless the graph is the file's own.

        Raises:
            SolutionError: as `load`, or if the schedule exceeds its budget with the workspace of ``graph``.
        """
        require_arguments(Solution.load_schedule, locals())
        document = read_json(path, SolutionError)
        try:
            read = _read(document)
            if read["graph"]["sha256"] == graph.sha256:
                return _unrefuted(Solution.from_document(document, graph))
            if read["graph"].get("structure") != graph.structure:
                raise _other_graph(read["graph"]["name"], graph)
            claims = SolutionSummary.of(read)
            schedule = _schedule(read, graph, claims.budget) if read["R"] is not None else None
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None
        status = Status.FEASIBLE if schedule else Status.UNKNOWN
        return Solution(graph, claims.strategy, status, claims.budget, schedule, None, claims.seconds)

    def on(self, graph: Graph) -> Solution:
        """The same schedule on a graph of the same structure, with its costs and workspace; checked again.

        Raises:
            SolutionError: if the structure differs, or the schedule then exceeds the budget.
        """
        require_arguments(Solution.on, locals())
        if graph.sha256 == self.graph.sha256 or self.schedule is None:
            return self
        if graph.structure != self.graph.structure:
            raise _other_graph(self.graph.name, graph)
        try:
            schedule = check_schedule(self.schedule.on(graph), self.budget).schedule
        except ScheduleError as error:
            raise SolutionError(
                f"measured here, the schedule is refused: {error}; profile the graph first, and solve that"
            ) from None
        return Solution(graph, self.strategy, Status.FEASIBLE, self.budget, schedule, None, self.seconds)

    @staticmethod
    def from_document(document: Any, graph: Graph) -> Solution:
        """The solution of a parsed solution file, checked again.

        Raises:
            SolutionError: as `load`.
        """
        read = _read(document)
        if read["graph"]["sha256"] != graph.sha256:
            raise _other_graph(read["graph"]["name"], graph)
        claims = SolutionSummary.of(read)
        schedule = _schedule(read, graph, claims.budget) if read["R"] is not None else None
        solution = Solution.claimed(claims, graph, schedule)
        claims.require_true(solution.cost, solution.peak, "the file")
        return solution

    @staticmethod
    def claimed(claims: SolutionSummary, graph: Graph, schedule: Schedule | None) -> Solution:
        """The solution with these claims, which are yet to be held against it, and a schedule that was checked."""
        require_arguments(Solution.claimed, locals())
        c = claims
        return Solution(graph, c.strategy, c.status, c.budget, schedule, c.lower_bound, c.seconds, c.solver, c.limit)


def proven_status(cost: float | None, bound: float | None, infeasible: bool = False) -> tuple[Status, float | None]:
    """The status that the cost of a checked schedule and a lower bound prove, and the bound, at most the cost.

    A schedule in hand refutes a proof that there is none.
    """
    if cost is None:
        return (Status.INFEASIBLE, None) if infeasible else (Status.UNKNOWN, bound)
    if bound is None:
        return Status.FEASIBLE, None
    bound = min(bound, cost)
    return Status.OPTIMAL if cost - bound <= PROVEN * cost else Status.FEASIBLE, bound


def _graph_entry(graph: Graph) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": graph.name, "sha256": graph.sha256, "structure": graph.structure}
    return entry if graph.options is None else entry | {"capture": options_document(graph.options)}


def capture_options_of(path: str | Path) -> CaptureOptions | None:
    """How the graph of a solution file was captured, if it was.

    Raises:
        SolutionError: if the file is not a solution.
    """
    document = read_json(path, SolutionError)
    try:
        entry = _read(document)["graph"].get("capture")
        return None if entry is None else parse_options(entry, "graph.capture", SolutionError)
    except SolutionError as error:
        raise SolutionError(f"{one_line(str(path))}: {error}") from None


def _read_graph(entry: Any, where: str, error: type[RematError]) -> dict[str, Any]:
    names = {"name": require_text, "sha256": require_text}
    return read_entry(entry, where, error, names, {"structure": require_text, "capture": as_it_is})


_FILE: Table = {
    "graph": _read_graph,
    **SUMMARY,
    "R": as_it_is,
    "S": as_it_is,
}


def _read(document: Any) -> dict[str, Any]:
    return read_document(document, FORMAT, VERSION, SolutionError, _FILE, LIMIT)


def _unrefuted(solution: Solution) -> Solution:
    require_unrefuted(solution.graph, [("the file", solution)])
    return solution


def _other_graph(name: str, graph: Graph) -> SolutionError:
    return SolutionError(f"this solution is for another graph, {name!r}, than the one given, {graph.name!r}")


def _schedule(document: dict[str, Any], graph: Graph, budget: int) -> Schedule:
    R, S = (unpack_rows(document[name], name, SolutionError) for name in ("R", "S"))
    try:
        return check(graph, R, S, budget).schedule
    except ScheduleError as error:
        raise SolutionError(f"its schedule is refused: {error}") from None


REFUTED = 1e-4  # relative excess of a lower bound over a cost beyond which no solver's tolerance explains it
LARGEST = 1000  # operations of a graph on which a run is simulated: milliseconds each


def require_unrefuted(
    graph: Graph, claimed: Sequence[tuple[str, Solution]], schedules: Iterable[Schedule] = ()
) -> None:
    """Refuse what a file says of its points, if a schedule says otherwise."""
    own = [solution.schedule for _, solution in claimed if solution.schedule is not None]
    known = [(Plan.peak_of(one), one) for one in (*schedules, *own) if one.is_frontier_advancing]
    at_once: dict[int, list[Schedule]] = {}
    for where, solution in claimed:
        bound = _claimed_bound(solution)
        if bound <= graph.total_cost * (1 + REFUTED) and not graph.has_choices:
            continue  # which nothing costs less than
        budget = solution.budget
        if budget not in at_once:
            at_once[budget] = list(schedules_at_once(graph, budget))
        fitting = [one for peak, one in known if peak <= budget]
        cheaper = [one for one in (*fitting, *at_once[budget]) if one.cost < bound * (1 - REFUTED)]
        if cheaper:
            says = f"lower_bound {bound!r}" if math.isfinite(bound) else f'status "{solution.status}"'
            cost = min(one.cost for one in cheaper)
            raise SolutionError(
                f"{where} says {says} within {format_bytes(budget)}, but a schedule costs {cost!r} there"
            )


def schedules_at_once(graph: Graph, budget: int) -> Iterator[Schedule]:
    """Schedules with stages within a budget that take no search, in default implementations."""
    if checkpoint_all_peak(graph) <= budget:
        yield checkpoint_all(graph)  # and nothing is cheaper
    elif graph.n <= LARGEST and not graph.has_choices:
        try:
            answer = STRATEGIES["dtr"](graph, budget, Limits())
        except SolverError:  # a graph that it does not take
            return
        if answer.schedule is not None and answer.schedule.is_frontier_advancing:
            yield answer.schedule


def is_proven_infeasible(graph: Graph, strategy: str, budget: int) -> bool:
    """Whether it takes no long search to prove that a strategy has no schedule within a budget."""
    method = method_of(strategy)
    if method is None:
        return False
    return budget < method.smallest_budget(graph) or (method.stages and budget < _least_bytes(graph))


@memoize_by_identity
def _least_bytes(graph: Graph) -> int:
    """Bytes into less than which no schedule with stages fits, as far as single moments tell."""
    if graph.has_choices:
        return limiting_operation(CondensedChoices.of(graph)).bytes
    return least_working_set(CondensedGraph.of(graph)).bytes


def _claimed_bound(solution: Solution) -> float:
    """What no schedule within the budget costs less than: infinity where none is said to fit."""
    method = method_of(solution.strategy)
    if solution.status is Status.INFEASIBLE:
        return math.inf if method is not None and method.proves_infeasible(solution.graph) else 0.0
    return solution.lower_bound or 0.0


REQUESTED, RESERVED = "requested", "reserved"
MEANINGS = (REQUESTED, RESERVED)


def require_meaning(meaning: str, budget: object = None) -> str:
    """``meaning``, if a budget can mean that.

    Raises:
        UnknownNameError: if it is none of `MEANINGS`.
        QuantityError: if the smallest budget is asked for in reserved bytes, which is not known.

    >>> require_meaning("reserved", "2 GiB")
    'reserved'
    """
    if meaning not in MEANINGS:
        raise UnknownNameError("meaning of a budget", meaning, MEANINGS)
    if meaning == RESERVED and begins_at_smallest(budget):
        raise QuantityError(
            f'the budget "{budget}" is known for requested bytes only; give the reserved ones as a number of bytes'
        )
    return meaning


MOST_CELLS = 2**28  # of R or S: one byte each


def pack_runs(schedule: Schedule) -> list[list[int]]:
    """For each stage what it runs, in order; an operation's other implementations as operation + n * (code - 1)."""
    stages: list[list[int]] = [[] for _ in range(schedule.stages)]
    for t, k, code in schedule.sequence:
        stages[t].append(k + schedule.graph.n * (code - 1))
    return stages


def unpack_runs(stages: Any, graph: Graph, error: type[RematError]) -> Schedule:
    """The leanest schedule with the runs of `pack_runs`; whether it is executable is for the checker to say."""
    if not isinstance(stages, list) or not stages or not all(_is_stage(stage) for stage in stages):
        raise error(f"the runs of a schedule are not a list of lists of operations: {quote(stages)}")
    most = len(stages) * max(graph.n, len(graph.values))
    if most > MOST_CELLS:
        raise error(f"a schedule of {len(stages)} stages is too large for this graph of {graph.n} operations")
    rows = set[tuple[int, int, int]]()
    for t, stage in enumerate(stages):
        for run in stage:
            code, k = divmod(run, graph.n)
            if code >= MOST_IMPLEMENTATIONS:
                raise error(f"stage {t} of a schedule runs {quote(run)}, which no graph of {graph.n} operations has")
            rows.add((t, k, code + 1))
    try:
        return Schedule.leanest(graph, len(stages), Computations.of(rows))
    except ScheduleError as problem:
        raise error(f"the runs of a schedule are not those of this graph: {problem}") from None


def _is_stage(stage: Any) -> bool:
    return isinstance(stage, list) and all(type(run) is int and run >= 0 for run in stage)
