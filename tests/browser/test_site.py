"""The site, built with no notebook executed: strict, whole, drawn without a network, and searchable from a file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from nbformat.notebooknode import NotebookNode

from remat_explorer.figures.palette import palette
from remat_explorer.figures.playing import player
from tests.browser.test_accessibility import VIOLATIONS
from tools.website.check import faults
from tools.website.execution import ROOT, WIDGET
from tools.website.outputs import PLOTLY
from tools.website.pages import write_pages
from tools.website.sphinx_site import make_html

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning"),  # within Sphinx
]
OPENED = (
    "index.html",
    "api.html",
    "papers/drawn.html",
    "docs/equations.html",
    "docs/papers.html",
    "docs/limits.html",
    "docs/teaching-slides.html",
    "notebooks/01_explorer.html",
    "notebooks/04_the_integer_program.html",
    "search.html",
)
READ = (
    "index.html",
    "docs/arena.html",
    "docs/teaching.html",
    "notebooks/04_the_integer_program.html",
    "papers/drawn.html",
)
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
    assert faults_of(site, [site / page for page in OPENED]) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_have_no_serious_finding_of_axe(site: Path, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for name in READ:
        page.goto((site / name).as_uri())
        page.evaluate(AXE_FILE_PATH.read_text("utf-8"))
        assert page.evaluate(VIOLATIONS, "article") == [], name
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == GROUNDS[scheme]


def test_a_page_has_its_figure_its_formula_and_its_explorer_and_no_warnings(site: Path) -> None:
    text = (site / "papers" / "drawn.html").read_text("utf-8")
    assert text.count('class="site-figure"') == 1
    assert "<math" in text
    assert 'src="../_static/live/drawn-1.html"' in text
    assert "the live page" in (site / "_static" / "live" / "drawn-1.html").read_text("utf-8")
    assert "99 %" not in text


def test_the_arena_has_its_page_of_curves(site: Path) -> None:
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
    page.wait_for_selector("#search-results li a", timeout=30_000)
    assert "allocator" in page.inner_text("#search-results").lower()
