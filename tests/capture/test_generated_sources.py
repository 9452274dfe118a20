"""What torch.fx keeps of generated code goes with the module whose code it is."""

import gc
import linecache
import os

import pytest
import torch
from torch import nn
from torch.fx import GraphModule, graph_module

import remat_explorer as rx
from remat_explorer.capture.generated_sources import drop_new_sources, drop_source_with
from remat_explorer.capture.tracing import trace


def _empty() -> GraphModule:
    return GraphModule({}, torch.fx.Graph())


def _sources() -> set[str]:
    """Names of generated sources that are kept, by torch.fx or by linecache."""
    gc.collect()
    with drop_new_sources():
        pass  # those of modules that are gone
    return set(graph_module._loader.eval_cache) | {name for name in linecache.cache if "eval_with_key" in name}


def _use(model: nn.Module, x: torch.Tensor) -> None:
    solution = rx.solve(rx.capture(model, (x,)), "100%", time_limit=5)
    rx.measure(solution, model, (x,), repeats=1)
    trained = rx.rematerialize(model, (x,), budget="100%")
    trained(x).sum().backward()
    rx.solve(solution.graph, "100%", strategy="pytorch-budget")


def test_a_process_that_captures_and_measures_keeps_no_source() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
    _use(model, x)  # what is kept once: a program is cached while its model lives
    before = _sources()
    for _ in range(3):
        _use(model, x)
    assert len(_sources() - before) == 0


def test_the_code_of_a_joint_graph_is_written_for_whoever_asks_for_it() -> None:
    before = _sources()
    program = trace(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), (torch.randn(4, 8),))
    assert _sources() == before
    assert "tanh_backward" in program.module.code


def test_sources_made_before_are_left_and_an_error_drops_those_of_the_trace() -> None:
    mine = _empty()
    name = type(mine).forward.__code__.co_filename
    before = _sources()
    try:
        with drop_new_sources():
            mine.recompile()
            kept, lost = drop_source_with(_empty()), _empty()
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert linecache.getlines(name)
    assert _sources() - before == {type(kept).forward.__code__.co_filename}
    assert not linecache.getlines(type(lost).forward.__code__.co_filename)


def test_a_module_may_go_while_python_checks_the_lines_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    linecache.getlines(__file__)  # a file, whose age is looked at
    modules = [drop_source_with(_empty())]
    name = type(modules[0]).forward.__code__.co_filename
    assert linecache.getlines(name)
    stat = os.stat

    def collecting(*arguments, **choices) -> os.stat_result:
        modules.clear()
        gc.collect()
        return stat(*arguments, **choices)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", collecting)
        linecache.checkcache()
    assert not modules
    drop_source_with(_empty())
    assert name not in linecache.cache
