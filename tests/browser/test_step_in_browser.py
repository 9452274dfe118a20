"""The step as a person sees it: tanks, playhead and captions, in the live page and in JupyterLab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.plan import Compute, Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers.base import checkpoint_all
from tests.browser.lab import run_cell, run_until_printed
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

AT_REST = """(computation) => {
    const {dataset} = document.querySelector('.remat-model');
    return dataset.computation === String(computation) && dataset.moving === 'false';
}"""
PICTURES = "() => [...document.querySelectorAll('.remat-model canvas')].map((canvas) => canvas.toDataURL())"
# Every state that the playhead or the tanks go through while `press` is pressed, by the pictures of their canvases.
MOVED = """async (key) => {
    const canvases = ['.remat-step canvas', '[data-layer=playhead]'].map((part) => document.querySelector(part));
    const seen = new Set();
    document.querySelector('.remat-model').dispatchEvent(new KeyboardEvent('keydown', {key}));
    for (const end = performance.now() + 1500; performance.now() < end;) {
        await new Promise(requestAnimationFrame);
        seen.add(canvases.map((canvas) => canvas.toDataURL()).join());
    }
    return seen.size;
}"""


@pytest.fixture(scope="module")
def solved() -> rx.Solution:
    """A schedule with recomputations."""
    return rx.solve(rx.linear(8), 4)


@pytest.fixture(scope="module")
def saved(solved: rx.Solution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a schedule with recomputations, and of the one that keeps everything."""
    return rx.save_page(solved, tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def page(lasting_page: Any) -> Any:
    """A page in which every test opens the file anew."""
    lasting_page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    lasting_page.goto("about:blank")
    return lasting_page


def open_model(page: Any, path: Path, where: str) -> None:
    page.goto(path.as_uri() + where)
    page.wait_for_selector("body[data-ready][data-shown]", timeout=60_000)
    page.click("#show-model")
    page.wait_for_selector(".remat-model[data-computation]", timeout=20_000)


def at_rest(page: Any, computation: int) -> bool:
    """Whether the step comes to stand at a computation."""
    page.wait_for_function(AT_REST, arg=computation, timeout=20_000)
    return True


def runs_of(solved: rx.Solution, stage: int) -> list[tuple[int, Compute]]:
    """The computations of a stage with their places."""
    assert solved.plan is not None
    runs = [statement for statement in solved.plan.statements if isinstance(statement, Compute)]
    return [(place, run) for place, run in enumerate(runs) if run.stage == stage]


def level(page: Any, tank: str) -> str:
    return page.inner_text(f"[data-tank={tank}] b")


def test_captions_and_levels_are_those_of_the_plan(solved: rx.Solution, saved: Path, page: Any) -> None:
    plan, plain = solved.plan, Plan.of(checkpoint_all(solved.graph))
    assert plan is not None
    open_model(page, saved, "#budget=40%&stage=0")
    computed: list[int] = []
    runs = [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]
    kept = [i for i, statement in enumerate(plain.statements) if isinstance(statement, Compute)]
    for computation, i in enumerate(runs):
        statement = plan.statements[i]
        assert isinstance(statement, Compute)
        computed.append(statement.operation)
        assert at_rest(page, computation)
        assert level(page, "schedule") == format_bytes(int(plan.timeline.during[i]))
        bytes_ = int(plain.timeline.during[kept[len(set(computed)) - 1]])
        over = f", {format_bytes(bytes_ - 4)} over" if bytes_ > 4 else ""
        assert level(page, "plain") == format_bytes(bytes_) + over
        again = "" if statement.first else ", again"
        assert f"Computation {computation + 1} of 26: v{statement.operation}{again}" in page.inner_text(".now")
        page.locator(".remat-model").focus()
        page.keyboard.press(".")
    assert page.failures == []


def test_a_stage_is_told_in_words_and_shown_at_its_end(solved: rx.Solution, saved: Path, page: Any) -> None:
    open_model(page, saved, "#budget=40%&stage=13")
    *again, (last, _) = runs_of(solved, 13)
    assert at_rest(page, last)
    names = [f"v{run.operation}" for _, run in again]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    said = f"Stage 13 computes {listed} again ({len(names)} B), then v13"
    assert page.inner_text(".remat-step-said .stage") == said
    page.get_by_role("button", name="Previous computation").click()
    assert at_rest(page, last - 1)
    assert page.locator(".remat-model").get_attribute("data-stage") == "13"
    page.get_by_label("The computation that the step has come to").fill("9")
    assert at_rest(page, 9)
    page.wait_for_selector('.remat-matrices[data-stage="9"]', state="attached")
    page.get_by_role("button", name="Next stage").click()
    page.wait_for_selector('.remat-model[data-stage="10"]')


def test_the_step_plays_computation_by_computation_and_ends_at_the_last(saved: Path, page: Any) -> None:
    open_model(page, saved, "#budget=40%&stage=14")
    page.get_by_role("button", name="Play the stages").click()
    seen = set()
    while "Computation 26" not in (said := page.inner_text(".now")):
        seen.add(said)
        page.wait_for_timeout(100)
    assert len(seen) >= 3
    page.get_by_role("button", name="Play the stages").wait_for(timeout=10_000)
    assert at_rest(page, 25)
    page.locator(".remat-model").focus()
    page.keyboard.press(" ")
    page.wait_for_selector('.remat-model[data-stage="1"]', timeout=10_000)  # from the beginning
    page.keyboard.press(" ")
    here = page.locator(".remat-model").get_attribute("data-computation")
    page.wait_for_timeout(1600)
    assert page.locator(".remat-model").get_attribute("data-computation") == here


def test_without_motion_the_states_are_the_same_and_nothing_lies_between_them(
    solved: rx.Solution, saved: Path, page: Any
) -> None:
    open_model(page, saved, "#budget=40%&stage=13")
    (last, _) = runs_of(solved, 13)[-1]
    pictures: dict[int, list[Any]] = {}
    for motion in ("no-preference", "reduce"):
        page.emulate_media(reduced_motion=motion)
        page.locator(".remat-model").focus()
        for key, computation in ((",", last - 1), (",", last - 2), (".", last - 1), (".", last)):
            page.keyboard.press(key)
            assert at_rest(page, computation)
            page.wait_for_timeout(800)
            pictures.setdefault(computation, []).append(page.evaluate(PICTURES))
        states = page.evaluate(MOVED, ".")
        assert states > 4 if motion == "no-preference" else states <= 2
        page.keyboard.press(",")
        assert at_rest(page, last)
    assert len(pictures) == 3
    for same in pictures.values():
        assert len(same) in (2, 4)
        assert all(picture == same[0] for picture in same)
    assert pictures[last - 1][0] != pictures[last][0]


def test_the_step_of_a_thousand_operations_plays_and_is_scrubbed(data: Path, page: Any, tmp_path: Path) -> None:
    graph = rx.Graph.load(str(data / "captured" / "densenet161.json"))
    solution = rx.solve(graph, "60%", "linearized-greedy")
    assert solution.plan is not None
    count = sum(isinstance(statement, Compute) for statement in solution.plan.statements)
    assert graph.n > 1000
    open_model(page, rx.save_page(solution, tmp_path / "page.html"), "#budget=60%&stage=300")
    page.locator(".remat-model").focus()
    page.keyboard.press(" ")
    page.wait_for_function("() => Number(document.querySelector('.remat-model').dataset.stage) > 320", timeout=20_000)
    page.keyboard.press(" ")
    page.get_by_label("The computation that the step has come to").fill(str(count - 1))
    assert at_rest(page, count - 1)
    assert page.locator(".remat-model").get_attribute("data-stage") == str(graph.n - 1)
    assert page.failures == []


def test_the_step_in_the_explorer_moves_the_state_and_plays(notebook: LastingNotebook) -> None:
    cells = [
        "import remat_explorer as rx\n"
        "explorer = rx.Explorer(graph=rx.linear(8), budget=4, improve=False, sweep=False)\n"
        "explorer.wait(60)\nexplorer.state.picture = 'model'\nexplorer.state.computation = 19\nexplorer",
        "print('at', explorer.state.computation, 'in', explorer.state.stage, explorer.state.playing)",
        "explorer.state.speed = 4\nexplorer.play()",
    ]
    page = notebook.begin(*cells)
    run_cell(page, 0)
    page.keyboard.press("Escape")
    assert at_rest(page, 19)
    stage = page.locator(".remat-model").get_attribute("data-stage")
    assert page.inner_text(".remat-step-said .stage").startswith(f"Stage {stage} computes ")
    page.locator(".remat-model").focus()
    page.keyboard.press(".")
    assert at_rest(page, 20)
    run_until_printed(page, 1, f"at 20 in {page.locator('.remat-model').get_attribute('data-stage')} False")
    run_cell(page, 2)
    assert at_rest(page, 25)
    run_until_printed(page, 1, "at 25 in 16 False")
    assert page.leaks == []
    assert page.failures == []
