"""Batch normalization with saved statistics, lean, and from its output; layer normalization from its output.

Source: MONeT (Shah et al., ICLR 2021), appendix C: output-activated, and statistics that a repetition uses again.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.exactness import equal_on_cpu
from remat_explorer.capture.alternatives.kernels import batch_norm, layer_norm
from remat_explorer.capture.alternatives.site import Site, picked, picks
from remat_explorer.capture.captured_program import CapturedImplementation, step

aten = torch.ops.aten
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
    again = step(outputs[0], batch_norm.batch_norm_with_statistics, *arguments)
    tolerance = equal_on_cpu(site.fake(source))
    yield CapturedImplementation("statistics", "with saved statistics", site.call, (again,), tolerance)


def lean(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients from the input, a few samples at a time."""
    gradient, source, weight, _, _, mean, deviation, training, _, mask = site.args
    if not training or not all(mask) or not _plain(site, source) or not site.same_layout(gradient, source):
        return
    arguments = gradient, source, weight, mean, deviation
    kernels = batch_norm.batch_norm_gradient_lean, batch_norm.batch_norm_gradient_lean_in_place
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
        (batch_norm.batch_norm_gradient_from_output,),
        arguments,
        FROM_OUTPUT,
    )
    if "lean" in site.scene.kinds:
        kernels = (
            batch_norm.batch_norm_gradient_from_output_lean,
            batch_norm.batch_norm_gradient_from_output_lean_in_place,
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
    kernels = (layer_norm.layer_norm_gradient_from_output,)
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
    return w is None or b is None or batch_norm.is_invertible(w, b)
