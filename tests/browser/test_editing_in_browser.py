"""Editing S by hand as a person does it: button, clicks, drags, keys, panel; and a page without a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

import remat_explorer as rx
from tests.browser.explorer_page import await_idle, show_in
from tests.browser.lasting_notebook import LastingNotebook
from tests.browser.test_accessibility import VIOLATIONS

pytestmark = pytest.mark.browser

EXPLORER = "rx.Explorer(graph=rx.linear(8), budget=8, improve=False, sweep=False)"
CELLS = 17  # stages and values of the chain


def cell(page: Any, stage: int, value: int) -> tuple[float, float]:
    """The middle of a cell of S, whose columns carry names."""
    area = page.locator(".remat-canvas").nth(1).bounding_box()
    foot = int(page.locator(".remat-matrices").get_attribute("data-foot"))  # as high as the longest name
    width, height = area["width"] - 44 - 6, area["height"] - 10 - foot
    return area["x"] + 44 + (value + 0.5) * width / CELLS, area["y"] + 10 + (stage + 0.5) * height / CELLS


def said(page: Any, text: str) -> None:
    page.locator(".remat-status .text", has_text=text).wait_for(timeout=20_000)


def press(page: Any, name: str) -> None:
    page.locator(".remat-panel.edit").get_by_role("button", name=name, exact=True).click()


def test_cells_are_kept_and_dropped_by_click_drag_and_keys_and_the_panel_tells_how_it_stands(
    notebook: LastingNotebook,
) -> None:
    page = show_in(notebook, EXPLORER)
    page.locator(".remat-matrices .remat-edit").click()
    page.wait_for_selector(".remat-matrices[data-editing=true]")
    assert page.locator(".remat-edit").get_attribute("aria-pressed") == "true"
    press(page, "Keep everything")
    said(page, "overhead +0.0 %, predicted peak 10 B, 2 B above the budget of 8 B")

    page.mouse.move(*cell(page, 9, 2))
    page.locator(".remat-tip", has_text="click: drop it up to its next use").wait_for()
    page.mouse.move(*cell(page, 2, 12))
    page.locator(".remat-tip", has_text="not computed before stage 12").wait_for()
    page.mouse.click(*cell(page, 2, 12))
    said(page, "'v12' is computed in stage 12 first")
    page.mouse.click(*cell(page, 9, 2))
    said(page, "overhead +5.9 %, predicted peak 9 B")
    page.mouse.click(*cell(page, 9, 2))
    said(page, "overhead +0.0 %")

    page.mouse.move(*cell(page, 8, 2))
    page.mouse.down()
    page.mouse.move(*cell(page, 12, 3), steps=4)
    page.mouse.up()
    said(page, "overhead +11.8 %, predicted peak 8 B, within the budget of 8 B")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("u")
    said(page, "overhead +0.0 %")
    page.keyboard.press("Shift+U")
    said(page, "overhead +11.8 %")
    page.keyboard.press("Control+z")
    said(page, "overhead +0.0 %")
    page.keyboard.press("Control+y")
    said(page, "overhead +11.8 %")
    page.keyboard.press("Home")
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    page.wait_for_selector(".remat-matrices[data-stage='9'][data-value='2']")
    page.keyboard.press("Enter")
    said(page, "overhead +5.9 %")

    page.evaluate(AXE_FILE_PATH.read_text("utf-8"))
    for theme in ("Dark", "Light"):  # over the budget, where red is used, and pale cells are kept in vain
        page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
        page.wait_for_selector(f'.remat-matrices[data-theme="{theme.lower()}"]')
        page.wait_for_timeout(500)
        assert page.evaluate(VIOLATIONS, ".remat-explorer") == [], theme

    press(page, "Undo")
    said(page, "overhead +11.8 %")
    press(page, "Judge")
    said(page, "Right: cost 19, peak 8 B.")
    assert page.evaluate(VIOLATIONS, ".remat-explorer") == []
    press(page, "Reveal")
    page.wait_for_selector(".remat-matrices[data-compared=true]")
    page.locator(".remat-panel.compare", has_text="by hand").wait_for()
    page.locator(".remat-tabs").get_by_role("tab", name="Edit", exact=True).click()
    press(page, "Stop")
    page.wait_for_selector(".remat-matrices[data-editing=false]")
    await_idle(page)
    assert page.failures == []


def test_where_operations_have_several_implementations_the_button_says_why_it_is_off(
    notebook: LastingNotebook,
) -> None:
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64, implementations="exact", sweep=False)')
    button = page.locator(".remat-edit")
    assert button.is_disabled()
    assert "several implementations" in button.get_attribute("aria-label")


def test_a_page_without_a_kernel_has_no_button_that_edits(page: Any, tmp_path: Path) -> None:
    path = rx.save_page(rx.solve(rx.linear(8), 4), tmp_path / "page.html")
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    assert page.locator(".remat-matrices").count() == 1
    assert page.locator(".remat-edit").count() == 0
    assert page.failures == []
