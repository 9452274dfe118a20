"""A closed explorer: nothing of it is left, and nothing is asked of it silently."""

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ipywidgets.widgets import widget as registry
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ClosedError
from remat_explorer.explorer.page_widget import close_widgets
from remat_explorer.explorer.plots_view import PlotsView
from remat_explorer.explorer.scrubber import Scrubber
from remat_explorer.explorer.state import strategy_choice
from tests.explorer.driven import explorer_of, settled, solved, until, view_of

BEGUN, ENDED = threading.Event(), threading.Event()  # no attributes of the model: a step may not change those


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
        ENDED.set()
        return x.sum()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))


def layers() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def no_threads_left() -> bool:
    """Whether they end; a busy machine may import for longer than a close waits."""
    return until(lambda: not any(thread.name.startswith("remat-") for thread in threading.enumerate()))


def solve_and_execute(explorer: Any) -> None:
    solved(settled(explorer)).execute()
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
    [lambda explorer: None, solve_and_execute, ask_for_everything, lambda explorer: settled(explorer).solve()],
    ids=["at once", "executed", "everything", "while it solves"],
)
def test_a_closed_explorer_leaves_no_widget_no_model_no_graph_and_no_thread(use: Callable[[Any], None]) -> None:
    before = set(registry._instances)
    model = layers()
    explorer: Any = rx.Explorer(model, (torch.ones(4, 8),))
    seen = [weakref.ref(explorer), weakref.ref(model), weakref.ref(explorer.state)]
    del model
    use(explorer)
    if explorer.state.graph is not None:
        seen.append(weakref.ref(explorer.state.graph))
    assert len(set(registry._instances) - before) > 200
    state, solution = explorer.state, explorer.solution
    explorer.close()
    assert no_threads_left()
    gc.collect()
    assert seen[1]() is None  # though the explorer is kept
    assert (state.graph, state.solution) == (None, None)
    assert solution is None or solution.schedule is not None  # what was taken from it stays
    assert "Explorer" in repr(explorer)
    del explorer, state, solution
    gc.collect()
    assert set(registry._instances) == before
    assert [reference() for reference in seen] == [None] * len(seen)


@pytest.mark.parametrize("another", [False, True])
def test_a_capture_that_nobody_wants_any_more_ends(another: bool) -> None:
    BEGUN.clear()
    model = Slow()
    seen = weakref.ref(model)
    explorer: Any = rx.Explorer(model, (torch.ones(1, 2),), sweep=False, improve=False)
    del model
    assert BEGUN.wait(60)
    if another:
        explorer.state.model = "mlp"
        assert settled(explorer).state.graph.name == "mlp"
    explorer.close()
    assert no_threads_left()
    assert not ENDED.is_set()
    del explorer
    gc.collect()
    assert seen() is None


def test_a_graph_with_choices_is_let_go_of_and_its_buttons_are_closed() -> None:
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


def test_whatever_is_asked_of_a_closed_explorer_says_that_it_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    explorer = explorer_of(graph=rx.linear(4))
    plots, counts = view_of(explorer, PlotsView), []
    explorer.state.picture = "plots"
    assert until(lambda: plots.figure is not None)
    for _ in range(3):  # figures that are replaced are closed with their layout
        plots._again()
        plots._arrived()
        counts.append(len(registry._instances))
    assert counts[1] == counts[2]
    explorer.close()
    explorer.close()
    asked: list[Callable[[], Any]] = [
        *(getattr(explorer, name) for name in ("solve", "execute", "load", "cancel", "wait", "play", "present")),
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
    stays = explorer_of(graph=graph, budget=4)
    rx.Explorer(graph=graph, budget=6, sweep=False, improve=False).close()
    goes = explorer_of(graph=graph, budget=6)
    widgets = [widget for widget in registry._instances.values() if widget.comm is not None]
    goes.close()
    assert stays.comm is not None
    assert all(child.comm is not None for child in stays.children)
    assert len(widgets) > len(registry._instances) > 200
    assert solved(stays).solution.cost == 26
    view_of(stays, Scrubber).picture.value = "memory"  # a click
    assert stays.state.picture == "memory"
    close_widgets(stays)
