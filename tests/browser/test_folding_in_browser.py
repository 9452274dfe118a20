"""Repeated blocks as a person meets them: folded at first, unfolded by click or key, in JupyterLab and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.base import AXE_FILE_PATH

import remat_explorer as rx
from remat_explorer.graph.repeated_blocks import repeated_blocks
from tests.browser.lab import run_cell, run_until_printed
from tests.browser.lasting_notebook import LastingNotebook
from tests.browser.test_accessibility import VIOLATIONS
from tests.browser.test_live_page import open_page
from tests.core.repeated_graphs import transformer

pytestmark = pytest.mark.browser

LAYERS = 13  # 421 operations, enough to be folded at first
BEGIN = """import remat_explorer as rx
from remat_explorer.graph import Graph
graph = Graph.load("blocks.json")
keep = rx.solve(graph, "100%", "checkpoint-all")
explorer = rx.Explorer(graph=graph, budget="100%", strategy="checkpoint-all", improve=False, sweep=False)
explorer.wait(60)
explorer"""
# A schedule in which the fifth and the tenth block's gelu is computed again, and is so kept in 11 of 13.
DIFFER = """from remat_explorer.explorer.work.screen import show_schedule
from remat_explorer.schedule import Schedule
(blocks,) = explorer.state.blocks
R, S = keep.schedule.R.copy(), keep.schedule.S.copy()
for copy in (4, 9):
    again = blocks.forward[copy, 11]
    reader = next(k for k in graph.readers[again] if graph.is_backward[k])
    S[again + 2 : reader + 1, again] = False
    R[reader, again] = 1
show_schedule(explorer.state, Schedule(graph, R, S), None)
explorer.select(stage=0, value=0)"""
SAY, COMPARE, NO_COMPARE = (
    "print(explorer.state.folded)",
    "explorer.state.other = keep",
    "explorer.state.other = None",
)
CELLS = [BEGIN, DIFFER, SAY, COMPARE, NO_COMPARE]
LABELS = ".remat-folds .remat-fold"
AREA = {"left": 44, "right": 6, "top": 28}  # pixels around the cells
NAMES, NUMBERS = 96, 32  # pixels below them


@pytest.fixture(scope="module")
def begun(notebook: LastingNotebook) -> Any:
    """A page with an explorer of a graph that repeats a block, and cells that change it."""
    transformer(LAYERS).save(str(notebook.root / "blocks.json"))
    return notebook.begin(*CELLS)


@pytest.fixture
def explored(begun: Any) -> Any:
    run(begun, BEGIN)
    await_attribute(begun, "rows", 32 * LAYERS + 5)
    await_attribute(begun, "folded", 0)
    begun.keyboard.press("Escape")
    return begun


def run(page: Any, source: str) -> None:
    run_cell(page, CELLS.index(source))


def say(page: Any, text: str) -> None:
    run_until_printed(page, CELLS.index(SAY), text)


def await_attribute(page: Any, name: str, value: Any) -> None:
    page.wait_for_selector(f'.remat-matrices[data-{name}="{value}"]', state="attached", timeout=20_000)


def hover(page: Any, matrix: int, column: int, row: int, columns: int, rows: int) -> str:
    """The tip over a cell of a folded matrix, which the pointer stays on."""
    page.locator(".remat-matrices").scroll_into_view_if_needed()
    area = page.locator(".remat-matrices .remat-canvas").nth(matrix).bounding_box()
    width = area["width"] - AREA["left"] - AREA["right"]
    below = NAMES if width / rows >= 9 else NUMBERS  # R and U have as many columns as rows, and names where they fit
    height = area["height"] - AREA["top"] - below
    x, y = (column + 0.5) * width / columns, (row + 0.5) * height / rows
    page.mouse.move(area["x"] + AREA["left"] + x, area["y"] + AREA["top"] + y)
    tip = page.locator(".remat-matrices .remat-tip")
    tip.filter(has_text="stage").wait_for(timeout=5000)
    return tip.inner_text()


def shown(count: int, rows: np.ndarray) -> list[int]:
    """The numbers up to ``count`` without those of all copies but the first."""
    away = set(rows[1:].ravel().tolist())
    return [number for number in range(count) if number not in away]


def test_a_large_graph_is_folded_and_a_click_on_the_label_unfolds_it(explored: Any) -> None:
    assert explored.locator(LABELS).count() == 6  # forward and backward, over R, S and U
    label = explored.locator(LABELS).first
    assert label.get_attribute("aria-label") == f"Unfold blocks.0–{LAYERS - 1} × {LAYERS}"
    assert label.inner_text() in (f"▸ blocks.0–{LAYERS - 1} × {LAYERS}", f"▸ × {LAYERS}")  # as much as fits
    assert label.get_attribute("aria-expanded") == "false"
    label.click()
    await_attribute(explored, "folded", "")
    say(explored, "()")
    assert explored.locator(LABELS).first.get_attribute("aria-expanded") == "true"
    explored.locator(LABELS).first.click()
    await_attribute(explored, "folded", 0)
    say(explored, "(0,)")
    assert explored.failures == []


def test_keys_fold_the_block_of_the_cursor_or_all(explored: Any) -> None:
    explored.locator(".remat-matrices").focus()
    explored.keyboard.press("Shift+F")
    await_attribute(explored, "folded", "")
    explored.keyboard.press("f")
    await_attribute(explored, "folded", 0)
    explored.locator(LABELS).first.focus()
    explored.keyboard.press("Enter")
    await_attribute(explored, "folded", "")
    say(explored, "()")
    assert explored.failures == []


def test_the_tip_says_in_which_copies_a_cell_is_filled_and_a_click_selects_one_of_them(explored: Any) -> None:
    run(explored, DIFFER)
    await_attribute(explored, "stage", 0)
    explored.keyboard.press("Escape")
    graph = transformer(LAYERS)
    (blocks,) = repeated_blocks(graph)
    operations, values = shown(graph.n, blocks.operations), shown(len(graph.values), blocks.values)
    names = [graph.operations[k].name for k in operations]
    gelu, down, head = (names.index(name) for name in ("blocks.0.gelu", "blocks.0.down backward", "head"))
    kept = values.index(graph.outputs(operations[gelu])[0])
    said = hover(explored, 1, kept, head, len(values), len(operations))
    assert f"blocks.0.gelu (16 B), one of {LAYERS} alike" in said
    assert f"kept from the stage before in {LAYERS - 2} of {LAYERS}: not in 4, 9" in said
    said = hover(explored, 0, gelu, down, len(operations), len(operations))
    assert f"recomputed in 2 of {LAYERS}: 4, 9" in said
    assert f"and those of {LAYERS - 1} copies" in said
    explored.mouse.down()
    explored.mouse.up()
    again = next(k for k, node in enumerate(graph.operations) if node.name == "blocks.4.down backward")
    await_attribute(explored, "stage", again)
    explored.wait_for_function("() => document.querySelector('.remat-live').textContent.includes('blocks.4.gelu')")
    assert explored.failures == []


def test_a_comparison_unfolds_everything_and_its_end_folds_it_again(explored: Any) -> None:
    run(explored, DIFFER)
    run(explored, COMPARE)
    await_attribute(explored, "compared", "true")
    await_attribute(explored, "folded", "")
    assert explored.locator(LABELS).count() == 0
    run(explored, NO_COMPARE)
    await_attribute(explored, "folded", 0)
    assert explored.failures == []


def test_the_live_page_folds_and_unfolds_by_itself(page: Any, tmp_path: Path) -> None:
    curve = rx.sweep(transformer(LAYERS), budgets=["100%"], strategies=["checkpoint-all"])
    open_page(page, rx.save_page(curve, tmp_path / "page.html"))
    await_attribute(page, "folded", 0)
    page.locator(LABELS).nth(1).click()
    await_attribute(page, "folded", "")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("Shift+F")
    await_attribute(page, "folded", 0)
    page.click("#show-model")
    page.wait_for_selector('.remat-model[data-folded="0"]', timeout=20_000)
    model = page.locator(".remat-model-canvas").bounding_box()
    page.mouse.click(model["x"] + model["width"] / 2, model["y"] + 0.3 * model["height"])  # on the block
    page.wait_for_selector('.remat-model[data-folded=""]', timeout=20_000)
    assert page.locator(".remat-matrices").get_attribute("data-folded") is not None
    page.locator(".remat-model .folds button").click()
    page.wait_for_selector('.remat-model[data-folded="0"]', timeout=20_000)
    page.click("#show-memory")
    page.wait_for_selector('.remat-map[data-folded="0"]', timeout=20_000)
    described = page.locator(".remat-map .remat-canvas").get_attribute("aria-label")
    assert "not folded, because each copy of a block has its own bytes" in described
    page.evaluate(AXE_FILE_PATH.read_text())
    assert page.evaluate(VIOLATIONS, "body") == []
    assert page.failures == []
    assert page.leaks == []
