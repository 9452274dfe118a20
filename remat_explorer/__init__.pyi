"""The public names, each loaded when it is first used."""

from . import errors as errors
from . import models as models
from .capture import capture as capture
from .capture import loss_elsewhere as loss_elsewhere
from .capture import profile as profile
from .checker import check as check
from .explorer import Explorer as Explorer
from .explorer.live_page import page as page
from .explorer.live_page import save_page as save_page
from .fit import fit as fit
from .graph import Graph as Graph
from .instances import linear as linear
from .offload import Transfers as Transfers
from .offload import TransferSolution as TransferSolution
from .plan import Plan as Plan
from .report import report as report
from .runtime import measure as measure
from .runtime import rematerialize as rematerialize
from .runtime.checkpoint_policy import policy as policy
from .runtime.checkpoint_policy import save_policy as save_policy
from .runtime.compiled import compile as compile
from .runtime.compiled import partitioner as partitioner
from .runtime.peers import compare_peers as compare_peers
from .schedule import Schedule as Schedule
from .solvers import Ablation as Ablation
from .solvers import Frontier as Frontier
from .solvers import MemoryAtOverhead as MemoryAtOverhead
from .solvers import Relaxation as Relaxation
from .solvers import Sweep as Sweep
from .solvers import ablation as ablation
from .solvers import max_batch as max_batch
from .solvers import max_image as max_image
from .solvers import memory_at_overhead as memory_at_overhead
from .solvers import minimum_budget as minimum_budget
from .solvers import relax as relax
from .solvers import solve as solve
from .solvers import sweep as sweep
from .solvers.solution import Solution as Solution

__all__: list[str]
__version__: str
