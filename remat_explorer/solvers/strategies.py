"""The registry: one entry for each method, with its row of Table 1. Adding a method is adding a file and an entry."""

from __future__ import annotations

from remat_explorer.solvers.checkmate_approx import solve_checkmate_approx
from remat_explorer.solvers.checkmate_approx_random import solve_checkmate_approx_random
from remat_explorer.solvers.checkmate_approx_search import solve_checkmate_approx_search
from remat_explorer.solvers.checkmate_ilp import solve_checkmate_ilp, solve_checkmate_unpartitioned
from remat_explorer.solvers.checkpoint_all import solve_checkpoint_all
from remat_explorer.solvers.dtr import solve_dtr
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.optimal import solve_optimal
from remat_explorer.solvers.rotor import solve_rotor

YES, PARTLY, NO = Support.YES, Support.PARTLY, Support.NO
CHECKMATE = "Jain et al. 2020"

STRATEGIES: dict[str, Method] = {
    "optimal": Method(
        solve_optimal,
        "an anytime search: a schedule at once, better ones, and a proof for the problem of checkmate-ilp",
        f"{CHECKMATE}, section 4, for the problem",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
    ),
    "checkmate-ilp": Method(
        solve_checkmate_ilp,
        "problem (9) as the paper writes it; splits=k lets an operation run k times in a stage",
        f"{CHECKMATE}, section 4.7; arXiv 1910.02653v1, section 4.10, for the splits",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("splits",),
    ),
    "checkmate-approx": Method(
        solve_checkmate_approx,
        "the linear program of problem (9) with an allowance, rounded in two phases at a threshold",
        f"{CHECKMATE}, section 5 and Algorithm 2",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("epsilon", "threshold"),
    ),
    "checkmate-approx-random": Method(
        solve_checkmate_approx_random,
        "the same linear program, rounded at random many times, and the cheapest schedule that fits",
        f"{CHECKMATE}, appendix D",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("samples", "seed", "epsilon"),
    ),
    "checkmate-approx-search": Method(
        solve_checkmate_approx_search,
        "two-phase rounding at several allowances and every threshold that makes a difference",
        f"{CHECKMATE}, appendix D, last sentence",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
    ),
    "checkmate-unpartitioned": Method(
        solve_checkmate_unpartitioned,
        "the paper's form without stages, for small graphs: why stages matter",
        f"{CHECKMATE}, sections 4.2 to 4.5",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
    ),
    "checkpoint-all": Method(
        solve_checkpoint_all,
        "everything is kept until its last use, as plain execution does",
        f"{CHECKMATE}, Table 1",
        general_graphs=YES,
        cost_aware=NO,
        memory_aware=NO,
    ),
    "dtr": Method(
        solve_dtr,
        "a run that evicts by cost, size and staleness without knowing what comes, simulated",
        "Kirisame et al. 2021, sections 2 and 4",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("heuristic",),
    ),
    "rotor": Method(
        solve_rotor,
        "the best persistent schedule of a chain of blocks, by dynamic programming",
        "Beaumont et al. 2019, arXiv 1911.13214, section 4",
        general_graphs=PARTLY,
        cost_aware=YES,
        memory_aware=YES,
        options=("slots",),
    ),
}
