"""Where a captured graph has a multilayer perceptron: its hidden tensors, and the results that are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.alternatives.site import Surroundings
from remat_explorer.capture.alternatives.views import made_by, readers_of, turns
from remat_explorer.capture.storages import OperationDraft

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default)
SUM = aten.sum.dim_IntList
MOST_HIDDEN = 64  # tensors; where there are more, it is something else

ResultKind = Literal["tokens", "weight", "turned weight", "bias"]


@dataclass(frozen=True, eq=False)
class Layers:
    """The calls of a perceptron.

    Attributes:
        tokens, features: rows and columns of its hidden tensors.
        hidden: the calls that make one, in graph order.
        results: the calls that make something else of one, in graph order, and what: a product with ``weight``, the
            gradient of a weight with the hidden features in its rows or, ``turned``, in its columns, or of a bias.
        backward: those of both that belong to the backward pass.
        first_backward: the first call of the first operation of those; None if there is none.
    """

    tokens: int
    features: int
    hidden: tuple[Node, ...]
    results: dict[Node, ResultKind]
    backward: frozenset[Node]
    first_backward: Node | None

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


def factors_of(product: Node) -> tuple[Node, Node, Node | None]:
    """Both factors of a product, and what is added."""
    if product.target is aten.addmm.default:
        added, first, second = product.args
        return first, second, added  # type: ignore[return-value]
    return *product.args, None  # type: ignore[return-value]


def find_layers(scene: Surroundings) -> dict[Node, Layers]:
    """The perceptrons of a graph, by each of their calls; no call belongs to two."""
    found: dict[Node, Layers] = {}
    places = {draft: place for place, draft in enumerate(scene.found.operations)}
    for draft in places:
        for call in draft.calls:
            if call.target in PRODUCTS and not draft.backward and call not in found:
                layers = _layers_from(scene, call, places)
                if layers is not None and found.keys().isdisjoint(layers.calls):
                    found |= dict.fromkeys(layers.calls, layers)
    return found


def _layers_from(scene: Surroundings, start: Node, places: dict[OperationDraft, int]) -> Layers | None:
    """The perceptron with a product as a hidden tensor, or None where it makes none."""
    hidden, results, waiting = {start}, set(), [start]
    while waiting:
        node = waiting.pop()
        if node.target not in PRODUCTS:
            sources = {made_by(source) for source in _tensors(node)}
            waiting += sources - hidden
            hidden |= sources
        for reader in readers_of(node):
            if not is_entrywise(reader):
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
    return Layers(
        tokens,
        features,
        tuple(call for call in calls if call in hidden),
        {call: kinds[call] for call in calls if call in kinds},
        frozenset(backward),
        min(backward, key=lambda call: places[scene.caller[call]], default=None),
    )


def is_entrywise(call: Node) -> bool:
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
        first, second, added = factors_of(node)
        row = added is None or (scene.is_kept(added) and scene.fake(added).shape == whole.shape[1:])
        smaller = scene.fake(first).shape[1] < whole.shape[1]
        kept = scene.is_kept(first) and scene.is_kept(second)
        return fake.shape == whole.shape and smaller and row and kept and not node.kwargs
    return is_entrywise(node) and all(_shows_all(scene, arg, whole) for arg in _tensors(node))


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
    first, second, added = factors_of(call)
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
