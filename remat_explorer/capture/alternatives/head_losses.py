"""Cross-entropy with the product before it, so that the logits never exist as a whole.

Where a linear layer without bias makes logits that nothing but a cross-entropy reads, its operations have another
implementation together: the product, a cast to the loss's type, the four of the loss, a cast back, and the two products
of the backward pass. A few rows or classes are computed at a time, three times in all, and logits, their logarithms,
and their gradient are left out. Those of 8,192 tokens and 128,256 classes take 4 GB each in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.exactness import reordered
from remat_explorer.capture.alternatives.kernels import head_cross_entropy as kernels
from remat_explorer.capture.alternatives.losses import KIND, TOLERANCE, Loss, loss_calls, sums_of
from remat_explorer.capture.alternatives.site import Site, Surroundings, picks
from remat_explorer.capture.alternatives.views import made_by, readers_of
from remat_explorer.capture.captured_program import CapturedImplementation, step

aten = torch.ops.aten
PARTS = (8, 64)  # in which rows, or classes, are computed
WEIGHT = 10.0  # tolerance of weight gradients, relative to that of results: more is added up


@dataclass(frozen=True)
class Head:
    """The calls of a product and its cross-entropy.

    Attributes:
        x, weight: the factors, (rows, width) and (classes, width).
        loss: the four calls of the loss.
        product: the logits.
        between: what passes logits on to the loss, and their gradient back: casts.
        of_input, of_weight: the products of the backward pass; None where nothing asks for it.
    """

    x: Node
    weight: Node
    loss: Loss
    product: Node
    between: tuple[Node, ...]
    of_input: Node | None
    of_weight: Node | None


def head_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The implementations of whichever of these calls this is."""
    head = _heads(site.scene).get(site.call)
    if head is None:
        return
    loss, logits = head.loss, site.fake(head.loss.table)
    near = max(TOLERANCE, reordered(site.fake(head.x)))
    if site.call in (head.product, *head.between, loss.gradient):
        yield CapturedImplementation(KIND, "left out", site.call, (), near)
        return
    sums = sums_of(site, loss.table)
    _, target, _, reduction, ignored = loss.loss.args
    shared = head.x, head.weight, target, sums
    if site.call is loss.loss:
        one = step(site.call, kernels.loss_of_product, *shared, reduction, ignored)
        yield CapturedImplementation(
            KIND, "from the product's factors", site.call, (one, *picks(site)), near, launches=8
        )
        return
    gradient, *_, count = loss.slope.args
    given = gradient, *shared, count, reduction, ignored
    rows, classes = logits.shape
    for parts in PARTS:
        if site.call is loss.table:
            size, target_of = rows, kernels.log_sum_exp_of_product
            arguments, made = (head.x, head.weight, logits.dtype), sums
        else:
            by_rows = site.call is head.of_input
            size = rows if by_rows else classes
            target_of = kernels.input_gradient_of_product if by_rows else kernels.weight_gradient_of_product
            arguments, made = given, site.call
        if parts > size:
            return
        yield CapturedImplementation(
            KIND,
            f"with the product, in {parts} parts",
            site.call,
            (step(made, target_of, *arguments, -(-size // parts)),),
            near * (WEIGHT if site.call is head.of_weight else 1.0),
            launches=8 * parts,
            again=(head.product,),
            workspace=_chunk_bytes(site, head, parts),
            portion=1 / parts,
        )


def _chunk_bytes(site: Site, head: Head, parts: int) -> int:
    """Bytes of the logits of a part, in both types."""
    logits, product = site.fake(head.loss.table), site.fake(head.product)
    both = logits.element_size() + (product.element_size() if product.dtype != logits.dtype else 0)
    return -(-logits.numel() // parts) * both


def _heads(scene: Surroundings) -> dict[Node, Head]:
    """Every call that belongs to a product with a cross-entropy, found once."""
    if KIND not in scene.found_together:
        heads: dict[Node, Head] = {}
        for draft in scene.found.operations:
            for call in draft.calls:
                if call.target is aten._log_softmax.default:
                    head = _head_of(Site(scene, draft, call))
                    if head is not None:
                        loss = head.loss
                        own = (head.product, *head.between, loss.table, loss.loss, loss.gradient)
                        products = [call for call in (head.of_input, head.of_weight) if call is not None]
                        heads |= dict.fromkeys((*own, *products), head)
        scene.found_together[KIND] = heads
    return scene.found_together[KIND]


def _head_of(site: Site) -> Head | None:
    """The product before a table of log probabilities, if nobody else reads logits or their gradient."""
    loss = loss_calls(site)
    if loss is None:
        return None
    between: list[Node] = []
    product, reader = made_by(loss.table.args[0]), loss.table
    if product.target is aten._to_copy.default:
        between.append(product)
        product, reader = made_by(product.args[0]), product
    if product.target is not aten.mm.default or readers_of(product) != {reader}:
        return None
    if between and readers_of(between[0]) != {loss.table}:
        return None
    x, turned = product.args
    weight = turned.args[0] if isinstance(turned, Node) and turned.target is aten.t.default else None
    if not isinstance(x, Node) or not isinstance(weight, Node) or not site.is_kept(x, weight):
        return None
    slopes, readers = loss.gradient, readers_of(loss.gradient)
    if len(readers) == 1 and (back := next(iter(readers))).target is aten._to_copy.default:
        between.append(back)
        slopes, readers = back, readers_of(back)
    products: dict[str, Node] = {}
    for call in readers:
        kind = _product_of(site, call, slopes, x, weight)
        if kind is None or kind in products:
            return None
        products[kind] = call
    drafts = [site.scene.caller.get(node) for node in (product, *between, *products.values())]
    if not products or any(draft is None or len(draft.calls) != 1 for draft in drafts):
        return None
    return Head(x, weight, loss, product, tuple(between), products.get("input"), products.get("weight"))


def _product_of(site: Site, call: Node, slopes: Node, x: Node, weight: Node) -> str | None:
    """Whether a call is the product of the gradient of logits for the "input" or the "weight", or neither."""
    if call.target is not aten.mm.default:
        return None
    first, second = call.args
    if not isinstance(first, Node) or not isinstance(second, Node) or made_by(first) is not slopes:
        return None
    kind, other = ("weight", x) if first.target is aten.t.default else ("input", weight)
    same = made_by(second) is made_by(other) and site.fake(second).stride() == site.fake(other).stride()
    return kind if same and site.fake(second).shape == site.fake(other).shape else None
