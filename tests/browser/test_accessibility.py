"""The explorer for those who do not see them, or use no pointer: axe, names, rings of the focus."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from tests.browser.explorer_page import open_more, show_in
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

AXE = AXE_FILE_PATH.read_text("utf-8")
VIOLATIONS = """async (place) => {
    const found = await axe.run(place, {resultTypes: ['violations']});
    return found.violations.filter((rule) => ['serious', 'critical'].includes(rule.impact)).flatMap((rule) =>
        rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}`));
}"""
TABS = ("Fit", "Explain", "Plan", "At the peak", "Ways", "Solver", "Compare", "Edit", "Execution")
# The contrast of the ring around each control, when it has the focus, with the ground that it is drawn on.
FAINT = """async () => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const colour = (text) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = text;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
        for (let at = element.parentElement; at; at = at.parentElement) {
            const found = colour(getComputedStyle(at).backgroundColor);
            if (found[3] === 255 && at.offsetHeight >= element.offsetHeight) return found; // no bar under a thumb
        }
        return [255, 255, 255, 255];
    };
    const faint = [];
    let seen = 0;
    for (const control of document.querySelectorAll('.remat-explorer :is(button, select, input, [tabindex="0"])')) {
        if (control.disabled || control.offsetParent === null) continue;
        control.focus({focusVisible: true, preventScroll: true});
        if (document.activeElement !== control) continue;
        await new Promise(requestAnimationFrame);
        const {outlineColor, outlineStyle, outlineWidth} = getComputedStyle(control);
        const [a, b] = [light(colour(outlineColor)), light(ground(control))].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        seen += 1;
        if (outlineStyle === 'none' || parseFloat(outlineWidth) < 1 || contrast < 3)
            faint.push(`${outlineStyle} ${outlineWidth} ${contrast.toFixed(1)}: ${control.outerHTML.slice(0, 120)}`);
    }
    return [seen, faint];
}"""


@pytest.fixture(scope="module")
def page(notebook: LastingNotebook) -> Any:
    """A page with an explorer that offers all fields."""
    page = show_in(notebook, 'rx.Explorer("mlp", batch=64, implementations="exact")')
    open_more(page)
    return page


def choose_theme(page: Any, theme: str) -> None:
    """Let JupyterLab and the explorer be light or dark."""
    page.evaluate(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
    page.wait_for_selector(f'.remat-matrices[data-theme="{theme.lower()}"]')


def violations(page: Any, place: str) -> list[str]:
    return page.evaluate(VIOLATIONS, place)


def test_the_explorer_has_no_serious_finding_of_axe_in_any_panel_and_theme(page: Any) -> None:
    page.evaluate(AXE)
    assert "label" in " ".join(page.evaluate(VIOLATIONS, "body"))  # JupyterLab's own: the rules are there
    found = set(violations(page, ".remat-explorer"))
    for name in TABS:
        page.locator(".remat-tabs").get_by_role("tab", name=name, exact=True).click()
        page.wait_for_selector(f".remat-tabs [role=tab][aria-selected=true]:text-is('{name}')")
        found |= set(violations(page, ".remat-explorer"))
    for picture in ("Memory", "Model", "Layers", "Matrices"):
        page.locator(".remat-scrubber").get_by_role("button", name=picture).click()
        page.wait_for_timeout(500)
        found |= set(violations(page, ".remat-explorer"))
    choose_theme(page, "Dark")
    page.wait_for_timeout(500)
    found |= set(violations(page, ".remat-explorer"))
    assert sorted(found) == []


def test_the_focus_is_seen_in_both_themes(page: Any) -> None:
    for theme in ("Light", "Dark"):
        choose_theme(page, theme)
        seen, faint = page.evaluate(FAINT)
        assert seen > 25
        assert faint == [], theme


def test_fields_have_the_names_that_stand_over_them(page: Any) -> None:
    for name in ("Model", "Batch", "Image", "Device", "Costs", "Implementations", "Strategy", "Options", "Solver"):
        assert page.locator(".remat-controls").get_by_label(name, exact=True).count() == 1, name
    assert page.get_by_label("Limit (s)", exact=True).input_value() == "60"
    assert page.locator(".remat-budget-row").get_by_label("Budget", exact=True).count() == 1
    assert page.get_by_role("slider", name="Stage").count() == 1
    page.get_by_label("Batch", exact=True).fill("32")
    page.get_by_label("Batch", exact=True).press("Enter")
    page.wait_for_selector('.remat-status[data-busy="loading"]', timeout=20_000)
