"""Models to choose from, files of one's own, what others may do, and the first look at what was explored before."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer import models
from remat_explorer.cache_folder import entries, entry_path
from remat_explorer.errors import RematError
from remat_explorer.explorer import State
from remat_explorer.explorer.controllers import exploration_cache
from remat_explorer.explorer.controllers.exploration_cache import (
    NOT_CAPTURED,
    cache_key,
    replace_by_captured,
    show_cached,
    store_exploration,
)
from remat_explorer.explorer.controllers.model_sources import (
    DEFAULT_SIZES,
    MAX_LISTED,
    NO_MODULE,
    ModuleInputs,
    list_model_files,
    load_zoo_model,
)
from remat_explorer.explorer.controllers.schedule_comparison import open_solution_file, open_uploaded_solution
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.models import MODELS
from remat_explorer.permissions import Permissions
from remat_explorer.solvers import Frontier, Status, checkpoint_all_peak, extend_frontier, minimum_budget
from tests.explorer.driven import explorer_of, settled, solved, view_of
from tests.thorough import thorough_but

SAVING = ["linear32", "mlp", "residual_net", "resnet18", "segnet", "unet", "vgg16"]
LEAST = Permissions((), saving=False, paths=False)
NET = """
import torch
from torch import nn

open("ran", "w").close()

def make_model():
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range({layers})]), (torch.ones(4, 8),)
"""
SECRET = {"password": "hunter2", "token": "hunter2"}


def test_every_model_of_the_zoo_begins_with_a_size_that_it_takes_no_larger_than_the_published_one() -> None:
    assert tuple(DEFAULT_SIZES) == models.names()
    for name, begin in DEFAULT_SIZES.items():
        published = models.published_size(name)
        size = MODELS[name].sizes.choose(name, begin["batch"], begin.get("image"), begin.get("sequence"))
        assert max(size.image or (0,)) <= max(published.image or (0,)), name
        assert (size.sequence or 0) <= (published.sequence or 0), name


@pytest.mark.parametrize("name", thorough_but(SAVING, "linear32", "mlp", "residual_net"))
def test_a_model_begins_where_at_least_a_quarter_of_its_memory_can_be_saved(name: str) -> None:
    begin = DEFAULT_SIZES[name]
    graph = models.load(name, begin["batch"], begin.get("image"), begin.get("sequence")).graph
    assert minimum_budget(graph).known_feasible <= 0.75 * checkpoint_all_peak(graph)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """The working directory, with a model file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET.format(layers=3))
    return tmp_path


def opened(model: Any, *inputs: Any, **settings: Any) -> Any:
    return explorer_of(model, *inputs, measured_costs=False, **settings)


def test_files_are_listed_without_being_run_and_no_more_than_a_person_can_choose_from(folder: Path) -> None:
    (folder / "broken.py").write_text("def make_model(:\n    pass")
    (folder / "method.py").write_text("class Net:\n    def make_model(self): ...")
    (folder / "caller.py").write_text("from net import make_model\nmake_model()")
    (folder / "large.py").write_text("def make_model(): ...\n" + "#" * 600_000)
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").write_text("def make_model(): ...")
    assert list_model_files(folder) == ["broken.py:make_model", "net.py:make_model"]
    assert not (folder / "ran").exists()
    for number in range(2 * MAX_LISTED):
        (folder / f"net{number}.py").write_text("def make_model(): ...")
    assert len(list_model_files(folder)) == MAX_LISTED


def test_a_file_is_chosen_edited_and_loaded_again(folder: Path) -> None:
    explorer = opened("net.py:make_model")
    first = explorer.state.graph.n
    assert explorer.state.no_execution == ""
    (folder / "net.py").write_text(NET.format(layers=5))
    (folder / "other.py").write_text(NET.format(layers=2))
    controls = view_of(explorer, Controls)
    model = controls._fields["model"][1]
    assert "other.py:make_model" not in model.options
    controls.refresh.click()
    settled(explorer)
    assert explorer.state.graph.n > first
    assert {"net.py:make_model", "other.py:make_model", "vgg16"} <= set(model.options)
    assert controls._fields["batch"][1].disabled
    model.value = "other.py:make_model"
    assert settled(explorer).state.graph.n < first


def test_an_error_in_the_file_becomes_a_sentence_with_file_and_line(folder: Path) -> None:
    explorer = opened("net.py:make_model")
    view = "import torch\nclass Net(torch.nn.Linear):\n    def forward(self, x):\n        return x.view(17)\n"
    for source, said in (
        ("def make_model():\n    return 1 / 0\n", "make_model() of 'net.py' failed at line 2: ZeroDivisionError"),
        ("import torch\ndef make_model(:\n", "at line 2: SyntaxError"),
        ("def make_model():\n    return 3\n", "gave one int; return (model, args)"),
        (f"{view}def make_model():\n    return Net(3, 3), (torch.ones(3),)\n", "net.py:4"),
    ):
        (folder / "net.py").write_text(source)
        explorer.load()
        assert settled(explorer).state.tone == "error"
        assert said in explorer.state.status
        assert "net.py" in explorer.state.status
        assert "Traceback" not in explorer.state.status


def test_a_module_of_ones_own_leaves_the_zoo_to_choose_from() -> None:
    module = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
    explorer = opened(module, (torch.ones(4, 8),))
    model, batch = (view_of(explorer, Controls)._fields[name][1] for name in ("model", "batch"))
    assert model.options[0] == "Sequential"
    assert "mlp" in model.options
    assert batch.disabled
    own = explorer.state.graph
    model.value = "mlp"
    assert settled(explorer).state.graph.n != own.n
    assert not batch.disabled
    model.value = "Sequential"
    assert settled(explorer).state.graph.n == own.n


@pytest.fixture
def limited(folder: Path) -> Any:
    explorer = explorer_of(graph=rx.linear(8), permissions=LEAST)
    explorer.state.budget = 4
    return solved(explorer)


def test_a_model_file_is_listed_and_run_only_if_it_was_named(limited: Any, folder: Path) -> None:
    assert "net.py:make_model" not in view_of(limited, Controls)._fields["model"][1].options
    for name in ("net.py:make_model", "net.py", str(folder / "net.py:make_model")):
        limited.state.model = name  # as if the page had sent it
        assert settled(limited).state.tone == "error"
        assert "may not be loaded here" in limited.state.status
    with pytest.raises(RematError, match="--allow-model-files"):
        rx.Explorer("net.py:make_model", permissions=LEAST)
    assert not (folder / "ran").exists()
    allowed = explorer_of(graph=rx.linear(8), permissions=Permissions(("net.py:make_model",)), measured_costs=False)
    view_of(allowed, Controls)._fields["model"][1].value = "net.py:make_model"
    assert settled(allowed).state.no_execution == ""
    assert allowed.state.tone != "error"
    assert (folder / "ran").exists()


def test_an_export_is_a_download_whatever_the_page_asks_for(limited: Any, folder: Path) -> None:
    sent: list[Any] = []
    menu = limited._export.widget
    assert menu.saving is False
    menu.send = lambda message, buffers=None: sent.append(message["do"])
    for download in (True, False):
        limited._export._heard(menu, {"did": "choose", "kind": "graph", "download": download}, [])
    limited._export._heard(menu, {"did": "choose", "kind": "plots-svg", "download": False}, [])
    limited._export._heard(menu, {"did": "picture", "kind": "plots-svg"}, [b"<svg/>"])  # nobody has asked for it
    assert sent == ["download", "download", "picture"]
    assert [path.name for path in folder.iterdir()] == ["net.py"]


def test_a_solution_is_compared_from_an_upload_and_not_from_a_path(limited: Any, folder: Path) -> None:
    state: Any = limited.state
    path = rx.solve(rx.linear(8), budget=5).save(folder / "five.json")
    open_solution_file(state, str(path))
    assert state.other is None
    assert "opens no files by their path" in state.status
    for content in (b"\xff\x00", b"", b'{"format": 3}'):
        open_uploaded_solution(state, "mine.json", content)
        assert (state.other, state.tone) == (None, "error")
        assert "mine.json" in state.status
        assert "/tmp" not in state.status
    panel = view_of(limited, Panels).views["compare"]
    assert not hasattr(panel, "path")
    panel.upload.value = [
        {"name": "five.json", "type": "", "size": 1, "content": path.read_bytes(), "last_modified": datetime.now()}
    ]
    found: Any = state.other
    assert found.budget == 5
    assert "from five.json" in state.status


@pytest.mark.parametrize(
    "content", [SECRET, [SECRET], {**SECRET, "format": "hunter2"}, {**SECRET, "format": ["hunter2"]}, "hunter2", None]
)
def test_an_error_quotes_nothing_of_a_file_that_is_not_ours(content: Any, folder: Path) -> None:
    path, graph = folder / "secret.json", rx.linear(8)
    path.write_text(json.dumps(content) if content else "hunter2\n")
    for load in (
        lambda: rx.Graph.load(str(path)),
        lambda: rx.Solution.load(path, graph),
        lambda: rx.Solution.load_schedule(path, graph),
        lambda: rx.Frontier.load(path, graph),
    ):
        with pytest.raises(RematError, match=r"secret\.json") as refused:
            load()
        assert "hunter2" not in str(refused.value)


CHAIN = rx.linear(8)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """A state that knows two schedules of a chain, which it takes for a model of the zoo, and an empty cache."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    state = State(model="chain", graph=CHAIN, smallest=minimum_budget(CHAIN), checkpoint_all_peak=10)
    state.frontier = extend_frontier(CHAIN, None, [rx.solve(CHAIN, 4), rx.solve(CHAIN, 10)])
    state.inputs, state.budget = ModuleInputs(None, ()), 5
    return state


def budgets(state: Any) -> list[int]:
    return [solution.budget for solution in state.frontier.solutions]


def test_what_was_known_is_shown_before_the_model_is_captured_and_its_graph_takes_its_place(known: State) -> None:
    assert store_exploration(known)
    state: Any = State(model="chain")
    assert show_cached(state)
    assert state.graph == known.graph
    assert (state.budget, state.checkpoint_all_peak) == (5, 10)
    assert state.schedule.cost == 26
    assert state.value == 5  # its dearest recomputation
    assert budgets(state) == [4, 10]
    assert (state.inputs, state.no_execution) == (None, NOT_CAPTURED)
    assert show_cached(state, "100%")
    assert state.schedule.cost == 17

    state.stage = 12
    again = rx.linear(8)
    assert not replace_by_captured(state, rx.linear(7), known.inputs, "")
    assert replace_by_captured(state, again, known.inputs, "")
    assert state.graph is state.schedule.graph is state.frontier.graph is again
    assert (state.stage, state.inputs, state.no_execution) == (12, known.inputs, "")


def test_what_comes_with_the_package_is_of_the_network_as_it_is_and_no_search_finds_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    state: Any = State(model="residual_net")
    assert show_cached(state)  # after which every schedule has passed the checker
    graph = load_zoo_model(State(model="residual_net")).graph
    assert state.graph.sha256 == graph.sha256, "stale: python -m tools.first_look"
    assert (state.checkpoint_all_peak, state.solution.status) == (checkpoint_all_peak(graph), Status.OPTIMAL)
    budgets = sorted({point.budget for point in state.frontier.nondominated()})
    assert len(budgets) > 8
    for budget in budgets[::4]:
        best, found = state.frontier.best(budget), rx.solve(graph, budget, time_limit=1.0, cache=False)
        assert found.cost is not None
        assert best.cost <= found.cost * (1 + 1e-9), "stale: python -m tools.first_look"
        assert best.lower_bound <= found.cost * (1 + 1e-9)
    assert not show_cached(State(model="residual_net", batch=16))
    assert not show_cached(State(model="residual_net", device="cuda"))


@pytest.mark.parametrize("older", [True, False])
def test_what_was_kept_before_the_package_came_hides_nothing_that_comes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    state: Any = State(model="residual_net")
    assert show_cached(state)
    shipped = len(budgets(state))
    state.no_execution = ""
    state.smallest = minimum_budget(state.graph)
    state.frontier = extend_frontier(state.graph, None, [state.solution])
    assert store_exploration(state)
    seconds = exploration_cache.FIRST_LOOK.stat().st_mtime + (-60 if older else 60)
    os.utime(entry_path("look", cache_key(state) or {}), (seconds, seconds))
    assert show_cached(state)
    assert len(budgets(state)) == (shipped if older else 1)
    assert show_cached(state)  # to look at it makes it no newer than it is
    assert len(budgets(state)) == (shipped if older else 1)


def test_the_longest_unused_looks_go(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in (1, 2, 3):
        known.batch = batch
        assert store_exploration(known)
        os.utime(entry_path("look", cache_key(known) or {}), (batch, batch))
    assert show_cached(State(model="chain", batch=1))  # and is thereby the last used
    monkeypatch.setattr(exploration_cache, "MAX_CACHE_BYTES", sum(e.bytes for e in entries("look")))
    known.batch = 4
    assert store_exploration(known)
    assert [show_cached(State(model="chain", batch=batch)) for batch in (1, 2, 3, 4)] == [True, False, True, True]


def test_other_choices_have_looks_of_their_own_or_none(known: State) -> None:
    store_exploration(known)
    different = {"batch": 2, "implementations": "exact", "measured_costs": True, "no_execution": NO_MODULE}
    for name, value in different.items():
        assert not show_cached(State(model="chain", **{name: value})), name
    known.no_execution = NO_MODULE  # a graph with the name of a model
    assert not store_exploration(known)  # as a graph it is too small


@pytest.mark.parametrize(
    "wrong",
    [{"curve": {}}, {"budget": -1}, {"graph": {}}, {"key": {}}, {"version": 9}, None],
    ids=lambda wrong: next(iter(wrong or ["cost"])),
)
def test_a_file_that_is_damaged_or_claims_too_little_cost_is_as_none(known: State, wrong: Any) -> None:
    store_exploration(known)
    (entry,) = entries("look")
    document = json.loads(entry.path.read_text())
    if wrong is None:
        document["curve"]["points"][0]["cost"] = 20.0
    entry.path.write_text(json.dumps(document | (wrong or {})))
    state = State(model="chain")
    assert not show_cached(state)
    assert state.graph is None


def test_a_model_that_is_none_of_the_zoo_is_known_by_its_graph(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    known.model = "net.py:make"
    assert not store_exploration(known)  # too small
    monkeypatch.setattr(exploration_cache, "MIN_OPERATIONS", 9)
    assert store_exploration(known)
    state = State(model="net.py:make_again")
    assert not show_cached(state)
    assert not show_cached(state, captured=rx.linear(7))
    again = rx.linear(8)
    assert show_cached(state, captured=again)
    assert replace_by_captured(state, again, None, "no module")
    assert (state.graph, state.no_execution) == (again, "no module")
    assert budgets(state) == [4, 10]


def test_of_a_large_graph_few_schedules_are_kept(known: State, monkeypatch: pytest.MonkeyPatch) -> None:
    known.frontier = extend_frontier(CHAIN, None, [rx.solve(CHAIN, budget) for budget in range(3, 11)])
    monkeypatch.setattr(exploration_cache, "MAX_CHECKED_OPERATIONS", 3 * CHAIN.n)
    assert store_exploration(known)
    state = State(model="chain")
    assert show_cached(state)
    assert budgets(state) == [3, 5, 7, 10]  # 5 is the state's


def test_schedules_of_a_method_with_its_own_curve_are_kept_without_its_answers_to_budgets(known: State) -> None:
    swept = rx.sweep(CHAIN, [4, 10], ["optimal", "griewank"], ThreadPoolExecutor(1))
    known.frontier = Frontier(CHAIN, tuple(p for p in swept.solutions if p.strategy == "optimal"), own=swept.own)
    assert store_exploration(known)
    state: Any = State(model="chain")
    assert show_cached(state)
    assert state.frontier.strategies == ("optimal", "griewank")
    peaks = [peak for _, peak in known.frontier.scheduled()]
    assert len(peaks) > 2
    assert [peak for _, peak in state.frontier.scheduled()] == peaks
