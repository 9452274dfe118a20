"""Exercises by name: a solution is right, other answers are not, and no answer is met with a friendly word."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from remat_explorer.course import EXERCISES, check, hint
from remat_explorer.course.exercise import attempt, faulty_cell
from remat_explorer.errors import UnknownNameError
from remat_explorer.exercises import UNANSWERED
from remat_explorer.explorer.panels.panels import TERMS
from remat_explorer.instances import linear
from remat_explorer.solvers.base import checkpoint_all
from tests.notebooks.notebook_runs import NOTEBOOKS
from tests.project.glossary_uses import WORDS, not_linked, prose
from tests.project.pages import page

GIVEN = ("02.2", "02.3", "11.1", "11.2")  # what is right depends on what their notebook has computed
ALONE = [name for name, exercise in EXERCISES.items() if not exercise.judged and name not in GIVEN]


@pytest.mark.parametrize("name", ALONE)
def test_a_solution_is_right_and_another_answer_is_not(name: str) -> None:
    exercise, names = EXERCISES[name], {}
    exec(exercise.solution, names)
    assert exercise.verdict(names["mine"]).startswith("Right")
    for wrong in (-1, "something else", [-1, -2]):
        assert exercise.verdict(wrong).startswith(("Not ", "There are"))


@pytest.mark.parametrize("name", EXERCISES)
def test_no_answer_is_not_called_wrong(name: str) -> None:
    assert {EXERCISES[name].verdict(nothing) for nothing in (None, ..., " ")} == {UNANSWERED}


def test_every_exercise_is_in_its_notebook_and_every_check_has_an_exercise() -> None:
    found = []
    for path in NOTEBOOKS:
        sources = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        names = re.findall(r'^check\("([\d.]+)"', sources, re.MULTILINE)
        assert all(name.startswith(path.name[:2]) for name in names)
        found += names
    assert sorted(found) == sorted(EXERCISES)


@pytest.mark.parametrize("mine", ["(1b)", "1b", " 1B ", "rule (1b)", "Eq. (1b)"])
def test_the_same_rule_in_other_clothes_is_right(mine: str) -> None:
    assert EXERCISES["04.3"].verdict(mine).startswith("Right")


def test_hints_say_more_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        hint("04.1")
    first, second, third = capsys.readouterr().out.splitlines()
    assert first != second == third


def test_an_attempt_is_drawn_with_the_faulty_cell_in_red() -> None:
    chain = linear(2)
    found = checkpoint_all(chain)
    R, S = found.R.astype(int), found.S.astype(int)

    def title(R: np.ndarray, S: np.ndarray) -> str:
        return attempt(chain, R, S, 3).to_dict()["layout"]["title"]["text"]

    assert faulty_cell(chain, R, S) is None
    assert title(R, S) == "Budget 3 bytes: stage 3 needs 4"
    S[3, 1] = 0
    assert faulty_cell(chain, R, S) == ("R", 3, 3)
    assert "breaks a rule" in title(R, S)


def test_an_attempt_by_hand_is_judged_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    figure = check("03.1", (np.eye(17, dtype=int), np.zeros((17, 17), dtype=int)))
    assert figure is not None
    assert capsys.readouterr().out.startswith("Not yet: stage 1 computes 'v1'")
    with pytest.raises(UnknownNameError, match=r"03\.9"):
        check("03.9", 1)


def test_the_glossary_has_the_terms_of_the_explorer() -> None:
    words = {
        word.strip()
        for line in re.findall(r"^\| <a id=.*?></a>([^|]+) \|", page("docs/glossary.md"), re.MULTILINE)
        for word in line.split(",")
    }
    assert {term.removesuffix(" t") for term in TERMS} <= words


def test_every_notebook_links_its_words_once_each_to_an_anchor_of_the_glossary() -> None:
    anchors = re.findall(r'<a id="([^"]+)">', page("docs/glossary.md"))
    assert len(anchors) == len(set(anchors))
    for path in NOTEBOOKS:
        sources = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
        linked = re.findall(r"\(\.\./docs/glossary\.md#([^)]+)\)", sources)
        assert {"schedule"} < set(linked) <= set(anchors), path.name
        assert len(linked) == len(set(linked)), path.name


def test_the_first_use_of_a_word_of_the_glossary_is_its_link() -> None:
    assert set(WORDS) == set(re.findall(r'<a id="([^"]+)">', page("docs/glossary.md")))
    for path in NOTEBOOKS:
        assert not_linked(prose(nbformat.read(path, as_version=4)), path.stem.partition("_")[0]) == [], path.name


def test_a_first_use_that_is_not_linked_is_found() -> None:
    text = "# A budget\n[Bounds](../docs/glossary.md#lower-bound) of $R$, [$S$](../docs/glossary.md#s), gap, `budget`."
    assert not_linked(text, "01") == ["gap", "r"]
    assert not_linked(text, "05") == ["r"]
    assert not_linked("[A stage](../docs/glossary.md#schedule)", "01") == ["stage"]


def test_every_notebook_states_its_minutes_and_ends_with_a_question() -> None:
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        assert re.search(r"\*\*It takes\*\* about \d+ minutes", cells[0].source), path.name
        assert "**The next question:**" in cells[-1].source, path.name


def test_every_notebook_has_three_things_to_remember_and_two_exercises_or_more() -> None:
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        last = cells[-1].source
        assert last.partition("## To remember")[2].count("\n- ") == 3, path.name
        text = "\n".join(cell.source for cell in cells)
        labels = re.findall(r'^(?:\*\*Exercise (\d+)|check\("[\d.]+")', text, re.MULTILINE)  # empty for a check
        assert len(labels) >= 4, path.name
        assert labels == [part for i in range(len(labels) // 2) for part in (str(i + 1), "")], path.name
