"""The course: exercises and their verdicts, what every notebook has, and the lesson plans."""

import re
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pytest

from remat_explorer.course import EXERCISES, check, hint
from remat_explorer.course.exercise import attempt, faulty_cell
from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.panels.panels import TERMS
from remat_explorer.explorer.presentations import PRESENTATIONS
from remat_explorer.instances import linear
from remat_explorer.solvers.solver_interface import checkpoint_all
from remat_explorer.verdicts import UNANSWERED, schedule_verdict, verdict
from tests.notebooks.notebook_runs import NOTEBOOKS
from tests.project.pages import ROOT, links, page
from tests.project.test_docs import sections
from tools.website.slide_pictures import stale

GIVEN = ("02.2", "02.3", "11.1", "11.2", "12.3")  # what is right depends on what their notebook has computed
ALONE = [name for name, exercise in EXERCISES.items() if not exercise.judged and name not in GIVEN]


@pytest.mark.parametrize("name", ALONE)
def test_a_solution_is_right_and_another_answer_is_not(name: str) -> None:
    exercise, names = EXERCISES[name], {}
    exec(exercise.solution, names)
    for mine in ("1b", " 1B ", "Eq. (1b)") if name == "04.3" else (names["mine"],):
        assert exercise.verdict(mine).startswith("Right")
    for wrong in (-1, "something else", [-1, -2]):
        assert exercise.verdict(wrong).startswith(("Not ", "There are"))


def test_no_answer_is_not_called_wrong() -> None:
    for exercise in EXERCISES.values():
        assert {exercise.verdict(nothing) for nothing in (None, ..., " ")} == {UNANSWERED}


def test_every_exercise_is_in_its_notebook_and_every_check_has_an_exercise() -> None:
    found = []
    for path in NOTEBOOKS:
        sources = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        names = re.findall(r'^check\("([\d.]+)"', sources, re.MULTILINE)
        assert all(name.startswith(path.name[:2]) for name in names)
        found += names
    assert sorted(found) == sorted(EXERCISES)


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


def test_an_attempt_by_hand_is_judged_and_drawn_and_hints_say_more_each_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figure = check("03.1", (np.eye(17, dtype=int), np.zeros((17, 17), dtype=int)))
    assert figure is not None
    assert capsys.readouterr().out.startswith("Not yet: stage 1 computes 'v1'")
    with pytest.raises(UnknownNameError, match=r"03\.9"):
        check("03.9", 1)
    for _ in range(3):
        hint("04.1")
    first, second, third = capsys.readouterr().out.splitlines()
    assert first != second == third


def test_the_glossary_has_the_terms_of_the_explorer() -> None:
    words = {
        word.strip()
        for line in re.findall(r"^\| <a id=.*?></a>([^|]+) \|", page("docs/glossary.md"), re.MULTILINE)
        for word in line.split(",")
    }
    assert {term.removesuffix(" t") for term in TERMS} <= words


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_states_its_minutes_links_its_words_and_ends_as_all_do(path: Path) -> None:
    anchors = re.findall(r'<a id="([^"]+)">', page("docs/glossary.md"))
    assert len(anchors) == len(set(anchors))
    cells = nbformat.read(path, as_version=4).cells
    sources = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    linked = re.findall(r"\(\.\./docs/glossary\.md#([^)]+)\)", sources)
    assert {"schedule"} < set(linked) <= set(anchors)
    assert len(linked) == len(set(linked))
    assert re.search(r"\*\*It takes\*\* about \d+ minutes", cells[0].source)
    last = cells[-1].source
    assert "**The next question:**" in last
    assert last.partition("## To remember")[2].count("\n- ") == 3
    text = "\n".join(cell.source for cell in cells)
    labels = re.findall(r'^(?:\*\*Exercise (\d+)|check\("[\d.]+")', text, re.MULTILINE)  # empty for a check
    assert len(labels) >= 4
    assert labels == [part for i in range(len(labels) // 2) for part in (str(i + 1), "")]


@pytest.mark.parametrize(
    ("mine", "right", "said"),
    [
        *((mine, mine, "Right: ") for mine in (0, "stage", [1, 2])),
        (26 / 22, 1.1818181818, "Right: "),
        (" Stage ", "stage", "Right: "),
        ([3, 1, 2], (1, 2, 3), "Right: "),
        (set(), [], "Right: "),
        (True, 1, "Right: "),
        (1.18, 26 / 22, "Not 1.18. Hint: look again."),
        ("stages", "stage", "Not stages. Hint: look again."),
        ([1, 2, 4], [1, 2, 3], "Not "),
        ("3", [3], "Not 3. Write several answers, such as [1, 2]. Hint: look again."),
        ([3], 3, "Not 3. Write one answer, not several. Hint: look again."),
        ([], [1, 2], "There are some."),
    ],
)
def test_an_answer_is_judged_by_what_it_means_and_a_wrong_one_is_not_given_the_right_one(mine, right, said):
    assert verdict(mine, right, "look again").startswith(said)
    assert verdict(1.18, 26 / 22, tolerance=0.01) == "Right: 1.18182."  # where rounding is allowed


def test_a_schedule_is_right_only_if_it_keeps_the_rules_fits_and_is_cheap_enough():
    chain = linear(1)
    R, S = np.eye(3, dtype=int), np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    assert schedule_verdict(chain, R, S, 3, 3) == "Right: cost 3, peak 3 B."
    assert schedule_verdict(chain, R, S, 2, 3) == (
        "Not yet: stage 2 needs 3 B, above the budget of 2 B; at 'compute v2' v0, v1, v2 are in memory."
    )
    assert "costs 3; 2 is enough" in schedule_verdict(chain, R, S, 3, 2)
    S[2, 0] = 0
    assert "input 'v0' is neither computed nor retained" in schedule_verdict(chain, R, S, 3, 3)


def test_costs_of_captured_graphs_are_said_in_seconds_and_of_many_values_the_first() -> None:
    chain = linear(8)
    nodes = (replace(node, implementations=(replace(node.default, cost=0.004),)) for node in chain.operations)
    measured = replace(chain, operations=tuple(nodes))
    keep = checkpoint_all(measured)
    assert schedule_verdict(measured, keep.R, keep.S, 10, 1) == "Right: cost 68 ms, peak 10 B."
    assert "costs 68 ms; 64 ms is enough" in schedule_verdict(measured, keep.R, keep.S, 10, 0.064)
    assert "costs 0.068; 0.0679999 is enough" in schedule_verdict(measured, keep.R, keep.S, 10, 0.0679999)
    large = checkpoint_all(linear(20))
    assert "v11 and 10 more are in memory" in schedule_verdict(linear(20), large.R, large.S, 5, 100)


PLAN = sections(page("docs/teaching.md"))
STEP = re.compile(r"^### Step \d+\. .+ \((\d+) minutes\)\n", re.MULTILINE)


def rows_in(text: str) -> list[list[str]]:
    """The cells of each row of the tables, without those of the heads."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rules = [number for number, row in enumerate(cells) if set(row) == {"---"}]
    return [row for number, row in enumerate(cells) if number not in rules and number + 1 not in rules]


def test_the_minutes_of_the_demo_add_up() -> None:
    parts = STEP.split(PLAN["A demo of 35 minutes"])
    assert sum(map(int, parts[1::2])) == 35
    scenes = [(int(minutes), rows_in(text)) for minutes, text in zip(parts[1::2], parts[2::2], strict=True)]
    of_scenes = [(minutes, sum(int(row[1]) for row in found)) for minutes, found in scenes if found]
    assert [minutes for minutes, _ in of_scenes] == [together for _, together in of_scenes] == [10, 9]


@pytest.mark.parametrize("name", ["checkmate-figure-1", "unet"])
def test_the_scenes_are_those_of_the_presentation(name: str) -> None:
    (step,) = [
        text for text in STEP.split(PLAN["A demo of 35 minutes"])[2::2] if f'then `presentation("{name}")`' in text
    ]
    captions = [re.sub(r"\{\w+\}", "\0", scene.caption) for scene in PRESENTATIONS[name].scenes]
    assert [row[0] for row in rows_in(step)] == [str(number) for number in range(1, len(captions) + 1)]
    for row, caption in zip(rows_in(step), captions, strict=True):
        assert re.fullmatch(re.escape(caption).replace("\0", ".+").replace("\\\0", ".+"), row[2]), row[2]


def test_the_minutes_of_the_lab_add_up_and_every_exercise_has_its_answers() -> None:
    found = rows_in(PLAN["A lab of 90 minutes"])
    lab, answers = [row for row in found if len(row) == 3], [row for row in found if len(row) == 4]
    assert sum(int(minutes) for minutes, _, _ in lab) == 90
    planned = [name for row in lab for name in re.findall(r"\d\d\.\d", row[2])]
    assert planned == [row[0] for row in answers]
    assert set(planned) <= EXERCISES.keys()
    assert re.findall(r"^\*\*(\d)\.\*\*", PLAN["Eight questions"], re.MULTILINE) == list("12345678")
    for name, answer, wrong, _ in answers:
        if not EXERCISES[name].judged and name != "02.3":  # which compares with what its notebook has computed
            assert EXERCISES[name].verdict(answer).startswith("Right"), name
            assert EXERCISES[name].verdict(wrong).startswith("Not "), name


def test_slides_that_are_named_exist_and_their_pictures_are_fresh() -> None:
    slides = page("docs/teaching-slides.md")
    count = 1 + len(sections(slides))
    named = [
        int(number)
        for part in re.findall(r"[Ss]lides? ([\d to and]+)", page("docs/teaching.md"))
        for number in re.findall(r"\d+", part)
    ]
    assert max(named) == count == 10
    assert {(ROOT / "docs" / link).name for link in links(slides) if link.endswith(".svg")} == {
        path.name for path in (ROOT / "docs" / "slides").glob("*.svg")
    }
    assert stale() == []
