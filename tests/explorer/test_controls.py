"""Fields and buttons: tooltips, reasons for being disabled, options of strategies, and the methods behind them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import ipywidgets as w
import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError, SolutionError, SolverError, UnknownNameError
from remat_explorer.explorer.app import ExplorerPage
from remat_explorer.explorer.budget_view import BudgetSlider, BudgetView
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import default_implementations, unsuitable_strategies
from remat_explorer.explorer.work.model_sources import ModelSources
from remat_explorer.graph import Value, operation
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak, minimum_budget
from remat_explorer.solvers.method import Support
from tests.explorer.driven import driver_of, settled
from tests.figures.choices import chain_with_choices

WATCHED = """
import sys, threading
importers = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            importers.append(threading.current_thread())
sys.meta_path.insert(0, Watch())
import remat_explorer as rx
explorer = rx.Explorer("mlp", batch=64, measured_costs=False, sweep=False, improve=False)
assert explorer.wait(300), "the model was not loaded"
print("torch" in sys.modules, threading.main_thread() in importers)
explorer.close()
"""


@pytest.fixture
def chain() -> Any:
    return driver_of(rx.linear(8))


def skipping() -> rx.Graph:
    """A chain of three whose first value the third reads, too, and its backward pass."""
    values = tuple(Value(f"v{i}", 1) for i in range(4))
    reads = ((), (0,), (0, 1), (2,))
    passes: Any = ("forward", "forward", "forward", "backward")
    operations = (operation(f"v{i}", passes[i], reads[i], (i,), 1.0) for i in range(4))
    return rx.Graph("skipping", values, tuple(operations))


def controls_of(driver: Any) -> Controls:
    return Controls(driver.state, driver, ModelSources(graph=driver.state.graph))


def test_every_control_has_a_label_and_a_tooltip_of_its_own(chain: Any) -> None:
    controls = controls_of(chain)
    tooltips = [field.tooltip for _, field, _ in controls._fields.values()]
    buttons = [controls.refresh, controls.solve, controls.cancel, controls.execute]
    tooltips += [button.tooltip for button in buttons]
    assert all(tooltips)
    assert len(set(tooltips)) >= len(tooltips) - 1  # batch and image may both be fixed, for one reason
    assert all(label for label, _, _ in controls._fields.values())


def test_a_disabled_button_says_why(chain: Any) -> None:
    controls = controls_of(chain)
    assert controls.cancel.disabled
    assert controls.cancel.tooltip == "Nothing is under way"
    assert controls.execute.tooltip == "This is a graph without a module, so nothing can run."
    chain.state.busy = "solving"
    assert controls.solve.disabled
    assert controls.solve.tooltip == "Wait until solving is done, or cancel it"
    assert not controls.cancel.disabled
    chain.state.busy = ""
    chain.state.improving = True
    assert not controls.cancel.disabled
    assert not controls.solve.disabled
    chain.state.improving = False


def test_options_are_read_shown_and_go_with_their_strategy(chain: Any) -> None:
    field: w.Text = controls_of(chain)._fields["options"][1]
    assert field.disabled
    chain.state.strategy = "checkmate-ilp"
    assert not field.disabled
    assert field.placeholder == "splits=1"
    field.value = "splits=2"
    assert chain.state.options == {"splits": 2}
    field.value = "split=2"
    assert "has no option 'split'; its options: splits" in chain.state.status
    assert chain.state.tone == "error"
    assert field.value == "splits=2"
    chain.state.strategy = "dtr"
    assert chain.state.options == {}
    assert field.value == ""


def test_options_reach_the_solver(chain: Any) -> None:
    chain.state.strategy, chain.state.budget = "griewank", 6
    chain.state.options = {"slots": 2}
    chain.solve()
    settled(chain)
    with_two = chain.solution.cost
    chain.state.options = {}
    chain.solve()
    settled(chain)
    assert chain.solution.cost < with_two
    chain.state.options = {"slot": 2}
    chain.solve()
    settled(chain)
    assert "the strategy 'griewank' has no option 'slot'; its options: slots" in chain.state.status


def test_the_cursor_is_moved_by_names(chain: Any) -> None:
    chain.select(operation="v3")
    assert (chain.state.stage, chain.state.value) == (3, 3)
    chain.select(stage=5, value="v2")
    assert (chain.state.stage, chain.state.value) == (5, 2)
    with pytest.raises(UnknownNameError, match="unknown operation 'v99'"):
        chain.select(operation="v99")


def test_a_comparison_takes_a_solution_a_strategy_or_nothing(chain: Any) -> None:
    chain.compare("checkpoint-all")
    assert chain.state.other.strategy == "checkpoint-all"
    assert chain.state.panel == "compare"
    chain.compare(chain.solution)
    assert chain.state.other is chain.solution
    chain.compare(None)
    assert chain.state.other is None
    with pytest.raises(UnknownNameError, match="'griewnk'"):
        chain.compare("griewnk")
    with pytest.raises(SolutionError, match="of the loaded graph"):
        chain.compare(rx.solve(rx.linear(4), 5))


def test_play_can_be_started_and_stopped_by_a_script() -> None:
    explorer = settled(rx.Explorer(graph=rx.linear(4), improve=False, sweep=False))
    play = explorer._views[3].bar
    explorer.play()
    assert play.playing
    play.playing = False  # what the button in the browser does
    assert not explorer.state.playing


def test_the_list_of_devices_has_the_gpu_once_a_module_is_loaded(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    field: w.Dropdown = controls_of(chain)._fields["device"][1]
    assert field.options == ("cpu",)
    chain.state.device = "cuda:1"
    settled(chain)  # another device loads the graph again, which sets the inputs
    chain.state.inputs = object()
    assert field.options == ("cpu", "cuda", "cuda:1")
    assert (field.value, chain.state.device) == ("cuda:1", "cuda:1")
    chain.state.inputs = None


def test_the_screen_does_not_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.parametrize(("name", "wrong", "said"), [("batch", "1e99", "batch size"), ("time_limit", "soon", "limit")])
def test_an_entry_that_is_no_number_is_refused_until_one_is_taken(chain: Any, name: str, wrong: str, said: str) -> None:
    field = controls_of(chain)._fields[name][1]
    status, shown = chain.state.status, field.value
    field.value = wrong
    assert chain.state.tone == "error"
    assert f"{wrong!r} is not a" in chain.state.status
    assert said in chain.state.status
    assert field.value == shown
    chain.state.device = "cpu"
    controls_of(chain)._fields["time_limit"][1].value = "30"
    assert chain.state.time_limit == 30
    assert (chain.state.status, chain.state.tone) == (status, "plain")


def test_two_refusals_one_after_the_other_go_together(chain: Any) -> None:
    field = controls_of(chain)._fields["time_limit"][1]
    status = chain.state.status
    for wrong in ("soon", "later"):
        field.value = wrong
    assert "'later'" in chain.state.status
    field.value = "30"
    assert chain.state.status == status


def test_a_budget_without_a_unit_is_asked_back_where_it_would_be_nothing(chain: Any) -> None:
    chain.state.smallest = replace(chain.state.smallest, lower_bound=1 << 20)
    view, budget = BudgetView(chain.state, lambda count: None), chain.state.budget
    view.field.value = "60"
    assert chain.state.budget == budget
    assert '\'60\' alone is bytes, and nothing fits below 1.00 MiB; write "60%" or "60 MiB"' in chain.state.status
    view.field.value = "60%"
    assert chain.state.budget == 6
    assert chain.state.tone != "error"


def test_the_kernel_does_not_send_back_where_the_thumb_was(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slider, sent = BudgetView(chain.state, lambda count: None).slider, []
    monkeypatch.setattr(BudgetSlider, "_send", lambda slider, message, buffers=None: sent.append(message["state"]))
    slider.set_state({"dragged": 5.0, "moving": 5.0, "value": 5.0})
    assert slider.answered == slider.dragged == 5
    assert {name for state in sent for name in state} >= {"answered", "value"}
    assert not [state for state in sent if "dragged" in state or "moving" in state]


def test_everything_but_model_budget_and_buttons_is_under_more(chain: Any) -> None:
    controls = controls_of(chain)
    first, others = controls.widget.children
    assert [child.description for child in first.children[0:1]] == ["Model"]
    assert {child.description for child in others.children} >= {"Batch", "Strategy", "Limit (s)"}
    assert others.layout.display == "none"
    controls.more.value = True
    assert chain.state.more
    assert others.layout.display is None
    chain.state.more = False
    assert not controls.more.value


def test_a_choice_that_is_hidden_and_not_the_usual_one_marks_more(chain: Any) -> None:
    controls = controls_of(chain)
    assert controls.more.description == "More"
    chain.state.strategy, chain.state.time_limit = "dtr", 5
    assert controls.more.description == "More •"
    assert controls.more.tooltip.endswith("Changed: strategy dtr, limit 5 s")
    chain.state.more = True
    assert controls.more.description == "More"


def test_cancel_is_seen_only_while_there_is_something_to_cancel(chain: Any) -> None:
    controls = controls_of(chain)
    assert controls.cancel.layout.visibility == "hidden"
    chain.state.improving = True
    assert controls.cancel.layout.visibility == "visible"
    chain.state.improving = False


def test_a_strategy_that_is_not_for_the_graph_says_so_and_why() -> None:
    net = driver_of(skipping())
    field: Any = controls_of(net)._fields["strategy"][1]
    assert ("griewank · only for chains", "griewank") in field.options
    assert ("optimal", "optimal") in field.options
    page = ExplorerPage(net.state)
    assert "'v2' (number 2) reads from 'v0', 'v1'" in page.fits["griewank"]["reason"]
    assert "is no chain of blocks" in page.fits["rotor"]["reason"]
    assert page.fits["rotor"]["is_refused"]
    assert "optimal" not in page.fits
    assert ("griewank", "griewank") in controls_of(driver_of(rx.linear(4)))._fields["strategy"][1].options
    net.state.strategy = "griewank"  # a script may, and hears why by solving, and from the tip
    assert field.value == "griewank"
    assert field.tooltip.startswith("'skipping' is no chain: forward operation 'v2'")


def test_a_strategy_that_takes_a_part_of_the_graph_can_be_chosen_and_says_which() -> None:
    net = driver_of(skipping())
    field: Any = controls_of(net)._fields["strategy"][1]
    assert ("checkpoint-sequential", "checkpoint-sequential") in field.options
    fits = ExplorerPage(net.state).fits
    assert not fits["checkpoint-sequential"]["is_refused"]
    assert "3 operations falls into 2 blocks, the largest of 2" in fits["checkpoint-sequential"]["reason"]
    assert "checkpoints are at articulation points" in fits["ap-greedy"]["reason"]
    net.state.strategy = "checkpoint-sequential"
    assert field.tooltip.startswith("Takes this graph in part only: the forward pass of 3 operations")


@pytest.mark.parametrize("graph", [skipping(), rx.linear(4), rx.linear(1)], ids=lambda graph: graph.name)
def test_strategies_are_refused_in_the_list_if_and_only_if_they_refuse_the_graph(graph: rx.Graph) -> None:
    for name in (name for name, method in STRATEGIES.items() if method.general_graphs is not Support.YES):
        try:
            rx.solve(graph, "100%", name)
            refused = False
        except SolverError:
            refused = True
        fit = unsuitable_strategies(graph).get(name)
        assert refused == (fit is not None and fit.is_refused), name


def test_of_a_graph_with_choices_strategies_are_asked_about_the_default_ones() -> None:
    assert unsuitable_strategies(chain_with_choices()) == unsuitable_strategies(
        default_implementations(chain_with_choices()).graph
    )


def test_keeping_everything_is_called_so_beside_checkpoint_all(chain: Any) -> None:
    field: Any = controls_of(chain)._fields["strategy"][1]
    assert ("keep everything (checkpoint-all)", "checkpoint-all") in field.options


def test_the_explorer_takes_the_smallest_budget_once_it_is_known():
    state, graph = State(), linear(8)
    with pytest.raises(QuantityError, match="none is known yet"):
        state.set_budget("smallest")
    state.checkpoint_all_peak, state.smallest = checkpoint_all_peak(graph), minimum_budget(graph)
    state.set_budget("smallest")
    assert state.budget == 3
