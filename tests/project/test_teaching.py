"""The lesson plans: minutes add up, and scenes, exercises and pictures are those that there are."""

from __future__ import annotations

import re

import pytest

from remat_explorer.course import EXERCISES
from remat_explorer.explorer.presentations import PRESENTATIONS
from tests.project.pages import ROOT, links, page
from tests.project.test_docs import sections
from tools.website.slide_pictures import stale

PLAN = sections(page("docs/teaching.md"))
STEP = re.compile(r"^### Step \d+\. .+ \((\d+) minutes\)\n", re.MULTILINE)


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the tables, without those of the heads."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    rules = [number for number, row in enumerate(cells) if set(row) == {"---"}]
    return [row for number, row in enumerate(cells) if number not in rules and number + 1 not in rules]


def test_the_minutes_of_the_demo_add_up() -> None:
    parts = STEP.split(PLAN["A demo of 45 minutes"])
    assert sum(map(int, parts[1::2])) == 45
    scenes = [(int(minutes), rows(text)) for minutes, text in zip(parts[1::2], parts[2::2], strict=True)]
    of_scenes = [(minutes, sum(int(row[1]) for row in found)) for minutes, found in scenes if found]
    assert [minutes for minutes, _ in of_scenes] == [together for _, together in of_scenes] == [12, 11]


@pytest.mark.parametrize("name", ["checkmate-figure-1", "unet"])
def test_the_scenes_are_those_of_the_presentation(name: str) -> None:
    (step,) = [
        text for text in STEP.split(PLAN["A demo of 45 minutes"])[2::2] if f'then `presentation("{name}")`' in text
    ]
    captions = [re.sub(r"\{\w+\}", "\0", scene.caption) for scene in PRESENTATIONS[name].scenes]
    assert [row[0] for row in rows(step)] == [str(number) for number in range(1, len(captions) + 1)]
    for row, caption in zip(rows(step), captions, strict=True):
        assert re.fullmatch(re.escape(caption).replace("\0", ".+").replace("\\\0", ".+"), row[2]), row[2]


def test_the_minutes_of_the_lab_add_up_and_every_exercise_has_its_answers() -> None:
    found = rows(PLAN["A lab of 90 minutes"])
    lab, answers = [row for row in found if len(row) == 3], [row for row in found if len(row) == 4]
    assert sum(int(minutes) for minutes, _, _ in lab) == 90
    planned = [name for row in lab for name in re.findall(r"\d\d\.\d", row[2])]
    assert planned == [row[0] for row in answers]
    assert set(planned) <= EXERCISES.keys()
    for name, answer, wrong, _ in answers:
        if not EXERCISES[name].judged and name != "02.3":  # which compares with what its notebook has computed
            assert EXERCISES[name].verdict(answer).startswith("Right"), name
            assert EXERCISES[name].verdict(wrong).startswith("Not "), name


def test_there_are_eight_questions_each_with_an_answer() -> None:
    text = PLAN["Eight questions"]
    assert re.findall(r"^\*\*(\d)\.\*\*", text, re.MULTILINE) == list("12345678")
    assert text.count("<details>") == text.count("</details>") == 8


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
