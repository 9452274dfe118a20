"""Sizes at which every model of the zoo runs on a CPU in a second."""

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "bert": {"sequence": 16},
    "chain": {},
    "densenet121": {"image": 64},
    "densenet161": {"image": 64},
    "fcn8": {"image": 32},
    "googlenet": {"image": 64},
    "gpt2": {"sequence": 16},
    "linear32": {"image": 16},
    "mlp": {},
    "mobilenet_v1": {"image": 64},
    "mobilenet_v2": {"image": 64},
    "residual_net": {"image": 16},
    "resnet18": {"image": 64},
    "resnet50": {"image": 64},
    "segnet": {"image": 32},
    "unet": {"image": 32},
    "unet_monet": {"image": 32},
    "vgg16": {"image": 32},
    "vgg19": {"image": 32},
    "vit": {"image": 32},
}
LARGE = {  # they run on no CPU; test_large.py tries small ones of their kind
    "dit_xl",
    "llama3.2_1b",
    "llama3_70b",
    "llama3_8b",
    "mamba_130m",
    "mixtral_8x7b",
    "qwen2.5_0.5b",
    "qwen3_8b",
    "stable_diffusion",
    "whisper_small",
}
