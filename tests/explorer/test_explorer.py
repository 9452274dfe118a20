"""The explorer without a browser: controllers change the state, views follow it, nothing blocks."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.controllers import loading
from remat_explorer.explorer.story import StoryView, story_html
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers.jobs import worker_process as process
from tests.explorer.driven import captured, explorer_of, settled, solved, until, view_of

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


@pytest.fixture(scope="module")
def chain() -> Any:
    return explorer_of(graph=rx.linear(8))


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))


def test_the_screen_does_not_wait_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["True", "False"], done.stderr


@pytest.mark.usefixtures("no_cache")
def test_graph_and_schedule_are_there_before_the_search_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, shown = threading.Event(), []

    def compiling(report: Any) -> None:
        begin.wait(60)
        state = explorer.state
        shown.append((state.graph is not None, state.solution and state.solution.strategy, state.busy))

    monkeypatch.setattr(loading, "load_search", compiling)
    explorer = rx.Explorer("mlp", batch=64, sweep=False, improve=False)
    begin.set()
    settled(explorer)
    assert shown == [(True, "checkpoint-all", "loading")]


@pytest.mark.usefixtures("no_cache")
def test_measuring_counts_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "COUNT_INTERVAL", 0.0)
    said: list[str] = []
    explorer = rx.Explorer("mlp", batch=64, measured_costs=True, sweep=False, improve=False)
    explorer.state.observe(lambda change: said.append(change["new"]), "status")
    settled(explorer)
    counts = [line for line in said if "runs…" in line]
    assert explorer.state.graph is not None
    assert len(counts) >= explorer.state.graph.n
    done, total = re.findall(r"(\d+) of (\d+) runs…", counts[-1])[0]
    assert done == total


@pytest.mark.usefixtures("no_cache")
def test_another_model_or_size_dims_the_picture_and_takes_a_budget_that_makes_no_sense_for_it() -> None:
    explorer = explorer_of("mlp", batch=2048, measured_costs=False)
    state, seen = explorer.state, []
    assert "no longer" not in state.status
    state.set_budget("90%")
    before = state.budget
    state.batch = 1024
    settled(explorer)
    assert state.budget < before
    assert state.tone == "warning"
    assert f"The budget is {format_bytes(state.budget)} now, no longer {format_bytes(before)}" in state.status
    kept = state.budget
    state.batch = 1000
    settled(explorer)
    assert (state.budget, state.tone) == (kept, "plain")

    def look(change: Any) -> None:
        dimmed = "remat-stale" in explorer._dom_classes
        seen.append((change["new"], dimmed, "The picture is still that of mlp." in story_html(state)))

    state.observe(look, "stale")
    state.model = "chain"
    settled(explorer)
    assert seen == [(True, True, True), (False, False, False)]
    explorer.close()


def test_solving_shows_the_optimum_and_what_cannot_be_solved_becomes_a_sentence(chain: Any) -> None:
    state = chain.state
    state.set_budget("40%")
    assert solved(chain).solution.cost == 26
    assert state.tone == "good"
    assert "Proven best · overhead +52.9 % · predicted peak 4 B of 4 B" in state.status
    shown, state.budget = state.schedule, 2
    solved(chain)
    assert state.schedule is shown
    assert (str(state.answer.status), state.tone) == ("infeasible", "error")
    assert "alone needs 3 B" in state.status
    state.strategy, state.budget = "optimum", 5
    solved(chain)
    state.strategy = "optimal"
    assert "unknown strategy 'optimum'; did you mean 'optimal'" in state.status
    assert "Traceback" not in state.status
    chain.execute()
    settled(chain)
    assert state.status == "This is a graph without a module, so nothing can run."


def test_what_was_solved_is_cached_and_a_bad_cache_is_a_warning(chain: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    state = chain.state
    state.set_budget("50%")
    assert "found in the cache" not in solved(chain).state.status
    cost = chain.solution.cost
    assert solved(chain).solution.cost == cost
    assert state.status.startswith("Proven best · ")
    assert "found in the cache, solved in" in state.status
    (tmp_path / "file").touch()
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    state.set_budget("70%")
    assert solved(chain).solution.cost == 20
    assert "another folder in the environment variable REMAT_EXPLORER_CACHE" in state.status
    assert state.tone == "warning"


def test_the_next_solve_has_a_process_that_waits_for_it() -> None:
    explorer = explorer_of(graph=rx.linear(4))
    loaded = process._waiting
    assert loaded is not None
    assert loaded.process.poll() is None
    explorer.state.strategy = "checkmate-ilp"  # which has no answer in the cache yet
    solved(explorer)
    waiting = process._waiting
    assert waiting is not None
    assert waiting.process.poll() is None


def test_while_a_solve_runs_the_kernel_answers_and_cancel_ends_it_and_keeps_the_incumbent(monkeypatch: Any) -> None:
    monkeypatch.setattr(loading, "FIRST_SECONDS", 0.0)  # else the optimum may be there already
    unusual = "59.3%"  # of no other test, whose schedules are kept
    explorer = explorer_of(graph=captured("mobilenet_v1"), budget=unusual, time_limit=600)
    state, shown = explorer.state, []
    first = state.schedule
    state.observe(lambda change: shown.append(change["new"]), "schedule")
    explorer.solve()
    for stage in range(20):
        state.stage = stage
    assert (state.busy, state.stage) == ("solving", 19)
    assert until(lambda: shown and shown[-1].cost < first.cost)
    view_of(explorer, StoryView).widget._custom({"action": "cancel"}, [])
    settled(explorer)  # long before its ten minutes are over
    assert state.schedule.cost <= min(schedule.cost for schedule in shown)
    assert explorer.solution.peak <= state.budget
    assert state.status.startswith("Cancelled, the best so far is kept")


def test_the_block_of_the_docs_that_drives_the_explorer_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explorer.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["explorer"].solution is not None
    assert names["explorer"].state.stage == 5


def test_unknown_names_are_refused_with_near_matches() -> None:
    with pytest.raises(UnknownNameError, match="unknown setting 'time_limt'; did you mean 'time_limit'"):
        rx.Explorer(graph=rx.linear(2), time_limt=3)
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'; did you mean 'vgg16'"):
        rx.Explorer("vg16")
