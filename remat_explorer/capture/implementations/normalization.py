"""Batch normalization with saved statistics, without a temporary, or from the output; layer normalization from that.

With x^ = (x - mean) / std, y = w x^ + b and n entries a channel, the gradients are

    db = sum g,   dw = sum g x^,   dx = w / std (g - db / n - x^ dw / n).

From the output, x^ = (y - b) / w: "output-activated" in MONeT (Shah et al., ICLR 2021, appendix C) and In-Place
Activated BatchNorm (Rota Bulo et al., CVPR 2018). What y lost by rounding comes back multiplied by |b / w|. For layer
normalization, the backward kernel of PyTorch is called as if x^ were the input, with mean 0 and deviation 1; what it
gives for the input is then divided by the true deviation.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, equal_on_cpu, picked, picks
from remat_explorer.capture.implementations.chunks import CHUNK, chunks, samples
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
LARGEST_RATIO = 100.0  # of |b / w|; gradients are then right to about 2e-6 of their largest entry in float32
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
TRAINING = {  # where each operator has the flag that it normalizes with the statistics of the batch
    aten._native_batch_norm_legit_functional.default: 5,
    aten._native_batch_norm_legit.no_stats: 3,
    aten.native_batch_norm.default: 5,
}
DTYPES = (torch.float32, torch.float64)
LEAN, FROM_OUTPUT = 2e-6, 1e-5  # tolerances in float32


def with_statistics(site: Site) -> Iterator[CapturedImplementation]:
    """The result again, from statistics that an earlier run has saved; statistics and buffers are not written."""
    source, weight, bias = site.args[:3]
    outputs = site.outputs()
    if not _is_training(site.call) or not _plain(site, source) or not {0, 1, 2} <= outputs.keys():
        return
    arguments = source, outputs[1], outputs[2], weight, bias
    again = step(outputs[0], batch_norm_with_statistics, *arguments)
    tolerance = equal_on_cpu(site.fake(source))
    yield CapturedImplementation("statistics", "with saved statistics", site.call, (again,), tolerance)


def lean(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients from the input, a few samples at a time."""
    gradient, source, weight, _, _, mean, deviation, training, _, mask = site.args
    if not training or not all(mask) or not _plain(site, source) or not site.same_layout(gradient, source):
        return
    arguments = gradient, source, weight, mean, deviation
    kernels = batch_norm_gradient_lean, batch_norm_gradient_lean_in_place
    yield _three(site, "lean", "lean", kernels, arguments, LEAN)


def from_output(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients from the output, if the weights allow that, by PyTorch's kernel and lean."""
    gradient, source, weight, _, _, mean, deviation, training, _, mask = site.args
    forward = _forward_of(mean)
    if not training or not all(mask) or forward is None or not _is_training(forward) or weight is None:
        return
    bias = forward.args[2]
    output = picked(forward, 0)
    if output is None or not site.is_kept(output) or not _plain(site, source) or bias is None:
        return
    if not site.same_layout(gradient, output) or not _invertible(site, weight, bias):
        return
    arguments = gradient, output, weight, bias, deviation
    yield _three(
        site,
        "output-activated",
        "from the output",
        (batch_norm_gradient_from_output,),
        arguments,
        FROM_OUTPUT,
    )
    if "lean" in site.scene.kinds:
        kernels = (
            batch_norm_gradient_from_output_lean,
            batch_norm_gradient_from_output_lean_in_place,
        )
        way = _three(site, "output-activated", "from the output, lean", kernels, arguments, FROM_OUTPUT)
        yield replace(way, also=("lean",))


def layer_norm_from_output(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients of layer normalization from the output, if the weights allow that."""
    gradient, source, normalized, mean, deviation, weight, bias, mask = site.args
    forward = _forward_of(mean)
    if forward is None or weight is None or bias is None or not all(mask) or not _plain(site, source):
        return
    output = picked(forward, 0)
    if output is None or not site.is_kept(output) or not _invertible(site, weight, bias):
        return
    if not all(site.fake(node).is_contiguous() for node in (gradient, output)):
        return
    arguments = gradient, output, normalized, weight, bias, deviation
    kernels = (layer_norm_gradient_from_output,)
    yield _three(site, "output-activated", "from the output", kernels, arguments, FROM_OUTPUT)


def _three(site: Site, kind: str, name: str, kernels, arguments, tolerance: float) -> CapturedImplementation:
    """A way that gives the gradients of input, weight and bias; the second of two kernels overwrites the first's."""

    def steps(kernel):
        return (step(site.call, kernel, *arguments), *picks(site))

    if len(kernels) == 1:
        return CapturedImplementation(kind, name, site.call, steps(kernels[0]), tolerance, launches=4)
    return CapturedImplementation(
        kind, name, site.call, steps(kernels[0]), tolerance, arguments[0], steps(kernels[1]), launches=16
    )


def _forward_of(statistic: Any) -> Any:
    """The call that saved a statistic, or None."""
    return statistic.args[0] if isinstance(statistic, Node) and statistic.target is operator.getitem else None


def _is_training(call: Node) -> bool:
    place = TRAINING.get(call.target)  # type: ignore[arg-type]
    return place is not None and bool(call.args[place])


def _plain(site: Site, source: Node) -> bool:
    """Whether the input can be read, in one of the types that all kernels take as they are."""
    return site.is_kept(source) and site.fake(source).dtype in DTYPES


def _invertible(site: Site, weight: Node, bias: Node) -> bool:
    """Whether the weights are known to allow it, or not known before the graph runs; the kernel looks again."""
    w, b = site.scene.content(weight), site.scene.content(bias)
    return w is None or b is None or is_invertible(w, b)


def batch_norm_with_statistics(
    source: torch.Tensor,
    mean: torch.Tensor,
    deviation: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The result of a training step's batch normalization once more, with its statistics instead of new ones.

    Bit-equal on the CPU: the evaluation kernel with variance 1 and weight w / std computes what the training kernel
    does, in the same order. ``deviation`` is 1 / std of each channel, as the first run saved it.
    """
    if source.device.type == "cuda":
        return aten.batch_norm_elemt.default(source, weight, bias, mean, deviation, 0.0)
    factor = deviation if weight is None else deviation * weight
    return aten.native_batch_norm.default(source, factor, bias, mean, torch.ones_like(mean), False, 0.0, 0.0)[0]


def batch_norm_gradient_lean(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """Gradients of input, weight and bias with a temporary of a few samples; PyTorch's takes a whole tensor.

    Relative to the largest entry they differ by about 4e-7 in float32, from another order of sums. ``deviation`` is 1 /
    std of each channel.
    """
    return _lean(gradient, source, weight, mean, deviation, torch.empty_like(gradient))


def batch_norm_gradient_lean_in_place(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """As `batch_norm_gradient_lean`, with the gradient of the input over ``gradient``."""
    return _lean(gradient, source, weight, mean, deviation, gradient)


def batch_norm_gradient_from_output(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """Gradients of input, weight and bias from the output: PyTorch's kernel, told that y is an input with mean b.

    In float32 they differ by about 1e-7 of the largest entry where |b / w| is small, by 2e-6 where it is 100. An
    ExecutionError if a weight is 0 or some |b / w| is above `LARGEST_RATIO`. ``deviation`` is 1 / std of each channel.
    """
    _require_invertible(weight, bias)
    scale = weight * weight * deviation
    return aten.native_batch_norm_backward.default(
        gradient, output, scale, None, None, bias, weight.reciprocal(), True, 0.0, [True, True, True]
    )


def batch_norm_gradient_from_output_lean(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """As `batch_norm_gradient_from_output`, with the small temporary of `batch_norm_gradient_lean`."""
    _require_invertible(weight, bias)
    scale = weight * weight * deviation
    return _lean(gradient, output, scale, bias, weight.reciprocal(), torch.empty_like(gradient))


def batch_norm_gradient_from_output_lean_in_place(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """As `batch_norm_gradient_from_output_lean`, with the gradient of the input over ``gradient``."""
    _require_invertible(weight, bias)
    scale = weight * weight * deviation
    return _lean(gradient, output, scale, bias, weight.reciprocal(), gradient)


def is_invertible(weight: torch.Tensor, bias: torch.Tensor) -> bool:
    """Whether the input can be found from the output: no weight is 0, and no |b / w| above `LARGEST_RATIO`."""
    return bool((bias.abs() <= LARGEST_RATIO * weight.abs()).logical_and_(weight != 0).all())


def _require_invertible(weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Refuse weights from whose output the input cannot be found, with the channel."""
    if not is_invertible(weight, bias):
        worst = int((bias / weight).abs().nan_to_num(torch.inf).flatten().argmax())
        w, b = weight.flatten()[worst].item(), bias.flatten()[worst].item()
        raise ExecutionError(
            f"channel {worst} of a normalization has weight {w:g} and bias {b:g}: its input cannot be found from its "
            f"output accurately, which takes |bias / weight| <= {LARGEST_RATIO:g}; capture the model again, without "
            'the kind "output-activated"'
        )


def _lean(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
    out: torch.Tensor,
) -> Gradients:
    """The equations above, a few samples at a time; ``out`` may be ``gradient``."""
    shape = (1, -1, *[1] * (source.dim() - 2))
    dims = [d for d in range(source.dim()) if d != 1]
    center = mean.view(shape)
    bias_sum = torch.zeros(mean.shape, dtype=torch.float64, device=mean.device)
    weight_sum = torch.zeros_like(bias_sum)
    for part in samples(source):
        centered = source[part] - center
        weight_sum += centered.mul_(gradient[part]).sum(dims)
        bias_sum += gradient[part].sum(dims)
        del centered
    count = source.numel() // max(1, len(mean))
    scale = deviation.double() if weight is None else deviation.double() * weight
    slope = (-scale * deviation.double().square() * weight_sum / count).to(source.dtype).view(shape)
    offset = (-scale * bias_sum / count).to(source.dtype).view(shape)
    factor = scale.to(source.dtype).view(shape)
    for part in samples(source):
        centered = (source[part] - center).mul_(slope).add_(offset)
        torch.mul(gradient[part], factor, out=out[part])
        out[part].add_(centered)
        del centered
    kind = mean.dtype if weight is None else weight.dtype
    return out, (weight_sum * deviation).to(kind), bias_sum.to(kind)


def layer_norm_gradient_from_output(
    gradient: torch.Tensor,
    output: torch.Tensor,
    normalized: Sequence[int],
    weight: torch.Tensor,
    bias: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """Gradients of input, weight and bias, a few rows at a time.

    Relative to the largest entry they differ by about 4e-7 in float32 where |b / w| is small. An ExecutionError if a
    weight is 0 or some |b / w| is above `LARGEST_RATIO`. ``normalized`` are the last dimensions, over which statistics
    are taken, ``deviation`` is 1 / std of each row.
    """
    _require_invertible(weight, bias)
    width = weight.numel()
    g, y, rows = gradient.reshape(-1, width), output.reshape(-1, width), deviation.reshape(-1, 1)
    w, b = weight.flatten(), bias.flatten()
    result = torch.empty_like(gradient)
    target = result.view(-1, width)
    weight_sum = torch.zeros(width, dtype=torch.float64, device=weight.device)
    bias_sum = torch.zeros_like(weight_sum)
    for part in chunks(len(g), max(1, CHUNK // width)):
        inner = y[part].sub(b).div_(w)
        mean = torch.zeros_like(rows[part])
        inner_gradient, dw, db = aten.native_layer_norm_backward.default(
            g[part], inner, [width], mean, torch.ones_like(mean), w, b, [True, True, True]
        )
        torch.mul(inner_gradient, rows[part], out=target[part])
        weight_sum += dw
        bias_sum += db
        del inner, inner_gradient
    return result, weight_sum.to(weight.dtype).view(*normalized), bias_sum.to(bias.dtype).view(*normalized)
