"""The modes of MONeT's program on what was measured on a P100: schedules that are found here beside the published runs.

A schedule that does not choose algorithms gets the fastest ones afterwards, as in the paper. Its published run was
not kept as a schedule, only as an objective with default algorithms: so that run has no overhead. What runs in place in
the forward pass does so only where its input dies, as in the authors' program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Tell
from remat_explorer.papers.monet.fastest_algorithms import with_fastest_algorithms
from remat_explorer.papers.p100 import GIB, MODES, OTHER_PROBLEM, has_graph, p100_graph, published_runs, pytorch
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solution import Solution
from remat_explorer.solvers import solve

CHOOSING = ("ic", "icmn")  # modes that choose algorithms themselves
PUBLISHED = ", published"
CHECKMATE = "checkmate"  # the mode of Checkmate's problem
NAMES = MODES | {CHECKMATE: "Checkmate-O"}
MS = 1000.0
ROUNDING = 1e-6  # as a share of a cost, less than a hundredth of a millisecond
Find = Callable[[str, str, float], dict[str, Any] | None]


def found(
    network: str, mode: str, budget: float, seconds: float, progress: Tell, cancelled: Cancelled
) -> dict[str, Any]:
    """A row for the best schedule that is found here.

    Args:
        network, mode: as `p100_graph` takes them; Checkmate's own problem has one implementation of each operation.
        budget: GiB.
        seconds: of the search.
        progress: hears what is being done.
        cancelled: asked by the search.

    Returns:
        A row as `published` has it; "ms" and "gap" are of the search, before algorithms are chosen afterwards.
    """
    hear = heard(progress, f"{network} at {budget:g} GiB, {NAMES[mode]}")
    graph, size, strategy = p100_graph(network, mode, ruled=True), int(budget * GIB), strategy_of(mode)
    solution = solve(graph, size, strategy, seconds, on_progress=hear, cancelled=cancelled)
    outcome = {"cost": solution.cost, "gap": solution.gap, "status": str(solution.status)}
    return _found(network, mode, budget, outcome | {"fastest": fastest(solution, network, mode)})


def fastest(solution: Solution, network: str, mode: str) -> float | None:
    """Cost of a solution of a mode once its convolutions have the fastest algorithms that fit, in seconds.

    Args:
        solution: within its budget.
        network, mode: as `p100_graph` takes them; a mode that chooses algorithms itself keeps its own.

    Returns:
        None where there is no schedule.
    """
    if solution.schedule is None or solution.budget is None or mode in CHOOSING:
        return solution.cost
    return with_fastest_algorithms(solution.schedule, p100_graph(network, "ic"), solution.budget)


def strategy_of(mode: str) -> str:
    """The strategy that solves the problem of a mode.

    >>> strategy_of("checkmate"), strategy_of("icmn")
    ('optimal', 'monet')
    """
    return "optimal" if mode == CHECKMATE else "monet"


def found_before(details: Mapping[str, Any], network: str, mode: str, budget: float) -> dict[str, Any] | None:
    """`found` from an earlier measurement, or None where that has not all of the row.

    Args:
        details: of the file that ``benchmarks/monet_p100.py`` writes.
        network, mode, budget: as `found` takes them.

    >>> ours = {"cost": 1.38333, "gap": 0.0, "status": "optimal", "fastest": 1.38333}
    >>> row = found_before({"vgg16_icmn@8": {"ours": ours}}, "vgg16", "icmn", 8.0)
    >>> row["ms"], round(row["overhead"], 3)
    (1383.33, 0.98)
    """
    outcome = details.get(f"{network}_{mode}@{budget:g}", {}).get("ours")
    return _found(network, mode, budget, outcome) if outcome and "fastest" in outcome else None


def _found(network: str, mode: str, budget: float, outcome: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a search: "cost", "gap" and "status" of it, and "fastest", as `fastest` has it."""
    ms, afterwards = (None if seconds is None else MS * seconds for seconds in (outcome["cost"], outcome["fastest"]))
    row = _row(network, NAMES[mode], budget, ms, afterwards)
    return row | {"gap": outcome["gap"], "status": outcome["status"]}


def published(network: str, mode: str, budget: float) -> dict[str, Any] | None:
    """A row for the published run, or None where there is none.

    >>> row = published("vgg16", "icmn", 8.0)
    >>> row["group"], row["ms"], round(row["overhead"], 3)
    ('all, published', 1383.33, 0.98)
    """
    run = published_runs().get((network, mode, float(budget)))
    if run is None:
        return None
    row = _row(network, MODES[mode] + PUBLISHED, budget, run["ms"], run["ms"] if mode in CHOOSING else None)
    ms, bound = run["ms"], run["bound ms"]
    gap = None if ms is None or bound is None or bound > ms else 1 - bound / ms  # a bound above is of another run
    return row | {"gap": gap, "status": run["status"]}


def _row(network: str, group: str, budget: float, ms: float | None, post_optimized: float | None) -> dict[str, Any]:
    plain = pytorch(network)
    row = {"network": network, "group": group, "budget GiB": float(budget), "share": budget / plain["GiB"], "ms": ms}
    return row | {"overhead": None if post_optimized is None else post_optimized / plain["ms"]}


def rows_of(
    networks: Sequence[str],
    budgets: Sequence[float],
    searched: Sequence[float],
    find: Find,
) -> list[dict[str, Any]]:
    """Published runs at all ``budgets``, and what is found here at those that are ``searched``, network by network.

    Args:
        networks: keys of `NETWORKS`.
        budgets, searched: GiB.
        find: the row of a network, mode and budget, or None.
    """
    rows: list[dict[str, Any] | None] = []
    for network in networks:
        for mode in MODES:
            rows += [published(network, mode, budget) for budget in budgets]
            if has_graph(network, mode):
                rows += [find(network, mode, budget) for budget in searched]
    return [row for row in rows if row is not None]


def search(seconds: float, progress: Tell, cancelled: Cancelled) -> Find:
    """Finds rows by `found`, and none once it is cancelled; arguments as there."""

    def find(network: str, mode: str, budget: float) -> dict[str, Any] | None:
        return None if cancelled() else found(network, mode, budget, seconds, progress, cancelled)

    return find


def planned(networks: Sequence[str], searched: Sequence[float]) -> int:
    """How many searches there are.

    >>> planned(["mobilenet_v2"], [8, 10])
    8
    """
    return len(searched) * sum(has_graph(network, mode) for network in networks for mode in MODES)


def is_published(row: Mapping[str, Any]) -> bool:
    """Whether a row is a published run.

    >>> is_published(published("vgg16", "icmn", 8.0))
    True
    """
    return row["group"].endswith(PUBLISHED)


def told(rows: Sequence[Mapping[str, Any]], budget: float) -> str:
    """Each mode's overhead over PyTorch at a budget, beside the published run's, in words.

    Args:
        rows: of one network.
        budget: GiB.
    """
    here = {row["group"]: row for row in rows if row["budget GiB"] == budget}
    parts = []
    for group in MODES.values():
        if group in here:
            run = here.get(group + PUBLISHED, {}).get("overhead")
            beside = "" if run is None else f", their objective {format_overhead(run)}"
            parts.append(f"{group} {_told(here[group])}{beside}")
    return "; ".join(parts)


def _told(row: Mapping[str, Any]) -> str:
    if row["overhead"] is None:
        return "infeasible" if row["status"] == "infeasible" else "no schedule"
    gap = "no bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return f"{format_overhead(row['overhead'])} ({gap})"


def against_published(rows: Sequence[Mapping[str, Any]], wanted: Callable[[str], bool]) -> tuple[int, int, float]:
    """How often what is found here costs at most as much as the published run, of how many, and the largest excess.

    Published runs of another problem are left out. Their costs are whole hundredths of a millisecond.

    Args:
        rows: of any networks.
        wanted: which groups.
    """
    other = {(network, MODES[mode], gib) for network, mode, gib in OTHER_PROBLEM}
    theirs = {_problem(row): row["ms"] for row in rows if is_published(row) and row["ms"] is not None}
    excess = [
        row["ms"] / theirs[_problem(row)] - 1
        for row in rows
        if not is_published(row) and wanted(row["group"]) and row["ms"] is not None
        if _problem(row) in theirs.keys() - other
    ]
    return sum(one <= ROUNDING for one in excess), len(excess), max(excess, default=0.0)


def _problem(row: Mapping[str, Any]) -> tuple[str, str, float]:
    """Network, mode in words, and GiB."""
    return row["network"], row["group"].removesuffix(PUBLISHED), row["budget GiB"]
