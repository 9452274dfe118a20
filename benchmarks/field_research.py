"""Models of research libraries: equivariance, quantization, spikes, differential equations, and others.

Each is small enough for a step in seconds, and brings its inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from field_domains import WORDS, word_ids
from field_models import Inputs, Maker
from torch import nn


class With(nn.Module):
    """A module of a library between layers of ours, as people use it."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def of_e3nn() -> dict[str, Maker]:
    """Tensor products, gates and a convolution over edges; irreducible representations are tuples of its own kind."""
    o3, networks = import_module("e3nn.o3"), import_module("e3nn.nn")
    some = "4x0e+2x1o"

    def convolution() -> tuple[nn.Module, Inputs]:
        product = o3.FullyConnectedTensorProduct(some, "1x0e+1x1o", some, shared_weights=False)
        weights = networks.FullyConnectedNet([8, 16, product.weight_numel], torch.nn.functional.silu)

        def forward(self: Any, x: torch.Tensor, edges: torch.Tensor, angles: torch.Tensor, far: torch.Tensor) -> Any:
            source, target = edges
            messages = self.product(x[source], angles, self.weights(far))
            return self.linear(torch.zeros_like(x).index_add(0, target, messages))

        model = With(forward, product=product, weights=weights, linear=o3.Linear(some, some))
        size = o3.Irreps(some).dim
        return model, ((torch.randn(12, size), torch.randint(12, (2, 40)), torch.randn(40, 4), torch.randn(40, 8)), {})

    def gate() -> tuple[nn.Module, Inputs]:
        gate = networks.Gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")
        model = With(lambda s, x: s.gate(s.linear(x)), linear=o3.Linear(some, gate.irreps_in), gate=gate)
        return model, ((torch.randn(12, o3.Irreps(some).dim),), {})

    def batch_norm() -> tuple[nn.Module, Inputs]:
        model = With(lambda s, x: s.norm(s.linear(x)), linear=o3.Linear(some, some), norm=networks.BatchNorm(some))
        return model, ((torch.randn(12, o3.Irreps(some).dim),), {})

    return {"convolution": convolution, "Gate": gate, "BatchNorm": batch_norm}


def of_vector_quantize_pytorch() -> dict[str, Maker]:
    """Quantizers between two linear layers, with the loss that each returns."""
    library = import_module("vector_quantize_pytorch")

    def quantized(make: Callable[[], nn.Module]) -> tuple[nn.Module, Inputs]:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            result = self.quantizer(self.first(x))
            loss = result[-1].sum() if len(result) == 3 else 0.0
            return self.last(result[0]).square().mean() + loss

        model = With(forward, first=nn.Linear(16, 16), quantizer=make(), last=nn.Linear(16, 16))
        return model, ((torch.randn(4, 12, 16),), {})

    def learned() -> nn.Module:
        return library.VectorQuantize(dim=16, codebook_size=32, learnable_codebook=True, ema_update=False)

    kinds: dict[str, Callable[[], nn.Module]] = {
        "VectorQuantize": lambda: library.VectorQuantize(dim=16, codebook_size=32),
        "VectorQuantize learned": learned,
        "ResidualVQ": lambda: library.ResidualVQ(dim=16, codebook_size=32, num_quantizers=2),
        "FSQ": lambda: library.FSQ(levels=[4, 4, 3], dim=16),
        "LFQ": lambda: library.LFQ(codebook_size=16, dim=16),
        "SimVQ": lambda: library.SimVQ(dim=16, codebook_size=32),
    }
    return {name: lambda make=make: quantized(make) for name, make in kinds.items()}


def of_x_transformers() -> dict[str, Maker]:
    """Decoders and encoders with what papers added to attention, one each."""
    library = import_module("x_transformers")

    def language(**settings: Any) -> tuple[nn.Module, Inputs]:
        layers = library.Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **settings)
        net = library.TransformerWrapper(num_tokens=WORDS, max_seq_len=16, attn_layers=layers)
        return library.AutoregressiveWrapper(net), ((word_ids(2, 16),), {})

    def vision() -> tuple[nn.Module, Inputs]:
        layers = library.Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
        model = library.ViTransformerWrapper(image_size=16, patch_size=4, num_classes=5, attn_layers=layers)
        return model, ((torch.randn(2, 3, 16, 16),), {})

    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "rotary, RMSNorm, SwiGLU": {"rotary_pos_emb": True, "use_rmsnorm": True, "ff_swish": True, "ff_glu": True},
        "ALiBi, dropout": {"alibi_pos_bias": True, "attn_dropout": 0.1, "ff_dropout": 0.1},
        "one key and value head": {"attn_one_kv_head": True},
        "talking heads, gated": {"attn_pre_talking_heads": True, "attn_gate_values": True},
        "layer dropout": {"layer_dropout": 0.2},
        "flash": {"attn_flash": True},
    }
    found: dict[str, Maker] = {name: lambda given=given: language(**given) for name, given in variants.items()}
    return found | {"ViT": vision}


def of_open_clip() -> dict[str, Maker]:
    """Contrastive models of images and text, with the loss."""
    library = import_module("open_clip")

    def net(kind: str, vision: dict[str, Any], **more: Any) -> tuple[nn.Module, Inputs]:
        text = {"context_length": 8, "vocab_size": WORDS, "width": 32, "heads": 4, "layers": 2}
        clip = getattr(library, kind)(embed_dim=16, vision_cfg=vision, text_cfg=text, **more)
        loss = library.ClipLoss()

        def forward(self: Any, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            seen, read, scale = self.clip(images, words)[:3]
            return loss(seen, read, scale)

        return With(forward, clip=clip), ((torch.randn(2, 3, 32, 32), word_ids(2, 8)), {})

    patches = {"layers": 2, "width": 32, "head_width": 8, "patch_size": 8, "image_size": 32}
    return {
        "CLIP of patches": lambda: net("CLIP", patches),
        "CLIP of a ResNet": lambda: net("CLIP", {"layers": [1, 1, 1, 1], "width": 16, "image_size": 32}),
        "CLIP, patches dropped": lambda: net("CLIP", patches | {"patch_dropout": 0.5}),
    }


def of_spikingjelly() -> dict[str, Maker]:
    """Networks of spikes over four steps, reset at each forward."""
    neurons, functions = (import_module(f"spikingjelly.activation_based.{name}") for name in ("neuron", "functional"))

    def spiking(make: Callable[[], nn.Module], reset: bool) -> tuple[nn.Module, Inputs]:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            if reset:
                functions.reset_net(self)
            return torch.stack([self.net(x) for _ in range(4)]).mean(0)

        net = nn.Sequential(nn.Linear(16, 24), make(), nn.Linear(24, 5), make())
        return With(forward, net=net), ((torch.rand(6, 16),), {})

    return {
        "IFNode": lambda: spiking(neurons.IFNode, True),
        "LIFNode": lambda: spiking(neurons.LIFNode, True),
        "ParametricLIFNode": lambda: spiking(neurons.ParametricLIFNode, True),
        "LIFNode that is not reset": lambda: spiking(neurons.LIFNode, False),
    }


def of_torchdiffeq() -> dict[str, Maker]:
    """Ordinary differential equations: steps of one size, steps that adapt, and adjoint gradients."""
    library = import_module("torchdiffeq")

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)

    def solved(method: str, solver: str, options: dict[str, Any] | None = None) -> tuple[nn.Module, Inputs]:
        def forward(self: Any, y: torch.Tensor) -> torch.Tensor:
            return getattr(library, solver)(self.field, y, self.times, method=method, options=options)

        model = With(forward, field=Field())
        model.register_buffer("times", torch.linspace(0, 1, 5))
        return model, ((torch.randn(6, 4),), {})

    return {
        "euler": lambda: solved("euler", "odeint"),
        "rk4": lambda: solved("rk4", "odeint", {"step_size": 0.1}),
        "dopri5": lambda: solved("dopri5", "odeint"),
        "adjoint of rk4": lambda: solved("rk4", "odeint_adjoint"),
        "adjoint of dopri5": lambda: solved("dopri5", "odeint_adjoint"),
    }


def of_torchaudio() -> dict[str, Maker]:
    """Models of sound, from waves or from spectra."""
    models = import_module("torchaudio.models")
    lengths = torch.full((2,), 40)

    def wave() -> tuple[nn.Module, Inputs]:
        return models.ConvTasNet(num_sources=2, enc_num_feats=16, msk_num_feats=8, msk_num_layers=2), (
            (torch.randn(2, 1, 400),),
            {},
        )

    def demucs() -> tuple[nn.Module, Inputs]:
        model = models.HDemucs(sources=["a", "b"], audio_channels=1, channels=8, depth=6, nfft=4096)
        return model, ((torch.randn(1, 1, 16384),), {})

    return {
        "Conformer": lambda: (models.Conformer(16, 4, 32, 2, 5, dropout=0.1), ((torch.randn(2, 40, 16), lengths), {})),
        "ConvTasNet": wave,
        "DeepSpeech": lambda: (models.DeepSpeech(16, 32, 5), ((torch.randn(2, 1, 40, 16),), {})),
        "Emformer": lambda: (
            models.Emformer(16, 4, 32, 2, 4, right_context_length=4),
            ((torch.randn(2, 44, 16), lengths), {}),
        ),
        "HDemucs": demucs,
        "Wav2Letter": lambda: (models.Wav2Letter(5, "mfcc", 16), ((torch.randn(2, 16, 200),), {})),
    }


def of_ultralytics() -> dict[str, Maker]:
    """Detectors, pose and segmentation, whose forward pass with labels gives their loss."""
    os.environ["YOLO_VERBOSE"] = "False"
    tasks, utilities = import_module("ultralytics.nn.tasks"), import_module("ultralytics.cfg")

    def detector(name: str, kind: str = "DetectionModel") -> tuple[nn.Module, Inputs]:
        model = getattr(tasks, kind)(name, verbose=False)
        model.args = utilities.get_cfg()

        def forward(self: Any, images: torch.Tensor) -> Any:
            return self.model(images)

        return With(forward, model=model).train(), ((torch.rand(2, 3, 64, 64),), {})

    return {
        "yolov8n": lambda: detector("yolov8n.yaml"),
        "yolo11n": lambda: detector("yolo11n.yaml"),
        "yolov8n-seg": lambda: detector("yolov8n-seg.yaml", "SegmentationModel"),
        "yolov8n-pose": lambda: detector("yolov8n-pose.yaml", "PoseModel"),
        "yolov8n-cls": lambda: detector("yolov8n-cls.yaml", "ClassificationModel"),
    }


def of_speechbrain() -> dict[str, Maker]:
    """Speakers, recognition and quasi-recurrent layers."""
    models = "speechbrain.lobes.models."

    def speaker(name: str, kind: str, **settings: Any) -> tuple[nn.Module, Inputs]:
        return getattr(import_module(models + name), kind)(**settings), ((torch.randn(2, 40, 16),), {})

    small = {"channels": [16, 16, 16, 16, 48], "attention_channels": 8, "res2net_scale": 2, "se_channels": 8}

    def recognizer() -> tuple[nn.Module, Inputs]:
        kind = import_module(models + "transformer.TransformerASR").TransformerASR
        settings = {"input_size": 16, "tgt_vocab": WORDS, "d_model": 32, "nhead": 4, "d_ffn": 64}
        return kind(num_encoder_layers=1, num_decoder_layers=1, **settings), (
            (torch.randn(2, 20, 16), word_ids(2, 6)),
            {},
        )

    layers = import_module("speechbrain.nnet.RNN")

    def counted(made: tuple[nn.Module, Inputs]) -> tuple[nn.Module, Inputs]:
        def sample(self: Any, _: torch.Tensor) -> torch.Tensor:
            rows = (self.taken + torch.arange(self.batch_size)) % self.N_drop_masks
            self.taken.add_(self.batch_size)
            return self.drop_masks[rows]

        layers.LiGRU_Layer._sample_drop_mask = sample
        for part in made[0].modules():
            if isinstance(part, layers.LiGRU_Layer):
                part.register_buffer("taken", torch.zeros((), dtype=torch.long))
        made[0](*made[1][0])  # layers take the size of the batch from a first pass
        return made

    def gated() -> tuple[nn.Module, Inputs]:
        return layers.LiGRU(hidden_size=16, input_shape=(2, 40, 16)), ((torch.randn(2, 40, 16),), {})

    def whole() -> tuple[nn.Module, Inputs]:
        return speaker("CRDNN", "CRDNN", input_size=16, rnn_neurons=16, dnn_neurons=16)

    return {
        "ECAPA_TDNN": lambda: speaker("ECAPA_TDNN", "ECAPA_TDNN", input_size=16, lin_neurons=8, **small),
        "Xvector": lambda: speaker("Xvector", "Xvector", in_channels=16, tdnn_channels=[16] * 5, lin_neurons=8),
        "CRDNN": whole,
        "CRDNN, masks counted in a buffer": lambda: counted(whole()),
        "LiGRU": gated,
        "LiGRU, masks counted in a buffer": lambda: counted(gated()),
        "TransformerASR": recognizer,
    }


def of_sentence_transformers() -> dict[str, Maker]:
    """Sentences in small, with pooling and a contrastive loss."""
    similarity = import_module("sentence_transformers.util").cos_sim
    parts, transformers = import_module("sentence_transformers.models"), import_module("transformers")

    def net(**pooling: Any) -> nn.Module:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        bert = transformers.BertModel(transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=32, **sizes))
        return With(
            lambda s, words, mask: s.pool(_tokens(s.bert, words, mask)), bert=bert, pool=parts.Pooling(32, **pooling)
        )

    def pooled(**pooling: Any) -> tuple[nn.Module, Inputs]:
        model = net(**pooling)
        forward = With(lambda s, w, m: s.model(w, m)["sentence_embedding"], model=model)
        return forward, ((word_ids(2, 8), torch.ones(2, 8, dtype=torch.long)), {})

    def ranked() -> tuple[nn.Module, Inputs]:
        def forward(self: Any, first: torch.Tensor, second: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            a, b = (self.model(words, mask)["sentence_embedding"] for words in (first, second))
            scores = similarity(a, b) * 20
            return nn.functional.cross_entropy(scores, torch.arange(len(scores)))

        return With(forward, model=net()), ((word_ids(4, 8), word_ids(4, 8), torch.ones(4, 8, dtype=torch.long)), {})

    return {
        "mean of tokens": pooled,
        "largest of tokens": lambda: pooled(pooling_mode="max"),
        "ranked negatives": ranked,
    }


def _tokens(bert: nn.Module, words: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"token_embeddings": bert(words, attention_mask=mask)[0], "attention_mask": mask}


def of_stable_baselines3() -> dict[str, Maker]:
    """Policies whose actions are evaluated, as an update of PPO and of Q-learning does."""
    spaces = import_module("gymnasium.spaces")
    policies = import_module("stable_baselines3.common.policies")

    def actor(kind: str, seen: Any, actions: Any) -> tuple[nn.Module, Inputs]:
        policy = getattr(policies, kind)(seen, actions, lambda _: 1e-3)

        def forward(self: Any, observed: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
            values, likelihood, entropy = self.policy.evaluate_actions(observed, taken)
            return values.square().mean() - likelihood.mean() - 0.01 * entropy.mean()

        observed = torch.stack([torch.as_tensor(seen.sample()) for _ in range(8)])
        taken = torch.stack([torch.as_tensor(actions.sample()) for _ in range(8)])
        return With(forward, policy=policy.train()), ((observed, taken), {})

    def critic() -> tuple[nn.Module, Inputs]:
        kind = import_module("stable_baselines3.dqn.policies").MlpPolicy
        policy = kind(spaces.Box(-1, 1, (6,)), spaces.Discrete(3), lambda _: 1e-3)
        return With(lambda s, x: s.net(x), net=policy.q_net.train()), ((torch.randn(8, 6),), {})

    def advised() -> tuple[nn.Module, Inputs]:
        policy = policies.ActorCriticPolicy(box, spaces.Discrete(3), lambda _: 1e-3)

        def forward(self: Any, observed: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
            actor, critic = self.policy.mlp_extractor(self.policy.extract_features(observed))
            actions = torch.distributions.Categorical(logits=self.policy.action_net(actor), validate_args=False)
            return self.policy.value_net(critic).square().mean() - actions.log_prob(taken).mean()

        return With(forward, policy=policy.train()), ((torch.randn(8, 6), torch.randint(3, (8,))), {})

    box = spaces.Box(-1, 1, (6,))
    picture = spaces.Box(0, 255, (3, 40, 40), dtype="uint8")
    return {
        "discrete actions": lambda: actor("ActorCriticPolicy", box, spaces.Discrete(3)),
        "continuous actions": lambda: actor("ActorCriticPolicy", box, spaces.Box(-1, 1, (2,))),
        "pictures": lambda: actor("ActorCriticCnnPolicy", picture, spaces.Discrete(3)),
        "discrete actions, not validated": advised,
        "Q network": critic,
    }


def of_geoopt() -> dict[str, Maker]:
    """Parameters that lie on manifolds."""
    library = import_module("geoopt")

    def on(manifold: Any, *shape: int, buffers: bool = False) -> tuple[nn.Module, Inputs]:
        weight = library.ManifoldParameter(manifold.random(*shape), manifold=manifold)

        class Near(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight, self.manifold, self.layer = weight, manifold, nn.Linear(6, shape[-1])

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                y = self.manifold.projx(0.1 * self.layer(x))
                return self.manifold.dist(y[:, None], self.weight[None]).mean()

        if buffers:
            for name, parameter in [*manifold.named_parameters()]:
                delattr(manifold, name)
                manifold.register_buffer(name, parameter.detach())
        return Near(), ((torch.randn(8, 6),), {})

    def orthogonal() -> tuple[nn.Module, Inputs]:
        weight = library.ManifoldParameter(torch.linalg.qr(torch.randn(6, 4)).Q, manifold=library.Stiefel())
        model = With(lambda s, x: (s.layer(x) @ s.weight).square().mean(), layer=nn.Linear(6, 6))
        model.register_parameter("weight", weight)
        return model, ((torch.randn(8, 6),), {})

    return {
        "PoincareBall": lambda: on(library.PoincareBall(), 5, 4),
        "PoincareBall, curvature as a buffer": lambda: on(library.PoincareBall(), 5, 4, buffers=True),
        "Sphere": lambda: on(library.Sphere(), 5, 4),
        "Stiefel": orthogonal,
    }


def of_kornia() -> dict[str, Maker]:
    """Filters, geometry, losses and a matcher's features, with a convolution before."""
    library = import_module("kornia")

    def before(part: Callable[[torch.Tensor], torch.Tensor]) -> tuple[nn.Module, Inputs]:
        model = With(lambda s, x: part(s.layer(x).sigmoid()), layer=nn.Conv2d(3, 3, 3, padding=1))
        return model, ((torch.rand(2, 3, 24, 24),), {})

    def warped() -> tuple[nn.Module, Inputs]:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            angle = self.layer(x.mean((2, 3))).flatten()
            return library.geometry.transform.rotate(x, angle)

        return With(forward, layer=nn.Linear(3, 1)), ((torch.rand(2, 3, 24, 24),), {})

    filters, losses = library.filters, library.losses
    return {
        "blurred": lambda: before(lambda x: filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))),
        "edges": lambda: before(filters.sobel),
        "structural similarity": lambda: before(lambda x: losses.ssim_loss(x, x.flip(-1).detach(), 5)),
        "total variation": lambda: before(lambda x: losses.total_variation(x).mean()),
        "colours": lambda: before(library.color.rgb_to_lab),
        "warped": warped,
        "HardNet": lambda: (library.feature.HardNet(False), ((torch.rand(4, 1, 32, 32),), {})),
        "DeFMO": lambda: (library.feature.DeFMO(False), ((torch.rand(1, 6, 32, 32),), {})),
    }


def of_kan() -> dict[str, Maker]:
    """Layers of splines (pykan)."""
    kind = import_module("kan").KAN

    def splines(symbolic: bool) -> tuple[nn.Module, Inputs]:
        model = kind(width=[4, 5, 1], grid=3, k=3, auto_save=False)
        if not symbolic:
            model = model.speed()
        return model, ((torch.rand(16, 4) * 2 - 1,), {})

    return {"KAN": lambda: splines(True), "KAN, without symbols": lambda: splines(False)}


def of_mambapy() -> dict[str, Maker]:
    """State space models with a parallel scan of their own, whose backward pass is written by hand."""

    def net(name: str, kind: str, config: str, **settings: Any) -> tuple[nn.Module, Inputs]:
        module = import_module(f"mambapy.{name}")
        return getattr(module, kind)(getattr(module, config)(d_model=16, n_layers=2, **settings)), (
            (torch.randn(2, 16, 16),),
            {},
        )

    return {
        "Mamba, parallel scan": lambda: net("mamba", "Mamba", "MambaConfig", pscan=True),
        "Mamba, in sequence": lambda: net("mamba", "Mamba", "MambaConfig", pscan=False),
    }


def of_denoising_diffusion_pytorch() -> dict[str, Maker]:
    """A U-Net that denoises, and the loss at drawn times."""
    library = import_module("denoising_diffusion_pytorch")

    def net(**settings: Any) -> nn.Module:
        return library.Unet(dim=16, dim_mults=(1, 2), flash_attn=False, **settings)

    def diffusion(**settings: Any) -> tuple[nn.Module, Inputs]:
        model = library.GaussianDiffusion(net(**settings), image_size=16, timesteps=50)
        return model, ((torch.rand(2, 3, 16, 16),), {})

    return {
        "Unet": lambda: (net(), ((torch.randn(2, 3, 16, 16), torch.tensor([3, 7])), {})),
        "GaussianDiffusion": diffusion,
        "GaussianDiffusion, self-conditioned": lambda: diffusion(self_condition=True),
    }


RESEARCH: dict[str, Callable[[], dict[str, Maker]]] = {
    "e3nn": of_e3nn,
    "vector_quantize_pytorch": of_vector_quantize_pytorch,
    "x_transformers": of_x_transformers,
    "open_clip": of_open_clip,
    "spikingjelly": of_spikingjelly,
    "torchdiffeq": of_torchdiffeq,
    "torchaudio": of_torchaudio,
    "ultralytics": of_ultralytics,
    "speechbrain": of_speechbrain,
    "sentence_transformers": of_sentence_transformers,
    "stable_baselines3": of_stable_baselines3,
    "geoopt": of_geoopt,
    "kornia": of_kornia,
    "kan": of_kan,
    "mambapy": of_mambapy,
    "denoising_diffusion_pytorch": of_denoising_diffusion_pytorch,
}
