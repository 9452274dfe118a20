"""Whether a training step fits: bytes of optimizers, verdicts, shares, and how much larger it may be."""

import json
import sys
import time
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.cli.__main__ import main
from remat_explorer.errors import ModelError, QuantityError, UnknownNameError
from remat_explorer.fit import Fit, Recipe
from remat_explorer.fit.answer import reach_of
from remat_explorer.fit.optimizers import Weight
from remat_explorer.instances import linear
from remat_explorer.solvers import Progress, checkpoint_all_peak
from remat_explorer.solvers.batches.batch_scaling import BatchScaling
from tests.project.pages import blocks, page


def deep(width: int = 64, layers: int = 8) -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.Tanh())))


def fit(memory: Any, batch: int = 1024, **options: Any) -> Fit:
    inputs = (torch.empty(batch, 64, device="meta"),)
    return rx.fit(deep(), memory, inputs, loss=lambda y: y.square().mean(), time_limit=0.5, **options)


@pytest.fixture(scope="module")
def keep_all() -> int:
    plain, found = (fit("1 GB", optimizer=name) for name in ("sgd", "adamw"))
    assert found.keep_all - plain.keep_all == found.shares["optimizer"] == 2 * 4 * found.parameters + 16 * 4
    return plain.keep_all


def test_states_are_as_many_bytes_as_those_of_pytorch():
    makers = {"sgd": torch.optim.SGD, "momentum": partial(torch.optim.SGD, momentum=0.9), "adam": torch.optim.Adam}
    makers["adamw"] = torch.optim.AdamW
    for (name, make), dtype in product(makers.items(), (torch.float32, torch.bfloat16)):
        model = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5)).to(dtype)
        optimizer = make(list(model.parameters()))
        model(torch.ones(2, 3, dtype=dtype)).sum().backward()
        optimizer.step()
        kept = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        weights = [Weight(tuple(p.shape), p.element_size()) for p in model.parameters()]
        assert Recipe(name).state_bytes(weights) == sum(t.nbytes for t in kept)


def test_states_of_mixed_precision_and_in_8_bits_are_as_many_bytes_as_published():
    weights = [Weight((1024, 1024), 2)]  # ZeRO, section 3.1: 2 + 2 for parameters and gradients, and 12
    assert round(Recipe("adam", master_weights=True).extra_bytes(weights) / 1024**2) == 12
    assert Recipe("adam", True, True).extra_bytes(weights) - Recipe("adam", True).extra_bytes(weights) == 2 * 1024**2
    # a scale for each block; small states stay whole
    assert Recipe("adam8bit").state_bytes([Weight((64, 64), 4)]) == 2 * (4096 + 2 * 4)
    assert Recipe("adam8bit").state_bytes([Weight((64,), 2)]) == 2 * 64 * 4
    assert Recipe("adafactor").state_bytes([Weight((30, 40), 2), Weight((40,), 2)]) == 4 * (70 + 40)


@pytest.mark.parametrize(("share", "verdict"), [(1.0, "yes"), (0.7, "recompute"), (0.1, "no")])
def test_the_verdict_follows_from_the_memory(keep_all, share, verdict):
    found = fit(int(share * keep_all), optimizer="sgd")
    assert found.verdict == verdict
    assert sum(found.shares.values()) == found.keep_all == keep_all
    assert found.shares["parameters"] == 4 * found.parameters == 4 * 8 * 65 * 64
    assert found.least <= (found.known or keep_all)
    if found.solution.schedule is not None:
        assert (found.solution.peak or 0) <= found.memory
    assert found.verdict in {other.verdict for other in found.alternatives if str(other.recipe) == "sgd"}


def test_the_largest_batch_of_the_example_is_that_of_captures_at_that_batch(monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["remat_explorer.fit"], "QUICK", float("inf"))  # on a busy machine too
    names: dict[str, Any] = {}
    exec(blocks(page("docs/fit.md"), "python")[0], names)
    found = names["found"]
    assert capsys.readouterr().out.startswith("yes ")
    assert found.reach is not None
    assert found.reach.measured
    kept, known, bound = found.largest_of("batch") or (0, 0, 0)
    assert 0 < kept <= known <= bound

    def peak(batch: int) -> int:
        return checkpoint_all_peak(rx.models.load("residual_net", batch, device="cuda").graph)

    assert peak(kept) <= 300_000_000 < peak(kept + 1)
    assert found.largest_of("sequence") is None


def test_compiling_the_search_is_told_and_takes_nothing_from_the_time_limit(monkeypatch):
    room = sys.modules["remat_explorer.fit"]
    left: list[float] = []

    def compile_slowly(report: Any) -> None:
        report(Progress(0.0, "compiling"))
        time.sleep(1.0)

    def solved(*asked: Any) -> rx.Solution:
        left.append(asked[3])
        return solve(*asked)

    solve, told = room._solved, []
    monkeypatch.setattr(room, "load_search", compile_slowly)
    monkeypatch.setattr(room, "_solved", solved)
    fit("1 GB", on_progress=told.append)
    assert told[:3] == ["capturing the training graph", "compiling", "bounding the memory"]
    assert left[0] > 0


def test_tokens_are_batch_times_sequence():
    found = rx.fit("llama3_8b", "60 GB", layers=1, sequence=512, batch=2, optimizer="adam8bit", time_limit=4)
    batch, sequence = found.largest_of("batch"), found.largest_of("sequence")
    assert found.reach is not None
    assert (batch or (0,))[0] == found.reach.kept // 512 > 2
    assert (sequence or (0,))[0] == found.reach.kept // 2
    assert found.dtype == "bfloat16"
    text = str(found)
    for part in ("Fits into", "parameters", "activations", "Largest batch", "Longest sequence", "adam8bit"):
        assert part in text


def test_what_cannot_be_answered_is_quoted():
    with pytest.raises(UnknownNameError, match="unknown optimizer 'adm'; did you mean 'adam'"):
        fit("1 GB", optimizer="adm")
    with pytest.raises(QuantityError, match="'much' is not a number of bytes"):
        fit("much")
    with pytest.raises(ModelError, match="Sequential comes without inputs; give them"):
        rx.fit(deep(), "1 GB")
    with pytest.raises(ModelError, match="layers cannot be chosen for a model that comes with its inputs"):
        fit("1 GB", layers=3)


def test_the_command_prints_one_object_and_writes_the_schedule(capsys, tmp_path):
    def fit_command(options: str) -> int:
        return main(["fit", *options.split()])

    target, graph = tmp_path / "plan.json", tmp_path / "graph.json"
    written = f"--json -o {target} --graph {graph}"
    assert fit_command(f"mlp --memory 60MB --batch 2048 --optimizer sgd --time-limit 2 {written}") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "yes"
    assert rx.Solution.load(str(target), rx.Graph.load(str(graph))).peak == found["peak"] <= 60_000_000
    assert fit_command("mlp --memory 1MB") == 2
    assert "Does not fit into 977 KiB" in capsys.readouterr().out
    assert fit_command("graph.json --memory 1GB") == 64
    assert "parameters and inputs are not told apart" in capsys.readouterr().err


def test_a_single_unit_that_fits_with_recomputation_alone_is_found():
    graph = linear(8)
    step = reach_of(BatchScaling.by_rule(graph), "examples", checkpoint_all_peak(graph) - 1, 0.0, known=(1, 1.2))
    assert (step.kept, step.found, step.overhead) == (0, 1, 1.2)
    step = reach_of(BatchScaling.by_rule(graph), "examples", 5, 3.0)
    assert (step.kept, step.found, step.bound) == (0, 1, 1)
    assert step.overhead == pytest.approx(rx.solve(graph, 5).overhead)
