"""Notebooks are committed without outputs, with small settings, and what their tests look for can be missing."""

import re
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.notebook_runs import FIGURE, FOLDER, NOTEBOOKS, SHORTER, SHOWS, answered, lacking, outdated
from tools.website.pictures import SAID, UNTITLED, digest_of, picture_cell, stale, told


def test_every_notebook_says_what_it_must_show() -> None:
    assert [path.name for path in NOTEBOOKS] == sorted(SHOWS)
    for name, shorter in SHORTER.items():
        text = "\n".join(cell.source for cell in nbformat.read(FOLDER / name, as_version=4).cells)
        assert [part for part in shorter if part not in text] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_committed_without_outputs_with_fresh_pictures_small_settings_and_short_cells(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    cells = notebook.cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert stale(notebook) == [], "make pictures renews them"
    pictures = [cell.source for cell in cells if "picture" in cell.metadata]
    assert all(source.endswith(f"\n\n{SAID}") for source in pictures)
    untitled = [source for source in pictures if f"![{UNTITLED}]" in source]
    assert untitled == [], "metadata shows of the code cell says it where a figure has no title"
    if path != NOTEBOOKS[0]:
        sources = [cell.source for cell in cells if cell.cell_type == "code"]
        assert re.search(r"^small = True  # False: ", sources[0], re.MULTILINE)
        assert max(len(source.splitlines()) for source in sources) <= 16


def test_a_picture_is_stale_where_code_above_it_changed_or_its_file_is_gone(tmp_path: Path) -> None:
    first, second = nbformat.v4.new_code_cell("draw(1)"), nbformat.v4.new_code_cell("draw(2)")
    picture = picture_cell(first, digest_of([first, second], 0), {"a.png": "A figure"})
    notebook = nbformat.v4.new_notebook(cells=[first, picture, second])
    assert stale(notebook, tmp_path) == ["a.png"]
    (tmp_path / "a.png").touch()
    second.source = "draw(3)"
    assert stale(notebook, tmp_path) == []
    first.source = "draw(4)"
    assert stale(notebook, tmp_path) == ["a.png"]


def test_the_solution_of_an_exercise_stands_before_its_check() -> None:
    exercise = nbformat.v4.new_code_cell('mine = None\ncheck("03.5", mine)')
    (cell,) = answered([exercise, nbformat.v4.new_markdown_cell("text")])
    assert cell.source == 'mine = None\nmine = 3\ncheck("03.5", mine)'


def test_what_is_missing_and_a_wrong_answer_are_found() -> None:
    figure = nbformat.v4.new_output("display_data", {"application/vnd.plotly.v1+json": {}})
    words = nbformat.v4.new_output("stream", text="Not 3.")
    cell = nbformat.v4.new_code_cell("print(3)", outputs=[words], metadata={"exercise": True})
    notebook = nbformat.v4.new_notebook(cells=[cell])
    assert lacking(notebook, ("optimal", r"Not \d")) == [FIGURE, "optimal", "print(3)\nprinted: Not 3."]
    notebook.cells = [nbformat.v4.new_code_cell("show()", outputs=[figure])]
    assert lacking(notebook, ()) == []


def test_printed_lines_that_are_told_below_their_cell_are_those_that_are_printed() -> None:
    words = nbformat.v4.new_output("stream", text="cost 26, 0.12 s\n")
    table = nbformat.v4.new_output("display_data", {"text/markdown": "| optimal | 26 |"})
    cell = nbformat.v4.new_code_cell("solve()", outputs=[words, table], metadata={"tags": ["printed"]})
    kept = [f"```text\ncost {cost}, 1.5 s\n```\n\n| optimal | 26 |" for cost in (26, 25)]
    same, other = (picture_cell(cell, "", {}, text) for text in kept)
    assert told(cell.outputs) == kept[0].replace("1.5", "0.12")
    assert [outdated(cells) for cells in ([cell, same], [cell, other], [cell])] == [[], [cell.id], [cell.id]]
    cell.metadata["tags"] = ["printed", "measured"]
    assert [outdated(cells) for cells in ([cell, other], [cell])] == [[], [cell.id]]
