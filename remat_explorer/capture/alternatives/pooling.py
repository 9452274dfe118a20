"""Max pooling with one byte an output, or without any index.

The byte, the place of the maximum in its window, is made with the maxima, or apart from them and later: an optional
operation makes it from PyTorch's indices or from the input, whichever is kept.

Source: MONeT (Shah et al., ICLR 2021), appendix C: intermediate-activated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.exactness import equal_on_cpu
from remat_explorer.capture.alternatives.kernels import max_pool, max_pool_places
from remat_explorer.capture.alternatives.kernels.flat import samples
from remat_explorer.capture.alternatives.site import Site, picked
from remat_explorer.capture.captured_program import CapturedImplementation, step


def forward(site: Site) -> Iterator[CapturedImplementation]:
    """Maxima with places in windows, and maxima alone."""
    setting = _setting(site.args)
    maxima, index = site.outputs().get(0), site.outputs().get(1)
    if maxima is None or index is None or site.fake(maxima).dim() != 4:
        return
    source, parts = site.args[0], len(list(samples(site.fake(site.args[0]))))
    places = _places(site, site.call)
    if places is not None:
        steps = (
            step(site.call, max_pool.max_pool_with_places, source, *setting),
            step(maxima, operator.getitem, site.call, 0),
            step(places, operator.getitem, site.call, 1),
        )
        yield CapturedImplementation("pooling", "with places", site.call, steps, launches=8 * parts, gpu_launches=1)
    alone = step(maxima, max_pool.max_pool_alone, source, *setting)
    yield CapturedImplementation("pooling", "maxima alone", site.call, (alone,), launches=2 * parts, gpu_launches=1)


def backward(site: Site) -> Iterator[CapturedImplementation]:
    """The gradient from indices without the input, from places of either making, or from the input without indices."""
    gradient, source, *rest, index = site.args
    setting = _setting((source, *rest))
    size, parts = list(site.fake(source).shape), len(list(samples(site.fake(source))))
    if len(size) != 4 or not _same_format(site, gradient, source):
        return
    kernel, stride = setting[:2]
    apart = all(width <= distance for width, distance in zip(kernel, stride, strict=True))
    tolerance = 0.0 if apart else equal_on_cpu(site.fake(gradient))  # windows that overlap are added up
    indexed = step(site.call, max_pool.max_pool_gradient_from_indices, gradient, index, size, *setting)
    yield CapturedImplementation("pooling", "from indices", site.call, (indexed,), tolerance)
    pool = index.args[0]
    places = _places(site, pool) if index.target is operator.getitem and pool in site.scene.caller else None
    if places is not None:
        for name, made in (("from places", places), ("from places apart", _places_apart(site, index, source))):
            placed = step(site.call, max_pool.max_pool_gradient_from_places, gradient, made, size, *setting)
            yield CapturedImplementation(
                "pooling", name, site.call, (placed,), tolerance, launches=8 * parts, gpu_launches=1
            )
    if site.is_kept(source):
        again = step(site.call, max_pool.max_pool_gradient_recomputed, gradient, source, *setting)
        room = site.fake(gradient).numel()  # places on a GPU; elsewhere, indices of a few samples
        yield CapturedImplementation(
            *("pooling", "indices recomputed", site.call, (again,), tolerance),
            launches=2 * parts,
            gpu_launches=2 if math.prod(kernel) <= max_pool.LARGEST_WINDOW else 0,
            workspace=room,
        )


def _places(site: Site, pool: Node) -> Node | None:
    """The node of the places of a pooling, made once; None for windows too large for one byte."""
    kernel = _setting(pool.args)[0]
    index = picked(pool, 1)
    if index is None or math.prod(kernel) > max_pool.LARGEST_WINDOW:
        return None
    scene = site.scene
    if ("places", pool) not in scene.made:
        fake = torch.empty_like(scene.fake(index), dtype=torch.uint8)
        scene.made["places", pool] = scene.add_value(index, operator.getitem, (pool, 1), fake, "places")
    return scene.made["places", pool]


def _places_apart(site: Site, index: Node, source: Node) -> Node:
    """The node of the places of a pooling that an optional operation makes, from the indices or from the input."""
    scene, pool = site.scene, index.args[0]
    if ("places apart", pool) not in scene.made:
        setting, fake = _setting(pool.args), torch.empty_like(scene.fake(index), dtype=torch.uint8)  # type: ignore[union-attr]
        arguments = index, list(site.fake(source).shape), *setting
        apart = scene.add_value(index, max_pool_places.packed_places, arguments, fake, "places")
        draft = scene.add_optional(apart, (index,))
        if site.is_kept(source):
            parts = len(list(samples(site.fake(source))))
            again = step(apart, max_pool_places.max_pool_places, source, *setting)
            draft.ways.append(
                CapturedImplementation("pooling", "from the input", apart, (again,), launches=8 * parts, gpu_launches=1)
            )
        scene.optional.append((scene.producer[scene.found.of_node[index]], draft))
        scene.made["places apart", pool] = apart
    return scene.made["places apart", pool]


def _setting(arguments: tuple[Any, ...]) -> tuple[list[int], list[int], list[int], list[int], bool]:
    """Kernel, stride, padding and dilation of height and width, and whether sizes are rounded up."""
    given: Any = (*arguments[1:6], *([], [0, 0], [1, 1], False)[len(arguments) - 2 :])
    kernel, stride, padding, dilation, ceil = given
    return _pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation), bool(ceil)


def _pair(sizes: list[int]) -> list[int]:
    return [*sizes, *sizes][:2]


def _same_format(site: Site, gradient: Node, source: Node) -> bool:
    """Whether gradient and input are both contiguous, or both have channels last."""
    g, x = site.fake(gradient), site.fake(source)
    return any(
        g.is_contiguous(memory_format=form) and x.is_contiguous(memory_format=form)
        for form in (torch.contiguous_format, torch.channels_last)
    )
