"""What kernels of cuDNN, cuBLAS and PyTorch take on a GPU: the shares that they reach of its published rates.

The shares were fitted to the times that the authors of MONeT (Shah et al., ICLR 2021) measured on a P100, of the
operations of five convolutional networks, by `benchmarks/costs.py --fit`. Other GPUs are taken to reach the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.capture.operations.devices import Device
from remat_explorer.capture.operations.work import Convolution, Work

TILE = 64  # rows of a matrix product that a block of threads computes at once, and half of the columns
SLICE = 8  # multiplications for each entry that it does before it loads the next factors
WINOGRAD_LAUNCHES = 4  # source, filters, products, result
WINOGRAD_IMAGES = 16  # images that Winograd's algorithm with stored transforms takes at once


@dataclass(frozen=True)
class Shares:
    """What kernels reach of the published rate, or bandwidth, in the best case: of a device that is full.

    Attributes:
        products: of the rate: matrix products, and convolutions as such (implicit GEMM).
        input_gradient: of the rate: input gradients of convolutions as matrix products.
        weight_gradient: of the rate: weight gradients.
        convolution_bytes: of the bandwidth: of so few channels that memory bounds them, and their input gradients.
        weight_gradient_bytes: of the bandwidth: their weight gradients, which add up over all positions.
        winograd: of the rate: the products of Winograd's F(4 x 4, 3 x 3).
        winograd_bytes: of the bandwidth: its transforms, which are stored.
        fused_winograd: of the rate: F(2 x 2, 3 x 3), whose transforms are not stored.
        depthwise: of the rate: depthwise convolutions, which reuse next to nothing.
        depthwise_gradients: of the rate: their gradients.
        elementwise: of the bandwidth: whatever reads and writes each entry once, and max pooling, which reads an entry
            once for every window that it is in.
        normalization: of the bandwidth: batch norm, which reads its input twice.
        concatenation: of the bandwidth.
        pooling_gradient: of the bandwidth: the search for the windows whose maximum an entry is.
        adaptive_pooling: of the bandwidth: adaptive average pooling and its gradient.
    """

    products: float = 0.67
    input_gradient: float = 0.52
    weight_gradient: float = 0.59
    convolution_bytes: float = 0.41
    weight_gradient_bytes: float = 0.16
    winograd: float = 0.90
    winograd_bytes: float = 0.58
    fused_winograd: float = 0.47
    depthwise: float = 0.023
    depthwise_gradients: float = 0.018
    elementwise: float = 0.72
    normalization: float = 0.53
    concatenation: float = 0.47
    pooling_gradient: float = 0.092
    adaptive_pooling: float = 0.14


SHARES = Shares()


def kernel_time(work: Work, device: Device, shares: Shares = SHARES) -> float:
    """Seconds of one call on a GPU, never less than a launch.

    >>> from remat_explorer.capture.operations.devices import find_device
    >>> round(1e3 * kernel_time(Work("elementwise", bytes=10**9), find_device("P100")), 2)
    1.9
    """
    if work.convolution is not None:
        return _convolution_time(work, work.convolution, device, shares)
    moving = work.bytes / device.bandwidth / getattr(shares, work.type)
    if work.product is not None:
        computing = _product_time(*work.product, device.rate_of(work.dtype, False) * shares.products)
    else:
        computing = work.flops / (device.rate_of(work.dtype, False) * shares.products)
    return max(computing, moving) + device.launch


def _convolution_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """The fastest of cuDNN's algorithms, as PyTorch takes it where its memory suffices."""
    if asked.depthwise:
        share = shares.depthwise if asked.part == "forward" else shares.depthwise_gradients
        moving = work.bytes / (device.bandwidth * shares.elementwise)
        return max(asked.taps_tried * 2 / (device.rate * share), moving) + device.launch
    rate, memory = {
        "forward": (shares.products, shares.convolution_bytes),
        "input": (shares.input_gradient, shares.convolution_bytes),
        "weight": (shares.weight_gradient, shares.weight_gradient_bytes),
    }[asked.part]
    rows, columns, depth = asked.product
    tensor = device.rate_of(work.dtype, True)
    wide = TILE if asked.part == "weight" else 2 * TILE
    computing = asked.groups * _product_time(rows, columns, depth, tensor * rate, wide)
    times = [max(computing, work.bytes / (device.bandwidth * memory)) + device.launch]
    if asked.winograd:
        times.append(_stored_winograd_time(work, asked, device, shares))
        if asked.part != "weight":
            times.append(_fused_winograd_time(work, asked, device, shares))
    return min(times)


def _stored_winograd_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """F(4 x 4, 3 x 3): a quarter of the multiplications, and transforms in memory of 36 entries for 16.

    Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
    """
    images = asked.batch if asked.part == "weight" else _up(asked.batch, WINOGRAD_IMAGES)
    spots = images * asked.squares(4)
    products = 36 * _product_time(*asked.winograd_product(spots), device.rate * shares.winograd)
    stored = 2 * 36 * spots * (asked.channels + asked.filters) * asked.entry_bytes
    moving = (work.bytes + stored) / (device.bandwidth * shares.winograd_bytes)
    return products + moving + WINOGRAD_LAUNCHES * device.launch


def _fused_winograd_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """F(2 x 2, 3 x 3) in one kernel: 2.25 times fewer multiplications."""
    spots = asked.batch * asked.squares(2)
    computing = 16 * _product_time(*asked.winograd_product(spots), device.rate * shares.fused_winograd)
    return max(computing, work.bytes / (device.bandwidth * shares.elementwise)) + device.launch


def _product_time(rows: int, columns: int, depth: int, rate: float, wide: int = 2 * TILE) -> float:
    """A matrix product in whole tiles and slices: what is missing of the last ones is computed for nothing."""
    return 2 * _up(rows, TILE if rows > TILE // 2 else TILE // 2) * _up(columns, wide) * _up(depth, SLICE) / rate


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
