"""What README claims is what the files say that it links to; README and docs are short enough to be read."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.quantities import format_overhead
from tests.project.pages import ROOT, blocks, links, page

README = page("README.md")
WORDS = " ".join(README.split())
DOCS = sorted((ROOT / "docs").glob("*.md"))
MOST_LINES, MOST_BYTES = 120, 8 * 2**10
MOST_BYTES_OF_ALL = 230 * 2**10  # of README and docs


def results(path: str) -> Any:
    assert f"benchmarks/results/{path}.json" in README or path == "field"
    return json.loads((ROOT / "benchmarks" / "results" / f"{path}.json").read_text(encoding="utf-8"))


def test_it_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    assert len(README.encode()) <= MOST_BYTES


def test_all_pages_together_are_no_book() -> None:
    sizes = {path.name: path.stat().st_size for path in [ROOT / "README.md", *DOCS]}
    assert sum(sizes.values()) <= MOST_BYTES_OF_ALL, sorted(sizes.items(), key=lambda entry: -entry[1])[:5]


def test_a_version_takes_at_most_sixty_lines() -> None:
    versions = re.split(r"^(?=## )", page("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert len(versions) >= 3
    assert max(len(text.splitlines()) for text in versions) <= 60


def test_every_page_is_found_from_it() -> None:
    found, new = set(), {ROOT / "README.md"}
    while new:
        path = new.pop()
        found.add(path)
        targets = {(path.parent / target).resolve() for target in links(path.read_text(encoding="utf-8"))}
        new |= {target for target in targets if target.suffix == ".md"} - found
    assert {ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS} <= found


def test_the_peaks_that_were_predicted_to_the_byte() -> None:
    rows = results("prediction_cpu")["details"]
    right = [row for row in rows if row["measured_peak"] == row["predicted_peak"]]
    assert f"**{len(right)} of {len(rows)}** peaks predicted to the byte" in WORDS
    assert (
        f"{len({row['model'] for row in rows})} models, {len({row['fraction'] for row in rows})} budgets each" in WORDS
    )
    same = ("gradients_equal", "buffers_equal", "random_state_equal")
    assert all(row[key] for row in rows for key in same)


def test_the_models_of_others() -> None:
    rows = [row for row in results("field")["details"] if row["outcome"] != "plain PyTorch fails"]
    equal = [row for row in rows if row["outcome"] == "exact"]
    libraries = {row["case"].partition(":")[0] for row in rows}
    assert f"**{len(equal)} of {len(rows)}** models of others | of {len(libraries)} libraries" in WORDS
    memory = statistics.median(row["measured"] / row["plain"] for row in equal)
    refused = sum(row["outcome"] == "refused" for row in rows)
    cost = format_overhead(statistics.median(row["cost"] for row in equal))
    assert refused == len(rows) - len(equal)
    assert f"in {100 * memory:.0f} % of plain PyTorch's memory (median) for a predicted {cost} of time;" in WORDS
    assert f"the other {refused} are refused" in WORDS
    times = [row["time"] for row in equal if "time" in row]
    factor = f"{statistics.median(times):.1f} times plain PyTorch's processor time (median)"
    assert f"The {len(times)} that were timed, in tiny sizes, took {factor}" in WORDS
    plans = [row["ratio"] - 1 for row in results("runtime_overhead_cpu")["details"] if row["case"] != "gru:32:64"]
    ends = [f"{100 * share:+.1f}".replace("-", "−") for share in (min(plans), max(plans))]
    assert f"In larger networks: {ends[0]} to {ends[1]} %" in WORDS


def test_checkmates_problem_with_stages_and_without() -> None:
    rows = [row for row in results("papers")["checkmate-section-4-6"]["rows"] if row["operations"] == 17]
    found = {row["form"]: row for row in rows}
    proven, open_ = found["with stages"], found["without stages"]
    assert (proven["status"], open_["status"]) == ("optimal", "feasible")
    seconds, minutes = f"{proven['processor seconds']:.1f} s", f"{open_['processor seconds'] // 60:.0f} minutes"
    assert f"**{seconds}**, or more than {minutes} |" in WORDS
    assert f"proven best in {seconds} partitioned" in WORDS
    assert f"unproven after {minutes} unpartitioned" in WORDS


def test_a_checkpoint_around_each_block_costs_more_than_the_best_schedule_of_its_peak() -> None:
    row = next(row for row in results("policies")["details"] if row["case"].startswith("llama") and row["every"] == 1)
    policy = row["policy"]
    best, blockwise = (cost / policy["all_once"] for cost in (policy["optimum"], row["every_cost"]))
    assert policy["lower_bound"] == pytest.approx(policy["optimum"])
    assert f"**{format_overhead(best)}** time instead of {format_overhead(blockwise)}" in WORDS


def test_times_that_were_measured_beside_predicted_ones() -> None:
    rows = {row["case"]: row for row in results("execute_cpu")["details"] if row["fraction"] == 0.5}
    mlp, residual = rows["mlp:2048"], rows["residual_net:128:32"]
    predicted, measured = ("predicted_overhead", "measured_overhead")
    assert f"took {format_overhead(mlp[measured])} where {format_overhead(mlp[predicted])} was predicted" in WORDS
    assert f"residual network {format_overhead(residual[measured])} for {format_overhead(residual[predicted])}" in WORDS


def test_what_has_been_seen_on_a_gpu_is_what_the_page_of_the_gpu_shows() -> None:
    text = page("docs/gpu.md")
    assert "| resnet18 | as PyTorch is | differ by 0.0088" in text
    run = json.loads(page("benchmarks/results/gpu/exactness.json"))["units"]["resnet18: as PyTorch is"]
    relative = max(entry["relative"] for entry in run["differences"] if entry["kind"] == "gradient")
    assert f"gradients differed by up to 0.0088 (by up to {100 * relative:.0f} % of a tensor's largest" in WORDS
    times = re.findall(r"\| [\d.]+ +\| ([\d.]+) ms +\| ([\d.]+) ms ", text)
    assert len(times) == 4
    ratios = sorted(float(measured) / float(predicted) for predicted, measured in times)
    assert f"Four networks took {ratios[0]:.2f} to {ratios[-1]:.2f} times their predicted time" in WORDS
    for name in ("gpt2", "bert"):
        assert re.search(rf"^- {name}: ExecutionError", text, re.MULTILINE)
    missing = re.findall(r"^- `\w+`:", text.partition("## Not run yet")[2], re.MULTILINE)
    assert (len(missing), len(re.findall(r"^## `", text, re.MULTILINE))) == (9, 2)
    assert "Nine of eleven parts" in WORDS


def test_its_python_runs_in_order_and_the_prediction_holds(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    programs = blocks(README, "python")
    assert len(programs) == 2
    for program in programs:
        exec(program, names)
    assert "gradients equal: max difference 0" in capsys.readouterr().out
    assert all(parameter.grad is not None for parameter in names["model"].parameters())


def test_every_picture_is_there() -> None:
    pictures = [Path(target) for target in links(README) if target.endswith(".png")]
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
