"""The live page as a person opens it: a file in a browser, with no kernel and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

import remat_explorer as rx
from remat_explorer.explanations.values import lives_of
from remat_explorer.explorer.state.state import State
from remat_explorer.plan import Plan
from tests.browser.test_accessibility import VIOLATIONS
from tests.explorer.panel_tools import measurement
from tests.hostile_names import hostile

pytestmark = pytest.mark.browser

PIXELS = """(place) => [...document.querySelectorAll(`${place} canvas:first-child`)].map((canvas) => {
    if (canvas.width * canvas.height === 0) return 0;
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
})"""
# Drags the budget to a share of the slider, and says what happened before the page was drawn again.
DRAG = """(share) => {
    const [slider, root] = ['#budget input', '.remat-matrices'].map((part) => document.querySelector(part));
    const drawn = root.dataset.drawn;
    slider.value = Number(slider.min) + share * (slider.max - slider.min);
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    return [root.dataset.drawn - drawn, root.querySelectorAll('canvas').length];
}"""

# Goes elsewhere, and the page writes where it was before it hears of that.
REMEMBERED_MEANWHILE = """() => {
    const before = location.hash;
    location.hash = '#budget=60%&stage=9&value=3';
    history.replaceState(null, '', before);
}"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a curve with recomputations; beside it one of an optimal schedule alone."""
    frontier = rx.sweep(rx.linear(8), budgets=[3, 4, 5, 6, 8, 10], strategies=["optimal", "griewank"])
    folder = tmp_path_factory.mktemp("page")
    rx.save_page(rx.solve(rx.linear(8), 4), folder / "only.html")
    return rx.save_page(frontier, folder / "page.html")


@pytest.fixture
def page(lasting_page: Any) -> Any:
    """A page in which every test opens the file anew."""
    lasting_page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    lasting_page.goto("about:blank")
    return lasting_page


def open_page(page: Any, path: Path, where: str = "") -> None:
    page.goto(path.as_uri() + where)
    page.wait_for_selector("body[data-ready][data-shown]", timeout=60_000)
    page.wait_for_selector('.remat-matrices[data-rows]:not([data-rows="0"])', state="attached", timeout=20_000)


def shown(page: Any, point: int, stage: int, value: int) -> bool:
    """Whether the page comes to show a point of the curve, a stage and a value."""
    page.wait_for_selector(f'body[data-shown="{point} {stage} {value}"]', timeout=20_000)
    return True


def test_everything_is_drawn_and_nothing_is_asked_for(saved: Path, page: Any) -> None:
    requests: list[str] = []
    page.context.on("request", lambda request: requests.append(request.url))
    open_page(page, saved)
    assert min(page.evaluate(PIXELS, "#matrices")) > 3
    page.click("#show-model")
    page.wait_for_function(f"() => ({PIXELS})('#model')[0] > 3")
    assert page.locator("#figure .js-plotly-plot, #figure.js-plotly-plot").count() == 1
    assert page.locator("#figure path.xy2, #figure .scatterlayer path").count() > 3
    assert "Recomputed here" in page.inner_text("#panel")  # the first look
    assert [address for address in requests if not address.startswith(("data:", "blob:"))] == [saved.as_uri()]
    assert page.leaks == []
    assert page.failures == []


def test_the_address_says_where_to_look_and_follows(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=60%&stage=9&value=3")
    assert shown(page, 3, 9, 3)
    assert "6 B · 60.0 % of keeping everything" in page.inner_text("#budget-said")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert shown(page, 3, 10, 4)
    page.wait_for_function("() => location.hash === '#budget=60.000%25&stage=10&value=4'")
    page.evaluate("location.hash = '#budget=4&stage=2&value=0'")
    assert shown(page, 1, 2, 0)
    page.evaluate(REMEMBERED_MEANWHILE)
    assert shown(page, 3, 9, 3)


def test_a_value_is_in_memory_at_the_statements_of_the_point_that_is_shown(page: Any, tmp_path: Path) -> None:
    frontier = rx.sweep(rx.linear(8), budgets=[3, 10], strategies=["optimal"])
    open_page(page, rx.save_page(frontier, tmp_path / "page.html"), "#budget=30%&stage=0&value=3")
    for point, (schedule, _) in enumerate(frontier.scheduled()):
        page.evaluate(f"location.hash = '#budget={[3, 10][point]}&stage=0&value=3'")
        assert shown(page, point, 0, 3)
        plan = Plan.of(schedule)
        lives = lives_of(plan).of_value[3]
        drawn = page.evaluate(
            "() => [...document.querySelectorAll('#panel .life rect')].map((bar) => [bar.x, bar.width])"
            ".map((sides) => sides.map((side) => side.baseVal.value))"
        )
        assert drawn == [[life.first, life.last - life.first + 1] for life in lives]
        assert page.evaluate("() => document.querySelector('#panel .strip').viewBox.baseVal.width") == len(
            plan.statements
        )
        assert f"(statements {lives[0].first} to {lives[0].last})" in page.inner_text("#panel")


def test_the_bar_plays_the_stages_at_its_speed_and_begins_again(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=14&value=0")
    bar = page.locator(".remat-stage-bar")
    bar.get_by_label("Speed").select_option("4")
    bar.get_by_role("button", name="Play the stages").click()
    page.wait_for_selector('body[data-shown*=" 16 "]', timeout=20_000)
    bar.get_by_role("button", name="Play the stages").click()  # it has stopped at the last one
    bar.get_by_role("button", name="Stop").click()
    assert int(bar.get_by_label("The selected stage").input_value()) < 16
    page.click("#show-model")
    assert page.locator(".remat-model").count() == 1
    bar.get_by_role("button", name="Play the stages").click()  # the model's picture goes by computations
    page.wait_for_function("() => Number(document.querySelector('.remat-stage-bar input').value) > 3", timeout=20_000)


def test_a_dragged_budget_is_drawn_before_the_page_is(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=0&value=0")
    for share in (0.05, 0.5, 0.05):
        drawings, canvases = page.evaluate(DRAG, share)
        assert drawings == 1
        assert canvases > 6  # the picture before fades
    assert "Best known within 3 B: overhead +164.7 %, optimal (proven)" in page.inner_text("#said")
    assert shown(page, 0, 0, 0)
    page.wait_for_function("() => document.querySelectorAll('.remat-matrices canvas').length === 6")
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(DRAG, 0.5) == [1, 6]


def test_the_memory_map_follows_the_budget_and_selects(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=100%&stage=3&value=3")
    page.click("#show-memory")
    page.wait_for_selector('.remat-map[data-rectangles="17"]')
    assert page.evaluate(PIXELS, "#memory")[0] > 3
    page.evaluate("location.hash = '#budget=40%&stage=3&value=3'")
    page.wait_for_selector('.remat-map[data-rectangles="26"]')
    assert "one block of 4 B, proven least" in page.inner_text("#memory")
    page.locator(".remat-map [role=application]").focus()
    page.keyboard.press("ArrowRight")
    assert shown(page, 1, 4, 3)
    assert page.failures == []


def test_moments_and_peaks_are_compared_without_a_kernel(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=8&value=3")
    page.click("#show-memory")
    page.locator(".remat-map [role=application]").focus()
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector('.remat-moments p:has-text("3 B at stage 8, 4 B at stage 9.")')
    assert page.locator(".remat-moments .total td").all_inner_texts() == ["all", "–", "3 B", "1 B"]
    page.locator(".remat-moments button", has_text="v9").click()
    assert shown(page, 1, 9, 9)
    page.get_by_role("button", name="Compare the peak").click()
    page.wait_for_selector('.remat-moments p:has-text("10 B at the peak of keeping everything, 4 B at the peak here.")')
    page.get_by_role("button", name="Stop comparing").click()
    page.wait_for_selector(".remat-moments", state="hidden")


def test_a_part_that_is_zoomed_into_is_that_of_matrices_and_map(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=8&value=3")
    page.locator(".remat-matrices").focus()
    page.keyboard.press("+")
    zoom = page.locator(".remat-matrices").get_attribute("data-zoom")
    assert zoom
    page.click("#show-memory")
    page.wait_for_selector(f'.remat-map[data-zoom="{zoom}"]')
    page.locator(".remat-map").get_by_role("button", name="Show every stage").click()
    page.wait_for_selector('.remat-map[data-zoom=""]')
    page.click("#show-matrices")
    page.wait_for_selector('.remat-matrices[data-zoom=""]')


def test_stages_that_change_while_the_matrices_are_hidden_raise_nothing(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=3")
    page.click("#show-memory")
    page.evaluate("location.hash = '#budget=80%&stage=5&value=3'")
    page.wait_for_selector('.remat-map[data-stage="5"]')
    page.click("#show-matrices")
    page.wait_for_selector('.remat-matrices[data-stage="5"]')
    assert page.failures == []


def test_where_nothing_fits_the_page_says_so_and_keeps_its_picture(page: Any, tmp_path: Path) -> None:
    open_page(page, rx.save_page(rx.solve(rx.linear(8), 6), tmp_path / "page.html"), "#budget=4&stage=5&value=3")
    assert shown(page, 0, 5, 3)
    assert (
        "No schedule of this curve fits into 4 B: the smallest one needs 6 B, and nothing fits below 3 B"
        in page.inner_text("#said")
    )
    assert page.locator("#said").get_attribute("data-tone") == "warning"
    assert page.locator(".remat-matrices").get_attribute("data-rows") == "17"
    page.evaluate("location.hash = '#budget=6'")
    page.wait_for_selector('#said[data-tone="plain"]')


def test_stages_play_to_the_end_and_stop_where_asked(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=14")
    page.get_by_role("button", name="Play the stages").click()
    page.wait_for_selector('.remat-matrices[data-stage="16"]', timeout=10_000)
    page.locator(".remat-matrices").focus()
    page.keyboard.press(" ")  # it has stopped by itself, and begins anew
    page.wait_for_function("() => [2, 3, 4].includes(Number(document.querySelector('.remat-matrices').dataset.stage))")
    page.keyboard.press(" ")
    stage = page.locator(".remat-matrices").get_attribute("data-stage")
    page.wait_for_timeout(600)
    assert page.locator(".remat-matrices").get_attribute("data-stage") == stage


def test_names_the_timeline_and_the_curve_select(saved: Path, page: Any) -> None:
    open_page(page, saved, "#budget=40%&stage=12&value=0")
    named = page.locator("#panel .reason span.link[data-stage]").first
    stage = named.get_attribute("data-stage")
    named.click()
    page.wait_for_selector(f'.remat-matrices[data-stage="{stage}"]')
    box = page.locator("#figure .nsewdrag[data-subplot=x2y2]").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=3)
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"])
    page.wait_for_selector(f'.remat-matrices:not([data-stage="{stage}"])')
    mark = page.locator("#figure .subplot.xy .point").last.bounding_box()
    middle = (mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    page.mouse.move(middle[0] - 2, middle[1], steps=3)
    page.mouse.click(*middle)
    page.wait_for_selector('#budget-said:not(:has-text("4 B"))')


def test_points_of_other_methods_are_shown_when_asked_and_lead_to_the_best_for_their_memory(
    saved: Path, page: Any
) -> None:
    open_page(page, saved, "#budget=4&stage=3&value=3")
    points = page.locator("#figure .subplot.xy .point")
    best = points.count()
    button = page.get_by_role("button", name="Other methods")
    button.click()
    page.wait_for_function(f"() => document.querySelectorAll('#figure .subplot.xy .point').length === {best + 6}")
    assert button.get_attribute("aria-pressed") == "true"
    traces = page.evaluate("() => document.querySelector('#figure').data.map((trace) => [trace.name, trace.x])")
    assert dict(traces)["griewank"] == [3, 4, 5, 6, 7, 8, 9, 10]
    mark = page.locator("#figure .subplot.xy .trace.scatter").last.locator(".point").nth(2).bounding_box()
    page.mouse.move(mark["x"] + mark["width"] / 2 - 2, mark["y"] + mark["height"] / 2, steps=3)
    page.mouse.click(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2)
    page.wait_for_selector('#budget-said:has-text("5 B · 50.0 %")')
    assert "optimal (proven)" in page.inner_text("#said")
    button.click()
    page.wait_for_function(f"() => document.querySelectorAll('#figure .subplot.xy .point').length === {best}")
    assert page.failures == []
    open_page(page, saved.with_name("only.html"))
    assert not button.is_visible()


def test_what_was_measured_is_said_and_draws_itself_where_it_is_on_the_screen(page: Any, tmp_path: Path) -> None:
    solution = rx.solve(rx.linear(8), 4)
    found = measurement(State(graph=solution.graph, schedule=solution.schedule))
    run = "() => document.querySelector('#figure').dataset.run"
    open_page(page, rx.save_page(solution, tmp_path / "page.html", measurement=found), "#budget=4")
    page.wait_for_function(f"{run} === 'drawing'", timeout=10_000)
    page.wait_for_function(f"{run} === 'drawn'", timeout=10_000)
    assert "4 B predicted, 4 B measured; gradients equal bit for bit" in page.inner_text("#proof")
    page.evaluate("location.hash = '#budget=10&stage=2&value=0'")  # another point
    assert shown(page, 1, 2, 0)
    page.click("#draw")
    page.wait_for_function(f"{run} === 'drawing'", timeout=10_000)
    assert "4 B · 40.0 %" in page.inner_text("#budget-said")
    assert page.failures == []
    open_page(page, rx.save_page(solution, tmp_path / "page.html"))
    assert not page.is_visible("#proof")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_serious_finding_of_axe(saved: Path, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_page(page, saved, "#budget=50%")
    page.evaluate(AXE_FILE_PATH.read_text("utf-8"))
    for picture in ("matrices", "model", "memory"):
        page.click(f"#show-{picture}")
        page.wait_for_timeout(200)
        if picture == "memory":
            page.get_by_role("button", name="Compare the peak").click()
        assert page.evaluate(VIOLATIONS, "body") == []
    ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 17, 17)"}[scheme]


def test_names_of_any_kind_are_text(page: Any, tmp_path: Path) -> None:
    graph = hostile(rx.linear(4))
    open_page(page, rx.save_page(rx.solve(graph, 4), tmp_path / "page.html"))
    for _ in range(3):
        page.locator(".remat-matrices").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(150)
    assert page.evaluate("() => window.ran === undefined")
    assert page.failures == []
