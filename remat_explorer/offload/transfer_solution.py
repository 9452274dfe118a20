"""What a solve with transfers returns: a checked plan, its makespan, and what is proven about it; and its file.

A plan that is known for less memory, a slower link or less room on the host is legal with more, and takes no longer,
since all its times are sums and maxima. `best_known` is what that gives of answers to other questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.documents import quote, read_json, write_json
from remat_explorer.entry_checks import Table, as_it_is, read_document, read_entry, require_arguments, require_text
from remat_explorer.errors import ScheduleError, SolutionError
from remat_explorer.graph import Graph, options_document, parse_options
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.offload.transfer_check import check_transfers
from remat_explorer.offload.transfer_plan import Drop, Fetch, Send, TransferPlan, TransferStatement
from remat_explorer.offload.transfers import Transfers
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.quantities import format_bytes, format_overhead, format_seconds, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import LIMIT, PROVEN, SUMMARY, SolutionSummary, Status, relative_gap

FORMAT, VERSION = "remat-explorer/transfer-solution", 1
_KINDS = {"free": Free, "send": Send, "fetch": Fetch, "drop": Drop}
_NAMES: Table = {"name": require_text, "sha256": require_text}
_MORE: Table = {"structure": require_text, "capture": parse_options}
_FILE: Table = {
    "graph": lambda entry, where, error: read_entry(entry, where, error, _NAMES, _MORE),
    **dict.fromkeys(("transfers", "plan", "host_peak"), as_it_is),
    **SUMMARY,
    **LIMIT,
}


@dataclass(frozen=True, eq=False)
class TransferSolution:
    """A checked answer to "the fastest plan of this graph within this budget, with these transfers".

    Attributes:
        graph: the graph that was planned.
        transfers: what copies take.
        strategy: name of the method.
        status: see `Status`; it speaks of plans that run operations stage by stage in ascending order, and send a value
            once.
        budget: bytes on the device, resident bytes included.
        plan: the statements, or None when none is known.
        lower_bound: no plan within the budget takes less, in the unit of the graph's costs; None when nothing is
            proven. It is a bound of this problem: one of Checkmate's problem does not hold here.
        seconds: wall time that the strategy took.
        solver: name of the MILP back end, or "" where none was used.
        limit: what ended the search before it had proven its answer.

    Times are predicted from the graph's costs and the bandwidth.
    """

    graph: Graph
    transfers: Transfers
    strategy: str
    status: Status
    budget: int
    plan: TransferPlan | None
    lower_bound: float | None
    seconds: float
    solver: str = ""
    limit: str = ""

    def __post_init__(self) -> None:
        require_arguments(TransferSolution.__init__, vars(self))

    @staticmethod
    def of_schedule(schedule: Schedule, strategy: str, budget: int) -> TransferSolution:
        """A schedule as the answer where nothing can be sent, so that no bound of it holds where something can.

        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.solvers import solve
        >>> solution = TransferSolution.of_schedule(solve(linear(8), 4).schedule, "offload", 4)
        >>> solution.cost, solution.plan.sent_bytes, solution.transfers.possible
        (26.0, 0, False)
        """
        nothing = Transfers(0, 0)
        plan = check_transfers(TransferPlan.from_plan(Plan.of(schedule), nothing), budget).plan
        return TransferSolution(plan.graph, nothing, strategy, Status.FEASIBLE, budget, plan, None, 0.0)

    @property
    def cost(self) -> float | None:
        """The makespan: when the last computation ends, in the unit of the graph's costs."""
        return None if self.plan is None else self.plan.makespan

    @property
    def overhead(self) -> float | None:
        """The makespan as a ratio to computing everything once without a wait."""
        total = self.graph.total_cost
        return None if self.plan is None or not total else self.plan.makespan / total

    @property
    def peak(self) -> int | None:
        """Predicted peak on the device in bytes, resident bytes included."""
        return None if self.plan is None else self.plan.peak

    @property
    def host_peak(self) -> int | None:
        """Most bytes of copies on the host at a time."""
        return None if self.plan is None else self.plan.host_peak

    @property
    def gap(self) -> float | None:
        """(cost - lower bound) / cost, or None when either is unknown."""
        return relative_gap(self.cost, self.lower_bound)

    def __str__(self) -> str:
        if self.plan is None or self.peak is None:
            ended = f", ended by {self.limit}" if self.limit else ""
            return f"strategy {one_line(self.strategy)}: {self.status} within {format_bytes(self.budget)}{ended}"
        status = f"proven {self.status}" if self.status is Status.OPTIMAL else str(self.status)
        proven = "no bound proven" if self.gap is None else f"gap {format_share(self.gap)}"
        sends = f"sends {format_bytes(self.plan.sent_bytes)}" if self.plan.sent_bytes else "sends nothing"
        return (
            f"strategy {one_line(self.strategy)}: {status}, predicted overhead {format_overhead(self.overhead or 1.0)} "
            f"and peak {format_bytes(self.peak)} of {format_bytes(self.budget)}, {sends}, {proven}, "
            f"{format_seconds(self.seconds)}"
        )

    def to_document(self) -> dict[str, Any]:
        """The file as a JSON object, version 1: a statement is a verb, its stage, and an operation or value."""
        plan = None if self.plan is None else [_entry(statement) for statement in self.plan.statements]
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": {"name": self.graph.name, "sha256": self.graph.sha256, "structure": self.graph.structure}
            | ({} if self.graph.options is None else {"capture": options_document(self.graph.options)}),
            "transfers": self.transfers.to_document(),
            "strategy": self.strategy,
            "status": str(self.status),
            "budget": self.budget,
            "cost": self.cost,
            "peak": self.peak,
            "host_peak": self.host_peak,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "seconds": self.seconds,
            "solver": self.solver,
            "limit": self.limit,
            "plan": plan,
        }

    def save(self, path: str | Path) -> Path:
        """Write the file atomically."""
        require_arguments(TransferSolution.save, locals())
        return write_json(path, self.to_document())

    @staticmethod
    def load(path: str | Path, graph: Graph) -> TransferSolution:
        """Read a file of ``graph``; its plan is checked again, and its bound must not be above the plan's makespan.

        Raises:
            SolutionError: if the file is not such a solution, belongs to another graph, its plan is refused, or it
                claims what the plan does not have.
        """
        require_arguments(TransferSolution.load, locals())
        document = read_json(path, SolutionError)
        try:
            return TransferSolution.from_document(document, graph)
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None

    @staticmethod
    def options_in(path: str | Path) -> tuple[Transfers, CaptureOptions | None] | None:
        """The transfers of a file, and how its graph was captured, if it was; None of a file of another kind.

        Raises:
            SolutionError: if the file cannot be read, or is damaged.
        """
        require_arguments(TransferSolution.options_in, locals())
        document = read_json(path, SolutionError)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            return None
        read = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
        return Transfers.from_document(read["transfers"]), read["graph"].get("capture")

    @staticmethod
    def load_plan(path: str | Path, graph: Graph) -> TransferSolution:
        """The plan of a file, for a graph of the same structure whose costs were measured anew; as `load` otherwise.

        Raises:
            SolutionError: as `load`, or if the plan exceeds its budget with the workspace of ``graph``.
        """
        require_arguments(TransferSolution.load_plan, locals())
        document = read_document(read_json(path, SolutionError), FORMAT, VERSION, SolutionError, _FILE)
        entry = document["graph"]
        if entry["sha256"] == graph.sha256 or entry.get("structure") != graph.structure:
            return TransferSolution.load(path, graph)
        transfers, claims = Transfers.from_document(document["transfers"]), SolutionSummary.of(document)
        plan = None if document["plan"] is None else _plan(document["plan"], graph, transfers, claims.budget)
        status = Status.UNKNOWN if plan is None else Status.FEASIBLE
        return TransferSolution(
            graph, transfers, claims.strategy, status, claims.budget, plan, None, claims.seconds, "", claims.limit
        )

    @staticmethod
    def from_document(document: Any, graph: Graph) -> TransferSolution:
        """The solution of a parsed file, checked again.

        Raises:
            SolutionError: as `load`.
        """
        document = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
        entry = document["graph"]
        if entry["sha256"] != graph.sha256:
            name = entry["name"]
            raise SolutionError(f"this plan is for another graph, {name!r}, than the one given, {graph.name!r}")
        transfers = Transfers.from_document(document["transfers"])
        claims = SolutionSummary.of(document)
        plan = None if document["plan"] is None else _plan(document["plan"], graph, transfers, claims.budget)
        cost, peak = (None, None) if plan is None else (plan.makespan, plan.peak)
        claims.require_true(cost, peak, "the file")
        if document["host_peak"] != (None if plan is None else plan.host_peak):
            raise SolutionError(f"the file says host_peak {quote(document['host_peak'])}, which its plan does not have")
        c = claims
        return TransferSolution(
            graph, transfers, c.strategy, c.status, c.budget, plan, c.lower_bound, c.seconds, c.solver, c.limit
        )


def status_of(cost: float | None, bound: float | None, infeasible: bool = False) -> Status:
    """What the makespan of a checked plan and a lower bound prove."""
    if cost is None:
        return Status.INFEASIBLE if infeasible else Status.UNKNOWN
    return Status.OPTIMAL if bound is not None and cost - bound <= PROVEN * cost else Status.FEASIBLE


def retimed(solution: TransferSolution, transfers: Transfers) -> TransferSolution | None:
    """A known plan with other transfers, checked, without a bound; None where it is not legal with them."""
    if solution.transfers == transfers or solution.plan is None:
        return solution
    times = _known_times(solution)
    if transfers not in times:
        plan = TransferPlan(solution.graph, transfers, solution.plan.statements)
        times[transfers] = replace(
            solution, transfers=transfers, plan=plan, lower_bound=None, status=Status.FEASIBLE, limit=""
        )
        try:
            check_transfers(plan, solution.peak)
        except ScheduleError:  # nothing can be sent, or the host has no room
            times[transfers] = None
    return times[transfers]


@memoize_by_identity
def _known_times(solution: TransferSolution) -> dict[Transfers, TransferSolution | None]:
    return {}


def best_known(
    known: Iterable[TransferSolution], budget: int, transfers: Transfers, strategy: str
) -> TransferSolution | None:
    """The fastest known plan within a budget, as these transfers time it, with the highest bound that is known.

    Args:
        known: answers to questions about one graph, with any budget and transfers.
        budget: bytes on the device, resident bytes included.
        transfers: what copies take.
        strategy: which the plans are plans of, and whose bounds hold.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers import solve
    >>> slow = solve(linear(4), 4, "offload", transfers=Transfers(0.5, 0.5))
    >>> fast = best_known([slow], 5, Transfers(1.0, 1.0), "offload")
    >>> slow.cost, fast.cost, fast.lower_bound
    (10.0, 10.0, 9.0)
    """
    known = list(known)
    fitting = [
        found
        for solution in known
        if solution.peak is not None and solution.peak <= budget and (found := retimed(solution, transfers)) is not None
    ]
    best = min(fitting, key=lambda solution: solution.cost or 0.0, default=None)
    if best is None:
        return None
    bound = max(best.graph.total_cost, known_bound(known, budget, transfers, strategy))
    if (best.budget, best.strategy, best.lower_bound) == (budget, strategy, bound):
        return best
    status = status_of(best.cost, bound)
    return replace(best, budget=budget, strategy=strategy, lower_bound=bound, status=status)


def known_bound(known: Iterable[TransferSolution], budget: int, transfers: Transfers, strategy: str) -> float:
    """The highest bound of answers that had no less of anything; 0 where there is none.

    >>> known_bound([], 4, Transfers(1.0, 1.0), "offload")
    0.0
    """
    bounds = [
        solution.lower_bound
        for solution in known
        if solution.lower_bound is not None
        and solution.budget >= budget
        and solution.strategy == strategy
        and solution.transfers.is_at_least(transfers)
    ]
    return max(bounds, default=0.0)


def _entry(statement: TransferStatement) -> list[Any]:
    if isinstance(statement, Compute):
        drops, overwrites = list(statement.drops), statement.overwrites
        return ["compute", statement.stage, statement.operation, statement.first, drops, overwrites]
    return [type(statement).__name__.lower(), statement.stage, statement.value]


def _plan(entries: Any, graph: Graph, transfers: Transfers, budget: int) -> TransferPlan:
    if not isinstance(entries, list):
        raise SolutionError(f"the plan is not a list of statements: {quote(entries)}")
    plan = TransferPlan(graph, transfers, tuple(map(_statement, entries)))
    try:
        return check_transfers(plan, budget).plan
    except ScheduleError as error:
        raise SolutionError(f"its plan is refused: {error}") from None


def _statement(entry: Any) -> TransferStatement:
    match entry:
        case ["compute", int(stage), int(operation), bool(first), list(drops), None | int()] if all(
            type(v) is int for v in drops
        ):
            return Compute(stage, operation, 1, first, tuple(drops), entry[5])
        case [str(verb), int(stage), int(value)] if verb in _KINDS:
            return _KINDS[verb](stage, value)
    raise SolutionError(f"this is no statement of a plan: {quote(entry)}")
