"""Strategies: one file per method, one line each in the registry.

>>> from remat_explorer.instances import linear
>>> solve(linear(4), budget="60%").cost
15.0
"""

from __future__ import annotations

from remat_explorer.solvers.ablation.ablation_result import ALL, NONE, Ablation, Kinds, kinds_name
from remat_explorer.solvers.ablation.ablation_run import AblationProgress, ablation
from remat_explorer.solvers.batches.batch_bound import BatchProblem, largest_operation_batch
from remat_explorer.solvers.batches.batch_scaling import BatchScaling, scale_batch
from remat_explorer.solvers.batches.max_batch import MaxBatch, max_batch
from remat_explorer.solvers.batches.max_image import MaxImage, max_image
from remat_explorer.solvers.cache import describe_entry
from remat_explorer.solvers.chain_checkpointing.block_chain import chain_of
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.jobs.solve_job import SolveJob
from remat_explorer.solvers.memory.lowest_peak import least_working_set
from remat_explorer.solvers.memory.minimum_budget import (
    Budget,
    MinimumBudget,
    budget_of,
    fall_back_on_smallest,
    is_relative,
    is_smallest,
    minimum_budget,
    require_budget,
    smallest_known,
    spaced_budgets,
)
from remat_explorer.solvers.memory_at_overhead.memory_search import MemoryAtOverhead, memory_at_overhead
from remat_explorer.solvers.method import (
    Method,
    Setting,
    Support,
    default_options,
    read_option,
    read_options,
    table_one_row,
    write_options,
)
from remat_explorer.solvers.methods.checkmate_approx import EPSILON, THRESHOLD
from remat_explorer.solvers.methods.checkpoint_sequential import METHOD as CHECKPOINT_SEQUENTIAL
from remat_explorer.solvers.methods.checkpoint_sequential import (
    checkpoint_sequential_candidates,
    single_value_stretches,
)
from remat_explorer.solvers.methods.chen import AP_GREEDY, AP_SQRT_N, articulation_split_points, require_chain
from remat_explorer.solvers.methods.griewank import binomial_schedule, forward_steps
from remat_explorer.solvers.methods.regions import Region, forward_operations, layers_of, needed_values
from remat_explorer.solvers.methods.rotor import METHOD as ROTOR
from remat_explorer.solvers.methods.two_phase_rounding import (
    Scatter,
    minimal_row,
    naive_rounding,
    reduced_budget,
    retained_values,
    round_deterministically,
    scatter,
    solve_linear_program,
)
from remat_explorer.solvers.milp import BACKENDS, Milp
from remat_explorer.solvers.monet.selections import Selection, default_selection, fastest_selection
from remat_explorer.solvers.registry import DEFAULTS, STRATEGIES, default_strategy, method_of
from remat_explorer.solvers.relaxation import Relaxation, relax
from remat_explorer.solvers.search.planner import load_search, plan_schedule
from remat_explorer.solvers.solution import (
    REQUESTED,
    RESERVED,
    Solution,
    Status,
    capture_options_of,
    relative_gap,
    require_meaning,
)
from remat_explorer.solvers.solve import explain_unfit, solve, solve_sending_from
from remat_explorer.solvers.solver_interface import (
    PROVEN,
    TRANSFER_STRATEGIES,
    Answer,
    Limits,
    Progress,
    checkpoint_all,
    checkpoint_all_peak,
    cores,
)
from remat_explorer.solvers.sweeps.frontier import Frontier, extend_frontier
from remat_explorer.solvers.sweeps.own_points import (
    OwnPoint,
    assess_schedule,
    best_within,
    bound_at,
    rules_out_budget,
    unknown_point,
)
from remat_explorer.solvers.sweeps.sweep_run import Sweep, SweepProgress, sweep
