"""Multilayer perceptrons a part at a time, so that their hidden features never exist as a whole.

Where linear layers make hidden features of tokens, calls that treat each entry for itself make further ones, and
linear layers lead back, all of them have other implementations together. A forward result is computed some tokens at a
time. The first operation of the backward pass computes all gradients, some hidden features at a time, and the others
pass on what it has made. What makes a hidden tensor has nothing to do. So the products of the forward pass that lead
to hidden features run once more, and no other.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from remat_explorer.capture.alternatives.exactness import reordered
from remat_explorer.capture.alternatives.kernels import perceptron as kernels
from remat_explorer.capture.alternatives.perceptron_layers import PRODUCTS, Layers, factors_of, find_layers
from remat_explorer.capture.alternatives.site import Site, Surroundings
from remat_explorer.capture.alternatives.views import made_by
from remat_explorer.capture.captured_program import Call, CapturedImplementation, step

KIND, FOUND, PARTS = "chunks", "perceptrons", (4, 16)
ADDED = 10.0  # tolerance of gradients, relative to that of forward results: products of differences, added up


def perceptron_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The implementations of a call of a perceptron."""
    scene = site.scene
    if FOUND not in scene.found_together:
        scene.found_together[FOUND] = find_layers(scene)
    layers: Layers | None = scene.found_together[FOUND].get(site.call)
    if layers is None:
        return
    if site.call is layers.first_backward:
        yield from _all_gradients(site, layers)
    elif layers.first_backward in site.draft.calls:
        return  # which the first of them stands for
    elif site.call in layers.hidden:
        yield from _left_out(site, layers)
    elif site.call in layers.backward:
        yield _one_gradient(site)
    else:
        yield from _forward_result(site, layers)


def _left_out(site: Site, layers: Layers) -> Iterator[CapturedImplementation]:
    """Nothing, instead of all calls of an operation that makes a hidden tensor."""
    first, *rest = site.draft.calls
    near = reordered(site.fake(first))
    parts = tuple(CapturedImplementation(KIND, "left out", call, (), near) for call in site.draft.calls)
    if site.call is first and all(call in layers.hidden for call in site.draft.calls):
        yield replace(parts[0], parts=parts) if rest else parts[0]


def _forward_result(site: Site, layers: Layers) -> Iterator[CapturedImplementation]:
    """A result of the forward pass, some tokens at a time."""
    perceptron, given = _perceptron_of(site.scene, layers, (site.call,))
    hidden = layers.hidden_for((site.call,))
    for parts in PARTS:
        if parts <= layers.tokens:
            rows = -(-layers.tokens // parts)
            one = step(site.call, kernels.SomeTokens(perceptron, rows), *given)
            yield _in_parts(site, layers, parts, perceptron, (one,), hidden)


def _all_gradients(site: Site, layers: Layers) -> Iterator[CapturedImplementation]:
    """What the first operation of the backward pass makes instead: every gradient, some hidden features at a time."""
    perceptron, read = _perceptron_of(site.scene, layers, layers.gradients)
    given = tuple(site.scene.before(node, site.call) for node in read)
    whole, made = _nodes_of_gradients(site, layers, perceptron, given)
    picked = {node: step(node, operator.getitem, whole, i) for i, node in enumerate(made)}
    own = [call for call in site.draft.calls if call in layers.calls and call is not site.call]
    again = [
        call for call in (*layers.hidden_for(layers.gradients), *layers.gradients) if call not in (site.call, *own)
    ]
    for parts in PARTS:
        if parts <= layers.features:
            columns = -(-layers.features // parts)
            all_of_them = step(whole, kernels.SomeFeatures(perceptron, columns), *given)
            mine = tuple(one for node, one in picked.items() if node not in own)
            way = _in_parts(site, layers, parts, perceptron, (all_of_them, *mine), again)
            others = [
                CapturedImplementation(KIND, way.name, call, (picked[call],) if call in picked else (), way.tolerance)
                for call in own
            ]
            yield replace(way, steps=(), parts=(way, *others)) if others else way


def _one_gradient(site: Site) -> CapturedImplementation:
    """A gradient that the first call of the backward pass has made already."""
    made = site.scene.made[FOUND, site.call]
    over = made if site.call.target in PRODUCTS else None  # the smaller one, of a bias, is copied
    return CapturedImplementation(
        KIND,
        "of the perceptron's backward pass",
        site.call,
        (step(site.call, torch.clone, made),),
        ADDED * reordered(site.fake(site.call)),
        over=over,
        steps_over=(step(site.call, kernels.passed_on, made),) if over is not None else (),
        arithmetic=0.0,
    )


def _in_parts(
    site: Site, layers: Layers, parts: int, perceptron: kernels.Perceptron, steps: tuple[Call, ...], again: list[Node]
) -> CapturedImplementation:
    """The implementation of a call that computes a perceptron in parts, with the calls that run within it."""
    chunk = -(-max(site.fake(call).nbytes for call in layers.hidden) // parts)
    near = reordered(site.fake(site.call)) * (ADDED if site.call in layers.backward else 1.0)
    return CapturedImplementation(
        KIND,
        f"of the perceptron, in {parts} parts",
        site.call,
        steps,
        near,
        launches=parts * len(perceptron.steps),
        again=tuple(again),
        workspace=perceptron.most_alive * chunk,
        portion=1 / parts,
    )


def _nodes_of_gradients(
    site: Site, layers: Layers, perceptron: kernels.Perceptron, given: tuple[Node, ...]
) -> tuple[Node, list[Node]]:
    """A node for all gradients together, and one for each: its own, or one from which its operation takes it."""
    scene, found = site.scene, site.scene.found
    fakes = [site.fake(call) for call in layers.gradients]
    with found.module.graph.inserting_before(site.call):
        whole = found.module.graph.call_function(kernels.SomeFeatures(perceptron, layers.features), given)
    found.fakes[whole] = tuple(fakes)
    made: list[Node] = []
    for number, (call, fake) in enumerate(zip(layers.gradients, fakes, strict=True)):
        if call in site.draft.calls:
            made.append(call)
            continue
        node = scene.add_value(whole, operator.getitem, (whole, number), torch.empty_like(fake), "gradient")
        scene.made[FOUND, call] = node
        made.append(node)
    return whole, made


def _perceptron_of(
    scene: Surroundings, layers: Layers, results: tuple[Node, ...]
) -> tuple[kernels.Perceptron, tuple[Node, ...]]:
    """How results are computed from what is given: tokens, gradients of results, weights and biases."""
    given: dict[Node, int] = {}
    numbers: dict[Node, int] = {}
    steps: list[kernels.HiddenStep | kernels.ResultStep] = []

    def place(node: Node) -> int:
        return given.setdefault(node, len(given))

    def place_if(node: Node | None) -> int | None:
        return None if node is None else place(node)

    def hidden(argument: Any) -> Any:
        return kernels.HiddenPlace(numbers[made_by(argument)]) if isinstance(argument, Node) else argument

    mine = {*layers.hidden_for(results), *results}
    for call in sorted(mine, key=scene.found.order.__getitem__):
        kind = layers.results.get(call) if call in results else None
        if kind == "bias":
            steps.append(kernels.BiasGradient(numbers[made_by(call.args[0])]))
        elif kind is not None:
            first, second, added = factors_of(call)
            if kind == "tokens":
                steps.append(kernels.TokenResult(numbers[made_by(first)], place(second), place_if(added)))
            elif kind == "weight":
                steps.append(kernels.WeightGradient(numbers[made_by(first)], place(second), turned=False))
            else:
                steps.append(kernels.WeightGradient(numbers[made_by(second)], place(first), turned=True))
        else:
            numbers[call] = number = len(numbers)
            if call.target in PRODUCTS:
                first, second, added = factors_of(call)
                steps.append(kernels.Product(number, place(first), place(second), place_if(added)))
            else:
                arguments = map_aggregate(call.args, hidden)
                keywords = tuple(call.kwargs.items())
                steps.append(kernels.Entrywise(number, call.target, arguments, keywords))  # type: ignore[arg-type]
    made = [scene.fake(call) for call in sorted(results, key=scene.found.order.__getitem__)]
    shapes = tuple((tuple(fake.shape), fake.dtype) for fake in made)
    return kernels.Perceptron(layers.features, tuple(steps), shapes), tuple(given)
