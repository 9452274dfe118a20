"""The large models: tiny ones of their kind compute what was published, and train; the large ones need no weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ModelError
from remat_explorer.models.decoder import Decoder, DecoderShape, Experts, SwiGLU
from remat_explorer.models.diffusion import DiffusionShape, DiffusionUNet, DiT, DiTShape
from remat_explorer.models.loaded_model import WithLoss
from remat_explorer.models.mamba import Mamba, MambaShape, selective_scan
from remat_explorer.models.whisper import Whisper, WhisperShape
from tests.runtime.random_schedules import random_schedule, solution_of
from tests.thorough import thorough_but

TOKENS = torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(0))
LATENTS, STEPS = torch.randn(2, 4, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([3, 700])


def decoder(**changes: Any) -> DecoderShape:
    shape = {"width": 16, "layers": 1, "heads": 4, "groups": 2, "inner": 24, "theta": 1e4, "epsilon": 1e-5}
    return DecoderShape(50, **shape | changes)


UNET = DiffusionShape(width=32, multiples=(1, 2), attended=(0,), blocks=1, heads=2, words=5, text=8)
TINY: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "llama": (lambda: Decoder(decoder(tied=True)), (TOKENS,)),
    "qwen 2.5": (lambda: Decoder(decoder(biases="qkv")), (TOKENS,)),
    "qwen 3": (lambda: Decoder(decoder(head=8, normalized=True)), (TOKENS,)),
    "mixtral": (lambda: Decoder(decoder(), lambda shape: Experts(shape.width, shape.inner, 4, 2)), (TOKENS,)),
    "mamba": (lambda: Mamba(MambaShape(50, 16, 1)), (TOKENS,)),
    "dit": (lambda: DiT(DiTShape(32, 1, 2), (32, 32)), (LATENTS, STEPS, torch.tensor([5, 1000]))),
    "diffusion unet": (lambda: DiffusionUNet(UNET), (LATENTS, STEPS, torch.randn(2, 5, 8))),
    "whisper": (
        lambda: Whisper(WhisperShape(32, 1, 2, bands=8, frames=20, vocabulary=50)),
        (torch.randn(2, 8, 20), TOKENS),
    ),
}


def squares(output: torch.Tensor) -> torch.Tensor:
    return output.float().square().mean()


@pytest.mark.parametrize("kind", thorough_but(TINY, "llama", "mamba", "dit", "whisper"))
def test_a_tiny_one_is_executed_by_a_schedule_with_the_gradients_of_plain_pytorch(kind):
    torch.manual_seed(0)
    make, args = TINY[kind]
    model = make()
    graph = rx.profile(rx.capture(model, args, loss=squares), model, args, loss=squares, repeats=1)
    measured = rx.measure(solution_of(random_schedule(graph, 0)), model, args, loss=squares, repeats=1)
    assert measured.equal
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("kind", thorough_but(TINY, "mamba"))
def test_no_weights_give_the_graph_of_weights_in_half_precision_too(kind):
    make, args = TINY[kind]
    half = [given.bfloat16() if given.is_floating_point() else given for given in args]
    with torch.device("meta"):
        empty = make().bfloat16()
    without, real = (rx.capture(model, tuple(half), loss=squares) for model in (empty, make().bfloat16()))
    assert without.sha256 == real.sha256


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Mixtral"])
def test_a_decoder_computes_what_transformers_computes(name):
    transformers = pytest.importorskip("transformers", reason="transformers is an optional extra")
    extra = {"head_dim": 8} if name == "Qwen3" else {}
    extra |= {"num_local_experts": 4, "sliding_window": None} if name == "Mixtral" else {}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, rope_theta=1e4, rms_norm_eps=1e-5, **extra,
    )  # fmt: skip
    theirs = getattr(transformers, f"{name}ForCausalLM")(config)
    experts = (lambda shape: Experts(shape.width, shape.inner, 4, 2, factor=2.0)) if name == "Mixtral" else None
    changes = {"Qwen2": {"biases": "qkv"}, "Qwen3": {"head": 8, "normalized": True}}.get(name, {})
    mine = Decoder(decoder(**changes), *([experts] if experts else []))
    for parameter, source in zip(mine.parameters(), _in_order(theirs, mine), strict=True):
        parameter.data.copy_(source)
    torch.testing.assert_close(mine(TOKENS), theirs(TOKENS).logits, rtol=1e-4, atol=1e-5)


def _in_order(theirs: nn.Module, mine: nn.Module) -> list[torch.Tensor]:
    words = {
        "tokens": "model.embed_tokens", "head": "lm_head", "norm": "model.norm", "blocks": "model.layers",
        "norm1": "input_layernorm", "norm2": "post_attention_layernorm", "attention": "self_attn", "query": "q_proj",
        "key": "k_proj", "value": "v_proj", "output": "o_proj", "query_norm": "q_norm", "key_norm": "k_norm",
        "feed_forward": "mlp", "gate": "gate_proj", "up": "up_proj", "down": "down_proj", "router": "gate",
    }  # fmt: skip
    state = theirs.state_dict()
    found = []
    for name, parameter in mine.named_parameters():
        if parameter.dim() == 3:  # of all experts, as rows of outputs, gate and up in one tensor
            prefix = ".".join(words.get(part, part) for part in name.split(".")[:-1]) + ".experts."
            both = state[prefix + "gate_up_proj"].chunk(2, 1)
            picked = {"gate": both[0], "up": both[1], "down": state.get(prefix + "down_proj")}[name.split(".")[-1]]
            found.append(picked.transpose(1, 2))
        else:
            found.append(state[".".join(words.get(part, part) for part in name.split("."))])
    return found


def test_experts_drop_the_tokens_beyond_their_capacity():
    torch.manual_seed(0)
    experts, dense = Experts(8, 16, experts=2, chosen=1, factor=1.0), SwiGLU(8, 16)
    experts.router.weight.data = torch.stack([torch.ones(8), -torch.ones(8)])  # all tokens choose the first expert
    for part in ("gate", "up", "down"):
        getattr(dense, part).weight.data = getattr(experts, part)[0].T
    x = torch.rand(1, 6, 8)
    found = experts(x)
    taken = found.abs().sum(2) > 0
    assert taken.sum() == experts.capacity(6) == 3  # the weight of the chosen one of one is 1: a tie, whoever wins
    torch.testing.assert_close(found[taken], dense(x)[taken])


def test_the_scan_by_doubling_is_the_recurrence():
    torch.manual_seed(0)
    x, steps = torch.randn(2, 11, 3), torch.rand(2, 11, 3)
    decay, entering, leaving = -torch.rand(3, 4), torch.randn(2, 11, 4), torch.randn(2, 11, 4)
    state, expected = torch.zeros(2, 3, 4), []
    for t in range(11):
        state = torch.exp(steps[:, t, :, None] * decay) * state
        state = state + (steps[:, t] * x[:, t])[:, :, None] * entering[:, t, None]
        expected.append((state * leaving[:, t, None]).sum(2))
    torch.testing.assert_close(selective_scan(x, steps, decay, entering, leaving), torch.stack(expected, 1))


def test_layers_tokens_ties_and_precision_are_free_and_no_weights_are_made():
    def load(**changes: Any) -> rx.models.LoadedModel:
        return rx.models.load("llama3_8b", **{"sequence": 16, "layers": 1, "precision": "bfloat16"} | changes)

    untied, tied = load(), load(tied=True)
    assert untied.graph.resident_bytes - tied.graph.resident_bytes == 2 * 128256 * 4096
    assert untied.weight_bytes == 2 * (2 * 128256 * 4096 + 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 3 * 4096)
    cast = load(precision="autocast").graph
    assert cast.resident_bytes > 1.9 * untied.graph.resident_bytes
    assert any("cast" in node.name for node in cast.operations)
    assert {parameter.device.type for parameter in untied.shapes.parameters()} == {"meta"}


def test_weights_that_do_not_fit_are_refused_and_the_graph_is_named_in_their_place():
    with pytest.raises(ModelError, match=r"weights of 'llama3_70b' need .* are free here; .*\.shapes.* \(layers=1\)"):
        _ = rx.models.load("llama3_70b").module


def test_autocast_reaches_forward_and_loss():
    model = WithLoss(nn.Linear(4, 4), lambda output, y: (output * y).sum(), autocast=True)
    assert model.model(torch.ones(1, 4)).dtype == torch.float32
    seen = []
    model.model.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    model(torch.ones(1, 4), torch.ones(1, 4)).backward()
    assert seen == [torch.bfloat16]
