"""The model's graph as a person meets it."""

from __future__ import annotations

import pytest

from tests.browser.lab import run_cell, run_until_printed
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

PAINTED = """() => [...document.querySelectorAll('.remat-model canvas')].map((canvas) => {
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels).size;
}).every((colours) => colours >= 2)"""  # ground, stage, lines with names, cursor
SHOWN = """() => {
    const root = document.querySelector('.remat-model');
    return root && Number(root.dataset.operations) > 0 && root.clientWidth > 0
        && root.querySelector('canvas').width > 400
}"""


def test_the_model_is_shown_from_python_and_a_click_selects_a_value(notebook: LastingNotebook) -> None:
    cells = [
        "import remat_explorer as rx\nexplorer = rx.Explorer(graph=rx.linear(24), improve=False, sweep=False)\n"
        "explorer.wait(60)\nexplorer",
        "explorer.state.picture = 'model'\nexplorer.state.stage = 30",
        "print('value', explorer.state.value, 'stage', explorer.state.stage)",
    ]
    page = notebook.begin(*cells)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    run_cell(page, 0)
    assert page.locator(".remat-model").count() == 0 or not page.locator(".remat-model").is_visible()
    run_cell(page, 1)
    page.wait_for_function(SHOWN, timeout=30_000)
    page.wait_for_selector('.remat-model[data-stage="30"]')
    page.wait_for_function(PAINTED)

    page.keyboard.press("Escape")
    page.locator(".remat-model").scroll_into_view_if_needed()
    canvas = page.locator(".remat-model-canvas").bounding_box()
    before = page.locator(".remat-model").get_attribute("data-value")
    page.mouse.click(canvas["x"] + 0.4 * canvas["width"], canvas["y"] + 0.2 * canvas["height"])
    page.wait_for_function(f"() => document.querySelector('.remat-model').dataset.value !== '{before}'")
    page.locator(".remat-model-tip").filter(has_text="operation ").wait_for()
    clicked = int(page.locator(".remat-model").get_attribute("data-value"))
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f'.remat-model[data-value="{clicked + 1}"]')
    page.keyboard.press("PageDown")
    page.wait_for_selector('.remat-model[data-stage="31"]')
    run_until_printed(page, 2, f"value {clicked + 1} stage 31")
    assert [error for error in errors if "favicon" not in error] == []
    assert page.leaks == []
    assert page.failures == []
