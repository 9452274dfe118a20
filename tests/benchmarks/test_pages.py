"""What docs say of models of others, of gaps and of PyTorch's own ways is what the benchmarks found."""

import json
import re
from pathlib import Path
from typing import Any

import field

from remat_explorer.quantities import format_bytes, format_overhead
from tests.project.pages import page

LARGE = {"ViT-L": "vit_large", "GPT-2 XL": "gpt2_xl", "ResNet-152": "resnet152", "DiT-XL": "dit_xl"}
BELOW_ONE = ("llama3_8b", "llama3_70b", "chain_5000")


def details(folder: Path, name: str) -> list[dict[str, Any]]:
    return json.loads((folder / "results" / f"{name}.json").read_text())["details"]


def paragraph(beginning: str) -> str:
    found = re.search(rf"^- {beginning}.*?(?=^- |^#|\Z)", page("docs/limits.md"), re.DOTALL | re.MULTILINE)
    assert found, beginning
    return " ".join(found[0].split())


def test_gaps_of_large_graphs(folder: Path) -> None:
    entries = details(folder, "large")
    at_smallest = {entry["graph"]: entry["gap"] for entry in entries if entry["budget"] == "smallest"}
    assert max(entry["gap"] for entry in entries if entry["budget"] == "a fifth") < 0.001
    assert max(at_smallest[name] for name in BELOW_ONE) < 0.01
    said = re.findall(rf"([\d.]+) % for ({'|'.join(LARGE)})", paragraph("The \\*gap\\*"))
    assert sorted(said) == sorted((f"{100 * at_smallest[graph]:.1f}", name) for name, graph in LARGE.items())
    assert at_smallest.keys() == {*LARGE.values(), *BELOW_ONE}


def test_gaps_just_above_the_smallest_budget(folder: Path) -> None:
    entries = details(folder, "tight")
    gaps = [entry["gap"] for entry in entries]
    said = paragraph("Budgets just above")
    graphs = {entry["graph"] for entry in entries}
    solved, near = (sum(gap < limit for gap in gaps) for limit in (1e-5, 0.05))
    assert f"With {len(graphs)} reference graphs" in said
    assert f"{solved} of the {len(gaps)} problems end with a gap of 0.001 % or less, {near} with 5 % or less" in said
    assert f"gaps of up to {100 * max(gaps):.1f} % remain" in said
    for graph in {entry["graph"] for entry in entries if entry["gap"] > 0.05}:
        assert f"`{graph}`" in said


def row(case: str, outcome: str) -> dict[str, str]:
    return {"case": case, "outcome": outcome}


def test_cases_are_counted_by_library_and_outcome_without_those_that_plain_pytorch_cannot_run():
    rows = [row("timm:a", "exact"), row("timm:b", "refused"), row("timm:c", "plain PyTorch fails"), row("x:d", "late")]
    said = " ".join(field.in_words(rows).split())
    assert "Of 3 models of 2 libraries 1 stay" in said
    assert "1 refused in words, 1 late." in said
    assert "By library: timm 1 of 2, x 0 of 1." in said


def test_the_page_has_what_the_results_say(folder):
    text = field.PAGE.read_text(encoding="utf-8")
    between = text.partition(field.BEGIN)[2].partition(field.END)[0].strip()
    rows = json.loads((folder / "results" / "field.json").read_text())["details"]
    assert between == field.in_words(rows)
    assert not {row["outcome"] for row in rows} & {*field.DEFECTS}


def test_what_training_says_of_programs_of_others_is_what_they_cost(folder):
    found = {row["program"]: float(row["overhead"]) for row in details(folder, "programs")}
    dear = {name: overhead for name, overhead in found.items() if overhead > 2}
    said = " ".join(page("docs/training.md").split())
    assert f"runs {len(found)} programs and settings" in said
    assert (len(found) - len(dear), dear.keys()) == (12, {"siamese_network", "time_sequence_prediction"})
    assert f"{dear['siamese_network']:.1f} times for `siamese_network`" in said
    assert f"{dear['time_sequence_prediction']:.0f} times for `time_sequence_prediction`" in said


def test_training_says_where_pytorchs_own_budget_is_better(folder):
    rows = [row for row in details(folder, "compiled") if row["case"].startswith("mobilenet_v1")]
    lowest = {way: format_bytes(min(row[way] for row in rows)) for way in ("torch", "ours")}
    times = {way: [row["seconds"][way] / row["seconds"]["plain"] for row in rows] for way in ("torch", "ours")}
    spans = {way: f"{format_overhead(min(found))} to {format_overhead(max(found))}" for way, found in times.items()}
    said = " ".join(page("docs/training.md").split())
    assert f"It comes down to {lowest['torch']} and is not slower ({spans['torch']})" in said
    assert f"ours comes down to {lowest['ours']}, at {spans['ours']}" in said
