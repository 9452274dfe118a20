"""The registry: one line for each strategy, whose file says everything else about it.

The name of a strategy is the name that its line gives it, with - for _. Their order is that of every list and menu.
"""

# ruff: noqa: F401, N811

from __future__ import annotations

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.base import cores
from remat_explorer.solvers.method import Method
from remat_explorer.solvers.strategies.registration import plugged_in

# isort: off
from remat_explorer.solvers.strategies.optimal import METHOD as optimal
from remat_explorer.solvers.strategies.monet import METHOD as monet
from remat_explorer.solvers.strategies.monet_paper import METHOD as monet_paper
from remat_explorer.solvers.strategies.checkmate_ilp import METHOD as checkmate_ilp
from remat_explorer.solvers.strategies.checkmate_approx import METHOD as checkmate_approx
from remat_explorer.solvers.strategies.checkmate_approx_random import METHOD as checkmate_approx_random
from remat_explorer.solvers.strategies.checkmate_approx_search import METHOD as checkmate_approx_search
from remat_explorer.solvers.strategies.checkmate_unpartitioned import METHOD as checkmate_unpartitioned
from remat_explorer.solvers.strategies.checkpoint_all import METHOD as checkpoint_all
from remat_explorer.solvers.strategies.checkpoint_last import METHOD as checkpoint_last
from remat_explorer.solvers.strategies.griewank import METHOD as griewank
from remat_explorer.solvers.strategies.sqrt_n import CHEN as chen_sqrt_n
from remat_explorer.solvers.strategies.greedy import CHEN as chen_greedy
from remat_explorer.solvers.strategies.sqrt_n import AP as ap_sqrt_n
from remat_explorer.solvers.strategies.greedy import AP as ap_greedy
from remat_explorer.solvers.strategies.sqrt_n import LINEARIZED as linearized_sqrt_n
from remat_explorer.solvers.strategies.greedy import LINEARIZED as linearized_greedy
from remat_explorer.solvers.strategies.checkpoint_sequential import METHOD as checkpoint_sequential
from remat_explorer.solvers.strategies.pytorch_budget import METHOD as pytorch_budget
from remat_explorer.solvers.strategies.dtr import METHOD as dtr
from remat_explorer.solvers.strategies.rotor import METHOD as rotor
from remat_explorer.solvers.strategies.moccasin import METHOD as moccasin
from remat_explorer.solvers.strategies.sac_milp import METHOD as sac_milp
from remat_explorer.solvers.strategies.torchtitan import GREEDY as torchtitan_greedy
from remat_explorer.solvers.strategies.torchtitan import TWO_LEVEL as torchtitan_two_level
from remat_explorer.solvers.strategies.typed_rules import FULL as checkpoint_full
from remat_explorer.solvers.strategies.typed_rules import EVERY_N as checkpoint_every_n
from remat_explorer.solvers.strategies.typed_rules import FIRST as megatron_block
from remat_explorer.solvers.strategies.typed_rules import SELECTIVE as megatron_selective
from remat_explorer.solvers.strategies.typed_rules import ATTENTION as checkpoint_attention
from remat_explorer.solvers.strategies.typed_rules import SECOND_MATMUL as save_second_matmul
from remat_explorer.solvers.strategies.simple_rules import BYTES_PER_SECOND as bytes_per_second
from remat_explorer.solvers.strategies.simple_rules import LAYER_KNAPSACK as layer_knapsack
# isort: on

STRATEGIES = {name.replace("_", "-"): method for name, method in list(globals().items()) if isinstance(method, Method)}
STRATEGIES |= plugged_in(taken=STRATEGIES)

DEFAULTS = {False: "optimal", True: "monet"}
"""The strategy where nobody chose: for graphs with one implementation of each operation, and with several."""


def default_strategy(graph: Graph) -> str:
    """The strategy for a graph where nobody chose.

    >>> from remat_explorer.instances import linear
    >>> default_strategy(linear(8))
    'optimal'
    """
    return DEFAULTS[graph.has_choices]


def method_of(strategy: str) -> Method | None:
    """The method of a name; None where there is none, or where another package has it and it cannot be loaded.

    >>> method_of("optimal") is STRATEGIES["optimal"], method_of("by hand")
    (True, None)
    """
    method = STRATEGIES.get(strategy)
    try:
        return getattr(method, "loaded", method)
    except SolverError:
        return None


def threads_of(strategy: str, chosen: int | None = None) -> int:
    """The threads of a solve by a strategy: those that were chosen, else as many as it uses and there are cores.

    >>> threads_of("checkmate-ilp"), threads_of("optimal", 3)
    (1, 3)
    """
    if chosen is not None:
        return int(chosen)
    method = method_of(strategy)
    return 1 if method is None else min(method.threads, cores())
