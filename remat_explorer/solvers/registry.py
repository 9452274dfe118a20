"""The registry: one line of `STRATEGIES` for each strategy, whose file says everything else about it.

Strategies of other packages are entry points of the group `GROUP`, each of which names a `Method`:

    [project.entry-points."remat_explorer.strategies"]
    my-strategy = "my_package.my_module:METHOD"

Every process of a solve or a sweep finds them there, which an assignment to the registry in one process would not do.
The names are read at once, the module on first use. It may therefore import what it likes of this package, and an
installed package that is broken spoils no other strategy. The package's own strategies are not entry points too: an
editable installation would know new ones only once it is made again.
"""

from __future__ import annotations

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.anytime_search import monet, optimal
from remat_explorer.solvers.method import Method
from remat_explorer.solvers.methods import (
    checkmate_approx,
    checkmate_ilp,
    checkpoint_sequential,
    chen,
    dtr,
    griewank,
    hand_written_rules,
    moccasin,
    monet_paper,
    rotor,
    simple_rules,
    static_policy,
    torch_planners,
    torchtitan,
)
from remat_explorer.solvers.solver_interface import Answer, Limits, cores

STRATEGIES: dict[str, Method] = {
    "optimal": optimal.METHOD,
    "monet": monet.METHOD,
    "monet-paper": monet_paper.METHOD,
    "checkmate-ilp": checkmate_ilp.ILP,
    "checkmate-approx": checkmate_approx.DETERMINISTIC,
    "checkmate-approx-random": checkmate_approx.RANDOMIZED,
    "checkmate-approx-search": checkmate_approx.SEARCHED,
    "checkmate-unpartitioned": checkmate_ilp.UNPARTITIONED,
    "checkpoint-all": static_policy.CHECKPOINT_ALL,
    "checkpoint-last": static_policy.CHECKPOINT_LAST,
    "griewank": griewank.METHOD,
    "chen-sqrt-n": chen.CHEN_SQRT_N,
    "chen-greedy": chen.CHEN_GREEDY,
    "ap-sqrt-n": chen.AP_SQRT_N,
    "ap-greedy": chen.AP_GREEDY,
    "linearized-sqrt-n": chen.LINEARIZED_SQRT_N,
    "linearized-greedy": chen.LINEARIZED_GREEDY,
    "checkpoint-sequential": checkpoint_sequential.METHOD,
    "pytorch-budget": torch_planners.PYTORCH_BUDGET,
    "dtr": dtr.METHOD,
    "rotor": rotor.METHOD,
    "moccasin": moccasin.METHOD,
    "sac-milp": torch_planners.SAC_MILP,
    "torchtitan-greedy": torchtitan.GREEDY,
    "torchtitan-two-level": torchtitan.TWO_LEVEL,
    "checkpoint-full": hand_written_rules.FULL,
    "checkpoint-every-n": hand_written_rules.EVERY_N,
    "megatron-block": hand_written_rules.FIRST,
    "megatron-selective": hand_written_rules.SELECTIVE,
    "checkpoint-attention": hand_written_rules.ATTENTION,
    "save-second-matmul": hand_written_rules.SECOND_MATMUL,
    "bytes-per-second": simple_rules.BYTES_PER_SECOND,
    "layer-knapsack": simple_rules.LAYER_KNAPSACK,
}
"""Every strategy by its name, in the order of every list and menu; those of other packages come last."""

DEFAULTS = {False: "optimal", True: "monet"}
"""The strategy where nobody chose: for graphs with one implementation of each operation, and with several."""

GROUP = "remat_explorer.strategies"


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
    """The threads of a solve by a strategy: those that were chosen, else as many as it uses and there are cores."""
    if chosen is not None:
        return int(chosen)
    method = method_of(strategy)
    return 1 if method is None else min(method.threads, cores())


def _plugged_in(taken: Container[str]) -> dict[str, Method]:
    """The strategies of other packages by their names; those whose names are taken are left out."""
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    return {name: cast(Method, _PluggedIn(entry)) for name, entry in entries.items() if name not in taken}


class _PluggedIn:
    """A `Method` of another package, loaded by the first look at one of its attributes; an error names the package."""

    def __init__(self, entry: EntryPoint) -> None:
        self._entry = entry
        self._method: Method | None = None

    def __call__(self, graph: Any, budget: int, limits: Limits, **options: Any) -> Answer:
        """Run the strategy."""
        return self._loaded()(graph, budget, limits, **options)

    @property
    def loaded(self) -> Method:
        """The method itself."""
        return self._loaded()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # whoever asks for these wants no method: pickle, copy, notebooks
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> Method:
        if self._method is None:
            entry, package = self._entry, self._entry.dist.name if self._entry.dist else "an unknown package"
            where = f"the strategy {entry.name!r} of {package}, {entry.value!r},"
            try:
                method = entry.load()
            except Exception as error:  # whatever importing a module can raise
                raise SolverError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
            if not isinstance(method, Method):
                raise SolverError(f"{where} is no remat_explorer.solvers.method.Method but {method!r}")
            self._method = method
        return self._method


STRATEGIES |= _plugged_in(taken=STRATEGIES)
