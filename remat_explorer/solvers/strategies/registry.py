"""The registry: one entry for each method, with its row of Table 1. Adding a method is adding a file and an entry.

What stands in other layers or other packages comes in by `remat_explorer.solvers.strategies.registration`.
"""

from __future__ import annotations

from remat_explorer.solvers.checkpoint_all import solve_checkpoint_all
from remat_explorer.solvers.method import Knob, Method, Support
from remat_explorer.solvers.plain_search import solve_optimal
from remat_explorer.solvers.strategies.ap_greedy import AP_SEGMENT_BYTES, ap_greedy, solve_ap_greedy
from remat_explorer.solvers.strategies.ap_sqrt_n import ap_sqrt_n, solve_ap_sqrt_n
from remat_explorer.solvers.strategies.checkmate_approx import solve_checkmate_approx
from remat_explorer.solvers.strategies.checkmate_approx_random import solve_checkmate_approx_random
from remat_explorer.solvers.strategies.checkmate_approx_search import solve_checkmate_approx_search
from remat_explorer.solvers.strategies.checkmate_ilp import solve_checkmate_ilp, solve_checkmate_unpartitioned
from remat_explorer.solvers.strategies.checkpoint_last import checkpoint_last, solve_checkpoint_last
from remat_explorer.solvers.strategies.checkpoint_sequential import (
    checkpoint_sequential_candidates,
    segment_counts,
    solve_checkpoint_sequential,
)
from remat_explorer.solvers.strategies.chen_greedy import CHEN_SEGMENT_BYTES, chen_greedy, solve_chen_greedy
from remat_explorer.solvers.strategies.chen_sqrt_n import chen_sqrt_n, solve_chen_sqrt_n
from remat_explorer.solvers.strategies.dtr import solve_dtr
from remat_explorer.solvers.strategies.griewank import SLOTS, griewank, solve_griewank
from remat_explorer.solvers.strategies.linearized_greedy import (
    LINEARIZED_SEGMENT_BYTES,
    linearized_greedy,
    solve_linearized_greedy,
)
from remat_explorer.solvers.strategies.linearized_sqrt_n import linearized_sqrt_n, solve_linearized_sqrt_n
from remat_explorer.solvers.strategies.monet import solve_monet
from remat_explorer.solvers.strategies.monet_paper import solve_monet_paper
from remat_explorer.solvers.strategies.registration import Late, plugged_in
from remat_explorer.solvers.strategies.rotor import solve_rotor

YES, PARTLY, NO = Support.YES, Support.PARTLY, Support.NO
CHECKMATE = "Jain et al. 2020"
CHEN = "Chen et al. 2016"
MONET = "Shah et al. 2021"
PYTORCH_BUDGET = "remat_explorer.runtime.strategies.pytorch_budget"

STRATEGIES: dict[str, Method] = {
    "optimal": Method(
        solve_optimal,
        "an anytime search: a schedule at once, better ones, and a proof for the problem of checkmate-ilp",
        f"{CHECKMATE}, section 4, for the problem",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
    ),
    "monet": Method(
        solve_monet,
        "schedule and implementation of every run together: a schedule at once, better ones, and a proof",
        f"{MONET} for the problem, with gradients recomputed, too",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("implementations",),
        choices=YES,
    ),
    "monet-paper": Method(
        solve_monet_paper,
        "MONeT's own restriction: no gradient is recomputed, and local memory is bounded by the forward pass's",
        f"{MONET}, section 4 and appendix A",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=YES,
        options=("implementations", "local_memory"),
        choices=YES,
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
        choices=PARTLY,
    ),
    "checkpoint-last": Method(
        solve_checkpoint_last,
        "nothing of the forward pass is kept: each backward operation recomputes what it reads",
        f"{CHECKMATE}, section 6",
        general_graphs=YES,
        cost_aware=NO,
        memory_aware=NO,
        candidates=checkpoint_last,
    ),
    "griewank": Method(
        solve_griewank,
        "REVOLVE: on a chain, the fewest recomputed layers for a number of slots",
        "Griewank and Walther 2000",
        general_graphs=NO,
        cost_aware=NO,
        memory_aware=NO,
        knob=SLOTS,
        candidates=griewank,
    ),
    "chen-sqrt-n": Method(
        solve_chen_sqrt_n,
        "on a chain of n layers, a checkpoint after every sqrt(n) of them",
        f"{CHEN}, section 4",
        general_graphs=NO,
        cost_aware=NO,
        memory_aware=NO,
        candidates=chen_sqrt_n,
    ),
    "chen-greedy": Method(
        solve_chen_greedy,
        "on a chain, a checkpoint whenever a segment exceeds b bytes; several b are tried",
        f"{CHEN}, section 4 and Algorithm 3",
        general_graphs=NO,
        cost_aware=NO,
        memory_aware=PARTLY,
        knob=CHEN_SEGMENT_BYTES,
        candidates=chen_greedy,
    ),
    "ap-sqrt-n": Method(
        solve_ap_sqrt_n,
        "chen-sqrt-n on the articulation points of the forward graph",
        f"{CHECKMATE}, section 6.1 and appendix B.1",
        general_graphs=PARTLY,
        cost_aware=NO,
        memory_aware=NO,
        candidates=ap_sqrt_n,
    ),
    "ap-greedy": Method(
        solve_ap_greedy,
        "chen-greedy on the articulation points of the forward graph",
        f"{CHECKMATE}, section 6.1 and appendix B.1",
        general_graphs=PARTLY,
        cost_aware=NO,
        memory_aware=PARTLY,
        knob=AP_SEGMENT_BYTES,
        candidates=ap_greedy,
    ),
    "linearized-sqrt-n": Method(
        solve_linearized_sqrt_n,
        "chen-sqrt-n on the forward operations in their order, as if they were a chain",
        f"{CHECKMATE}, section 6.1 and appendix B.2",
        general_graphs=YES,
        cost_aware=NO,
        memory_aware=NO,
        candidates=linearized_sqrt_n,
    ),
    "linearized-greedy": Method(
        solve_linearized_greedy,
        "chen-greedy on the forward operations in their order, as if they were a chain",
        f"{CHECKMATE}, section 6.1 and appendix B.2",
        general_graphs=YES,
        cost_aware=NO,
        memory_aware=PARTLY,
        knob=LINEARIZED_SEGMENT_BYTES,
        candidates=linearized_greedy,
    ),
    "checkpoint-sequential": Method(
        solve_checkpoint_sequential,
        "PyTorch's checkpoint_sequential: a chain of blocks in equal segments, of which all but the last run twice",
        "torch.utils.checkpoint; Chen et al. 2016, section 4",
        general_graphs=PARTLY,
        cost_aware=NO,
        memory_aware=NO,
        knob=Knob("segments", "segments of the forward pass, from 1 to its number of blocks", segment_counts),
        candidates=checkpoint_sequential_candidates,
    ),
    "pytorch-budget": Method(
        Late(f"{PYTORCH_BUDGET}:solve_pytorch_budget"),
        "PyTorch's min-cut partitioner under activation_memory_budget, which is no bound of the peak; knapsack=dp, "
        "greedy or ilp",
        "torch._functorch.partitioners",
        general_graphs=YES,
        cost_aware=YES,
        memory_aware=PARTLY,
        knob=Knob(
            "activation_memory_budget",
            "share of the bytes kept from forward to backward, from 0 to 1",
            Late(f"{PYTORCH_BUDGET}:budget_shares"),
        ),
        options=("knapsack",),
        candidates=Late(f"{PYTORCH_BUDGET}:pytorch_budget_candidates"),
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
STRATEGIES |= plugged_in(taken=STRATEGIES)
