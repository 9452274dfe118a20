"""Measures the two halves of a compiled graph in the first step that runs them, without a run of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import _profiler_enabled
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.runtime.compiled.partitioner import PlannedGraph

Compiler = Callable[[GraphModule, list[torch.Tensor]], Callable[..., Any]]


def metered(compiler: Compiler, planned: Callable[[], PlannedGraph | None], backward: bool) -> Compiler:
    """A compiler whose code is metered in its first run; what it measures is told to the graph that was planned.

    A profiler of the caller's is left alone: the run is metered then when none is on.

    Args:
        compiler: of one half.
        planned: the graph that is being compiled, or None where it was not planned, as without gradients.
        backward: which half.
    """

    def compile_half(module: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        run, graph = compiler(module, inputs), planned()
        device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
        return run if graph is None else _FirstRun(run, graph, device, backward)

    return compile_half


class _FirstRun:
    """A half whose first run is metered."""

    def __init__(self, run: Callable[..., Any], graph: PlannedGraph, device: torch.device, backward: bool) -> None:
        self._run, self._graph, self._device, self._backward = run, graph, device, backward
        self._boxed_call = True
        self._takes_list = getattr(run, "_boxed_call", False)

    def __call__(self, arguments: list[Any]) -> Any:
        measured = self._graph.measured_backward if self._backward else self._graph.measured_forward
        if measured is not None or _profiler_enabled():
            return self._call(arguments)
        with memory_meter(self._device) as meter:
            section = meter.section()
            with _disable_current_modes():  # a mode's own mark would be taken for the section's end
                section.__enter__()
            try:
                result = self._call(arguments)
            finally:
                with _disable_current_modes():
                    section.__exit__(None, None, None)
        reading = meter.readings[-1]
        self._graph.take(self._backward, reading.highest - reading.before, reading.after - reading.before)
        return result

    def _call(self, arguments: list[Any]) -> Any:
        if self._takes_list:
            return self._run(arguments)
        given = list(arguments)
        arguments.clear()
        return self._run(*given)
