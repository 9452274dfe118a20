"""Alternative implementations as a person meets them: toggles by mouse and keyboard, colours of R, layers, ways."""

from __future__ import annotations

from typing import Any

import pytest

from remat_explorer.figures.implementation_images import LIGHT
from tests.browser.explorer_page import await_idle, click
from tests.browser.lab import run_cell
from tests.browser.lasting_notebook import LastingNotebook
from tests.figures.choices import chain_with_choices

pytestmark = pytest.mark.browser

EXPLORER = 'rx.Explorer(graph=rx.Graph.load("choices.json"), budget=3600, improve=False, sweep=False)'
COLOURS = """() => {
    const canvas = document.querySelector('.remat-canvas canvas');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4)
        colours.add('#' + [0, 1, 2].map((c) => pixels[i + c].toString(16).padStart(2, '0')).join('').toUpperCase());
    return [...colours];
}"""


def toggle(page: Any, kind: str) -> Any:
    return page.locator(".remat-implementations").get_by_role("button", name=kind)


def test_kinds_are_toggled_and_colour_the_matrix(notebook: LastingNotebook) -> None:
    chain_with_choices().save(str(notebook.root / "choices.json"))
    page = notebook.begin(f"import remat_explorer as rx\nexplorer = {EXPLORER}\nexplorer")
    run_cell(page, 0)
    page.wait_for_selector('.remat-matrices[data-rows="6"]', timeout=90_000)
    await_idle(page)
    page.keyboard.press("Escape")
    click(page, "Solve")
    page.wait_for_function("() => document.querySelector('.remat-status .text').innerText.includes('Optimal (monet)')")
    toggle(page, "masks").focus()
    page.keyboard.press("Space")
    page.wait_for_selector(".remat-implementations .remat-kind-masks:not(.mod-active)", timeout=20_000)
    await_idle(page)
    page.wait_for_function("() => document.querySelector('.remat-status .text').innerText.includes('+21.4 %')")
    toggle(page, "masks").click()
    page.wait_for_function(
        "() => /^Solved before.*[+]7.1 %/.test(document.querySelector('.remat-status .text').innerText)"
    )
    assert LIGHT["masks"] not in page.evaluate(COLOURS)
    page.locator(".remat-implementations").get_by_role("button", name="implementation", exact=True).click()
    page.wait_for_selector('.remat-matrices[data-colouring="implementation"]', timeout=20_000)
    page.wait_for_function(f"(colour) => ({COLOURS})().includes(colour)", arg=LIGHT["masks"])
    page.get_by_role("button", name="Layers", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.remat-panel.case svg').length === 3", timeout=20_000)
    page.get_by_role("tab", name="Ways", exact=True).click()
    page.wait_for_selector(".remat-panel.ways", timeout=20_000)
    assert page.locator(".remat-explorer").bounding_box()["height"] < 711  # a browser rounds to half a pixel
    assert page.failures == []
