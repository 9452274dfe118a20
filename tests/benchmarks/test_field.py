"""What README says of models that nobody here wrote is what the file of results has."""

from __future__ import annotations

import json

import field


def row(case: str, outcome: str) -> dict[str, str]:
    return {"case": case, "outcome": outcome}


def test_cases_are_counted_by_library_and_outcome_without_those_that_plain_pytorch_cannot_run():
    rows = [row("timm:a", "exact"), row("timm:b", "refused"), row("timm:c", "plain PyTorch fails"), row("x:d", "late")]
    said = " ".join(field.in_words(rows).split())
    assert "Of 3 models of 2 libraries 1 stay" in said
    assert "1 refused in words, 1 late." in said
    assert "| timm | 2 | 1 | | x | 1 | 0 |" in said


def test_the_page_has_what_the_results_say(folder):
    text = field.PAGE.read_text(encoding="utf-8")
    between = text.partition(field.BEGIN)[2].partition(field.END)[0].strip()
    rows = json.loads((folder / "results" / "field.json").read_text())["details"]
    assert between == field.in_words(rows)
    assert not {row["outcome"] for row in rows} & {*field.DEFECTS}
