"""torch's `sac_milp` on our graph: which modules to checkpoint, and how much each of them drops.

Everything that torch has is called: `sac_milp` decides which modules are checkpointed, and what share of its bytes each
drops; `get_optimal_checkpointing_policy_per_module` decides which operators those are. What they are fed with is our
profile, in place of CUDA's estimators: modules as a captured graph names them (`modules_of`), bytes and costs of
operations, and what is alive in the backward pass of a step that keeps everything. The schedule is what PyTorch runs
with these selective checkpoints (`remat_explorer.solvers.methods.regions`).

What differs: the trade-off of each module is torch's greedy one, most bytes per second first, but as it is, which is
convex, not as fitted to few pieces (which takes another package); sizes are scaled so that keeping everything takes 8
GiB, since torch's program is in GiB and its solver's tolerances are absolute; and it ends with the time limit.
It knows nothing of what recomputation holds, so that a schedule may exceed the budget: its own peak is what counts.

Source: torch/distributed/_tools/sac_ilp.py, ilp_utils.py and sac_estimator.py (torch 2.13). It needs pulp.
"""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph, is_random
from remat_explorer.solvers.method import Candidate, cheapest_within
from remat_explorer.solvers.methods.regions import (
    Region,
    dropped_values,
    forward_operations,
    layers_of,
    needed_values,
    region_candidates,
)
from remat_explorer.solvers.solver_interface import Answer, Limits, checkpoint_all_peak

ROOT = "model"


@dataclass(frozen=True)
class Module:
    """A module of the forward pass."""

    name: str  # its path from the root, "model.blocks.0"
    operations: tuple[int, ...]  # ascending, those of the modules within included
    is_leaf: bool  # whether there is no module within

    @property
    def depth(self) -> int:
        """Names in its path."""
        return self.name.count(".")


def modules_of(graph: Graph) -> tuple[Module, ...]:
    """The modules of a graph, each before those within it; the root and the layers where modules are unknown.

    Containers of layers alone have no forward pass, and are none.
    """
    forward = forward_operations(graph)
    details = {k: graph.operations[k].details for k in forward}
    paths = {k: found.module.split(".") if found and found.module else [] for k, found in details.items()}
    if not any(paths.values()):
        layers = [Module(f"{ROOT}.layer {i}", one.operations, False) for i, one in enumerate(layers_of(graph))]
        return (Module(ROOT, tuple(forward), not layers), *layers)
    held: dict[tuple[str, ...], list[int]] = {}
    for k, path in paths.items():
        for depth in range(len(path) + 1):
            held.setdefault(tuple(path[:depth]), []).append(k)
    within = {path: [other for other in held if other[:-1] == path and other != path] for path in held}
    found = [
        Module(".".join((ROOT, *path)), tuple(operations), not within[path])
        for path, operations in held.items()
        if not path or not _is_list(within[path], within, held[path], paths)
    ]
    return tuple(sorted(found, key=lambda module: (module.operations[0], module.depth)))


def _is_list(
    members: Sequence[tuple[str, ...]],
    within: dict[tuple[str, ...], list[tuple[str, ...]]],
    operations: Iterable[int],
    paths: dict[int, list[str]],
) -> bool:
    """Whether a module is a list of modules that have others within, and does nothing itself."""
    does_something = any(len(paths[k]) < len(member) for member in members for k in operations)
    return bool(members) and not does_something and all(m[-1].isdigit() and within[m] for m in members)


@dataclass(frozen=True, eq=False)
class ModuleMemory:
    """Bytes of each operation of a step that keeps everything, int64 of shape (n,)."""

    graph: Graph
    saved: np.ndarray  # forward values up to and with an operation that the backward pass reads
    temporary: np.ndarray  # gradients and workspace while an operation of the backward pass runs
    stays: np.ndarray  # values that stay to the end, from operations before it

    @staticmethod
    def of(graph: Graph) -> ModuleMemory:
        """Those of a graph of operations with a single implementation."""
        saved, temporary, stays = (np.zeros(graph.n, dtype=np.int64) for _ in range(3))
        held = np.zeros(graph.n + 1, dtype=np.int64)
        for v, readers in enumerate(graph.readers):
            k, size = int(graph.producer[v]), int(graph.value_bytes[v])
            if graph.persistent[v]:
                stays[k + 1 :] += size
            elif graph.is_backward[k]:
                held[k] += size
                held[max(readers, default=k) + 1] -= size
            elif any(graph.is_backward[reader] for reader in readers):
                saved[k:] += size
        workspace = np.array([node.default.workspace for node in graph.operations], dtype=np.int64)
        temporary = np.cumsum(held[:-1]) + workspace
        return ModuleMemory(graph, saved, np.where(graph.is_backward, temporary, 0), stays)

    def backward(self, module: Module) -> list[int]:
        """Operations of the backward pass that read a value of a module that the module drops when it is checkpointed.

        A module without such values has the place of what reads its last value.
        """
        graph = self.graph
        inside = set(dropped_values(graph, Region(module.operations)))
        read = [v for k in module.operations for v in graph.outputs(k)]
        for values in (inside, read):
            found = sorted({k for v in values for k in graph.readers[v] if graph.is_backward[k]})
            if found:
                return found
        return []


SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
SECONDS = 5.0  # of each program where a sweep tries them all
ENOUGH = 0.25  # of the time that the last program took, writing included, is needed for another one
SCALED_PEAK = 2.0**33  # bytes
SCALED_COST = 1000.0  # ms of the whole step


def sac_ilp() -> ModuleType:
    """torch's module; a SolverError if pulp is not installed."""
    try:
        return importlib.import_module("torch.distributed._tools.sac_ilp")
    except ImportError as error:
        raise SolverError(
            f"the strategy 'sac-milp' is torch's, which solves its program with pulp: pip install 'pulp<4' ({error})"
        ) from None


def memory_shares(graph: Graph) -> tuple[float, ...]:
    """What a sweep tries: the same for each graph."""
    return SHARES


def solve_sac_milp(graph: Graph, budget: int, limits: Limits, memory_budget: float | None = None) -> Answer:
    """The cheapest schedule that torch's program gives within the budget: for this budget, or for a smaller one."""
    share = budget / max(1, checkpoint_all_peak(graph))
    shares = [share, *(one for one in SHARES if one < share)] if memory_budget is None else [_share(memory_budget)]
    return cheapest_within(_candidates(graph, shares, lambda: limits.left / 2), budget, limits)


def sac_milp_candidates(graph: Graph, memory_budget: float | None = None) -> Iterator[Candidate]:
    """The different schedules of torch's program, from large to small budgets.

    Args:
        graph: of operations with a single implementation.
        memory_budget: what the program is told, as a share of what keeping everything takes; None for all of `SHARES`.
            Each program may take `SECONDS`; torch itself gives it 180, which many equal layers use up.

    Raises:
        SolverError: if it is no such share, pulp is not installed, or an operation has several implementations.

    >>> from remat_explorer.instances import linear
    >>> [one.label for one in sac_milp_candidates(linear(9), 0.8)]
    ['nothing recomputed', 'memory_budget=0.8']
    """
    return _candidates(graph, SHARES if memory_budget is None else (_share(memory_budget),), lambda: SECONDS)


def _candidates(graph: Graph, shares: Sequence[float], seconds: Callable[[], float]) -> Iterator[Candidate]:
    sac_ilp()

    def settings() -> Iterator[tuple[str, list[Region]]]:
        program, took = _SacProgram(graph), 0.0
        for share in shares:
            if seconds() < ENOUGH * took:
                return
            begin = time.monotonic()
            regions = program.regions(share, seconds())
            took = time.monotonic() - begin
            if regions is not None:
                yield f"memory_budget={share:.3g}", regions

    return region_candidates(graph, settings())


class _SacProgram:
    """What torch's functions take, made of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.modules = modules_of(graph)
        self._bytes = SCALED_PEAK / max(1, checkpoint_all_peak(graph))
        self._cost = SCALED_COST / (graph.total_cost or 1.0)
        self._memory = ModuleMemory.of(graph)
        self._policies: dict[Any, list[int]] = {}

    def regions(self, share: float, seconds: float) -> list[Region] | None:
        """The checkpoints for a share of what keeping everything takes; None where torch's program has no solution."""
        with _within(seconds):
            decisions, _, peak = sac_ilp().sac_milp(self._tree(), share * SCALED_PEAK / 2**30)
            if peak < 0:
                return None
            chosen = [module for module in self.modules if decisions.get(module.name)]
            return [self._region(module, decisions[module.name]) for module in chosen]

    def _region(self, module: Module, dropped: float) -> Region:
        """A checkpoint whose policy drops this share of a module's bytes."""
        operations, sizes, costs = self._rows(module)
        random = tuple(i for i, k in enumerate(operations) if is_random(self.graph.operations[k]))
        key = (tuple(sizes), tuple(costs), random, dropped)
        if key not in self._policies:
            from torch.distributed._tools.sac_estimator import SACStats

            names = [self.graph.operations[k].name for k in operations]
            stats = SACStats(names, list(costs), [int(size) for size in sizes], [], list(random), [], [], False)
            policy = sac_ilp().get_optimal_checkpointing_policy_per_module(stats, 1 - min(1.0, dropped))
            self._policies[key] = policy or [0] * len(operations)
        saved = (k for k, save in zip(operations, self._policies[key], strict=True) if save)
        return Region(module.operations, frozenset(saved))

    def _rows(self, module: Module) -> tuple[list[int], list[float], list[float]]:
        """Operations of a module that drop something when it is checkpointed, with their bytes and milliseconds."""
        sizes: dict[int, float] = {}
        for v in dropped_values(self.graph, Region(module.operations)):
            k = int(self.graph.producer[v])
            sizes[k] = sizes.get(k, 0.0) + float(self.graph.value_bytes[v] * self._bytes)
        operations = sorted(k for k, size in sizes.items() if size >= 1)
        return operations, [sizes[k] for k in operations], [float(self.graph.costs[k] * self._cost) for k in operations]

    def _tree(self) -> Any:
        """torch's tree of modules; made anew each time, since its program changes what it is given."""
        from torch.distributed._tools.ilp_utils import parse_module_info

        after = sorted(self.modules, key=lambda module: (module.operations[-1], -module.depth))
        before, names = [module.name for module in self.modules], [module.name for module in after]
        order = {"fw_pre_order": before, "bw_pre_order": names[::-1], "fw_post_order": names, "bw_post_order": before}
        statistics: Any = [self._statistics(module) for module in self.modules]
        return parse_module_info({"mod_order": order, "mod_stats": statistics})  # type: ignore[typeddict-item]

    def _statistics(self, module: Module) -> dict[str, Any]:
        graph, memory = self.graph, self._memory
        _, sizes, costs = self._rows(module)
        total, milliseconds = sum(sizes), sum(costs)
        saved = sum(float(graph.value_bytes[v] * self._bytes) for v in needed_values(graph, Region(module.operations)))
        backward = memory.backward(module)
        is_leaf = module.is_leaf or not total
        slopes, intercepts = ([], []) if is_leaf else tradeoff(sizes, costs)
        return {
            "fqn": module.name,
            "param_per_module": graph.resident_bytes * self._bytes,
            "grad_per_module": 0,
            "grad_total": float(memory.stays[backward[0]] * self._bytes) if backward else 0.0,
            "act_fw_per_module": saved,
            "act_bw_per_module": 0,
            "act_grad_per_module": float(memory.temporary[backward].max() * self._bytes) if backward else 0.0,
            "act_total": float(memory.saved[module.operations[-1]] * self._bytes),
            "input_per_module": 0,
            "output_per_module": 0,
            "fw_runtime_per_module": milliseconds,
            "bw_runtime_per_module": 0.0,
            "is_leaf": is_leaf,
            "sac_runtime": 0.0 if is_leaf else milliseconds,
            "sac_memory": 0.0 if is_leaf else max(total, saved),
            "n_segments": len(slopes),
            "slopes": slopes,
            "intercepts": intercepts,
            "breakpoints": [],
            "tradeoff_curve": OrderedDict(),
        }


def tradeoff(sizes: Sequence[float], costs: Sequence[float]) -> tuple[list[float], list[float]]:
    """Slopes and intercepts of the share of time over the share of bytes that is dropped, most bytes per second first.

    >>> tradeoff([1.0, 3.0], [1.0, 1.0])
    ([0.6666666666666666, 2.0], [0.0, -1.0])
    """
    bytes_, spent = np.array(sizes), np.array(costs)
    if not spent.sum():
        return [0.0], [0.0]
    order = np.argsort(spent / bytes_, kind="stable")
    bytes_, spent = bytes_[order] / bytes_.sum(), spent[order] / spent.sum()
    slopes = spent / bytes_
    intercepts = np.cumsum(spent) - slopes * np.cumsum(bytes_)
    first = np.append(True, ~np.isclose(slopes[1:], slopes[:-1]))
    return slopes[first].tolist(), intercepts[first].tolist()


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """torch's programs end in time, which they have no argument for; neither torch nor pulp has anything to say."""
    module = sac_ilp()
    solver = module.PULP_CBC_CMD

    def limited(**options: Any) -> Any:
        return solver(**options | {"timeLimit": max(1.0, min(float(options["timeLimit"]), seconds))})

    disabled = module.logger.disabled
    with warnings.catch_warnings(), mock.patch.object(module, "PULP_CBC_CMD", limited):
        warnings.simplefilter("ignore", DeprecationWarning)  # pulp's, about torch's calls
        module.logger.disabled = True
        try:
            yield
        finally:
            module.logger.disabled = disabled


def _share(given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1:
        raise SolverError(
            f"memory_budget is {shown(given)}; expected a share of what keeping everything takes, up to 1"
        )
    return float(given)
