"""Trainer of transformers and LoRA of peft train a rematerialized model as it is, to the weights of plain training."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.runtime.peers import policy_loader
from tests.runtime.language_model import Examples, Needed, batch, equal_weights, llama
from tests.runtime.policies.test_policy import by_hand
from tests.thorough import thorough_but

transformers, peft = Needed("transformers"), Needed("peft")
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
    settings = {"output_dir": str(folder), "max_steps": 2, "per_device_train_batch_size": 2, "logging_steps": 1}
    settings |= {"use_cpu": True, "disable_tqdm": True, "report_to": [], "save_strategy": "no"}
    arguments = transformers.TrainingArguments(**settings | options)
    return transformers.Trainer(model=model, args=arguments, train_dataset=Examples(), eval_dataset=Examples())


def assert_trained_alike(plain: Any, trained: Any, folder: Path, *, collate: Any = None, **options: Any) -> None:
    """Losses, norms of gradients and weights of both are equal after training; folders are "0" and "1"."""
    logged = []
    for place, model in enumerate((plain, trained)):
        run = trainer(model, folder / str(place), **options)
        if collate is not None:
            run.data_collator, run.train_dataset = collate, [Examples()[index] for index in (0, 1, 2, 3, 2, 1, 4)]
        run.train()
        names = ("loss", "grad_norm", "eval_loss")
        logged.append([[entry.get(name) for name in names] for entry in run.state.log_history])
    assert logged[0] == logged[1]
    assert equal_weights(plain, trained)


def test_losses_weights_and_checkpoints_are_those_of_plain_training(trained, tmp_path):
    options = {"max_steps": 4, "gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    options |= {"save_strategy": "steps", "save_steps": 2, "per_device_eval_batch_size": 5}
    plain = llama()
    assert_trained_alike(plain, trained, tmp_path, **options)
    assert not equal_weights(plain, llama())
    assert len(trained.rematerialization.plans) == 1
    saved = tmp_path / "1" / "checkpoint-2"
    assert json.loads((saved / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert equal_weights(plain, transformers.LlamaForCausalLM.from_pretrained(tmp_path / "1" / "checkpoint-4"))
    trained.load_state_dict(llama().state_dict())
    trainer(trained, tmp_path / "again", **options).train(resume_from_checkpoint=str(saved))
    assert equal_weights(plain, trained)


AROUND = [("label_smoothing_factor", 0.1), ("bf16", True), ("gradient_checkpointing", True)]


@pytest.mark.parametrize(("option", "value"), thorough_but(AROUND, AROUND[1]))
def test_what_trainer_puts_around_the_model_is_planned_in_the_first_step(option, value, trained, tmp_path):
    assert_trained_alike(llama(), trained, tmp_path, **{option: value})
    assert len(trained.rematerialization.plans) == 1


def test_a_loaded_model_is_planned_for_training_though_it_comes_in_evaluation_mode(tmp_path):
    llama().save_pretrained(tmp_path)
    plain, model = (transformers.LlamaForCausalLM.from_pretrained(tmp_path) for _ in range(2))
    trained: Any = rx.rematerialize(model, (), batch(), budget="100%", strategy="checkpoint-all")
    for one in (plain, trained):
        trainer(one, tmp_path, max_steps=1).train()
    assert equal_weights(plain, trained)
    assert torch.equal(plain.eval()(**batch()).logits, trained.eval()(**batch()).logits)


@pytest.mark.thorough
def test_shorter_batches_and_a_smaller_last_one_follow_from_the_largest_that_was_given(trained, tmp_path):
    def cut(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        longest = max(int(example["attention_mask"].sum()) for example in examples)
        return {name: torch.stack([example[name] for example in examples])[:, :longest] for name in batch()}

    assert_trained_alike(llama(), trained, tmp_path, collate=cut, max_steps=4, dataloader_drop_last=False)
    shapes = {tuple(plan.signature.leaves[0].shape) for plan in trained.rematerialization.plans}
    assert len(shapes) >= 3
    assert trained.rematerialization.first.signature.leaves[0].shape == (2, 16)


def assert_equal_gradients_of_adapters(mine: Any, theirs: Any, **others: Any) -> None:
    found: list[dict[str, Any]] = []
    for model in (mine, theirs):
        model.zero_grad()
        torch.manual_seed(3)
        model(**batch(), **others).loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert all("lora" in key and torch.equal(gradient, found[1][key]) for key, gradient in found[0].items())


def lora(**options: Any) -> tuple[Any, Any, Any]:
    """Adapters, the model that has them, and one that is planned."""
    settings = {"r": 2, "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    adapters = peft.LoraConfig(**settings, target_modules=["q_proj", "v_proj"], **options)
    plain = peft.get_peft_model(llama(), adapters)
    return adapters, plain, rx.rematerialize(copy.deepcopy(plain), (), batch(), budget="90%", time_limit=5)


def test_adapters_get_the_gradients_of_plain_training_and_are_saved_and_merged_as_before(tmp_path):
    _, plain, trained = lora(lora_dropout=0.1)
    assert trained.rematerialization.solution.schedule.recomputations > 0
    assert_equal_gradients_of_adapters(trained, plain)
    trained.save_pretrained(tmp_path)
    with torch.no_grad():
        assert equal_weights(plain, peft.PeftModel.from_pretrained(llama(), tmp_path))
        for parameter in (*plain.parameters(), *trained.parameters()):
            if parameter.requires_grad:
                parameter += 1
    assert_equal_gradients_of_adapters(trained, plain)  # saving has not changed the model
    with trained.disable_adapter(), torch.no_grad():
        assert torch.equal(trained.eval()(**batch()).logits, llama().eval()(**batch()).logits)
    merged = trained.merge_and_unload()
    assert type(merged) is transformers.LlamaForCausalLM
    assert equal_weights(merged, plain.merge_and_unload())


def test_an_adapter_that_the_loop_adds_before_its_first_step_is_planned_with():
    adapters, plain, trained = lora()
    torch.manual_seed(1)
    for model in (plain, trained):  # as trl's DPOTrainer does, which compares with it and switches off the cache
        model.add_adapter("ref", adapters)
    assert_equal_gradients_of_adapters(trained, plain, use_cache=False)


def test_a_model_with_checkpoints_of_a_policy_is_taken_as_it_is(tmp_path):
    changed = llama()
    graph = rx.capture(llama(), (), batch(), contract=False)
    policy = by_hand(graph, {"model.layers.0.self_attn": [], "model.layers.0.mlp": [0]})
    policy_loader.apply_policy(changed, policy.save(tmp_path / "policy.json"))
    assert_trained_alike(llama(), changed, tmp_path)
