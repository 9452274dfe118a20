"""A report as a person opens it: a file in a browser, with no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from reproduction.arena_page import write_arena
from reproduction.judge import Contender, judge
from tests.browser.test_accessibility import AXE, VIOLATIONS
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile

pytestmark = pytest.mark.browser

DRAWN = """() => Object.fromEntries([...document.querySelectorAll('.figure')].map(
    (place) => [place.id, place._fullData ? place._fullData.length : 0]
))"""
PAINTED = """() => {
    const images = [...document.querySelectorAll('#matrices image')];
    return images.length === 3 && images.every((image) => image.href.baseVal.length > 100)
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A solution with recomputations, and its report."""
    solution = rx.solve(rx.linear(8), budget=4)
    return solution, rx.report(solution, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(lasting_page: Any) -> Any:
    """A page in which every test opens its report anew."""
    return lasting_page


def open_report(page: Any, path: Path) -> None:
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)


def test_figures_are_drawn_without_any_request(report: tuple[Any, Path], page: Any) -> None:
    requests: list[str] = []
    page.context.on("request", lambda request: requests.append(request.url))
    open_report(page, report[1])
    drawn = page.evaluate(DRAWN)
    assert sorted(drawn) == ["breakdown", "matrices", "network", "timeline"]
    assert min(drawn.values()) > 0
    page.wait_for_function(PAINTED)
    assert [address for address in requests if not address.startswith(("data:", "blob:"))] == [report[1].as_uri()]
    assert page.leaks == []
    assert page.failures == []


def test_both_files_can_be_saved_and_loaded(report: tuple[Any, Path], page: Any, tmp_path: Path) -> None:
    solution, path = report
    open_report(page, path)
    for what in ("graph", "solution"):
        with page.expect_download() as download:
            page.locator(f"a[data-file='{what}-file']").click()
        assert download.value.suggested_filename == f"linear8-{what}.json"
        download.value.save_as(tmp_path / f"{what}.json")
    loaded = rx.Solution.load(tmp_path / "solution.json", rx.Graph.load(str(tmp_path / "graph.json")))
    assert loaded.cost == solution.cost


def test_the_plan_opens_and_is_searched(report: tuple[Any, Path], page: Any) -> None:
    solution, path = report
    open_report(page, path)
    assert page.locator("#plan tbody tr").count() == 0
    page.locator("#plan summary").click()
    rows = page.locator("#plan tbody tr")
    rows.first.wait_for()  # the browser tells of the opening a moment later
    texts = [solution.plan.text(statement) for statement in solution.plan.statements]
    assert rows.locator("td:nth-child(3)").all_inner_texts() == texts
    page.locator("#plan input").fill("recompute")
    again = sum(text.startswith("recompute") for text in texts)
    assert again > 0
    assert rows.count() == again
    page.locator("#plan input").fill("stage 1")
    assert set(rows.locator("td:nth-child(2)").all_inner_texts()) == {"1"}


def test_hovering_names_the_cell(report: tuple[Any, Path], page: Any) -> None:
    solution, path = report
    open_report(page, path)
    page.locator("#matrices").scroll_into_view_if_needed()
    box = page.locator("#matrices .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 / 17 * box["width"], box["y"] + 0.5 / 17 * box["height"])
    page.wait_for_selector("#cell:has-text('runs first (forward)')", timeout=10_000)
    assert page.locator("#cell").inner_text().startswith("R, stage 0: operation 0, ")
    assert solution.graph.operations[0].name in page.locator("#cell").inner_text()


def test_implementations_have_colours_and_are_named_under_the_pointer(page: Any, tmp_path: Path) -> None:
    solution: Any = rx.solve(chain_with_choices(), 3600, "monet")
    open_report(page, rx.report(solution, tmp_path / "report.html"))
    page.locator("#ways").scroll_into_view_if_needed()
    box = page.locator("#ways .nsewdrag").first.bounding_box()
    stage = solution.schedule.R[:, 5].argmax()
    across, down = 5.5 / solution.graph.n, (stage + 0.5) / solution.schedule.stages
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
    page.wait_for_selector("#way:has-text('from bits')", timeout=10_000)
    assert page.locator("#way").inner_text() == (
        f"R, stage {stage}: operation 5, relu backward, runs first (backward) · from bits"
    )
    assert page.failures == []


def test_the_page_follows_the_theme_and_prints_on_light_ground(report: tuple[Any, Path], page: Any) -> None:
    ground = "() => document.getElementById('timeline')._fullLayout.paper_bgcolor"
    page.emulate_media(color_scheme="dark")
    open_report(page, report[1])
    assert page.evaluate(ground) == "#111111"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ground) == "#FFFFFF"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({ground})() === '#FFFFFF'")
    assert page.pdf()[:4] == b"%PDF"
    assert page.failures == []


PHONE = {"width": 390, "height": 844}
WIDTHS = """() => Object.fromEntries([...document.querySelectorAll('.figure')].map((place) => [place.id, {
    plot: place._fullLayout._size.w,
    title: place.querySelector('.gtitle')?.getBBox().width ?? 0,
    whole: place.getBoundingClientRect().width,
}]))"""


def test_on_a_phone_a_picture_comes_at_once_and_figures_have_room(page: Any, tmp_path: Path) -> None:
    graph = rx.linear(8)
    frontier = rx.sweep(graph, budgets=3)
    path = rx.report(rx.solve(graph, budget=4), tmp_path / "report.html", frontier=frontier, other=rx.solve(graph, 6))
    before = page.viewport_size
    page.set_viewport_size(PHONE)
    try:
        open_report(page, path)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert page.locator("#timeline").bounding_box()["y"] < PHONE["height"]
        widths = page.evaluate(WIDTHS)
        assert {"timeline", "curve", "matrices", "network", "two-schedules"} <= set(widths)
        for name, width in widths.items():
            assert width["plot"] > 250, name
            assert width["title"] <= width["whole"], name
        page.set_viewport_size({"width": 1280, "height": 800})  # turned, or moved to a desk
        page.wait_for_function("() => !document.getElementById('curve')._fullLayout.title.text.includes('<br>')")
        assert page.failures == []
    finally:
        page.set_viewport_size(before)


def test_names_do_nothing_and_no_script_runs_that_is_not_the_reports(page: Any, tmp_path: Path) -> None:
    solution = rx.solve(hostile(rx.linear(8)), budget=4)
    open_report(page, rx.report(solution, tmp_path / "hostile.html"))
    page.locator("#plan summary").click()
    page.wait_for_selector("#plan tbody tr")
    assert "<img src=x" in page.locator("#plan tbody").inner_text()
    page.locator("#matrices").scroll_into_view_if_needed()
    box = page.locator("#matrices .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + 0.5 / 17 * box["width"], box["y"] + 0.5 / 17 * box["height"])
    page.wait_for_selector("#cell:has-text('<img src=x')", timeout=10_000)
    assert page.locator("img, a[href*='evil']").count() == 0
    assert page.evaluate("window.ran") is None
    inserted = "document.body.insertAdjacentHTML('beforeend', '<img src=data:x onerror=\"window.ran=1\">')"
    page.evaluate(inserted)
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran=2'}))")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert page.leaks == []
    assert page.failures == []


def test_the_page_of_the_arena_is_drawn_without_any_request_in_both_themes(page: Any, tmp_path: Path) -> None:
    verdicts = judge(rx.linear(4), [Contender("chen-sqrt-n", "chen-sqrt-n")], [4, 5])
    path = write_arena(verdicts, tmp_path / "arena.html")
    requests: list[str] = []
    page.context.on("request", lambda request: requests.append(request.url))
    open_report(page, path)
    drawn = page.evaluate(DRAWN)
    assert sorted(drawn) == ["curves-0", "heat-map"]
    assert min(drawn.values()) > 0
    grounds = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(
            """theme => document.getElementById('heat-map')._fullLayout.paper_bgcolor
            === {light: '#FFFFFF', dark: '#111111'}[theme]""",
            arg=theme,
        )
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(17, 17, 17)"]
    assert [address for address in requests if not address.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert page.failures == []


def test_a_report_has_no_serious_finding_of_axe(page: Any, tmp_path: Path) -> None:
    graph = rx.linear(8)
    path = rx.report(rx.solve(graph, 4), tmp_path / "report.html", frontier=rx.sweep(graph, budgets=3))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        open_report(page, path)
        page.locator("#plan summary").click()
        page.evaluate(AXE)
        assert page.evaluate(VIOLATIONS, "body") == []
