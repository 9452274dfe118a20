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


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What two processes have found, in the order of their ranks."""
    folder = tmp_path_factory.mktemp("sharded")
    run_two(one_of_two, folder)
    return [json.loads((folder / f"found{rank}").read_text()) for rank in range(2)]


def test_loss_curves_and_parts_end_equal_to_plain_training_bit_for_bit(found):
    for one in found:
        assert len(set(one["losses"]["plain"])) > 4
        assert one["losses"]["remat"] == one["losses"]["plain"]
        assert one["parts"]["remat"] == one["parts"]["plain"]
        assert one["gradients"]["remat"] == one["gradients"]["plain"]
    assert found[0]["losses"] != found[1]["losses"]  # each has its own examples


def test_the_measured_peak_of_each_process_is_within_its_prediction_and_budget(found):
    for one in found:
        assert one["budget"] < one["keeping everything"]
        assert 0.97 * one["predicted"] <= one["measured"] <= one["predicted"] <= one["budget"]


def test_parts_are_resident_and_collectives_are_operations_that_the_plan_may_repeat(found):
    for one in found:
        assert one["resident"] == one["bytes of parts"] + 2 * X.nbytes  # the input, and the gradient of the output
        assert one["groups"] == one["gathers"] == one["scatters"] == 3
        assert one["gathered"] > one["groups"]  # some are freed, and gathered again
        assert one["seconds of a gather"] > 0
    assert found[0]["digest"] == found[1]["digest"]


def test_smaller_batches_may_differ_and_what_only_one_process_plans_anew_is_refused_on_both(found):
    for one in found:
        assert one["smaller"]["remat"] == one["smaller"]["plain"]
        assert "process 0 begins a step, while process 1 captures and profiles a step" in one["larger"]
        assert "same sizes" in one["larger"]


def test_a_process_that_cannot_plan_says_why_and_the_other_does_not_wait(found):
    first, second = (one["failing"] for one in found)
    assert "process 0 captures and profiles a step, while process 1 has failed, and says why" in first
    assert "cannot be captured" in second


def test_what_no_plan_has_is_refused_in_words(found):
    for one in found:
        for name in REFUSED:
            assert "the model is sharded (fully_shard) with" in one["refused"][name]
        assert "a mesh of several dimensions (HSDPMeshInfo)" in one["refused"]["two dimensions"]
        assert "together with other modules" in one["refused"]["several modules"]
        assert "in another way than by rows" in one["refused"]["columns"]
        assert "set_gradient_divide_factor" in one["refused"]["divide factor"]
        assert "set_requires_gradient_sync(True)" in one["refused"]["no sync"]
        assert "then rematerialize it" in one["refused"]["after"]


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
    found: dict[str, Any] = {"budget": planned.solution.budget, "predicted": plan.peak, "digest": planned.digest}
    found["keeping everything"] = rx.solve(graph, "100%", "checkpoint-all").peak
    found["resident"] = graph.resident_bytes
    found["bytes of parts"] = sum(p.to_local().untyped_storage().nbytes() for p in models["remat"].parameters()) + sum(
        b.nbytes for b in models["remat"].buffers()
    )
    gathers = [k for k, node in enumerate(graph.operations) if node.name.endswith("all_gather")]
    found["groups"], found["gathers"] = 3, len(gathers)
    found["scatters"] = sum(node.name.endswith("reduce_scatter") for node in graph.operations)
    found["gathered"] = sum(isinstance(s, Compute) and s.operation in gathers for s in plan.statements)
    found["seconds of a gather"] = min(graph.operations[k].implementations[0].cost for k in gathers)
    found |= {"losses": {}, "parts": {}, "gradients": {}, "smaller": {}, "refused": {}}
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
    for name, options in REFUSED.items():
        words[name] = words_of(lambda options=options: rx.rematerialize(sharded(mesh, **options), (x,), budget="75%"))
    parts: list[nn.Module] = [nn.Linear(WIDTH, 4), nn.Linear(4, 4)]
    fsdp.fully_shard(parts, mesh=mesh)
    several = nn.Sequential(*parts)
    both = torch.distributed.device_mesh.init_device_mesh("cpu", (1, 2), mesh_dim_names=("copies", "parts"))
    words["two dimensions"] = words_of(lambda: rx.rematerialize(sharded(both), (x,), budget="75%"))
    words["several modules"] = words_of(lambda: rx.rematerialize(several, (x,), budget="75%"))
    whole = rx.rematerialize(nn.Sequential(nn.Linear(WIDTH, 4)), (x,), budget="100%")
    words["after"] = words_of(lambda: fsdp.fully_shard(whole, mesh=mesh))
    columns = nn.Linear(WIDTH, 4)
    fsdp.fully_shard(columns, mesh=mesh, shard_placement_fn=lambda p: Shard(p.ndim - 1))
    words["columns"] = words_of(lambda: rx.rematerialize(columns, (x,), budget="75%"))
    divided = sharded(mesh)
    divided.set_gradient_divide_factor(4.0)  # type: ignore[operator]
    words["divide factor"] = words_of(lambda: rx.rematerialize(divided, (x,), budget="75%"))
    trained.set_requires_gradient_sync(False)
    words["no sync"] = words_of(lambda: trained(x))


def words_of(call: Any) -> str:
    try:
        call()
    except RematError as error:
        return str(error)
    return ""
