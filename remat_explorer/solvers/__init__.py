"""Strategies: one file per method, one line each in the registry.

>>> from remat_explorer.instances import linear
>>> solve(linear(4), budget="60%").cost
15.0
"""

from __future__ import annotations

from remat_explorer.solvers.ablation.ablation_result import Ablation
from remat_explorer.solvers.ablation.ablation_run import AblationProgress, ablation
from remat_explorer.solvers.base import Progress, checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.batches.batch_scaling import scale_batch
from remat_explorer.solvers.batches.max_batch import MaxBatch, max_batch
from remat_explorer.solvers.batches.max_image import MaxImage, max_image
from remat_explorer.solvers.jobs.solve_job import SolveJob
from remat_explorer.solvers.memory.minimum_budget import MinimumBudget, minimum_budget
from remat_explorer.solvers.memory_at_overhead.memory_search import MemoryAtOverhead, memory_at_overhead
from remat_explorer.solvers.milp import BACKENDS
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.relaxation import Relaxation, relax
from remat_explorer.solvers.solve import solve
from remat_explorer.solvers.sweeps.frontier import Frontier
from remat_explorer.solvers.sweeps.sweep_run import Sweep, SweepProgress, sweep

__all__ = [
    "BACKENDS",
    "STRATEGIES",
    "Ablation",
    "AblationProgress",
    "Frontier",
    "MaxBatch",
    "MaxImage",
    "MemoryAtOverhead",
    "MinimumBudget",
    "Progress",
    "Relaxation",
    "SolveJob",
    "Sweep",
    "SweepProgress",
    "ablation",
    "checkpoint_all",
    "checkpoint_all_peak",
    "max_batch",
    "max_image",
    "memory_at_overhead",
    "minimum_budget",
    "relax",
    "scale_batch",
    "solve",
    "sweep",
]
