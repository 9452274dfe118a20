"""Floating-point operations and rooflines against numbers worked out by hand, and times of kernels on GPUs."""

import math
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.devices import DEVICES, GPUS, find_device
from remat_explorer.capture.predicted_costs import Convolution, Part, Type, Work, bytes_moved, flops, roofline, works_of
from remat_explorer.capture.predicted_costs import kernel_time as seconds_of
from remat_explorer.errors import UnknownNameError

aten = torch.ops.aten

MAX_POOL_BACKWARD = aten.max_pool2d_with_indices_backward


def call(model: nn.Module, x: torch.Tensor, packet: object):
    program = trace(model, (x,))
    nodes = (node for node in program.module.graph.nodes if getattr(node.target, "overloadpacket", None) is packet)
    return next(nodes), program.fakes


def test_a_linear_layer_multiplies_and_adds_once_per_weight_and_example():
    node, fakes = call(nn.Linear(16, 32), torch.ones(4, 16), aten.addmm)
    assert flops(node, fakes) == 2 * 4 * 16 * 32
    assert bytes_moved(node, fakes) == 4 * (4 * 16 + 16 * 32 + 32 + 4 * 32)


def test_the_weight_gradient_of_a_grouped_convolution_takes_what_the_forward_pass_takes():
    model = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
    for packet in (aten.convolution, aten.convolution_backward):
        assert flops(*call(model, torch.ones(2, 8, 6, 6), packet)) == 2 * (2 * 8 * 6 * 6) * (8 // 4) * 9


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_with_grouped_queries_takes_what_all_its_queries_take(heads):
    graph = torch.fx.Graph()
    shapes = ((2, 4, 6, 8), (2, heads, 10, 8), (2, heads, 10, 8))
    tensors = {graph.placeholder(name): torch.ones(shape) for name, shape in zip("qkv", shapes, strict=True)}
    node = graph.call_function(aten._scaled_dot_product_flash_attention.default, tuple(tensors))
    assert flops(node, {**tensors, node: torch.ones(2, 4, 6, 8)}) == 2 * 2 * (2 * 4 * 6 * 10 * 8)


def test_what_a_gradient_needs_but_the_shape_of_is_not_moved():
    x, y = 2 * 8 * 6 * 6, 2 * 8 * 3 * 3  # entries before and after pooling
    pool, fakes = call(nn.Sequential(nn.Conv2d(8, 8, 1), nn.MaxPool2d(2)), torch.ones(2, 8, 6, 6), MAX_POOL_BACKWARD)
    assert bytes_moved(pool, fakes) == 4 * y + 8 * y + 4 * x  # gradient, indices, result


def test_an_unknown_device_lists_near_ones():
    assert find_device("v100") is DEVICES["V100"]
    with pytest.raises(UnknownNameError, match="did you mean 'A100'"):
        find_device("A1000")


PARTS = get_args(Part)
MOVING = [kind for kind in get_args(Type) if kind != "convolution"]
VIEWS = (aten.expand.default, aten.view.default)
NAMES = [gpu.name for gpu in GPUS]


def of_convolution(part: Part, name: str = "P100", dtype: str = "float32", **sizes: Any) -> float:
    """Seconds of a convolution of 64 images of 56 pixels, with some sizes other than 64 channels and 3 x 3 filters."""
    asked = replace(Convolution(part, 64, 64, 64, (3, 3), (56, 56), (56, 56)), **sizes)
    entries = asked.batch * 56 * 56 * (asked.channels + asked.filters)
    moved = entries * (4 if dtype == "float32" else 2)
    asked = replace(asked, entry_bytes=4 if dtype == "float32" else 2)
    return seconds_of(Work("convolution", bytes=moved, dtype=dtype, convolution=asked), find_device(name))


def works(module: nn.Module, x: torch.Tensor) -> list[tuple[str, Work]]:
    """The work of each call that computes something in a captured training step, beside the operator's name."""
    program = trace(module, (x,), loss=lambda y: y.sum())
    calls = [call.node for body in program.bodies for call in body.calls if call.node.op == "call_function"]
    counted = [call for call in calls if getattr(call.target, "overloadpacket", None) is not None]
    return [(str(call.target), work) for call in counted for work in works_of(call, program.fakes)]


def convolutions(module: nn.Module, x: torch.Tensor) -> list[Work]:
    return [work for _, work in works(module, x) if work.convolution is not None]


@pytest.mark.parametrize("name", NAMES)
def test_twice_the_bytes_take_longer_and_none_takes_a_launch(name: str) -> None:
    device = find_device(name)
    for kind in MOVING:
        assert seconds_of(Work(kind), device) == device.launch > 0
        few, many = (seconds_of(Work(kind, bytes=moved), device) - device.launch for moved in (10**8, 2 * 10**8))
        assert many == pytest.approx(2 * few)
        assert few > 10**8 / device.bandwidth  # no kernel is faster than the memory


@pytest.mark.parametrize("name", NAMES)
def test_a_larger_convolution_never_takes_less_and_one_in_half_precision_no_more(name: str) -> None:
    for part, size in product(PARTS, ("batch", "channels", "filters")):
        times = [of_convolution(part, name, "float32", **{size: number}) for number in range(1, 200, 7)]
        assert times == sorted(times), (part, size)
        assert times[-1] > 2 * times[0] > 0
    device = find_device(name)
    for dtype in ("float16", "bfloat16"):
        assert all(of_convolution(part, name, dtype) <= of_convolution(part, name) for part in PARTS)
        products = [Work("elementwise", dtype=kind, product=(1024, 1024, 1024)) for kind in (dtype, "float32")]
        assert seconds_of(products[0], device) <= seconds_of(products[1], device)


@pytest.mark.parametrize("part", PARTS)
def test_no_algorithm_beats_the_arithmetic_that_it_needs(part: Part) -> None:
    multiplied = 2 * 64 * 56 * 56 * 512 * 512 * 9
    seconds = of_convolution(part, channels=512, filters=512)
    assert multiplied / 4 / find_device("P100").rate < seconds < multiplied / find_device("P100").rate
    dilated = of_convolution(part, channels=512, filters=512, plain=False)
    assert dilated > multiplied / find_device("P100").rate  # no algorithm of Winograd's


def test_gradients_of_a_strided_convolution_multiply_as_often_as_it_does() -> None:
    module = nn.Sequential(nn.Conv2d(8, 16, 1), nn.Conv2d(16, 32, 3, 2, 1))
    found = [work.convolution for work in convolutions(module, torch.ones(4, 8, 32, 32)) if work.convolution]
    strided = {(asked.part, math.prod(asked.product)) for asked in found if asked.kernel == (3, 3)}
    assert strided == {(part, 4 * 16 * 16 * 16 * 32 * 9) for part in ("forward", "input", "weight")}


def test_a_transposed_convolution_is_the_input_gradient_of_one() -> None:
    x = torch.ones(4, 16, 8, 8)
    up, *_ = convolutions(nn.ConvTranspose2d(16, 8, 2, 2), x)
    assert up.convolution == Convolution("input", 4, 8, 16, (2, 2), (16, 16), (8, 8), plain=False)


def test_a_depthwise_convolution_takes_longer_for_each_operation_than_a_dense_one() -> None:
    x = torch.ones(8, 64, 28, 28)
    rates = []
    for groups in (1, 64):
        forward, *_ = convolutions(nn.Conv2d(64, 64, 3, 1, 1, groups=groups), x)
        rates.append(forward.flops / seconds_of(forward, find_device("P100")))
    assert rates[1] < rates[0] / 5


def test_batch_norm_reads_its_input_twice_and_max_pooling_every_window() -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.MaxPool2d(3, 1, 1))
    again = {name.split(".")[1]: work.again for name, work in works(module, torch.ones(8, 4, 16, 16)) if work.again}
    size, norm = 4 * 8 * 4 * 16 * 16, "native_batch_norm"
    pool = {"max_pool2d_with_indices": 8 * size}
    assert again == {f"_{norm}_legit_functional": size, f"{norm}_backward": 2 * size, **pool}


def test_float32_convolutions_run_in_tf32_and_float32_products_do_not_as_pytorch_has_it() -> None:
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    a100, v100 = find_device("A100"), find_device("V100")
    assert a100.rate_of("float32", True) == a100.tensor["tf32"] > a100.rate_of("float32", False) == a100.rate
    assert v100.rate_of("float32", True) == v100.rate_of("bfloat16", False) == v100.rate
    assert v100.rate < v100.rate_of("float16", False)


@pytest.mark.parametrize(("name", "faster"), [("P100", 1.0), ("A100", 2.0), ("V100", 2.0)])
def test_a_captured_network_in_half_precision_costs_less(name: str, faster: float) -> None:
    totals = []
    for dtype in (torch.float32, torch.float16):
        with FakeTensorMode():
            convolution = nn.Conv2d(512, 512, 3, padding=1, dtype=dtype)
            module = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(512 * 256, 64, dtype=dtype))
            x = torch.empty(128, 512, 16, 16, dtype=dtype)
        totals.append(rx.capture(module, (x,), loss=lambda y: y.float().sum(), device=name).total_cost)
    assert totals[0] / totals[1] > faster


def test_a_roofline_by_name_is_the_plain_one_of_published_rates() -> None:
    name = next(name for name, device in DEVICES.items() if not device.kernels)
    module, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()), torch.ones(2, 4, 8, 8)
    device, program = find_device(name), trace(module, (x,), loss=lambda y: y.sum(), device=name)
    assert not device.tensor
    bodies = [[call.node for call in body.calls] for body in program.bodies]
    pairs = zip(bodies, program.graph.operations, strict=True)
    compared = [(calls, node) for calls, node in pairs if not any(call.target in VIEWS for call in calls)]
    assert len(compared) >= 2
    assert all(node.default.cost == roofline(calls, program.fakes, device) for calls, node in compared)
