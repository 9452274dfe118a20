"""The schedules of the literature's methods that do not ask for the budget, and for which graphs they are."""

from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.method import Candidate
from remat_explorer.solvers.methods.chen import require_chain
from tests.solvers.helpers import present

ON_CHAINS = ("griewank", "chen-sqrt-n", "chen-greedy")
OF_PYTORCH = ("checkpoint-sequential", "pytorch-budget", "sac-milp")  # they have tests of their own
WITHOUT_BUDGET = tuple(
    name for name, method in STRATEGIES.items() if method.candidates is not None and name not in OF_PYTORCH
)


def candidates_of(strategy: str, graph: Graph, **options: Any) -> list[Candidate]:
    """All schedules of a method."""
    return list(present(STRATEGIES[strategy].candidates)(graph, **options))


def suited(graph: Graph) -> list[str]:
    """The methods without a budget that take this graph."""
    try:
        require_chain(graph, "another")
    except SolverError:
        return [name for name in WITHOUT_BUDGET if name not in ON_CHAINS]
    return list(WITHOUT_BUDGET)
