"""A closed explorer: nothing of it is left, and nothing is asked of it silently."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from ipywidgets.widgets import widget as registry
from nbclient import NotebookClient
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ClosedError
from remat_explorer.explorer.page_widget import close_widgets
from remat_explorer.explorer.state import strategy_choice
from tests.explorer.driven import settled, until

BEGUN = threading.Event()
ROUNDS = """
import gc, threading, weakref
import torch, remat_explorer as rx
from ipywidgets.widgets.widget import _instances
from torch import nn
def left():
    gc.collect()
    from comm import get_comm_manager
    threads = [thread.name for thread in threading.enumerate() if "zmq" not in type(thread).__module__]
    return len(_instances), len(get_comm_manager().comms), threads  # zmq's begins with the first long message
"""
SHOW = """
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
seen = weakref.ref(model)
explorer = rx.Explorer(model, (torch.ones(2, 4),), sweep=False)
del model
explorer
"""
CLOSE = "assert explorer.wait(60); explorer.close(); print(left(), seen() is None)"


class Slow(nn.Module):
    """A forward pass that takes minutes to trace."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        for _ in range(20_000):
            x = x.sin()
            BEGUN.set()
        return x.sum()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))


def layers() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def opened(model: Any = None, **settings: Any) -> Any:
    return rx.Explorer(layers() if model is None else model, (torch.ones(4, 8),), **settings)


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("remat-")]


def solve_and_execute(explorer: Any) -> None:
    settled(explorer).solve()
    settled(explorer).execute()
    settled(explorer)


def ask_for_everything(explorer: Any) -> None:
    state = settled(explorer).state
    state.picture, state.legend, state.methods, state.search = "memory", True, True, "linear"
    explorer.compare("checkpoint-all")
    explorer.present()
    explorer.fit("1 GB")
    for panel in ("edit", "solver", "ways", "peak"):
        state.panel = panel


@pytest.mark.parametrize(
    "use",
    [lambda explorer: None, settled, solve_and_execute, ask_for_everything, lambda explorer: settled(explorer).solve()],
    ids=["at once", "loaded", "executed", "everything", "while it solves"],
)
def test_a_closed_explorer_leaves_no_widget_no_model_no_graph_and_no_thread(use: Callable[[Any], None]) -> None:
    before = set(registry._instances)
    model = layers()
    explorer = opened(model)
    seen = [weakref.ref(explorer), weakref.ref(model), weakref.ref(explorer.state)]
    del model
    use(explorer)
    if explorer.state.graph is not None:
        seen.append(weakref.ref(explorer.state.graph))
    assert len(set(registry._instances) - before) > 200
    explorer.close()
    assert until(lambda: names_of_threads() == [])  # a busy machine may import for longer than a close waits
    del explorer
    gc.collect()
    assert set(registry._instances) == before
    assert [reference() for reference in seen] == [None] * len(seen)


def test_a_closed_explorer_that_is_kept_lets_go_of_its_model_too() -> None:
    model = layers()
    seen = weakref.ref(model)
    explorer = settled(opened(model))
    state, solution = explorer.state, explorer.solution
    del model
    explorer.close()
    gc.collect()
    assert seen() is None
    assert state.graph is None
    assert state.solution is None
    assert solution.schedule is not None  # what was taken from it stays
    assert "Explorer" in repr(explorer)


def test_a_capture_that_is_under_way_ends_when_the_explorer_is_closed() -> None:
    BEGUN.clear()
    model = Slow()
    seen = weakref.ref(model)
    explorer = rx.Explorer(model, (torch.ones(1, 2),))
    del model
    assert BEGUN.wait(60)
    explorer.close()
    assert until(lambda: names_of_threads() == [], 30)
    del explorer
    gc.collect()
    assert seen() is None


def test_a_graph_with_choices_is_let_go_of_and_its_buttons_are_closed(data: Path) -> None:
    before = set(registry._instances)
    graph = rx.capture(layers(), (torch.ones(4, 8),), implementations="all")
    assert graph.has_choices
    seen = weakref.ref(graph)
    explorer = settled(rx.Explorer(graph=graph, sweep=False))
    strategy_choice.default_implementations(graph)
    explorer.state.model = "mlp"  # which has no choices: other buttons, or none
    del graph
    settled(explorer).close()
    del explorer
    gc.collect()
    assert set(registry._instances) == before
    assert seen() is None


def test_figures_that_were_replaced_are_closed_with_their_layout() -> None:
    explorer = settled(rx.Explorer(graph=rx.linear(4), sweep=False, improve=False))
    plots = explorer._views[5]
    for _ in range(2):
        plots._again()
    plots._arrived()
    before = set(registry._instances)
    plots._again()
    plots._arrived()
    assert len(registry._instances) == len(before)
    explorer.close()


def test_whatever_is_asked_of_a_closed_explorer_says_that_it_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    explorer = settled(rx.Explorer(graph=rx.linear(4), sweep=False, improve=False))
    explorer.close()
    explorer.close()
    asked: list[Callable[[], Any]] = [
        explorer.solve,
        explorer.execute,
        explorer.load,
        explorer.cancel,
        explorer.wait,
        explorer.play,
        explorer.present,
        lambda: explorer.state.graph,
        lambda: explorer.solution,
        lambda: explorer.measurement,
        lambda: explorer.select(stage=1),
        lambda: explorer.compare("checkpoint-all"),
        lambda: explorer.toggle("masks"),
        lambda: explorer.export("report"),
        lambda: explorer.fit("1 GB"),
    ]
    for ask in asked:
        with pytest.raises(ClosedError, match=r"This explorer is closed .* open another one with rx.Explorer\(...\)"):
            ask()
    explorer._ipython_display_()
    assert "This explorer is closed" in capsys.readouterr().out


def test_another_explorer_of_the_same_graph_goes_on() -> None:
    graph = rx.linear(8)
    stays = settled(rx.Explorer(graph=graph, budget=4, sweep=False, improve=False))
    rx.Explorer(graph=graph, budget=6, sweep=False, improve=False).close()
    goes = settled(rx.Explorer(graph=graph, budget=6, sweep=False, improve=False))
    widgets = [widget for widget in registry._instances.values() if widget.comm is not None]
    goes.close()
    assert stays.comm is not None
    assert all(child.comm is not None for child in stays.children)
    assert len(widgets) > len(registry._instances) > 200
    stays.solve()
    assert settled(stays).solution.cost == 26
    stays._views[3].picture.value = "memory"  # a click
    assert stays.state.picture == "memory"
    close_widgets(stays)


def test_a_kernel_forgets_an_explorer_that_its_history_of_outputs_still_has() -> None:
    cells = [ROUNDS + "print(left())", *[SHOW, CLOSE] * 3]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    first, *after = ["".join(o.get("text", "") for o in cell.outputs).strip() for cell in notebook.cells]
    assert [said for said in after if said] == [f"{first} True"] * 3
