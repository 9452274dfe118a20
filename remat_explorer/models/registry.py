"""Every model of the zoo by its name; each family's file lists its own."""

from __future__ import annotations

from remat_explorer.models import (
    bert,
    chain,
    densenet,
    fcn8,
    googlenet,
    gpt2,
    mlp,
    mobilenet,
    residual_net,
    resnet,
    segnet,
    unet,
    vgg,
    vit,
)
from remat_explorer.models.large import diffusion_unet, dit, llama, mamba, mixtral, qwen, whisper

MODELS = (
    bert.ENTRIES
    | chain.ENTRIES
    | densenet.ENTRIES
    | diffusion_unet.ENTRIES
    | dit.ENTRIES
    | fcn8.ENTRIES
    | googlenet.ENTRIES
    | gpt2.ENTRIES
    | llama.ENTRIES
    | mamba.ENTRIES
    | mixtral.ENTRIES
    | mlp.ENTRIES
    | mobilenet.ENTRIES
    | qwen.ENTRIES
    | residual_net.ENTRIES
    | resnet.ENTRIES
    | segnet.ENTRIES
    | unet.ENTRIES
    | vgg.ENTRIES
    | vit.ENTRIES
    | whisper.ENTRIES
)
