"""Architectures of the transformers library in training mode, step by step beside plain PyTorch."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from remat_explorer.capture import trace
from remat_explorer.capture.training_step import detached_inputs
from remat_explorer.errors import CaptureError
from remat_explorer.plan import Plan
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.training_run import train
from tests.runtime.exactness import CPU
from tests.runtime.language_model import Needed
from tests.runtime.random_schedules import random_schedule
from tests.runtime.step_outcomes import assert_same, step_of
from tests.thorough import thorough_but

transformers = Needed("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = torch.randint(3, 80, (2, 24), generator=torch.Generator().manual_seed(0))
EVERY_WORD = torch.ones_like(WORDS)
PADDED = (torch.arange(24) < torch.tensor([[24], [18]])).long()
PARTS: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXT: dict[str, Any] = {**PARTS, "vocab_size": 90, "max_position_embeddings": 32}
ENDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SPEECH: dict[str, Any] = {"vocab_size": 32, "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
SPEECH |= {**PARTS, "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
BART: dict[str, Any] = {"vocab_size": 90, "d_model": 16, "max_position_embeddings": 32}
BART |= {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDE.items()}
EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
EXPERTS |= {"moe_intermediate_size": 16, "num_key_value_heads": 1}
Case = tuple[Any, dict[str, Any]]


def model(head: str, configuration: Any) -> Any:
    return getattr(transformers, head)(configuration).train()


def decoder(name: str, mask: torch.Tensor = EVERY_WORD, configuration: str = "Config", **changes: Any) -> Case:
    made = getattr(transformers, name + configuration)(**{**TEXT, **ENDS, "num_key_value_heads": 1, **changes})
    return model(f"{name}ForCausalLM", made), {"input_ids": WORDS, "attention_mask": mask, "labels": WORDS}


def long_decoder(name: str) -> Case:
    """So many words that attention with a mask of ones and without one differ in their last digits."""
    trained, _ = decoder(name, hidden_size=32, head_dim=16, max_position_embeddings=128)
    words = torch.randint(3, 80, (2, 100), generator=torch.Generator().manual_seed(0))
    return trained, {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words}


def deberta() -> Case:
    made = transformers.DebertaConfig(**TEXT, legacy=True, relative_attention=True, pos_att_type=["c2p", "p2c"])
    return model("DebertaForMaskedLM", made), {"input_ids": WORDS, "attention_mask": PADDED, "labels": WORDS}


def images(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def speech(**changes: Any) -> Case:
    made = transformers.Wav2Vec2Config(**{**SPEECH, "layerdrop": 0.0, "apply_spec_augment": False, **changes})
    labels = torch.tensor([[1, 2, 3, 4], [5, 6, -100, -100]])
    return model("Wav2Vec2ForCTC", made), {"input_values": torch.randn(2, 400), "labels": labels}


def segformer() -> Case:
    sizes = {"depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "num_attention_heads": [1, 2]}
    sizes |= {"patch_sizes": [3, 3], "strides": [2, 2], "mlp_ratios": [2, 2]}
    made = transformers.SegformerConfig(num_encoder_blocks=2, decoder_hidden_size=8, num_labels=4, **sizes)
    labels = torch.randint(0, 4, (2, 32, 32), generator=torch.Generator().manual_seed(1))
    return model("SegformerForSemanticSegmentation", made), {"pixel_values": images(), "labels": labels}


def llava() -> Case:
    made = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT, num_key_value_heads=1),
        vision_config=transformers.CLIPVisionConfig(image_size=16, patch_size=8, **PARTS),
        image_token_index=89,
    )
    words = WORDS.clone()
    words[:, 1:5] = 89
    given = {"input_ids": words, "attention_mask": EVERY_WORD, "pixel_values": images(16), "labels": words}
    return model("LlavaForConditionalGeneration", made), given


def bart(**changes: Any) -> Case:
    given = {"input_ids": WORDS, "attention_mask": PADDED, "labels": WORDS}
    return model("BartForConditionalGeneration", transformers.BartConfig(**BART, **changes)), given


CASES: dict[str, Callable[[], Case]] = {
    "llama with every word": lambda: long_decoder("Llama"),
    "mixtral": lambda: decoder("Mixtral", **EXPERTS),
    "bart": bart,
    "wav2vec 2": speech,
    "segformer": segformer,
}
QUICK = tuple(CASES)
CASES |= {  # whose parts others have
    "gemma 3": lambda: decoder("Gemma3", configuration="TextConfig", head_dim=8, sliding_window=4, num_hidden_layers=2),
    "deberta": deberta,
    "llava": llava,
    "llama with padding": lambda: decoder("Llama", PADDED),
    "qwen 3": lambda: long_decoder("Qwen3"),
    "phi 3": lambda: decoder("Phi3"),
    "qwen 3 with experts": lambda: decoder("Qwen3Moe", **EXPERTS, head_dim=8),
    "opt": lambda: decoder("OPT", PADDED, ffn_dim=32, word_embed_proj_dim=16),
}


@pytest.mark.parametrize("case", thorough_but(CASES, *QUICK))
def test_loss_gradients_and_random_state_are_those_of_plain_pytorch_bit_for_bit(case):
    torch.manual_seed(0)
    plain, kwargs = CASES[case]()
    trained: Any = copy.deepcopy(plain)
    expected = step_of(plain, **kwargs)
    program = trace(trained, (), kwargs)
    plan = Plan.of(random_schedule(program.graph, 0, 0.1, 0.0))
    torch.manual_seed(5)
    (loss,) = train(ForwardBackward.of(plan, program, CPU), trained, detached_inputs((), kwargs))
    loss.backward()
    found = [loss.detach(), *(parameter.grad for parameter in trained.parameters())]
    assert_same([*found, torch.get_rng_state()], [*expected[: len(found)], expected[-1]])
    assert all(torch.equal(*pair) for pair in zip(trained.buffers(), plain.buffers(), strict=True))


def test_a_mask_of_ones_is_dropped_as_in_plain_pytorch():
    trained, kwargs = CASES["llama with every word"]()
    padded = {**kwargs, "attention_mask": (torch.arange(100) < torch.tensor([[100], [90]])).long()}
    masked, unmasked = (trace(trained, (), given) for given in (padded, kwargs))
    (read,) = unmasked.assumptions.reads
    assert read.expected is True
    assert "padding_mask" in read.text
    assert unmasked.graph.n < masked.graph.n
    assert "input 'attention_mask'" in str(unmasked.assumptions.broken(trained, detached_inputs((), padded)))


def eager_experts() -> Case:
    trained, kwargs = CASES["mixtral"]()
    trained.set_experts_implementation("eager")
    return trained, kwargs


RANDOM: list[tuple[Callable[[], Case], str]] = [
    (lambda: bart(encoder_layerdrop=0.3), r"in 'model.encoder' \(BartEncoder\).*control flow is random.*layerdrop=0.0"),
    (lambda: speech(apply_spec_augment=True), r"in 'wav2vec2' \(Wav2Vec2Model\), forward draws from .*SpecAugment"),
    (eager_experts, r"which entries each expert gets.*the parameter '.*set_experts_implementation"),
]


@pytest.mark.parametrize(("make", "words"), RANDOM)
def test_what_is_done_at_random_or_as_data_says_is_refused_with_its_module_and_with_what_works(make, words):
    trained, kwargs = make()
    with pytest.raises(CaptureError, match=words):
        trace(trained, (), kwargs)
