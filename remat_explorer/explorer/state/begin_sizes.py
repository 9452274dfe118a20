"""Sizes of the zoo's models to begin with, where the person has not chosen any: activations dominate."""

from __future__ import annotations

# Sizes to begin with: a quarter of the memory or more, mostly a half, can be saved, and a laptop executes a step in
# seconds (of vgg, fcn8 and the transformers, with their many parameters, a measurement takes a minute or two). The
# large language and diffusion models run on no laptop; they are solved and studied.
BEGIN: dict[str, dict[str, int]] = {
    "bert": {"batch": 8, "sequence": 128},
    "chain": {"batch": 4096},
    "densenet121": {"batch": 16, "image": 64},
    "densenet161": {"batch": 32, "image": 64},
    "dit_xl": {"batch": 8, "image": 256},
    "fcn8": {"batch": 16, "image": 256},
    "googlenet": {"batch": 32, "image": 64},
    "gpt2": {"batch": 8, "sequence": 128},
    "linear32": {"batch": 8, "image": 64},
    "llama3.2_1b": {"batch": 1, "sequence": 2048},
    "llama3_70b": {"batch": 1, "sequence": 8192},
    "llama3_8b": {"batch": 1, "sequence": 8192},
    "mamba_130m": {"batch": 1, "sequence": 512},
    "mixtral_8x7b": {"batch": 1, "sequence": 8192},
    "mlp": {"batch": 8192},
    "mobilenet_v1": {"batch": 32, "image": 64},
    "mobilenet_v2": {"batch": 32, "image": 64},
    "qwen2.5_0.5b": {"batch": 1, "sequence": 1024},
    "qwen3_8b": {"batch": 1, "sequence": 4096},
    "residual_net": {"batch": 32, "image": 32},
    "resnet18": {"batch": 64, "image": 112},
    "resnet50": {"batch": 64, "image": 64},
    "segnet": {"batch": 8, "image": 160},
    "stable_diffusion": {"batch": 4, "image": 512},
    "unet": {"batch": 8, "image": 160},
    "unet_monet": {"batch": 4, "image": 128},
    "vgg16": {"batch": 128, "image": 64},
    "vgg19": {"batch": 128, "image": 64},
    "vit": {"batch": 16, "image": 160},
    "whisper_small": {"batch": 8, "sequence": 448},
}
