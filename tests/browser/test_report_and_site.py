"""Reports and the site as a person opens them: files in a browser, with no network."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.notebooknode import NotebookNode

import remat_explorer as rx
from remat_explorer.figures import player
from remat_explorer.figures.palette import palette
from reproduction.arena_page import write_arena
from reproduction.judge import Contender, judge
from tests.browser.explorer_page import flawless, requested, violations
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile
from tools.website.check import faults
from tools.website.execution import ROOT, WIDGET
from tools.website.outputs import PLOTLY
from tools.website.pages import write_pages
from tools.website.sphinx_site import make_html

DRAWN = """() => Object.fromEntries([...document.querySelectorAll('.figure')].map(
    (place) => [place.id, place._fullData ? place._fullData.length : 0]
))"""
PAINTED = """() => {
    const images = [...document.querySelectorAll('#matrices image')];
    return images.length === 3 && images.every((image) => image.href.baseVal.length > 100)
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    solution = rx.solve(rx.linear(8), budget=4)
    return solution, rx.report(solution, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(file_page: Any) -> Any:
    return file_page


def open_report(page: Any, path: Path) -> None:
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")


def test_figures_are_drawn_without_any_request(report: tuple[Any, Path], page: Any) -> None:
    requests = requested(page)
    open_report(page, report[1])
    drawn = page.evaluate(DRAWN)
    assert sorted(drawn) == ["breakdown", "matrices", "network", "timeline"]
    assert min(drawn.values()) > 0
    page.wait_for_function(PAINTED)
    assert requests == [report[1].as_uri()]
    assert flawless(page)


def test_both_files_can_be_saved_and_loaded_and_the_plan_is_searched(report: Any, page: Any, tmp_path: Path) -> None:
    solution, path = report
    open_report(page, path)
    for what in ("graph", "solution"):
        with page.expect_download() as download:
            page.locator(f"a[data-file='{what}-file']").click()
        assert download.value.suggested_filename == f"linear8-{what}.json"
        download.value.save_as(tmp_path / f"{what}.json")
    loaded = rx.Solution.load(tmp_path / "solution.json", rx.Graph.load(str(tmp_path / "graph.json")))
    assert loaded.cost == solution.cost
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


def hover(page: Any, figure: str, schedule: Any, stage: int, operation: int) -> None:
    page.locator(figure).scroll_into_view_if_needed()
    box = page.locator(f"{figure} .nsewdrag").first.bounding_box()
    across, down = (operation + 0.5) / schedule.graph.n, (stage + 0.5) / schedule.stages
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])


def test_the_cell_and_its_implementation_are_named_under_the_pointer(page: Any, tmp_path: Path) -> None:
    solution: Any = rx.solve(chain_with_choices(), 3600, "monet")
    open_report(page, rx.report(solution, tmp_path / "report.html"))
    hover(page, "#matrices", solution.schedule, 0, 0)
    page.wait_for_selector("#cell:has-text('runs first (forward)')")
    assert page.locator("#cell").inner_text().startswith("R, stage 0: operation 0, conv")
    stage = solution.schedule.R[:, 5].argmax()
    hover(page, "#ways", solution.schedule, stage, 5)
    page.wait_for_selector("#way:has-text('from bits')")
    said = f"R, stage {stage}: operation 5, relu backward, runs first (backward) · from bits"
    assert page.locator("#way").inner_text() == said
    assert flawless(page)


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
    assert flawless(page)


PHONE = {"width": 390, "height": 844}
WIDTHS = """() => Object.fromEntries([...document.querySelectorAll('.figure')].map((place) => [place.id, {
    plot: place._fullLayout._size.w,
    title: place.querySelector('.gtitle')?.getBBox().width ?? 0,
    whole: place.getBoundingClientRect().width,
}]))"""


def test_on_a_phone_figures_have_room_and_no_theme_has_a_serious_finding_of_axe(page: Any, tmp_path: Path) -> None:
    graph = rx.linear(8)
    frontier = rx.sweep(graph, budgets=3)
    path = rx.report(rx.solve(graph, budget=4), tmp_path / "report.html", frontier=frontier, other=rx.solve(graph, 6))
    page.set_viewport_size(PHONE)
    open_report(page, path)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.locator("#timeline").bounding_box()["y"] < PHONE["height"]  # a picture comes at once
    widths = page.evaluate(WIDTHS)
    assert {"timeline", "curve", "matrices", "network", "two-schedules"} <= set(widths)
    for name, width in widths.items():
        assert width["plot"] > 250, name
        assert width["title"] <= width["whole"], name
    page.set_viewport_size({"width": 1280, "height": 800})  # turned, or moved to a desk
    page.wait_for_function("() => !document.getElementById('curve')._fullLayout.title.text.includes('<br>')")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        open_report(page, path)
        page.locator("#plan summary").click()
        assert violations(page, "body") == []
    assert flawless(page)


def test_names_do_nothing_and_no_script_runs_that_is_not_the_reports(page: Any, tmp_path: Path) -> None:
    solution = rx.solve(hostile(rx.linear(8)), budget=4)
    open_report(page, rx.report(solution, tmp_path / "hostile.html"))
    page.locator("#plan summary").click()
    page.wait_for_selector("#plan tbody tr")
    assert "<img src=x" in page.locator("#plan tbody").inner_text()
    hover(page, "#matrices", solution.schedule, 0, 0)
    page.wait_for_selector("#cell:has-text('<img src=x')")
    assert page.locator("img, a[href*='evil']").count() == 0
    assert page.evaluate("window.ran") is None
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=data:x onerror=\"window.ran=1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran=2'}))")
    page.wait_for_timeout(300)
    assert page.evaluate("window.ran") is None
    assert flawless(page)


def test_the_page_of_the_arena_is_drawn_without_any_request_in_both_themes(page: Any, tmp_path: Path) -> None:
    verdicts = judge(rx.linear(4), [Contender("chen-sqrt-n", "chen-sqrt-n")], [4, 5])
    path = write_arena(verdicts, tmp_path / "arena.html")
    requests = requested(page)
    open_report(page, path)
    drawn = page.evaluate(DRAWN)
    assert sorted(drawn) == ["curves-0", "heat-map"]
    assert min(drawn.values()) > 0
    ground = "(colour) => document.getElementById('heat-map')._fullLayout.paper_bgcolor === colour"
    for theme, plot, body in (("light", "#FFFFFF", "rgb(255, 255, 255)"), ("dark", "#111111", "rgb(17, 17, 17)")):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(ground, arg=plot)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == body
    assert requests == [path.as_uri()]
    assert flawless(page)


pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"),  # within Sphinx
]
DOCS = ["docs/equations", "docs/papers", "docs/limits", "docs/teaching-slides"]
OPENED = ["index", "api", "search", "papers/drawn", *DOCS, "notebooks/01_explorer", "notebooks/04_the_integer_program"]
READ = {"light": ("index", "docs/teaching", "notebooks/01_explorer"), "dark": ("docs/arena", "papers/drawn")}
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(19, 20, 22)"}


def drawn(notebook: NotebookNode) -> tuple[NotebookNode, dict[str, str]]:
    """As if it had been executed: every notebook is without outputs but the one that draws."""
    if notebook.metadata.get("draws"):
        frames = [go.Frame(name=name, layout={"title": {"text": name}}) for name in ("first", "second")]
        layout = {"title": {"text": "first"}, **player(["first", "second"], "frame ", 100, 1.2, palette("light"))}
        figure = go.Figure(go.Scatter(y=[1, 3, 2]), layout, frames).to_plotly_json()
        explorer = nbformat.v4.new_output("display_data", {WIDGET: {"model_id": "explorer"}})
        progress = nbformat.v4.new_output("stream", name="stderr", text="Warning: 99 %")
        outputs = [nbformat.v4.new_output("display_data", {PLOTLY: figure}), explorer, progress]
        cell = nbformat.v4.new_code_cell("show()", outputs=outputs)
        cells = [nbformat.v4.new_markdown_cell("# Drawn\n\nWith $x \\le \\sum_i y_i$."), cell]
        notebook.cells = cells
        return notebook, {"explorer": "<p>the live page</p>"}
    return notebook, {}


@pytest.fixture(scope="module")
def site(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    metadata = {"draws": True, "language_info": {"name": "python"}}
    write_pages(folder / "source", drawn, {"drawn": nbformat.v4.new_notebook(metadata=metadata)})
    make_html(folder / "source", folder / "html")  # a link that leads nowhere is an error
    return folder / "html"


def faults_of(folder: Path, pages: Sequence[Path], **how: Any) -> list[str]:
    """What the check of the site finds, whose driver of browsers needs a thread without one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(faults, folder, pages, **how).result()


def test_every_page_of_docs_and_every_notebook_is_on_the_site(site: Path) -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
    wanted = [path.relative_to(ROOT).with_suffix(".html") for path in pages]
    assert [page for page in wanted if not (site / page).exists()] == []
    start = (site / "index.html").read_text("utf-8")
    assert [page for page in wanted if f'href="{page.as_posix()}"' not in start] == []


def test_ten_pages_open_without_a_network_drawn_and_no_wider_than_a_phone(site: Path) -> None:
    assert faults_of(site, [site / f"{page}.html" for page in OPENED]) == []


def test_pages_have_no_serious_finding_of_axe(site: Path, page: Any) -> None:
    for scheme, ground in GROUNDS.items():
        page.emulate_media(color_scheme=scheme)
        for name in READ[scheme]:
            page.goto((site / f"{name}.html").as_uri())
            assert violations(page, "article") == [], name
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground


def test_a_page_has_its_figure_its_formula_its_explorer_or_its_curves_and_no_warnings(site: Path) -> None:
    text = (site / "papers" / "drawn.html").read_text("utf-8")
    assert text.count('class="site-figure"') == 1
    assert "<math" in text
    assert 'src="../_static/live/drawn-1.html"' in text
    assert "the live page" in (site / "_static" / "live" / "drawn-1.html").read_text("utf-8")
    assert "99 %" not in text
    assert 'src="../_static/live/arena.html"' in (site / "docs" / "arena.html").read_text("utf-8")
    arena = (site / "_static" / "live" / "arena.html").read_text("utf-8")  # test_report opens such a page
    assert 'id="heat-map"' in arena
    assert "Curves: unet" in arena


def test_an_animation_plays_on_the_site(site: Path, page: Any) -> None:
    page.goto((site / "papers" / "drawn.html").as_uri())
    title = page.locator(".site-figure .gtitle")
    title.get_by_text("first").wait_for()
    page.locator(".site-figure .updatemenu-button").get_by_text("Play").click()
    title.get_by_text("second").wait_for()


def test_keys_turn_the_slides_and_each_fills_the_screen(site: Path, page: Any) -> None:
    page.goto((site / "docs" / "teaching-slides.html").as_uri())
    heights = page.eval_on_selector_all(".slide", "all => all.map(slide => slide.offsetHeight)")
    assert len(heights) == 10
    assert min(heights) >= page.evaluate("innerHeight")
    shown = "() => [...document.querySelectorAll('.slide')].findIndex(s => Math.abs(s.getBoundingClientRect().top) < 2)"
    for key, number in (("ArrowRight", 1), ("PageDown", 2), ("ArrowLeft", 1), ("End", 9), ("Home", 0)):
        page.keyboard.press(key)
        page.wait_for_function(f"() => ({shown})() === {number}")


def test_what_is_wrong_with_a_page_is_found(site: Path, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        '<div class="site-figure" style="width:900px">x</div><script src="https://localhost:1/x.js"></script>'
        "<script>throw new Error('broken')</script>",
        "utf-8",
    )
    found = "\n".join(faults_of(tmp_path, [page], wait=500))
    for fault in ("broken", "request https://localhost:1/x.js", "1 figures are not drawn", "wider than a phone"):
        assert fault in found


def test_words_are_found_from_a_file(site: Path, page: Any) -> None:
    page.goto((site / "search.html").as_uri() + "?q=fragmentation")
    page.wait_for_selector("#search-results li a")
    assert "allocator" in page.inner_text("#search-results").lower()
