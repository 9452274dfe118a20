"""The explorer and the report for those who do not see them, or use no pointer: axe, names, rings of the focus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

import remat_explorer as rx
from tests.browser.explorer_page import open_more, show

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


def violations(page: Any, place: str) -> list[str]:
    return page.evaluate(VIOLATIONS, place)


def test_the_explorer_has_no_serious_finding_of_axe_in_any_panel_and_theme(lab: tuple[str, Path], page: Any) -> None:
    show(page, lab, "accessible.ipynb", 'rx.Explorer("mlp", batch=64, implementations="exact")')
    open_more(page)
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
    page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")
    page.wait_for_selector('.remat-matrices[data-theme="dark"]')
    page.wait_for_timeout(500)
    found |= set(violations(page, ".remat-explorer"))
    assert sorted(found) == []


def test_fields_have_the_names_that_stand_over_them(lab: tuple[str, Path], page: Any) -> None:
    show(page, lab, "named.ipynb", 'rx.Explorer("mlp", batch=64)')
    for name in ("Model", "Batch", "Image", "Device", "Costs", "Implementations", "Strategy", "Options", "Solver"):
        assert page.locator(".remat-controls").get_by_label(name, exact=True).count() == 1, name
    assert page.get_by_label("Limit (s)", exact=True).input_value() == "60"
    assert page.locator(".remat-budget-row").get_by_label("Budget", exact=True).count() == 1
    assert page.get_by_role("slider", name="Stage").count() == 1
    open_more(page)
    page.get_by_label("Batch", exact=True).fill("32")
    page.get_by_label("Batch", exact=True).press("Enter")
    page.wait_for_selector('.remat-status[data-busy="loading"]', timeout=20_000)


def test_the_focus_is_seen_in_both_themes(lab: tuple[str, Path], page: Any) -> None:
    show(page, lab, "focus.ipynb", 'rx.Explorer("mlp", batch=64)')
    open_more(page)
    for theme in ("light", "dark"):
        page.wait_for_selector(f'.remat-matrices[data-theme="{theme}"]')
        seen, faint = page.evaluate(FAINT)
        assert seen > 25
        assert faint == [], theme
        page.evaluate("window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})")


def test_a_report_has_no_serious_finding_of_axe(page: Any, tmp_path: Path) -> None:
    graph = rx.linear(8)
    path = rx.report(rx.solve(graph, 4), tmp_path / "report.html", frontier=rx.sweep(graph, budgets=3))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-ready]", timeout=60_000)
        page.locator("#plan summary").click()
        page.evaluate(AXE)
        assert violations(page, "body") == []
