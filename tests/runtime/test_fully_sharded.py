"""Models that `torch.distributed.fsdp.fully_shard` has sharded, in two processes: a plan gathers parameters itself."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed import fsdp
from torch.distributed.tensor import Shard

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import RematError
from remat_explorer.plan import Compute
from tests.runtime.two_processes import run_two

WIDTH = 48
X = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1))
REFUSED: dict[str, dict[str, Any]] = {
    "mixed precision": {"mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16)},
    "parameters on the CPU": {"offload_policy": fsdp.CPUOffloadPolicy(pin_memory=False)},
}
WORDS = {
    **dict.fromkeys(REFUSED, "the model is sharded (fully_shard) with"),
    "two dimensions": "a mesh of several dimensions (HSDPMeshInfo)",
    "several modules": "together with other modules",
    "columns": "in another way than by rows",
    "divide factor": "set_gradient_divide_factor",
    "no sync": "set_requires_gradient_sync(True)",
    "after": "then rematerialize it",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    run_two(one_of_two, folder)
    return [json.loads((folder / f"found{rank}").read_text()) for rank in range(2)]


def test_losses_gradients_and_parts_also_of_smaller_batches_are_those_of_plain_training_bit_for_bit(found):
    for one in found:
        assert len(set(one["losses"]["plain"])) > 4
        for what in ("losses", "parts", "gradients", "smaller"):
            assert one[what]["remat"] == one[what]["plain"]
    assert found[0]["losses"] != found[1]["losses"]  # each has its own examples


def test_parts_are_resident_gathers_may_be_repeated_and_the_peak_is_within_its_prediction_and_budget(found):
    for one in found:
        assert 0.97 * one["predicted"] <= one["measured"] <= one["predicted"] <= one["budget"]
        assert one["resident"] == one["bytes of parts"] + 2 * X.nbytes  # the input, and the gradient of the output
        assert one["gathers"] == one["scatters"] == 3
        assert one["gathered"] > 3  # some are freed, and gathered again
    assert found[0]["digest"] == found[1]["digest"]


def test_what_only_one_process_plans_anew_or_cannot_plan_is_refused_on_both(found):
    for one in found:
        assert "process 0 begins a step, while process 1 captures and profiles a step" in one["larger"]
        assert "same sizes" in one["larger"]
    first, second = (one["failing"] for one in found)
    assert "process 0 captures and profiles a step, while process 1 has failed, and says why" in first
    assert "cannot be captured" in second


def test_what_no_plan_has_is_refused_in_words(found):
    for name, words in WORDS.items():
        assert all(words in one["refused"][name] for one in found), (name, found)


def sharded(mesh: Any, **options: Any) -> nn.Module:
    """Blocks that are sharded one by one, in rows that two processes cannot share equally, and a frozen weight."""
    torch.manual_seed(0)
    blocks: list[nn.Module] = [
        nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH + 1), nn.Tanh(), nn.Linear(2 * WIDTH + 1, WIDTH), nn.Dropout(0.1))
        for _ in range(2)
    ]
    model = nn.Sequential(*blocks, nn.LayerNorm(WIDTH), nn.BatchNorm1d(WIDTH))
    model[-2].weight.requires_grad_(False)
    for block in (*blocks, model):
        fsdp.fully_shard(block, mesh=mesh, **options)
    return model


def one_of_two(rank: int, folder: str) -> None:
    """One process: the same loop with the plain sharded model and with the rematerialized one."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    os.environ["REMAT_EXPLORER_CACHE"] = f"{folder}/cache{rank}"
    x = X + rank
    kept = sharded(mesh, reshard_after_forward=False)  # which a plan does not ask
    models = {"plain": sharded(mesh), "remat": rx.rematerialize(kept, (x,), budget="75%", time_limit=2)}
    planned = models["remat"].rematerialization.plans[0]
    graph, plan = planned.solution.graph, planned.solution.plan
    parts = [p.to_local().untyped_storage() for p in models["remat"].parameters()]
    gathers = [k for k, node in enumerate(graph.operations) if node.name.endswith("all_gather")]
    found: dict[str, Any] = {
        "budget": planned.solution.budget,
        "predicted": plan.peak,
        "digest": planned.digest,
        "resident": graph.resident_bytes,
        "bytes of parts": sum(part.nbytes() for part in parts) + sum(b.nbytes for b in models["remat"].buffers()),
        "gathers": len(gathers),
        "scatters": sum(node.name.endswith("reduce_scatter") for node in graph.operations),
        "gathered": sum(isinstance(s, Compute) and s.operation in gathers for s in plan.statements),
        **{name: {} for name in ("losses", "parts", "gradients", "smaller", "refused")},
    }
    for name, model in models.items():
        torch.manual_seed(rank)
        train(found, name, model, x)
    ones = torch.ones_like(x)
    with CpuMeter() as meter, meter.section():
        models["remat"](x).backward(ones)
    found["measured"] = graph.resident_bytes + meter.readings[0].highest
    other = sharded(mesh)
    narrow = x[:, : WIDTH - rank]
    found["failing"] = words_of(lambda: rx.rematerialize(other, (narrow,), budget="75%"))
    found["larger"] = words_of(lambda: models["remat"](torch.cat([x, x[:rank]])))
    refuse(found["refused"], mesh, models["remat"], x)
    Path(folder, f"found{rank}").write_text(json.dumps(found))
    torch.distributed.barrier()
    os._exit(0)  # not by the way of gloo's destructor, which may wait for a thread that waits for Python's lock


def train(found: dict[str, Any], name: str, model: nn.Module, x: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, gradients = [], []
    for step in range(4):
        for _ in range(1 + step % 2):  # the second time it adds to gradients that are there
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        gradients = [None if p.grad is None else local(p.grad).tolist() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        if step == 2:
            with torch.no_grad():  # after which the root of plain FSDP holds whole parameters
                losses.append(model.eval()(x).sum().item())
            model.train()
    found["smaller"][name] = model(x[: 50 + torch.distributed.get_rank()]).square().mean().item()
    found["losses"][name], found["gradients"][name] = losses, gradients
    found["parts"][name] = {key: local(tensor).tolist() for key, tensor in model.state_dict().items()}


def local(tensor: Any) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def refuse(words: dict[str, str], mesh: Any, trained: Any, x: torch.Tensor) -> None:
    parts: list[nn.Module] = [nn.Linear(WIDTH, 4), nn.Linear(4, 4)]
    fsdp.fully_shard(parts, mesh=mesh)
    both = torch.distributed.device_mesh.init_device_mesh("cpu", (1, 2), mesh_dim_names=("copies", "parts"))
    columns = nn.Linear(WIDTH, 4)
    fsdp.fully_shard(columns, mesh=mesh, shard_placement_fn=lambda p: Shard(p.ndim - 1))
    divided: Any = sharded(mesh)
    divided.set_gradient_divide_factor(4.0)
    models = {name: sharded(mesh, **options) for name, options in REFUSED.items()} | {
        "two dimensions": sharded(both),
        "several modules": nn.Sequential(*parts),
        "columns": columns,
        "divide factor": divided,
    }
    for name, model in models.items():
        words[name] = words_of(lambda model=model: rx.rematerialize(model, (x,), budget="75%"))
    whole = rx.rematerialize(nn.Sequential(nn.Linear(WIDTH, 4)), (x,), budget="100%")
    words["after"] = words_of(lambda: fsdp.fully_shard(whole, mesh=mesh))
    trained.set_requires_gradient_sync(False)
    words["no sync"] = words_of(lambda: trained(x))


def words_of(call: Any) -> str:
    try:
        call()
    except RematError as error:
        return str(error)
    return ""
