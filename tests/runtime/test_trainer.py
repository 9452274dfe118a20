"""Trainer of transformers trains a rematerialized model as it is, to the losses and weights of plain training."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from tests.runtime.language_model import Examples, batch, equal_weights, llama, needed
from tests.thorough import thorough_but

transformers = needed("transformers")
needed("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def untouched() -> Any:
    """A rematerialized model that no step has run of; each test takes a copy."""
    trained: Any = rx.rematerialize(llama(), (), batch(), budget="85%", time_limit=5)
    assert trained.rematerialization.solution.schedule.recomputations > 0
    return trained


@pytest.fixture
def trained(untouched: Any) -> Any:
    return copy.deepcopy(untouched)


def trainer(model: Any, folder: Path, **options: Any) -> Any:
    """Trainer with two examples in a batch."""
    settings = {"output_dir": str(folder), "max_steps": 2, "per_device_train_batch_size": 2, "logging_steps": 1}
    settings |= {"use_cpu": True, "disable_tqdm": True, "report_to": [], "save_strategy": "no"}
    arguments = transformers.TrainingArguments(**settings | options)
    return transformers.Trainer(model=model, args=arguments, train_dataset=Examples(), eval_dataset=Examples())


def history(one: Any) -> list[tuple[Any, ...]]:
    """What a Trainer has logged, but for times."""
    return [tuple(entry.get(name) for name in ("loss", "grad_norm", "eval_loss")) for entry in one.state.log_history]


class Steps(transformers.TrainerCallback):
    """Notes which steps it was told of."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def test_losses_weights_and_checkpoints_are_those_of_plain_training(trained, tmp_path):
    options = {"max_steps": 4, "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    options |= {"save_strategy": "steps", "save_steps": 2, "per_device_eval_batch_size": 5}
    plain = llama()
    runs = [trainer(one, tmp_path / name, **options) for one, name in ((plain, "plain"), (trained, "trained"))]
    steps: list[int] = []
    for run in runs:
        run.add_callback(Steps(steps))
        run.train()
    assert steps == [1, 2, 3, 4] * 2
    assert history(runs[0]) == history(runs[1])
    assert equal_weights(plain, trained)
    assert not equal_weights(plain, llama())
    assert len(trained.rematerialization.plans) == 1
    saved = tmp_path / "trained" / "checkpoint-2"
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "trained" / "checkpoint-4")
    assert equal_weights(plain, loaded)
    trained.load_state_dict(llama().state_dict())
    trainer(trained, tmp_path / "again", **options).train(resume_from_checkpoint=str(saved))
    assert equal_weights(plain, trained)


AROUND = [{"label_smoothing_factor": 0.1}, {"bf16": True}, {"gradient_checkpointing": True}]


@pytest.mark.parametrize("options", thorough_but(AROUND, {"bf16": True}), ids=["smoothing", "bf16", "checkpoints"])
def test_what_trainer_puts_around_the_model_is_planned_in_the_first_step(options, trained, tmp_path):
    plain = llama()
    runs = [trainer(one, tmp_path, **options) for one in (plain, trained)]
    for run in runs:
        run.train()
    assert history(runs[0]) == history(runs[1])
    assert equal_weights(plain, trained)
    assert len(trained.rematerialization.plans) == 1


def test_a_loaded_model_is_planned_for_training_though_it_comes_in_evaluation_mode(tmp_path):
    llama().save_pretrained(tmp_path)
    plain, model = (transformers.LlamaForCausalLM.from_pretrained(tmp_path) for _ in range(2))
    trained: Any = rx.rematerialize(model, (), batch(), budget="100%", strategy="checkpoint-all")
    for one in (plain, trained):
        trainer(one, tmp_path, max_steps=1).train()
    assert equal_weights(plain, trained)
    assert torch.equal(plain.eval()(**batch()).logits, trained.eval()(**batch()).logits)


def test_the_number_of_labels_may_be_a_number_or_a_tensor_and_another_one_in_every_step(trained):
    plain = llama()
    for count in (20, torch.tensor(23), 7):
        losses = [one(**batch(), num_items_in_batch=count).loss for one in (plain, trained)]
        assert torch.equal(*losses)
        losses[1] *= 1
        for loss in losses:
            loss.backward()
    for mine, theirs in zip(trained.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    assert len(trained.rematerialization.plans) == 1
    with pytest.raises(ExecutionError, match="input 'num_items_in_batch' is missing, with which the plan was made"):
        trained(**batch())


@pytest.mark.thorough
def test_shorter_batches_and_a_smaller_last_one_follow_from_the_largest_that_was_given(trained, tmp_path):
    def cut(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(int(example["attention_mask"].sum()) for example in examples)
        return {name: torch.stack([example[name] for example in examples])[:, :longest] for name in batch()}

    plain = llama()
    options = {"max_steps": 4, "dataloader_drop_last": False}
    runs = [trainer(one, tmp_path, **options) for one in (plain, trained)]
    for run in runs:
        run.data_collator, run.train_dataset = cut, [Examples()[index] for index in (0, 1, 2, 3, 2, 1, 4)]
        run.train()
    assert history(runs[0]) == history(runs[1])
    assert equal_weights(plain, trained)
    shapes = {tuple(plan.signature.leaves[0].shape) for plan in trained.rematerialization.plans}
    assert len(shapes) >= 3
    assert trained.rematerialization.first.signature.leaves[0].shape == (2, 16)


def test_what_differs_later_is_refused(trained):
    trained(**batch())
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ExecutionError, match="autocast is on for cpu in"):
        trained(**batch())


def test_the_class_and_the_instance_show_the_parameters_of_forward(trained):
    own = inspect.signature(trained.rematerialization.model.forward)
    assert inspect.signature(trained.forward) == own
    assert list(inspect.signature(type(trained).forward).parameters) == ["self", *own.parameters]
    assert (type(trained).__name__, trained._get_name()) == ("LlamaForCausalLM", "LlamaForCausalLM")
