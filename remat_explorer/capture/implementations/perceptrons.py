"""Multilayer perceptrons a part at a time, so that their hidden features never exist as a whole.

Where linear layers make hidden features of tokens, calls that treat each entry for itself make further ones, and
linear layers lead back, all of them have other implementations together. A forward result is computed some tokens at a
time. The first operation of the backward pass computes all gradients, some hidden features at a time, and the others
pass on what it has made. What makes a hidden tensor has nothing to do. So the products of the forward pass that lead
to hidden features run once more, and no other.

Each hidden tensor is a product of tokens and weights, or made entry by entry of such ones, so that any part of its
rows or columns can be had from a part of the factors. Each column belongs to a row or column of the weight gradients,
and adds to the input gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from remat_explorer.capture.captured_program import Call, CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, Surroundings, made_by, readers_of, reordered, turns
from remat_explorer.capture.implementations.chunks import chunks
from remat_explorer.capture.storages import OperationDraft

aten = torch.ops.aten
EVERYTHING = slice(None)
Hidden = dict[int, torch.Tensor]
Given = Sequence[torch.Tensor]
PRODUCTS = (aten.mm.default, aten.addmm.default)
SUM = aten.sum.dim_IntList
MOST_HIDDEN = 64  # tensors; where there are more, it is something else
ResultKind = Literal["tokens", "weight", "turned weight", "bias"]
KIND, FOUND, PARTS = "chunks", "perceptrons", (4, 16)
ADDED = 10.0  # tolerance of gradients, relative to that of forward results: products of differences, added up


def perceptron_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The implementations of a call of a perceptron."""
    scene = site.scene
    if FOUND not in scene.found_together:
        scene.found_together[FOUND] = _find_layers(scene)
    layers: _Layers | None = scene.found_together[FOUND].get(site.call)
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


def _left_out(site: Site, layers: _Layers) -> Iterator[CapturedImplementation]:
    """Nothing, instead of all calls of an operation that makes a hidden tensor."""
    first, *rest = site.draft.calls
    near = reordered(site.fake(first))
    parts = tuple(CapturedImplementation(KIND, "left out", call, (), near) for call in site.draft.calls)
    if site.call is first and all(call in layers.hidden for call in site.draft.calls):
        yield replace(parts[0], parts=parts) if rest else parts[0]


def _forward_result(site: Site, layers: _Layers) -> Iterator[CapturedImplementation]:
    """A result of the forward pass, some tokens at a time."""
    perceptron, given = _perceptron_of(site.scene, layers, (site.call,))
    hidden = layers.hidden_for((site.call,))
    for parts in PARTS:
        if parts <= layers.tokens:
            rows = -(-layers.tokens // parts)
            one = step(site.call, SomeTokens(perceptron, rows), *given)
            yield _in_parts(site, layers, parts, perceptron, (one,), hidden)


def _all_gradients(site: Site, layers: _Layers) -> Iterator[CapturedImplementation]:
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
            all_of_them = step(whole, SomeFeatures(perceptron, columns), *given)
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
        steps_over=(step(site.call, passed_on, made),) if over is not None else (),
        arithmetic=0.0,
    )


def _in_parts(
    site: Site, layers: _Layers, parts: int, perceptron: Perceptron, steps: tuple[Call, ...], again: list[Node]
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
    site: Site, layers: _Layers, perceptron: Perceptron, given: tuple[Node, ...]
) -> tuple[Node, list[Node]]:
    """A node for all gradients together, and one for each: its own, or one from which its operation takes it."""
    scene, found = site.scene, site.scene.found
    fakes = [site.fake(call) for call in layers.gradients]
    with found.module.graph.inserting_before(site.call):
        whole = found.module.graph.call_function(SomeFeatures(perceptron, layers.features), given)
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
    scene: Surroundings, layers: _Layers, results: tuple[Node, ...]
) -> tuple[Perceptron, tuple[Node, ...]]:
    """How results are computed from what is given: tokens, gradients of results, weights and biases."""
    given: dict[Node, int] = {}
    numbers: dict[Node, int] = {}
    steps: list[HiddenStep | ResultStep] = []

    def place(node: Node) -> int:
        return given.setdefault(node, len(given))

    def place_if(node: Node | None) -> int | None:
        return None if node is None else place(node)

    def hidden(argument: Any) -> Any:
        return HiddenPlace(numbers[made_by(argument)]) if isinstance(argument, Node) else argument

    mine = {*layers.hidden_for(results), *results}
    for call in sorted(mine, key=scene.found.order.__getitem__):
        kind = layers.results.get(call) if call in results else None
        if kind == "bias":
            steps.append(BiasGradient(numbers[made_by(call.args[0])]))
        elif kind is not None:
            first, second, added = _factors_of(call)
            if kind == "tokens":
                steps.append(TokenResult(numbers[made_by(first)], place(second), place_if(added)))
            elif kind == "weight":
                steps.append(WeightGradient(numbers[made_by(first)], place(second), turned=False))
            else:
                steps.append(WeightGradient(numbers[made_by(second)], place(first), turned=True))
        else:
            numbers[call] = number = len(numbers)
            if call.target in PRODUCTS:
                first, second, added = _factors_of(call)
                steps.append(Product(number, place(first), place(second), place_if(added)))
            else:
                arguments = map_aggregate(call.args, hidden)
                keywords = tuple(call.kwargs.items())
                steps.append(Entrywise(number, call.target, arguments, keywords))  # type: ignore[arg-type]
    made = [scene.fake(call) for call in sorted(results, key=scene.found.order.__getitem__)]
    shapes = tuple((tuple(fake.shape), fake.dtype) for fake in made)
    return Perceptron(layers.features, tuple(steps), shapes), tuple(given)


@dataclass(frozen=True)
class HiddenPlace:
    """Stands for a hidden tensor among the arguments of a call, by its number."""

    number: int


@dataclass(frozen=True)
class Product:
    """Hidden tensor ``made``: rows of tokens times columns of weights, and a bias; given tensors by their places."""

    made: int
    tokens: int
    weight: int
    bias: int | None = None

    def part(self, given: Given, rows: slice, columns: slice) -> torch.Tensor:
        """These rows and columns of it."""
        factors = given[self.tokens][rows], given[self.weight][:, columns]
        if self.bias is None:
            return torch.mm(*factors)
        return torch.addmm(given[self.bias][columns], *factors)


@dataclass(frozen=True)
class Entrywise:
    """Hidden tensor ``made`` by a call that treats each entry for itself, of others: see `HiddenPlace`."""

    made: int
    target: Callable[..., torch.Tensor]
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()

    def part(self, hidden: Hidden) -> torch.Tensor:
        """What it makes of these parts."""
        arguments = pytree.tree_map_only(HiddenPlace, lambda place: hidden[place.number], self.arguments)
        return self.target(*arguments, **dict(self.keywords))


@dataclass(frozen=True)
class TokenResult:
    """Result: a hidden tensor times weights, and a bias; a row for each token."""

    hidden: int
    weight: int
    bias: int | None = None

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write these rows, or add to all of them what these columns give."""
        factors = hidden[self.hidden], given[self.weight][columns]
        if columns.start:
            result.addmm_(*factors)
        elif self.bias is None:
            torch.mm(*factors, out=result[rows])
        else:
            torch.addmm(given[self.bias], *factors, out=result[rows])


@dataclass(frozen=True)
class WeightGradient:
    """Result: a hidden tensor times a given one, along the tokens."""

    hidden: int
    tokens: int
    turned: bool  # the given tensor has a column for each token, and is the first factor

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write what belongs to these columns."""
        features, tokens = hidden[self.hidden], given[self.tokens]
        if self.turned:
            torch.mm(tokens, features, out=result[:, columns])
        else:
            torch.mm(features.t(), tokens, out=result[columns])


@dataclass(frozen=True)
class BiasGradient:
    """Result: the sum of a hidden tensor along its rows, of shape (1, features)."""

    hidden: int

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write what belongs to these columns."""
        torch.sum(hidden[self.hidden], 0, keepdim=True, out=result[:, columns])


HiddenStep = Product | Entrywise
ResultStep = TokenResult | WeightGradient | BiasGradient


@dataclass(frozen=True)
class Perceptron:
    """How results come from tokens and weights."""

    features: int  # columns of its hidden tensors
    steps: tuple[HiddenStep | ResultStep, ...]  # hidden tensors and results, in order
    results: tuple[tuple[tuple[int, ...], torch.dtype], ...]  # shape and type of each, in order
    last: tuple[tuple[int, ...], ...] = field(init=False)  # for each step the hidden tensors that no later one reads

    def __post_init__(self) -> None:
        reader = {number: place for place, step in enumerate(self.steps) for number in reads_of(step)}
        last = [tuple(n for n, reading in reader.items() if reading == place) for place in range(len(self.steps))]
        object.__setattr__(self, "last", tuple(last))

    @property
    def most_alive(self) -> int:
        """How many hidden tensors exist at a time."""
        alive = most = 0
        for now, last in zip(self.steps, self.last, strict=True):
            alive += isinstance(now, HiddenStep)
            most, alive = max(most, alive), alive - len(last)
        return most

    def add(self, results: Sequence[torch.Tensor], given: Given, rows: slice, columns: slice) -> None:
        """Compute hidden tensors for these rows and columns, and what they contribute to the results."""
        hidden: Hidden = {}
        remaining = iter(results)
        for now, last in zip(self.steps, self.last, strict=True):
            if isinstance(now, Product):
                hidden[now.made] = now.part(given, rows, columns)
            elif isinstance(now, Entrywise):
                hidden[now.made] = now.part(hidden)
            else:
                now.add(next(remaining), hidden, given, rows, columns)
            for number in last:
                del hidden[number]


def reads_of(step: HiddenStep | ResultStep) -> list[int]:
    """Numbers of the hidden tensors that a step reads."""
    if isinstance(step, Product):
        return []
    if isinstance(step, Entrywise):
        return [place.number for place in pytree.tree_leaves(step.arguments) if isinstance(place, HiddenPlace)]
    return [step.hidden]


@dataclass(frozen=True)
class SomeTokens:
    """Computes the only result of a perceptron, ``rows`` tokens at a time."""

    perceptron: Perceptron
    rows: int
    __name__: ClassVar[str] = "perceptron_of_some_tokens"  # in generated code

    def __call__(self, *given: torch.Tensor) -> torch.Tensor:
        ((shape, dtype),) = self.perceptron.results
        result = given[0].new_empty(shape, dtype=dtype)
        for part in chunks(shape[0], self.rows):
            self.perceptron.add([result], given, part, EVERYTHING)
        return result


@dataclass(frozen=True)
class SomeFeatures:
    """Computes every result of a perceptron, ``columns`` hidden features at a time."""

    perceptron: Perceptron
    columns: int
    __name__: ClassVar[str] = "perceptron_of_some_features"

    def __call__(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = tuple(given[0].new_empty(shape, dtype=dtype) for shape, dtype in self.perceptron.results)
        for part in chunks(self.perceptron.features, self.columns):
            self.perceptron.add(results, given, EVERYTHING, part)
        return results


def passed_on(result: torch.Tensor) -> torch.Tensor:
    """The same tensor: what another operation has made already."""
    return result


@dataclass(frozen=True, eq=False)
class _Layers:
    """The calls of a perceptron, in graph order."""

    tokens: int  # rows of its hidden tensors
    features: int  # columns of its hidden tensors
    hidden: tuple[Node, ...]  # the calls that make one
    results: dict[Node, ResultKind]  # the calls that make something else of one, and what
    backward: frozenset[Node]  # those of both that belong to the backward pass
    first_backward: Node | None  # first call of the first operation of those; None if there is none

    @property
    def calls(self) -> tuple[Node, ...]:
        """All of them."""
        return *self.hidden, *self.results

    @property
    def gradients(self) -> tuple[Node, ...]:
        """The results of the backward pass."""
        return tuple(call for call in self.results if call in self.backward)

    def hidden_for(self, results: Iterable[Node]) -> list[Node]:
        """The calls that make hidden tensors on which results depend, in graph order."""
        needed = {made_by(node) for result in results for node in result.all_input_nodes}
        for call in reversed(self.hidden):
            if call in needed:
                needed.update(map(made_by, call.all_input_nodes))
        return [call for call in self.hidden if call in needed]


def _factors_of(product: Node) -> tuple[Node, Node, Node | None]:
    """Both factors of a product, and what is added."""
    if product.target is aten.addmm.default:
        added, first, second = product.args
        return first, second, added  # type: ignore[return-value]
    return *product.args, None  # type: ignore[return-value]


def _find_layers(scene: Surroundings) -> dict[Node, _Layers]:
    """The perceptrons of a graph, by each of their calls; no call belongs to two."""
    found: dict[Node, _Layers] = {}
    places = {draft: place for place, draft in enumerate(scene.found.operations)}
    for draft in places:
        for call in draft.calls:
            if call.target in PRODUCTS and not draft.backward and call not in found:
                layers = _layers_from(scene, call, places)
                if layers is not None and found.keys().isdisjoint(layers.calls):
                    found |= dict.fromkeys(layers.calls, layers)
    return found


def _layers_from(scene: Surroundings, start: Node, places: dict[OperationDraft, int]) -> _Layers | None:
    """The perceptron with a product as a hidden tensor, or None where it makes none."""
    hidden, results, waiting = {start}, set(), [start]
    while waiting:
        node = waiting.pop()
        if node.target not in PRODUCTS:
            sources = {made_by(source) for source in _tensors(node)}
            waiting += sources - hidden
            hidden |= sources
        for reader in readers_of(node):
            if not _is_entrywise(reader):
                results.add(reader)
            elif reader not in hidden:
                hidden.add(reader)
                waiting.append(reader)
        if len(hidden) > MOST_HIDDEN or not all(_is_hidden(scene, start, node) for node in hidden):
            return None
    kinds: dict[Node, ResultKind] = {}
    for call in results:
        kind = _kind_of(scene, call, hidden, scene.fake(start).shape)
        if kind is None:
            return None
        kinds[call] = kind
    if not all(hidden.issuperset(scene.caller[node].calls) for node in hidden):
        return None
    calls = sorted((*hidden, *results), key=scene.found.order.__getitem__)
    backward = [call for call in calls if scene.caller[call].backward]
    if len(hidden) == 1 or len(backward) == len(calls):
        return None
    tokens, features = scene.fake(start).shape
    return _Layers(
        tokens,
        features,
        tuple(call for call in calls if call in hidden),
        {call: kinds[call] for call in calls if call in kinds},
        frozenset(backward),
        min(backward, key=lambda call: places[scene.caller[call]], default=None),
    )


def _is_entrywise(call: Node) -> bool:
    """Whether a call treats each entry of its arguments for itself, and always in the same way."""
    tags = getattr(call.target, "tags", ())
    drawn = torch.Tag.nondeterministic_seeded in tags
    return call.target is aten._to_copy.default or (torch.Tag.pointwise in tags and not drawn)


def _tensors(call: Node) -> list[Node]:
    """Every tensor among the arguments of a call."""
    nodes: list[Node] = []
    map_arg((call.args, call.kwargs), nodes.append)
    return nodes


def _is_hidden(scene: Surroundings, start: Node, node: Node) -> bool:
    """Whether a call makes a hidden tensor, as large as that of ``start``, from what is kept or hidden."""
    if node not in scene.caller or scene.found.of_node[node].persistent:
        return False
    whole, fake = scene.fake(start), scene.fake(node)
    if not isinstance(fake, torch.Tensor) or fake.numel() != whole.numel() or fake.shape[-1] != whole.shape[-1]:
        return False
    if node.target in PRODUCTS:
        first, second, added = _factors_of(node)
        row = added is None or (scene.is_kept(added) and scene.fake(added).shape == whole.shape[1:])
        smaller = scene.fake(first).shape[1] < whole.shape[1]
        kept = scene.is_kept(first) and scene.is_kept(second)
        return fake.shape == whole.shape and smaller and row and kept and not node.kwargs
    return _is_entrywise(node) and all(_shows_all(scene, arg, whole) for arg in _tensors(node))


def _shows_all(scene: Surroundings, node: Node, whole: torch.Tensor) -> bool:
    """Whether a view shows a hidden tensor with its features in the last dimension."""
    fake = scene.fake(node)
    return turns(node) == 0 and fake.numel() == whole.numel() and fake.shape[-1] == whole.shape[-1]


def _kind_of(scene: Surroundings, call: Node, hidden: set[Node], shape: torch.Size) -> ResultKind | None:
    """What a call makes of a hidden tensor of this shape, or None where it cannot be made of parts."""
    if call not in scene.caller or call.kwargs:
        return None
    if call.target is SUM:
        source, dimensions, keeps = (*call.args, False)[:3]
        return "bias" if scene.fake(source).shape == shape and dimensions == [0] and keeps is True else None  # type: ignore[arg-type]
    if call.target not in PRODUCTS:
        return None
    first, second, added = _factors_of(call)
    ours = [made_by(factor) in hidden for factor in (first, second)]
    if all(ours) or not scene.is_kept(second if ours[0] else first):
        return None
    if added is not None:
        row = ours[0] and scene.is_kept(added) and scene.fake(added).dim() == 1
        return "tokens" if row and turns(first) == 0 and scene.fake(first).shape == shape else None
    if not ours[0]:
        return "turned weight" if turns(second) == 0 and scene.fake(second).shape == shape else None
    if turns(first) == 1:
        return "weight" if scene.fake(first).shape == shape[::-1] else None
    return "tokens" if turns(first) == 0 and scene.fake(first).shape == shape else None
