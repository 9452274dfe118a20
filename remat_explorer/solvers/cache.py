"""Solutions on disk, one JSON file for each question, so that the same question is answered at once the next time.

Nothing of a file is believed that can be checked: the schedule passes the checker again, the status must follow from
cost and bound, no schedule that is found at once may refute the bound, and "infeasible" must be proven again at once,
or it is solved anew. A file that is damaged, or answers another question, is removed.

What is kept for other questions about the same graph is of use, too: a search that claims to find the cheapest schedule
begins with the cheapest one that is known, whichever strategy, time limit or smaller budget it was found with, and its
answer is never worse. So does a search for plans that send values, whichever transfers they were found with
(`known_plans`). Heuristics stay what they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remat_explorer import __version__
from remat_explorer.allocator import AllocatorSettings, reserved_of
from remat_explorer.cache_folder import cache_folder, entry_path, evict, paths_about, used_now
from remat_explorer.checker import check_schedule
from remat_explorer.documents import read_json, write_json
from remat_explorer.entry_checks import Table, as_it_is, read_document, read_entry, require_number, require_text
from remat_explorer.errors import RematError, ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.offload import Transfers, TransferSolution, best_known
from remat_explorer.quantities import SMALLEST
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import SUMMARY
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.registry import method_of
from remat_explorer.solvers.solution import (
    REFUTED,
    RESERVED,
    Solution,
    Status,
    is_proven_infeasible,
    proven_status,
    require_unrefuted,
    schedules_at_once,
)
from remat_explorer.solvers.solver_interface import TRANSFER_STRATEGIES, Answer

FORMAT, VERSION = "remat-explorer/cached-solution", 1
LARGEST = 256 * 2**20  # bytes of all kept solutions together; above that the longest unused go
KNOWN_BEFORE = ", with no better schedule than one that was known before"


@dataclass(frozen=True, eq=False)
class Question:
    """What a solve is asked."""

    graph: Graph
    budget: int  # bytes, resident bytes included
    strategy: str
    solver: str
    time_limit: float  # seconds of wall time; what was not proven within them may be with more
    threads: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)  # on which the answer depends, where not the defaults
    transfers: Transfers | None = None  # what copies take, where values may be sent

    def __post_init__(self) -> None:
        collections = list, tuple, set, frozenset
        options = {
            name: sorted(set(o)) if isinstance(o, collections) and all(isinstance(word, str) for word in o) else o
            for name, o in self.options.items()
        }
        object.__setattr__(self, "options", options)

    @property
    def key(self) -> dict[str, Any]:
        """Everything that two questions must share to have the same answers, given time."""
        reserved = self.options.get("budget_means") == RESERVED
        return {
            "graph": self.graph.sha256,
            "budget": self.budget,
            "strategy": self.strategy,
            "solver": self.solver,
            "options": dict(self.options),
            "package": __version__,
            **({"allocator": dataclasses.asdict(AllocatorSettings.of_process())} if reserved else {}),
            **({} if self.transfers is None else {"transfers": self.transfers.to_document()}),
        }

    def within(self, seconds: float) -> Question:
        """The same question for a search that was stopped after ``seconds``."""
        return dataclasses.replace(self, time_limit=min(self.time_limit, seconds))


@dataclass(frozen=True, eq=False)
class _Kept:
    """A checked solution with the time limit and threads that the search for it had."""

    solution: Solution | TransferSolution
    time_limit: float
    threads: int

    @property
    def conclusive(self) -> bool:
        return _conclusive(self.solution)

    def had_more_than(self, question: Question) -> bool:
        same = (self.time_limit, self.threads) == (question.time_limit, question.threads)
        return self.had_as_much_as(question) and not same

    def had_as_much_as(self, question: Question) -> bool:
        return self.time_limit >= question.time_limit and self.threads >= question.threads


def load_solution(question: Question) -> Solution | None:
    """The kept answer to a question, checked again, or None if there is none that is good enough.

    What is optimal or infeasible is so for any time limit. Another answer counts only if the search for it had at
    least as much time, and as many threads, as the question gives; where a cheaper schedule is kept for another
    question, the answer has that.
    """
    kept = _good_enough(question)
    if kept is None or not isinstance(kept.solution, Solution):
        return None
    known = None if kept.conclusive else known_answer(question).schedule
    its_own = known is not None and known.cost == kept.solution.cost  # what is kept is known, too
    return kept.solution if its_own else no_worse(kept.solution, known)


def load_plan(question: Question, known: Sequence[TransferSolution]) -> TransferSolution | None:
    """`load_solution` where values may be sent; a strategy that searches answers with the fastest that is known."""
    kept = _good_enough(question)
    if kept is None or not isinstance(kept.solution, TransferSolution):
        return None
    solution, searches = kept.solution, TRANSFER_STRATEGIES[question.strategy].searches
    if kept.conclusive or not searches or question.transfers is None:
        return solution
    return best_known([solution, *known], question.budget, question.transfers, question.strategy) or solution


def known_plans(question: Question) -> list[TransferSolution]:
    """Every kept answer about the graph where values may be sent, and the cheapest kept schedule that fits."""
    graph, found = question.graph, list[TransferSolution]()
    for path in paths_about("solution", graph.sha256):
        with contextlib.suppress(RematError, TypeError, KeyError, ValueError):
            document = read_json(path, SolutionError)["solution"]
            if "transfers" in document and document["graph"]["sha256"] == graph.sha256:
                found.append(TransferSolution.from_document(document, graph))
    schedule = _cheapest_kept(dataclasses.replace(question, strategy="optimal", transfers=None))
    if schedule is not None and not graph.has_choices:
        found.append(TransferSolution.of_schedule(schedule, question.strategy, question.budget))
    return found


def _good_enough(question: Question) -> _Kept | None:
    """What is kept for a question, if the search for it had as much time and threads, or proved it."""
    kept = _read(question)
    if kept is None or not (kept.conclusive or kept.had_as_much_as(question)):
        return None
    used_now("solution", question.key)
    return kept


def known_answer(question: Question, known: Answer | None = None, cache: bool = True) -> Answer:
    """What a search for an answer begins with: the cheapest schedule that is known, checked, and a lower bound.

    A heuristic, which does not claim to find the cheapest schedule, begins with nothing.
    """
    method = method_of(question.strategy)
    if method is None or not method.complete:
        return Answer(None)
    found = _cheapest_kept(question) if cache else None
    kept = _read(question) if cache else None
    given = known or Answer(None)
    schedules = [one for one in (given.schedule, found) if one is not None and _answers(question, one)]
    bounds = [given.lower_bound, kept.solution.lower_bound if kept is not None else None]
    return Answer(
        min(schedules, key=lambda one: one.cost, default=None),
        max((bound for bound in bounds if bound is not None), default=None),
    )


def no_worse(solution: Solution, known: Schedule | None) -> Solution:
    """A solution with a schedule that was known before, if it has none that is cheaper; its words say so.

    Where the strategy proves that its own schedules are all dearer, the known one is none of them, and the solution
    stays as it is.
    """
    cost, bound = solution.cost, solution.lower_bound
    if known is None or solution.status is Status.INFEASIBLE or (cost is not None and cost < known.cost):
        return solution
    if bound is not None and bound > known.cost + REFUTED * (known.cost or 1.0):
        return solution
    status, bound = proven_status(known.cost, bound)
    ended = solution.limit.removesuffix(KNOWN_BEFORE) or "its search"
    limit = "" if status is Status.OPTIMAL else f"{ended}{KNOWN_BEFORE}"
    return dataclasses.replace(solution, status=status, schedule=known, lower_bound=bound, limit=limit)


def store_solution(question: Question, solution: Solution | TransferSolution) -> str:
    """Keep an answer, or what it adds to one of a longer search that is kept already; atomically, or not at all.

    What is kept never gets worse: a dearer schedule or a lower bound does not replace a better one. That no plan fits
    even if values are sent is not kept, since no reader could check it. Returns a sentence that says why it could not
    be kept, or "". Nothing is raised: the solution is what matters.
    """
    if isinstance(solution, TransferSolution) and solution.plan is None:
        return ""
    try:
        kept, like = _read(question), question
        if kept is not None and not _conclusive(solution) and question.strategy != SMALLEST:
            if kept.conclusive:
                return ""
            longer = kept.had_more_than(question)
            if longer:
                like = dataclasses.replace(question, time_limit=kept.time_limit, threads=kept.threads)
            if isinstance(solution, Solution) and isinstance(kept.solution, Solution):
                solution = _merged(kept.solution, solution) if longer else _merged(solution, kept.solution)
            elif longer and (solution.gap or 0.0) >= (kept.solution.gap or 0.0):
                return ""
            if solution is kept.solution:
                return ""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "key": question.key,
            "graph": question.graph.name,
            "time_limit": like.time_limit,
            "threads": like.threads,
            "solution": solution.to_document(),
        }
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("solution", question.key), document)
        evict("solution", LARGEST)
    except OSError as error:
        return (
            f"the solution could not be kept in the cache folder {str(cache_folder())!r} "
            f"({error.strerror or error}), so the next such solve starts anew; nothing else is lost. "
            "Free some space there, or name another folder in the environment variable REMAT_EXPLORER_CACHE"
        )
    return ""


def store_or_warn(question: Question, solution: Solution | TransferSolution) -> None:
    """`store_solution` for a caller who watches warnings: a RuntimeWarning says why the solution was not kept."""
    problem = store_solution(question, solution)
    if problem:
        warnings.warn(problem, RuntimeWarning, stacklevel=3)


def describe_entry(path: Path) -> dict[str, Any]:
    """What a kept solution is about, without checking it: graph, strategy, budget, status and time limit.

    Raises:
        SolutionError: if the file cannot be read, or is no kept solution.
    """
    document = read_json(path, SolutionError)
    read = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
    about = {key: SUMMARY[key] for key in ("strategy", "status", "budget", "cost")}
    solution = read["solution"] if isinstance(read["solution"], dict) else {}
    claims = read_entry({key: solution.get(key) for key in about}, "solution", SolutionError, about)
    return {"graph": read["graph"], "time_limit": read["time_limit"]} | claims


def _merged(one: Solution, other: Solution) -> Solution:
    """An answer that is not proven, with what is better of another to the same question."""
    costs, bounds = (one.cost, other.cost), (one.lower_bound, other.lower_bound)
    cheaper = costs[1] is not None and (costs[0] is None or costs[1] < costs[0])
    higher = bounds[1] is not None and (bounds[0] is None or bounds[1] > bounds[0])
    if not cheaper and not higher:
        return one
    best, proof = other if cheaper else one, other if higher else one
    status, bound = proven_status(best.cost, proof.lower_bound)
    limit = "" if status is Status.OPTIMAL else one.limit
    return dataclasses.replace(one, status=status, schedule=best.schedule, lower_bound=bound, limit=limit)


def _answers(question: Question, schedule: Schedule) -> bool:
    """Whether a schedule is one of those that a question asks for, checked within its budget."""
    graph, method = question.graph, method_of(question.strategy)
    try:
        if schedule.graph is not graph and schedule.graph.sha256 != graph.sha256:
            return False
        if not schedule.is_frontier_advancing:
            return False
        chooses = method is not None and method.choices is Support.YES
        codes = allowed_codes(graph, question.options.get("implementations", "all") if chooses else ())
        if not all(code in codes[k] for _, k, code in schedule.sequence):
            return False
        if question.options.get("budget_means") == RESERVED and reserved_of(schedule) > question.budget:
            return False
        check_schedule(schedule, question.budget)
    except ScheduleError:
        return False
    return True


def _cheapest_kept(question: Question) -> Schedule | None:
    """The cheapest schedule of the graph in the cache that answers a question, whatever it was found for."""
    claimed: list[tuple[float, int, Any]] = []
    for number, path in enumerate(paths_about("solution", question.graph.sha256)):
        with contextlib.suppress(RematError, TypeError, KeyError):
            document = read_json(path, SolutionError)["solution"]
            about = document["graph"]["sha256"] == question.graph.sha256
            if about and document["cost"] is not None and document["peak"] <= question.budget:
                claimed.append((float(document["cost"]), number, document))
    for _, _, document in sorted(claimed, key=lambda entry: entry[:2]):
        with contextlib.suppress(RematError, TypeError, KeyError, ValueError):
            schedule = Solution.from_document(document, question.graph).schedule
            if schedule is not None and _answers(question, schedule):
                return schedule
    return None


def _conclusive(solution: Solution | TransferSolution) -> bool:
    return solution.status in (Status.OPTIMAL, Status.INFEASIBLE)


def _read(question: Question) -> _Kept | None:
    """What is kept for a question; a file that does not hold an answer to it is removed."""
    path = entry_path("solution", question.key)
    try:
        if not path.exists():
            return None
        document = read_json(path, SolutionError)
        read = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
        if read["key"] != question.key:
            raise SolutionError("the file answers another question")
        solution = _solution_in(read["solution"], question)
        if solution.budget != question.budget or solution.strategy != question.strategy:
            raise SolutionError("its solution answers another question")
        if isinstance(solution, Solution):
            _require_believable(question, solution)
    except Exception:  # whatever a file can hold
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return _Kept(solution, read["time_limit"], int(read["threads"]))


def _solution_in(document: Any, question: Question) -> Solution | TransferSolution:
    """The solution of a file, of the kind that a question asks for, checked again."""
    if question.transfers is None:
        return Solution.from_document(document, question.graph)
    solution = TransferSolution.from_document(document, question.graph)
    if solution.transfers != question.transfers or solution.plan is None:
        raise SolutionError("its plan answers another question")
    return solution


def _require_believable(question: Question, solution: Solution) -> None:
    """Refuse what reserves too much, "infeasible" where it is not proven at once, and a bound that is refuted."""
    reserved = question.options.get("budget_means") == RESERVED
    if reserved and solution.schedule and reserved_of(solution.schedule) > solution.budget:
        raise SolutionError("its schedule reserves more than the budget")
    if solution.status is Status.INFEASIBLE:
        if not is_proven_infeasible(question.graph, question.strategy, question.budget):
            raise SolutionError("it says that nothing fits, which is not proven at once")
    elif question.strategy == SMALLEST:
        assert solution.peak is not None  # it is feasible
        if any(schedules_at_once(question.graph, solution.peak - 1)):
            raise SolutionError(
                "it says that this is the smallest budget that is known, and one below is found at once"
            )
    elif "budget_means" not in question.options:
        require_unrefuted(question.graph, [("the file", solution)])


def _read_time_limit(entry: Any, where: str, error: type[RematError]) -> float:
    """Seconds; null stands for a search without a limit, since JSON has no infinity."""
    return math.inf if entry is None else require_number(entry, where, error)


_FILE: Table = {
    "key": as_it_is,
    "graph": require_text,
    "time_limit": _read_time_limit,
    "threads": require_number,
    "solution": as_it_is,
}
