"""Models of libraries that are not ours, small enough for a step in seconds: one of each family or class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import nn

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
Maker = Callable[[], tuple[nn.Module, Inputs]]
LOOKED_AT = 10  # models of a family of timm, of which the smallest is taken
LARGEST_PICTURE = 256
VISION = {  # of torchvision: edge of the picture, pictures
    "alexnet": (64, 4), "convnext_tiny": (64, 4), "densenet121": (64, 4), "efficientnet_b0": (64, 4),
    "efficientnet_v2_s": (64, 2), "googlenet": (64, 4), "inception_v3": (299, 2), "maxvit_t": (224, 1),
    "mnasnet0_5": (64, 4), "mobilenet_v2": (64, 4), "mobilenet_v3_small": (64, 4), "regnet_y_400mf": (64, 4),
    "resnet18": (64, 4), "resnext50_32x4d": (64, 4), "shufflenet_v2_x0_5": (64, 4), "squeezenet1_1": (64, 4),
    "swin_t": (64, 4), "swin_v2_t": (64, 4), "vgg11_bn": (32, 4), "vit_b_16": (224, 1),
    "deeplabv3_mobilenet_v3_large": (64, 4), "fcn_resnet50": (64, 4), "lraspp_mobilenet_v3_large": (64, 4),
}  # fmt: skip
FILMS = {"mc3_18": 64, "r2plus1d_18": 64, "s3d": 224, "swin3d_t": 64}
SEGMENTATION = (
    "DeepLabV3", "DeepLabV3Plus", "FPN", "Linknet", "MAnet", "PSPNet", "Segformer", "UPerNet", "Unet", "UnetPlusPlus"
)  # fmt: skip
_SCHEMA = "(Tensor _) -> Tensor"
_MISSING = (
    "nms", "qnms", "roi_align", "qroi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d",
    "_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward",
    "_deform_conv2d_backward",
)  # fmt: skip


def declare_operators_of_torchvision() -> torch.library.Library | None:
    """Let torchvision be imported where its build does not fit PyTorch's: no model here runs its own operators.

    Returns:
        What declares them, as long as it lives; None where that is not needed.
    """
    try:
        import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _MISSING:
            library.define(name + _SCHEMA)
        return library
    return None


def of_torchvision() -> dict[str, Maker]:
    """Classifiers, segmentation with untrained parts, and films."""
    models = import_module("torchvision.models")

    def pictures(name: str, edge: int, count: int) -> tuple[nn.Module, Inputs]:
        segments = name.startswith(("deeplab", "fcn", "lraspp"))
        settings: dict[str, Any] = {"weights_backbone": None} if segments else {}
        if name in ("googlenet", "inception_v3"):
            settings["init_weights"] = False
        return models.get_model(name, weights=None, **settings), ((torch.randn(count, 3, edge, edge),), {})

    def films(name: str, edge: int) -> tuple[nn.Module, Inputs]:
        return models.get_model(name, weights=None), ((torch.randn(1, 3, 16, edge, edge),), {})

    found: dict[str, Maker] = {name: lambda n=name, s=size: pictures(n, *s) for name, size in VISION.items()}
    return found | {name: lambda n=name, e=edge: films(n, e) for name, edge in FILMS.items()}


def of_segmentation_models_pytorch() -> dict[str, Maker]:
    """Decoders behind a ResNet-18."""
    segmentation = import_module("segmentation_models_pytorch")

    def made(name: str) -> tuple[nn.Module, Inputs]:
        model = getattr(segmentation, name)("resnet18", encoder_weights=None, classes=3)
        return model, ((torch.randn(2, 3, 64, 64),), {})

    return {name: lambda n=name: made(n) for name in SEGMENTATION}


def of_timm() -> dict[str, Maker]:
    """Of each family the smallest among its first models, with stochastic depth where it has that."""
    timm = import_module("timm")

    def smallest(family: str) -> str:
        names = timm.list_models(module=family)
        names = names[:: max(1, len(names) // LOOKED_AT)]
        with torch.device("meta"):
            sizes = {name: sum(p.numel() for p in timm.create_model(name).parameters()) for name in names}
        return min(names, key=sizes.__getitem__)

    def made(family: str) -> tuple[nn.Module, Inputs]:
        name = smallest(family)
        try:
            model = timm.create_model(name, drop_path_rate=0.1)
        except TypeError:
            model = timm.create_model(name)
        channels, height, width = model.default_cfg["input_size"]
        if height == width > LARGEST_PICTURE and not model.default_cfg.get("fixed_input_size"):
            height = width = LARGEST_PICTURE
        return model, ((torch.randn(2, channels, height, width),), {})

    return {family: lambda f=family: made(f) for family in timm.list_modules()}


def of_diffusers() -> dict[str, Maker]:
    """U-Nets, autoencoders and transformers of image and film models, with few channels and layers."""
    diffusers = import_module("diffusers")

    shape = {"block_out_channels": (32, 64), "layers_per_block": 1, "attention_head_dim": 8}
    text = {**shape, "cross_attention_dim": 32}
    encoder = {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2}
    decoder = {**encoder, "up_block_types": ("UpDecoderBlock2D",) * 2}
    heads = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2}

    def latents(channels: int, edge: int, count: int = 1) -> torch.Tensor:
        return torch.randn(count, channels, edge, edge)

    def steps(count: int = 1) -> torch.Tensor:
        return torch.full((count,), 7)

    def words(width: int, count: int = 1) -> torch.Tensor:
        return torch.randn(count, 6, width)

    def entries() -> Iterator[tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]]:
        blocks = {
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        }
        yield "UNet2DModel", {**shape, **blocks, "sample_size": 16}, (latents(3, 16, 2), steps(2)), {}
        blocks = {
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        }
        given = latents(4, 16, 2), steps(2), words(32, 2)
        yield "UNet2DConditionModel", {**text, **blocks, "sample_size": 16}, given, {}
        blocks = {name: tuple(part.replace("2D", "3D") for part in parts) for name, parts in blocks.items()}
        given = torch.randn(1, 4, 4, 16, 16), steps(), words(32)
        yield "UNet3DConditionModel", {**text, **blocks, "sample_size": 16}, given, {}
        blocks = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
        given = latents(4, 16), steps(), words(32), latents(3, 32)
        yield "ControlNetModel", {**text, **blocks, "conditioning_embedding_out_channels": (16, 32)}, given, {}
        yield "AutoencoderKL", decoder, (latents(3, 32, 2),), {"sample_posterior": True}
        yield "VQModel", decoder, (latents(3, 32, 2),), {}
        settings: dict[str, Any] = {"num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)}
        settings |= {"encoder_block_out_channels": (32, 32), "decoder_block_out_channels": (32, 32)}
        yield "AutoencoderTiny", settings, (latents(3, 32, 2),), {}
        settings = {**heads, "in_channels": 4, "sample_size": 8, "num_embeds_ada_norm": 10}
        asked: dict[str, Any] = {"timestep": steps(2), "class_labels": torch.tensor([1, 2])}
        yield "DiTTransformer2DModel", settings, (latents(4, 8, 2),), asked
        settings = {**heads, "in_channels": 4, "sample_size": 8, "cross_attention_dim": 32, "caption_channels": 16}
        asked = {"encoder_hidden_states": words(16, 2), "timestep": steps(2)}
        asked["added_cond_kwargs"] = {"resolution": None, "aspect_ratio": None}
        yield "PixArtTransformer2DModel", settings, (latents(4, 8, 2),), asked
        settings = {**heads, "sample_size": 16, "in_channels": 4, "out_channels": 4, "pos_embed_max_size": 16}
        settings |= {"joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 32}
        asked = {"encoder_hidden_states": words(32, 2), "pooled_projections": torch.randn(2, 32), "timestep": steps(2)}
        yield "SD3Transformer2DModel", settings, (latents(4, 16, 2),), asked
        settings = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1, "num_single_layers": 1}
        settings |= {"patch_size": 1, "in_channels": 4, "joint_attention_dim": 32, "pooled_projection_dim": 32}
        asked = {"hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": words(32)}
        asked |= {"pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5])}
        asked |= {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(6, 3)}
        yield "FluxTransformer2DModel", {**settings, "axes_dims_rope": (4, 4, 8)}, (), asked
        settings = {"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 2, "in_channels": 4}
        settings |= {"out_channels": 4, "text_dim": 16, "ffn_dim": 32, "rope_max_seq_len": 32}
        asked = {"hidden_states": torch.randn(1, 4, 2, 16, 16), "encoder_hidden_states": words(16), "timestep": steps()}
        yield "WanTransformer3DModel", settings, (), asked
        settings = {"in_channels": 8, "out_channels": 8, "num_attention_heads": 4, "attention_head_dim": 8}
        settings |= {"num_layers": 1, "cross_attention_dim": 32, "caption_channels": 32}
        asked = {"hidden_states": torch.randn(1, 128, 8), "encoder_hidden_states": words(32), "timestep": steps()}
        asked |= {"encoder_attention_mask": torch.ones(1, 6).bool(), "num_frames": 2, "height": 8, "width": 8}
        yield "LTXVideoTransformer3DModel", settings, (), asked
        settings = {"hidden_size": 32, "cond_embed_dim": 32, "encoder_hidden_size": 32, "micro_cond_encode_dim": 8}
        settings |= {"micro_cond_embed_dim": 40, "block_out_channels": 32, "in_channels": 32, "num_hidden_layers": 1}
        settings |= {"num_attention_heads": 2, "intermediate_size": 64, "codebook_size": 32, "vocab_size": 33}
        asked = {"input_ids": torch.randint(0, 32, (1, 8, 8)), "encoder_hidden_states": words(32)}
        asked |= {"pooled_text_emb": torch.randn(1, 32), "micro_conds": torch.randn(1, 5)}
        yield "UVit2DModel", {**settings, "sample_size": 8}, (), asked

    def made(entry: tuple[str, dict[str, Any], tuple[Any, ...], dict[str, Any]]) -> tuple[nn.Module, Inputs]:
        name, settings, args, kwargs = entry
        return getattr(diffusers, name)(**settings), (args, kwargs)

    return {entry[0]: lambda e=entry: made(e) for entry in entries()}


LIBRARIES: dict[str, Callable[[], dict[str, Maker]]] = {
    "diffusers": of_diffusers,
    "segmentation_models_pytorch": of_segmentation_models_pytorch,
    "torchvision": of_torchvision,
    "timm": of_timm,
}
