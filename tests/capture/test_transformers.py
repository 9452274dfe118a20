"""Models of the transformers library, passed in as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.errors import RematError
from remat_explorer.graph.repeated_blocks import repeated_blocks
from tests.thorough import thorough_but

transformers = pytest.importorskip("transformers", reason="transformers is an optional extra")
pytestmark = pytest.mark.filterwarnings("ignore")

WORDS = torch.randint(1, 90, (2, 12), generator=torch.Generator().manual_seed(0))
MASK = (torch.arange(12) < torch.tensor([[12], [9]])).long()
LABELS = {"labels": WORDS}
GPT2: dict[str, Any] = {"vocab_size": 90, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
BERT: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
PIXELS: dict[str, Any] = {"image_size": 32, "patch_size": 4}


def gpt2(**changes: Any) -> Any:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, **ends, **changes)).train()


def bert(head: str) -> Any:
    return getattr(transformers, head)(transformers.BertConfig(**BERT)).train()


def llama() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**BERT, num_key_value_heads=1)).train()


def vit() -> Any:
    shape = {key: BERT[key] for key in BERT if key not in ("vocab_size", "max_position_embeddings")}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**shape, **PIXELS)).train()


CASES = {
    "gpt2 with labels and mask": lambda: (gpt2(), (WORDS,), {**LABELS, "attention_mask": MASK}),
    "gpt2 without labels": lambda: (gpt2(), (WORDS,), {}),
    "bert for masked words": lambda: (bert("BertForMaskedLM"), (WORDS,), {**LABELS, "attention_mask": MASK}),
    "bert for sequences": lambda: (
        bert("BertForSequenceClassification"),
        (WORDS,),
        {"labels": torch.tensor([0, 1]), "attention_mask": MASK},
    ),
    "llama": lambda: (llama(), (), {"input_ids": WORDS, **LABELS}),
    "vit": lambda: (vit(), (torch.randn(2, 3, 32, 32),), {"labels": torch.tensor([0, 1])}),
}


@pytest.mark.parametrize("case", thorough_but(CASES, "gpt2 with labels and mask", "bert for sequences"))
def test_a_model_is_captured_solved_and_executed_with_the_gradients_of_plain_pytorch(case):
    torch.manual_seed(0)
    model, args, kwargs = CASES[case]()
    graph = rx.profile(rx.capture(model, args, kwargs), model, args, kwargs, device="cpu", repeats=1)
    solution = rx.solve(graph, budget="80%", strategy="optimal", time_limit=1)
    assert solution.schedule is not None
    found = rx.measure(solution, model, args, kwargs, device="cpu", repeats=1)
    assert found.equal
    assert found.peak <= found.predicted_peak * 1.01


def test_the_loss_is_the_field_of_the_output_and_not_its_sum():
    torch.manual_seed(0)
    model, args, kwargs = CASES["gpt2 with labels and mask"]()
    own = rx.capture(model, args, kwargs)
    assert own.sha256 == rx.capture(model, args, kwargs, loss=lambda output: output.loss).sha256
    assert own.sha256 != rx.capture(model, args, kwargs, loss=lambda output: output.logits.sum()).sha256


def test_a_cache_among_the_outputs_is_left_out():
    model = gpt2()
    assert model(WORDS).past_key_values is not None
    program = trace(model, (WORDS,))
    assert [result.name for result in program.results if result.kind == "output"] == ["output"]
    assert program.returned.nesting.past_key_values is None


def test_gradients_are_named_as_in_the_model():
    model, args, kwargs = CASES["gpt2 with labels and mask"]()
    program = trace(model, args, kwargs)
    gradients = {result.name for result in program.results if result.kind == "gradient"}
    assert gradients == {name for name, _ in model.named_parameters()}
    assert "transformer.wte.weight" in gradients
    assert "lm_head.weight" not in gradients  # tied


def test_operations_are_named_by_their_modules():
    model, args, kwargs = CASES["bert for masked words"]()
    names = [node.name for node in rx.capture(model, args, kwargs).operations]
    assert "bert.embeddings.LayerNorm layer_norm" in names


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
    config = transformers.LlamaConfig(**{**BERT, "num_hidden_layers": 5}, num_key_value_heads=1)
    graph = rx.capture(transformers.LlamaForCausalLM(config).train(), (), {"input_ids": WORDS, **LABELS})
    (blocks,) = repeated_blocks(graph)
    assert blocks.copies == 5
    assert blocks.label == "model.layers.0–4"
    assert 2 * blocks.saved > graph.n


def test_a_cache_that_is_handed_over_is_refused_by_name_and_without_it_the_model_is_captured():
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=2)
    model, words = transformers.LlamaForCausalLM(config), torch.randint(16, (2, 4))
    given = {"input_ids": words, "labels": words}
    with pytest.raises(RematError, match=r"key/value cache.*use_cache=False"):
        rx.capture(model, (), {**given, "past_key_values": transformers.DynamicCache(config=config), "use_cache": True})
    assert rx.capture(model, (), {**given, "use_cache": False}).n
