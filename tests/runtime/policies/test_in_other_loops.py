"""One policy file in the training code of others: Trainer of transformers, and two processes with fully_shard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.runtime.peers import policy_loader
from tests.runtime.language_model import equal_weights, needed
from tests.runtime.policies import small_transformer
from tests.runtime.policies.small_transformer import SmallTransformer, example
from tests.runtime.policies.test_policy import by_hand

PROCESS = """
import json, os, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
sys.modules["remat_explorer"] = None  # importing it fails
from policy_loader import apply_policy
from small_transformer import SmallTransformer, example

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
runs = []
for policy in (None, "policy.json"):
    torch.manual_seed(0)
    net = SmallTransformer(dropout=0.1)
    if policy:
        apply_policy(net, policy)
    for part in (*net.blocks, net):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        torch.manual_seed(10 * step + rank)
        optimizer.zero_grad()
        loss = net(example(rank))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    runs.append((losses, [p.full_tensor() for p in net.parameters()]))
(plain, weights), (checkpointed, others) = runs
print(json.dumps([plain, checkpointed, all(map(torch.equal, weights, others))]), flush=True)
dist.barrier()
os._exit(0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a policy file, the printed loader and the model."""
    made = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    graph = rx.capture(SmallTransformer(dropout=0.1), (example(),), contract=False)
    policy = by_hand(graph, {"blocks.0": [1, 2, 8], "blocks.1": [], "blocks.2.inner": [1]})
    assert any(region.saved for _, region in policy.modules)
    policy.save(made / "policy.json")
    for module in (policy_loader, small_transformer):
        source = Path(str(module.__file__))
        (made / source.name).write_text(source.read_text())
    return made


def test_two_processes_with_fully_shard_train_as_without_it(folder: Path) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    firsts = []
    for rank, (printed, problems) in zip(ranks, outputs, strict=True):
        assert rank.returncode == 0, problems
        plain, checkpointed, equal = json.loads(printed)
        assert plain == checkpointed
        assert plain[0] != plain[1]
        assert equal
        firsts.append(plain[0])
    assert firsts[0] != firsts[1]  # each rank has its own batch


class Answering(SmallTransformer):
    """Gives its loss as Trainer wants it."""

    def forward(self, x: torch.Tensor) -> Any:
        return {"loss": super().forward(x)}


class Examples(Dataset[dict[str, torch.Tensor]]):
    """Inputs of the model, one by one."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": example()[index]}


@pytest.mark.filterwarnings("ignore")
def test_trainer_takes_a_model_with_it_as_it_is(folder: Path, tmp_path: Path) -> None:
    transformers = needed("transformers")
    needed("accelerate")
    trained: list[Any] = []
    histories = []
    for changed in (False, True):
        torch.manual_seed(0)
        model = Answering(dropout=0.1)
        if changed:
            policy_loader.apply_policy(model, folder / "policy.json")
        settings = {"output_dir": str(tmp_path), "max_steps": 2, "per_device_train_batch_size": 4, "logging_steps": 1}
        settings |= {"use_cpu": True, "disable_tqdm": True, "report_to": [], "save_strategy": "no"}
        arguments = transformers.TrainingArguments(**settings)
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Examples())
        trainer.train()
        trained.append(model)
        histories.append([(entry.get("loss"), entry.get("grad_norm")) for entry in trainer.state.log_history])
    assert histories[0] == histories[1]
    assert equal_weights(*trained)
    torch.manual_seed(0)
    assert not equal_weights(Answering(), trained[0])


@pytest.mark.filterwarnings("ignore")
def test_a_step_of_trainer_takes_the_memory_that_is_predicted(folder: Path, tmp_path: Path) -> None:
    transformers = needed("transformers")
    needed("accelerate")
    torch.manual_seed(0)
    model = Answering(dropout=0.1)
    policy_loader.apply_policy(model, folder / "policy.json")
    predicted = json.loads((folder / "policy.json").read_text())["peak"]
    peaks: list[int] = []

    class Metered(transformers.Trainer):
        def training_step(self, *given: Any, **options: Any) -> Any:
            with CpuMeter() as meter, meter.section():
                loss = super().training_step(*given, **options)
            peaks.append(meter.readings[0].highest)
            return loss

    settings = {"output_dir": str(tmp_path), "max_steps": 2, "per_device_train_batch_size": 16, "save_strategy": "no"}
    arguments = transformers.TrainingArguments(**settings, use_cpu=True, disable_tqdm=True, report_to=[])
    Metered(model=model, args=arguments, train_dataset=Examples()).train()
    resident = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers(), example()))
    assert resident + peaks[-1] == pytest.approx(predicted, rel=0.01)
