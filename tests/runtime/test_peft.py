"""LoRA of peft, with most weights frozen: adapters get the gradients of plain training, and are saved as before."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import remat_explorer as rx
from tests.runtime.language_model import batch, equal_weights, llama, needed
from tests.thorough import thorough_but

transformers = needed("transformers")
peft = needed("peft")
pytestmark = pytest.mark.filterwarnings("ignore")


def gpt2() -> Any:
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=90, n_embd=16, n_layer=1, n_head=2, n_positions=32, **ends)
    )


BASES = {
    "llama": (llama, {"target_modules": ["q_proj", "v_proj"]}),
    "gpt2": (gpt2, {"target_modules": ["c_attn"], "fan_in_fan_out": True}),
}


def gradients(model: Any, **others: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    model(**batch(), **others).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("name", thorough_but(BASES, "llama"))
def test_adapters_get_the_gradients_of_plain_training_and_are_saved_and_merged_as_before(name, tmp_path):
    base, targets = BASES[name]
    adapters = peft.LoraConfig(r=2, lora_dropout=0.1, init_lora_weights=False, task_type="CAUSAL_LM", **targets)
    plain = peft.get_peft_model(base(), adapters)
    trained: Any = rx.rematerialize(copy.deepcopy(plain), (), batch(), budget="90%", time_limit=5)
    schedule = trained.rematerialization.solution.schedule
    assert schedule.recomputations > 0
    assert any(not parameter.requires_grad for parameter in trained.parameters())
    mine, theirs = gradients(trained), gradients(plain)
    assert mine.keys() == theirs.keys()
    assert all("lora" in key and torch.equal(mine[key], theirs[key]) for key in theirs)
    trained.save_pretrained(tmp_path)
    with torch.no_grad():
        loaded = peft.PeftModel.from_pretrained(base(), tmp_path)
        assert equal_weights(plain, loaded)
        for parameter in (*plain.parameters(), *trained.parameters()):
            if parameter.requires_grad:
                parameter += 1
    assert gradients(trained).keys() == mine.keys()  # saving has not changed the model
    with trained.disable_adapter(), torch.no_grad():
        assert torch.equal(trained.eval()(**batch()).logits, base().eval()(**batch()).logits)
    merged = trained.merge_and_unload()
    assert type(merged) is type(base())
    assert equal_weights(merged, plain.merge_and_unload())


def test_an_adapter_that_the_loop_adds_before_its_first_step_is_planned_with():
    adapters = peft.LoraConfig(r=2, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    plain = peft.get_peft_model(llama(), adapters)
    trained: Any = rx.rematerialize(copy.deepcopy(plain), (), batch(), budget="90%", time_limit=5)
    torch.manual_seed(1)
    for model in (plain, trained):  # as trl's DPOTrainer does, which compares with it and switches off the cache
        model.add_adapter("ref", adapters)
    mine, theirs = gradients(trained, use_cache=False), gradients(plain, use_cache=False)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
