"""The zoo is what was published: parameters, layer sizes, batches."""

import json
import math
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.models import Size
from remat_explorer.solvers import checkpoint_all_peak
from tests.thorough import thorough

PUBLISHED_PARAMETERS = {
    # torchvision's documentation, num_params of each model's weights
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "googlenet": 6_624_904,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vit": 86_567_656,
    # Hugging Face transformers, BertForMaskedLM and GPT2LMHeadModel with their default configurations
    "bert": 109_514_298,
    "gpt2": 124_439_808,
    # their model cards at Hugging Face, number of tensors' entries; Whisper's 241,734,912 less the 1500 x 768 positions
    # of sounds, and DiT's 675,129,632 less the 256 x 1152 positions of patches, which are sines that nobody trains
    "llama3.2_1b": 1_235_814_400,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "qwen2.5_0.5b": 494_032_768,
    "qwen3_8b": 8_190_735_360,
    "mixtral_8x7b": 46_702_792_704,
    "mamba_130m": 129_135_360,
    "whisper_small": 241_734_912 - 1500 * 768,
    "dit_xl": 675_129_632 - 256 * 1152,
    # diffusers, UNet2DConditionModel of CompVis/stable-diffusion-v1-4
    "stable_diffusion": 859_520_964,
    # Keras Applications: 4,253,864 for MobileNet, less the 21,888 running statistics of batch normalization
    "mobilenet_v1": 4_231_976,
    # image-segmentation-keras with 19 classes: segnet 3,707,411 and vgg_unet 12,332,755, less 3,328 and 1,920 running
    # statistics; fcn_8_vgg has none
    "fcn8": 134_456_985,
    "segnet": 3_704_083,
    "unet": 12_330_835,
    # milesial/Pytorch-UNet without transposed convolutions, for RGB and one class; utsaslab/MONeT took it from there
    "unet_monet": 17_267_393,
    # counted from their layers; of the last one: 7 convolutions of 3 x 3, 2 for shortcuts, normalization, a linear one
    "mlp": 785 * 512 + 6 * 513 * 512 + 513 * 10,
    "chain": 16 * 257 * 256,
    "linear32": 9 * (3 + 31 * 64) * 64 + 65 * 1000,
    "residual_net": 9 * (3 * 16 + 2 * 16**2 + 16 * 32 + 32**2 + 32 * 64 + 64**2) + 16 * 32 + 32 * 64 + 6 * 112 + 650,
}
PUBLISHED_SIZES = {
    # Checkmate (Jain et al., MLSys 2020), figure 5
    "mobilenet_v1": Size(512, image=(224, 224)),
    "unet": Size(32, image=(416, 608)),
    "vgg16": Size(256, image=(224, 224)),
    # MONeT (Shah et al., ICLR 2021), section 5
    "googlenet": Size(320, image=(224, 224)),
    "mobilenet_v2": Size(272, image=(224, 224)),
    "resnet50": Size(184, image=(224, 224)),
    "unet_monet": Size(11, image=(416, 608)),
    # their own papers
    "bert": Size(256, sequence=512),
    "gpt2": Size(512, sequence=1024),
    "vit": Size(4096, image=(224, 224)),
    "dit_xl": Size(256, image=(256, 256), layers=28),
    "whisper_small": Size(256, sequence=448, layers=12),
    # their tokens and layers; batches of the language models are spread over hundreds of devices
    "llama3_8b": Size(1, sequence=8192, layers=32, tied=False),
    "mamba_130m": Size(1, sequence=2048, layers=24, tied=True),
    "mixtral_8x7b": Size(1, sequence=32768, layers=32, tied=False),
    "qwen3_8b": Size(1, sequence=4096, layers=36, tied=False),
}


@pytest.fixture(scope="module")
def checkmate_layers(data) -> dict[str, Any]:
    """From the graphs of Checkmate's evaluation: Keras' parameters, and the bytes of the layers' outputs at batch 1."""
    return json.loads((data / "checkmate_layers.json").read_text())


@pytest.mark.parametrize("name", rx.models.names())
def test_parameters_batch_and_example_are_as_published(name):
    module = rx.models.load(name).shapes
    assert sum(parameter.numel() for parameter in module.parameters()) == PUBLISHED_PARAMETERS[name]
    assert rx.models.published_size(name) == PUBLISHED_SIZES.get(name, rx.models.published_size(name))


@pytest.mark.parametrize("name", ["segnet", "unet", "vgg16", "vgg19"])
def test_every_layer_of_checkmates_graph_has_a_value_of_its_size(name, checkmate_layers):
    # not so for MobileNet and ResNet-50: Keras pads there in layers of their own, PyTorch within the convolution
    loaded = rx.models.load(name, batch=1)
    statistics = sum(buffer.numel() for buffer in loaded.shapes.buffers() if buffer.dim())
    assert PUBLISHED_PARAMETERS[name] + statistics == checkmate_layers[name]["parameters"]
    graph = loaded.graph
    forward = [k for k, node in enumerate(graph.operations) if node.phase == "forward"]
    found = {graph.values[v].bytes for k in forward for v in graph.outputs(k)}
    assert found >= set(checkmate_layers[name]["layer_bytes"])
    assert max(found) == max(checkmate_layers[name]["layer_bytes"])


def test_the_layers_of_the_chain_are_equal_and_the_network_of_checkmates_first_figure_needs_30_gigabytes():
    graph = rx.models.load("chain").graph
    layers = [k for k, node in enumerate(graph.operations) if node.name.endswith("linear + tanh")]
    assert len(layers) == 16
    assert len({(graph.costs[k], *(graph.values[v].bytes for v in graph.outputs(k))) for k in layers}) == 1
    assert round(checkpoint_all_peak(rx.models.load("linear32").graph) / 1e9) == 30


@pytest.mark.parametrize(("name", "gibibytes"), [("unet_monet", 14.32), thorough("resnet50", 15.06)])
def test_keeping_everything_needs_what_monet_measured_in_pytorch(name, gibibytes, beside):
    # the README of utsaslab/MONeT; measured peaks include workspace, which an unprofiled graph leaves out, and plain
    # PyTorch overwrites no gradient that it is done with
    found = checkpoint_all_peak(beside(rx.models.load(name).graph)) / 2**30
    assert math.isclose(found, gibibytes, rel_tol=0.01)
