"""Models of the transformers library, passed in as they are."""

from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import RematError
from remat_explorer.graph.repeated_blocks import repeated_blocks
from tests.runtime.language_model import Needed
from tests.runtime.random_schedules import random_schedule, solution_of
from tests.thorough import thorough

transformers = Needed("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = torch.randint(1, 90, (2, 12), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(12) < torch.tensor([[12], [9]])).long()
GPT2: dict[str, Any] = {"vocab_size": 90, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
LLAMA: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
LLAMA |= {"vocab_size": 90, "max_position_embeddings": 16}


def gpt2(**changes: Any) -> Any:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **ends, **changes)).train()


def llama(layers: int = 1) -> Any:
    config = transformers.LlamaConfig(**LLAMA, num_hidden_layers=layers, num_key_value_heads=1)
    return transformers.LlamaForCausalLM(config).train()


INPUTS: dict[str, Any] = {"labels": WORDS, "attention_mask": MASK}


@pytest.mark.parametrize("kwargs", [INPUTS, thorough({})], ids=["with labels and mask", "without"])
def test_a_model_is_captured_and_executed_with_recomputation_and_the_gradients_of_plain_pytorch(kwargs):
    torch.manual_seed(0)
    model, args = gpt2(), (WORDS,)
    graph = rx.profile(rx.capture(model, args, kwargs), model, args, kwargs, device="cpu", repeats=1)
    recomputing = solution_of(random_schedule(graph, 0))
    found = rx.measure(recomputing, model, args, kwargs, device="cpu", repeats=1)
    assert found.equal
    assert found.peak <= found.predicted_peak * 1.01


def test_the_loss_is_the_field_of_the_output_and_not_its_sum():
    model = gpt2()
    own = rx.capture(model, (WORDS,), INPUTS)
    assert own.sha256 == rx.capture(model, (WORDS,), INPUTS, loss=lambda output: output.loss).sha256
    assert own.sha256 != rx.capture(model, (WORDS,), INPUTS, loss=lambda output: output.logits.sum()).sha256


def test_a_cache_among_the_outputs_is_left_out():
    model = gpt2()
    assert model(WORDS).past_key_values is not None
    program = trace(model, (WORDS,))
    assert [result.name for result in program.results if result.kind == "output"] == ["output"]
    assert program.returned.nesting.past_key_values is None


def test_operations_and_gradients_are_named_by_their_modules():
    model = gpt2()
    program = trace(model, (WORDS,), INPUTS)
    gradients = {result.name for result in program.results if result.kind == "gradient"}
    assert gradients == {name for name, _ in model.named_parameters()}
    assert "transformer.wte.weight" in gradients
    assert "lm_head.weight" not in gradients  # tied
    assert "transformer.h.0.ln_1 layer_norm" in [node.name for node in program.graph.operations]


def test_a_model_on_the_meta_device_gives_the_graph_of_a_real_one():
    with torch.device("meta"):
        empty = gpt2()
    assert rx.capture(empty, (WORDS,)).sha256 == rx.capture(gpt2(), (WORDS,)).sha256


def test_a_mask_without_content_is_taken_as_one_that_hides_something():
    with torch.device("meta"):
        empty = llama()
    inputs = {"input_ids": WORDS, "labels": WORDS.clone(), "attention_mask": MASK}
    meta = {name: tensor.to("meta") for name, tensor in inputs.items()}
    assert rx.capture(empty, (), meta).sha256 == rx.capture(llama(), (), inputs).sha256


def test_the_layers_of_a_llama_are_found_by_the_structure_of_its_graph():
    graph = rx.capture(llama(layers=4), (), {"input_ids": WORDS, "labels": WORDS})
    (blocks,) = repeated_blocks(graph)
    assert blocks.copies == 4
    assert blocks.label == "model.layers.0–3"
    assert 2 * blocks.saved > graph.n


def test_a_cache_that_is_handed_over_is_refused_by_name_and_without_it_the_model_is_captured():
    model, given = llama(), {"input_ids": WORDS, "labels": WORDS}
    cache = transformers.DynamicCache(config=model.config)
    with pytest.raises(RematError, match=r"key/value cache.*use_cache=False"):
        rx.capture(model, (), {**given, "past_key_values": cache, "use_cache": True})
    assert rx.capture(model, (), {**given, "use_cache": False}).n
