"""Cross-entropy without the table of log probabilities, and with the product before it without the logits.

With logits z of a row, s = log sum exp z and class c: the loss is s - z_c, its gradient exp(z - s) less 1 at c.

Plain PyTorch makes the table of log probabilities, the loss from it, a table that is 0 but for one entry a row, and
from both tables the gradient of the logits. Instead: s of each row, the loss from it and the logits, nothing, and the
gradient from both. The third operation then has nothing to do.

Where a linear layer without bias makes logits z = x Wᵀ that nothing but a cross-entropy reads, its operations have
another implementation together: the product, a cast to the loss's type, the four of the loss, a cast back, and the two
products of the backward pass. The gradient of the logits, g (exp(x Wᵀ - s) - 1 at the class), is made for a chunk of
rows to multiply W, and for a chunk of classes to multiply x: three times in all, and logits, their logarithms, and
their gradient are left out. Those of 8,192 tokens and 128,256 classes take 4 GB each in float32.
Source: Wijmans et al., "Cut your losses in large-vocabulary language models", ICLR 2025.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, Surroundings, made_by, picks, readers_of, reordered
from remat_explorer.capture.implementations.chunks import CHUNK, chunks

aten = torch.ops.aten
MEAN, SUM = 1, 2  # how PyTorch numbers the reductions
KIND, NAME, TOLERANCE = "cross-entropy", "from log sum exp", 1e-5
DTYPES = (torch.float32, torch.float64)
PARTS = (8, 64)  # in which rows, or classes, are computed
WEIGHT = 10.0  # tolerance of weight gradients, relative to that of results: more is added up


@dataclass(frozen=True)
class Loss:
    """The four calls of a cross-entropy."""

    table: Node
    loss: Node
    slope: Node
    gradient: Node


def cross_entropy_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The implementation of whichever of the four calls this is."""
    calls = _loss_calls(site)
    if calls is None:
        return
    logits = calls.table.args[0]
    _, target, _, reduction, ignored = calls.loss.args
    sums = _sums_of(site, calls.table)
    if site.call is calls.table:
        yield CapturedImplementation(
            KIND, "log sum exp alone", site.call, (step(sums, log_sum_exp, logits),), TOLERANCE
        )
    elif site.call is calls.loss:
        arguments = logits, target, sums, reduction, ignored
        one = step(site.call, loss_from_log_sum_exp, *arguments)
        yield CapturedImplementation(KIND, NAME, site.call, (one, *picks(site)), TOLERANCE, launches=6)
    elif site.call is calls.slope:
        yield CapturedImplementation(KIND, "left out", site.call, (), TOLERANCE)
    else:
        gradient, *_, count = calls.slope.args
        arguments = gradient, logits, target, sums, count, reduction, ignored
        yield CapturedImplementation(
            KIND,
            NAME,
            site.call,
            (step(site.call, cross_entropy_gradient, *arguments),),
            TOLERANCE,
            over=logits,  # type: ignore[arg-type]
            steps_over=(step(site.call, cross_entropy_gradient_in_place, *arguments),),
            launches=6,
        )


def _loss_calls(site: Site) -> Loss | None:
    """The cross-entropy that a call belongs to, if nobody else reads its tables."""
    table = site.call if site.call.target is aten._log_softmax.default else site.args[1]
    if site.call.target is aten.nll_loss_forward.default:
        table = site.args[0]
    if table.target is not aten._log_softmax.default or table.args[1] not in (1, -1) or table.args[2]:
        return None
    by_target = {user.target: user for user in table.users}
    kinds = aten.nll_loss_forward.default, aten.nll_loss_backward.default, aten._log_softmax_backward_data.default
    if set(by_target) != set(kinds) or len(table.users) != 3:
        return None
    loss, slope, gradient = (by_target[kind] for kind in kinds)
    fake = site.fake(table)
    fits = (
        fake.dim() == 2
        and fake.dtype in DTYPES
        and loss.args[2] is None
        and loss.args[3] in (MEAN, SUM)
        and set(slope.users) == {gradient}
        and gradient.args[0] is slope
        and site.is_kept(table.args[0])
        and all(len(site.scene.caller[node].calls) == 1 for node in (table, loss, slope, gradient))
    )
    return Loss(table, loss, slope, gradient) if fits else None


def _sums_of(site: Site, table: Node) -> Node:
    """The node of log sum exp, made once."""
    made, key = site.scene.made, ("log sum exp", table)
    if key not in made:
        fake = site.fake(table)
        made[key] = site.scene.add_value(
            table, log_sum_exp, (table.args[0],), fake.new_empty(fake.shape[:1]), "log sum exp"
        )
    return made[key]


@dataclass(frozen=True)
class Head:
    """The calls of a product and its cross-entropy."""

    x: Node  # (rows, width)
    weight: Node  # (classes, width)
    loss: Loss
    product: Node  # the logits
    between: tuple[Node, ...]  # casts that pass logits on to the loss, and their gradient back
    of_input: Node | None  # of the backward pass, as of_weight; None where nothing asks for it
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
    sums = _sums_of(site, loss.table)
    _, target, _, reduction, ignored = loss.loss.args
    shared = head.x, head.weight, target, sums
    if site.call is loss.loss:
        one = step(site.call, loss_of_product, *shared, reduction, ignored)
        yield CapturedImplementation(
            KIND, "from the product's factors", site.call, (one, *picks(site)), near, launches=8
        )
        return
    gradient, *_, count = loss.slope.args
    given = gradient, *shared, count, reduction, ignored
    rows, classes = logits.shape
    for parts in PARTS:
        if site.call is loss.table:
            size, target_of = rows, log_sum_exp_of_product
            arguments, made = (head.x, head.weight, logits.dtype), sums
        else:
            by_rows = site.call is head.of_input
            size = rows if by_rows else classes
            target_of = input_gradient_of_product if by_rows else weight_gradient_of_product
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
    loss = _loss_calls(site)
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


def log_sum_exp(logits: torch.Tensor) -> torch.Tensor:
    """log sum exp of each row of logits, (rows, classes), a few rows at a time."""
    result = logits.new_empty(len(logits))
    for part in _rows(logits):
        torch.logsumexp(logits[part], 1, out=result[part])
    return result


def loss_from_log_sum_exp(
    logits: torch.Tensor, target: torch.Tensor, sums: torch.Tensor, reduction: int, ignored: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and number of rows that count, as `nll_loss_forward` gives them of log probabilities; no class weights.

    In float32 it differs by about 1e-7 of the largest logit. The logits are (rows, classes), ``target`` the class of
    each row, (rows,) int64, and ``sums`` what `log_sum_exp` gave. Rows of the class ``ignored`` do not count.
    """
    counted = target != ignored
    picked = logits.gather(1, target.where(counted, 0).unsqueeze(1)).squeeze(1)
    total = torch.where(counted, sums - picked, 0).sum()
    count = counted.sum().to(logits.dtype)
    return (total / count if reduction == MEAN else total), count


def cross_entropy_gradient(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
) -> torch.Tensor:
    """The gradient of the logits from ``count``, the number of rows that `loss_from_log_sum_exp` gave.

    In float32 it differs by about 1e-7 of the largest entry.
    """
    return _gradient(gradient, logits, target, sums, count, reduction, ignored, torch.empty_like(logits))


def cross_entropy_gradient_in_place(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
) -> torch.Tensor:
    """As `cross_entropy_gradient`, over ``logits``."""
    return _gradient(gradient, logits, target, sums, count, reduction, ignored, logits)


def _gradient(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    out: torch.Tensor,
) -> torch.Tensor:
    scale = gradient / count if reduction == MEAN else gradient
    for part in _rows(logits):
        torch.sub(logits[part], sums[part].unsqueeze(1), out=out[part])
        counted = target[part] != ignored
        index = target[part].where(counted, 0).unsqueeze(1)
        rows = out[part].exp_()
        rows.scatter_add_(1, index, rows.new_full((), -1).expand(index.shape))
        rows.mul_(scale)
        rows[~counted] = 0
    return out


def _rows(logits: torch.Tensor):
    return chunks(len(logits), max(1, CHUNK // max(1, logits.shape[1])))


def log_sum_exp_of_product(x: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype, rows: int) -> torch.Tensor:
    """log sum exp of each row of ``x @ weight.T``, ``rows`` at a time, from (rows, width) and (classes, width)."""
    result = x.new_empty(len(x), dtype=dtype)
    for part in chunks(len(x), rows):
        torch.logsumexp(torch.mm(x[part], weight.t()).to(dtype), 1, out=result[part])
    return result


def loss_of_product(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, sums: torch.Tensor, reduction: int, ignored: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and number of rows that count, as `loss_from_log_sum_exp` gives them of logits."""
    counted = target != ignored
    classes = weight.index_select(0, target.where(counted, 0))
    picked = (x.to(sums.dtype) * classes).sum(1).to(x.dtype)  # as rounded as a logit
    total = torch.where(counted, sums - picked, 0).sum()
    count = counted.sum().to(sums.dtype)
    return (total / count if reduction == MEAN else total), count


def input_gradient_of_product(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    rows: int,
) -> torch.Tensor:
    """The gradient of x, ``rows`` at a time, from ``count``, the number of rows that `loss_of_product` gave."""
    scale = _scale(gradient, target, count, reduction, ignored)
    result = x.new_empty(x.shape)
    for part in chunks(len(x), rows):
        slopes = torch.mm(x[part], weight.t()).to(sums.dtype).sub_(sums[part].unsqueeze(1)).exp_()
        index = target[part].where(target[part] != ignored, 0).unsqueeze(1)
        slopes.scatter_add_(1, index, slopes.new_full((), -1).expand(index.shape))
        torch.mm(slopes.mul_(scale[part].unsqueeze(1)).to(x.dtype), weight, out=result[part])
    return result


def weight_gradient_of_product(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    sums: torch.Tensor,
    count: torch.Tensor,
    reduction: int,
    ignored: int,
    classes: int,
) -> torch.Tensor:
    """The gradient of the weight, ``classes`` at a time; arguments as for `input_gradient_of_product`."""
    scale = _scale(gradient, target, count, reduction, ignored)
    result, places = weight.new_empty(weight.shape), torch.arange(len(x), device=x.device)
    for part in chunks(len(weight), classes):
        slopes = torch.mm(x, weight[part].t()).to(sums.dtype).sub_(sums.unsqueeze(1)).exp_()
        inside = (target >= part.start) & (target < part.start + slopes.shape[1])
        column = (target - part.start).where(inside, 0)
        slopes.index_put_((places, column), inside.to(slopes.dtype).neg(), accumulate=True)
        torch.mm(slopes.mul_(scale.unsqueeze(1)).to(x.dtype).t(), x, out=result[part])
    return result


def _scale(
    gradient: torch.Tensor, target: torch.Tensor, count: torch.Tensor, reduction: int, ignored: int
) -> torch.Tensor:
    """What each row's slopes are multiplied with: 0 for a row that does not count."""
    one = gradient / count if reduction == MEAN else gradient
    return torch.where(target != ignored, one, 0)
