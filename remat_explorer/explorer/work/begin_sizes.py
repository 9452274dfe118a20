"""Sizes of the zoo's models to begin with, where the person has not chosen any."""

from __future__ import annotations

# Sizes to begin with: activations are worth scheduling, and a laptop executes them in seconds (fcn8 and the
# transformers, with their many parameters, in a minute).
BEGIN: dict[str, dict[str, int]] = {
    "bert": {"batch": 8, "sequence": 128},
    "chain": {"batch": 4096},
    "densenet121": {"batch": 8, "image": 64},
    "densenet161": {"batch": 8, "image": 64},
    "fcn8": {"batch": 4, "image": 256},
    "googlenet": {"batch": 16, "image": 64},
    "gpt2": {"batch": 8, "sequence": 128},
    "linear32": {"batch": 8, "image": 64},
    "mlp": {"batch": 2048},
    "mobilenet_v1": {"batch": 32, "image": 64},
    "mobilenet_v2": {"batch": 32, "image": 64},
    "residual_net": {"batch": 32, "image": 32},
    "resnet18": {"batch": 32, "image": 64},
    "resnet50": {"batch": 16, "image": 64},
    "segnet": {"batch": 4, "image": 128},
    "unet": {"batch": 4, "image": 128},
    "unet_monet": {"batch": 2, "image": 128},
    "vgg16": {"batch": 32, "image": 64},
    "vgg19": {"batch": 32, "image": 64},
    "vit": {"batch": 8, "image": 160},
}
