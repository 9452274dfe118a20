"""The strategy `monet`: schedule and implementation of every run together, from nothing or from what is known."""

from __future__ import annotations

from collections.abc import Collection

from remat_explorer.graph import Graph
from remat_explorer.solvers.anytime.joint_search import JointSearch
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.method import BackgroundSweep, Method, Support
from remat_explorer.solvers.monet.condensed_choices import allowed_codes


def solve_monet(graph: Graph, budget: int, limits: Limits, implementations: str | Collection[str] = "all") -> Answer:
    """The cheapest schedule within the budget with an implementation chosen for every run.

    Args:
        graph: the training graph; operations may have several implementations, or be optional.
        budget: bytes, resident bytes included.
        limits: time, back end, threads (a second one searches beside the bounds), and whom to tell.
        implementations: "all"; "exact", those whose results are bit-equal; or names or kinds of implementations.
            Defaults are always among them. The lower bound is about schedules of these implementations.

    Raises:
        UnknownNameError: if the graph has no implementation of a given name.
        SolverError: if the back end fails.

    Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), for the choice of implementations.
    """
    return improve_monet(graph, budget, Answer(None), limits, implementations)


def improve_monet(
    graph: Graph, budget: int, start: Answer, limits: Limits, implementations: str | Collection[str] = "all"
) -> Answer:
    """The same search from what is known, never worse than that.

    Args:
        graph, budget, limits, implementations: as for `solve_monet`.
        start: a schedule within the budget of implementations that may be chosen, and a lower bound on the cost of such
            schedules; None for either.

    Raises:
        UnknownNameError, SolverError: as `solve_monet`.
    """
    return JointSearch(graph, budget, limits, allowed_codes(graph, implementations), start).run()


METHOD = Method(
    solve_monet,
    "schedule and implementation of every run together: a schedule at once, better ones, and a proof",
    "Shah et al. 2021 for the problem, with gradients recomputed, too",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("implementations",),
    choices=Support.YES,
    compiled_search=True,
    threads=2,  # the second one searches beside the bounds
    improve=improve_monet,
    complete=True,
    background_sweep=BackgroundSweep.ALWAYS,
    symbol="square",
)
