"""Attention by other kernels than the one that PyTorch chose, or by backward passes that run its forward pass again.

The kernels differ in what the forward pass leaves for the backward pass: logarithms of sums of exponentials, one a row
and in a layout of their own, or with "math" the probabilities. A backward pass must read what the forward pass of its
own kind left, or make it again.

With scores s = scale q k^T + mask and p = softmax(s), the output is p v, and from its gradient g

    dv = p^T g,   ds = p (g v^T - rowsum(p (g v^T))),   dq = scale ds k,   dk = scale ds^T q.

Dropout is in none of them here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, equal_on_cpu, on_cpu, picked, picks, reordered
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Strides = Sequence[int] | None
FORWARD = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: "cpu",
    aten._scaled_dot_product_flash_attention.default: "flash",
    aten._scaled_dot_product_efficient_attention.default: "efficient",
    aten._scaled_dot_product_cudnn_attention.default: "cudnn",
}
BACKWARD = {
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: "cpu",
    aten._scaled_dot_product_flash_attention_backward.default: "flash",
    aten._scaled_dot_product_efficient_attention_backward.default: "efficient",
    aten._scaled_dot_product_cudnn_attention_backward.default: "cudnn",
}
TITLES = {"cpu": "flash", "cudnn": "cuDNN"}  # where a kind has another name for people
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Attention:
    """A call of attention, forward or backward, whatever the kernel."""

    kind: str  # of its kernel, as `attention_by` has it
    query: Node
    key: Node
    value: Node
    setting: tuple[Any, ...]  # mask, whether it is causal, and scale


def recomputed(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients from query, key and value alone; output and sums of the forward pass are found again."""
    call = _attention(site, BACKWARD)
    if call is not None:
        tolerance = equal_on_cpu(site.fake(call.query))
        yield _recomputed(site, call, call.kind, "attention", "recomputed", tolerance)


def forward(site: Site) -> Iterator[CapturedImplementation]:
    """Output and sums, or probabilities, by each other kernel."""
    call, output = _attention(site, FORWARD), picked(site.call, 0)
    if call is None or output is None:
        return
    for kind in _others(site, call):
        saved = _saved(site, site.call, call, kind)
        arguments = kind, call.query, call.key, call.value, *call.setting, list(site.fake(output).stride())
        steps = (
            step(site.call, attention_by, *arguments),
            step(output, operator.getitem, site.call, 0),
            step(saved, operator.getitem, site.call, 1),
        )
        room = _room(site, call, kind)
        yield CapturedImplementation(
            "algorithms", f"by {_title(kind)}", site.call, steps, reordered(site.fake(output)), workspace=room
        )


def backward(site: Site) -> Iterator[CapturedImplementation]:
    """The gradients by each other kernel: from what its forward pass left, or with that run again."""
    call = _attention(site, BACKWARD)
    output = _named(site.call).get("out")
    if call is None or not isinstance(output, Node) or output.target is not operator.getitem:
        return
    earlier: Any = output.args[0]
    if earlier.target not in FORWARD or earlier not in site.scene.caller or not site.is_kept(output):
        return
    tolerance = reordered(site.fake(call.query))
    for kind in _others(site, call):
        saved = _saved(site, earlier, call, kind)
        read = None if kind == "math" else output
        given = kind, site.args[0], call.query, call.key, call.value, read, saved, *call.setting, _strides(site)
        steps = (step(site.call, attention_gradient_by, *given), *picks(site))
        room = _room(site, call, kind)
        yield CapturedImplementation("algorithms", f"by {_title(kind)}", site.call, steps, tolerance, workspace=room)
        way = f"by {_title(kind)}, recomputed"
        yield _recomputed(site, call, kind, "algorithms", way, tolerance, again=(earlier,))


def _recomputed(
    site: Site, attention: Attention, kind: str, of: str, name: str, tolerance: float, again: tuple[Node, ...] = ()
) -> CapturedImplementation:
    given = kind, site.args[0], attention.query, attention.key, attention.value, *attention.setting, _strides(site)
    steps = (step(site.call, attention_gradient_recomputed, *given), *picks(site))
    room = _room(site, attention, kind)
    arithmetic = 2.0 if of == "attention" else 1.0  # the forward pass once more
    return CapturedImplementation(
        of, name, site.call, steps, tolerance, launches=2, again=again, workspace=room, arithmetic=arithmetic
    )


def _attention(site: Site, kinds: dict[Any, str]) -> Attention | None:
    """What the call computes, if it drops nothing and what it reads can be read."""
    named = _named(site.call)
    query, key, value = (named[name] for name in ("query", "key", "value"))
    mask = named.get("attn_mask", named.get("attn_bias"))
    if named["dropout_p"] or not site.is_kept(query, key, value):
        return None
    q, k, v = map(site.fake, (query, key, value))
    if q.dim() != 4 or q.shape[:2] != k.shape[:2] or k.shape != v.shape or (mask is not None and not on_cpu(q)):
        return None
    return Attention(kinds[site.call.target], query, key, value, (mask, named["is_causal"], named["scale"]))


def _named(call: Node) -> dict[str, Any]:
    """The arguments of a call by the names that its operator gives them, defaults included."""
    arguments: dict[str, Any] = {}
    for place, argument in enumerate(call.target._schema.arguments):  # type: ignore[union-attr]
        given = call.args[place] if place < len(call.args) else call.kwargs.get(argument.name, argument.default_value)
        arguments[argument.name] = given
    return arguments


def _others(site: Site, attention: Attention) -> list[str]:
    """The kinds of kernels, other than that of the call, that take such tensors and are switched on."""
    fake = site.fake(attention.query)
    switches = torch.backends.cuda
    width, half = fake.shape[3], fake.dtype in HALF
    kinds = {"math": switches.math_sdp_enabled()}
    if on_cpu(fake):
        mask = attention.setting[0]
        kinds["math"] &= mask is None or site.fake(mask).dtype == fake.dtype
    else:
        even = width % (8 if half else 4) == 0
        kinds["flash"] = half and even and width <= 256 and switches.flash_sdp_enabled()
        kinds["efficient"] = fake.dtype in (*HALF, torch.float32) and even and switches.mem_efficient_sdp_enabled()
        kinds["cudnn"] = half and even and width <= 128 and switches.cudnn_sdp_enabled()
    return [kind for kind, fits in kinds.items() if fits and kind != attention.kind]


def _saved(site: Site, call: Node, attention: Attention, kind: str) -> Node:
    """The node of what the forward pass by a kind leaves for its backward pass, made once."""
    scene = site.scene
    if (kind, call) not in scene.made:
        query, key = scene.fake(attention.query), scene.fake(attention.key)
        if kind == "math":
            fake = query.new_empty((*query.shape[:3], key.shape[2]))
        else:
            given: Any = map_arg((attention.query, attention.key, attention.value, *attention.setting), scene.fake)
            with query.fake_mode:
                fake = attention_by(kind, *given)[1]
        label = "probabilities" if kind == "math" else f"sums of {_title(kind)}"
        after = picked(call, 0) or call
        scene.made[kind, call] = scene.add_value(after, operator.getitem, (call, 1), fake, label)
    return scene.made[kind, call]


def _strides(site: Site) -> list[list[int]]:
    """Strides of the three gradients, as the rest of the graph expects them."""
    results: Any = site.fake(site.call)
    return [list(results[place].stride()) for place in range(3)]


def _room(site: Site, attention: Attention, kind: str) -> int:
    """Bytes beside the results as far as shapes tell: with "math", scores and probabilities of a sample."""
    if kind != "math":
        return 0
    query, key = site.fake(attention.query), site.fake(attention.key)
    return 2 * query.shape[1] * query.shape[2] * key.shape[2] * max(4, query.element_size())


def _title(kind: str) -> str:
    return TITLES.get(kind, kind)


def attention_by(
    kind: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Strides = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and what the backward pass of the same kind reads: sums, or with "math" probabilities.

    Kinds are "cpu" (flash attention there), "flash", "efficient", "cudnn" and "math". The query is (batch, heads,
    length, width), key and value (batch, heads, other length, width). A mask is added to the scores, for "cpu" and
    "math" only; a scale of None is 1 / sqrt(width). ``strides`` are those that the output shall have, None those of the
    kernel.
    """
    results: tuple[torch.Tensor, torch.Tensor]
    if kind == "math":
        results = _math(query, key, value, mask, causal, scale)
    elif kind == "cpu":
        results = aten._scaled_dot_product_flash_attention_for_cpu.default(
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )
    elif kind == "flash":
        results = aten._scaled_dot_product_flash_attention.default(query, key, value, 0.0, causal, scale=scale)[:2]
    elif kind == "efficient":
        results = aten._scaled_dot_product_efficient_attention.default(
            query, key, value, None, True, 0.0, causal, scale=scale
        )[:2]
    elif kind == "cudnn":
        results = aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, None, True, 0.0, causal, False, scale=scale
        )[:2]
    else:
        raise ExecutionError(f"there is no attention of the kind {kind!r}; take cpu, flash, efficient, cudnn or math")
    output, saved = results
    return _laid_out(output, strides), saved


def attention_gradient_by(
    kind: str,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor | None,
    saved: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Sequence[Strides] = (None, None, None),
) -> Gradients:
    """Gradients of query, key and value from what `attention_by` of the same kind left, ``saved``.

    The output of the forward pass is None for "math", which does not read it; ``strides`` are those of the gradients.
    """
    given, setting = (gradient, query, key, value), {"scale": scale}
    if kind == "math":
        gradients = _math_gradient(*given, saved, scale)
    elif kind == "cpu":
        gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
            *given, output, saved, 0.0, causal, attn_mask=mask, **setting
        )
    else:
        lengths = None, None, query.shape[2], key.shape[2]
        no_seed = torch.zeros((), dtype=torch.int64, device=query.device)  # of random numbers that nobody draws
        if kind == "flash":
            gradients = aten._scaled_dot_product_flash_attention_backward.default(
                *given, output, saved, *lengths, 0.0, causal, no_seed, no_seed, **setting
            )
        elif kind == "efficient":
            gradients = aten._scaled_dot_product_efficient_attention_backward.default(
                *given, None, output, saved, no_seed, no_seed, 0.0, [True, True, True, False], causal, **setting
            )[:3]
        else:
            gradients = aten._scaled_dot_product_cudnn_attention_backward.default(
                *given, output, saved, no_seed, no_seed, None, *lengths, 0.0, causal, **setting
            )
    dq, dk, dv = map(_laid_out, gradients, strides)
    return dq, dk, dv


def attention_gradient_recomputed(
    kind: str,
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
    strides: Sequence[Strides] = (None, None, None),
) -> Gradients:
    """Gradients of query, key and value by one kind, with its forward pass run once more; it keeps nothing.

    Bit-equal on the CPU, of the kind that the forward pass was.
    """
    output, saved = attention_by(kind, query, key, value, mask, causal, scale)
    return attention_gradient_by(kind, gradient, query, key, value, output, saved, mask, causal, scale, strides)


def _laid_out(tensor: torch.Tensor, strides: Strides) -> torch.Tensor:
    if strides is None or tensor.stride() == tuple(strides):
        return tensor
    return tensor.new_empty_strided(tuple(tensor.shape), tuple(strides)).copy_(tensor)


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and probabilities, a sample at a time; in half precision the products are added up in float32."""
    factor = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    rows, columns = query.shape[2], key.shape[2]
    saved = query.new_empty((*query.shape[:3], columns))
    output = query.new_empty((*query.shape[:2], rows, value.shape[3]))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    unseen = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu_(1) if causal else None
    shared = None if mask is None else mask.expand(*saved.shape)
    for sample in range(len(query)):
        scores = torch.matmul(query[sample].to(wide) * factor, key[sample].to(wide).transpose(1, 2))
        if shared is not None:
            scores += shared[sample]
        if unseen is not None:
            scores.masked_fill_(unseen, -torch.inf)
        probabilities = aten._safe_softmax.default(scores, -1)
        del scores
        saved[sample] = probabilities
        output[sample] = torch.matmul(probabilities, value[sample].to(wide))
        del probabilities
    return output, saved


def _math_gradient(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    saved: torch.Tensor,
    scale: float | None,
) -> Gradients:
    """The equations above, a sample at a time."""
    factor = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    gradients = tuple(tensor.new_empty(tuple(tensor.shape)) for tensor in (query, key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    for sample in range(len(query)):
        g, q, k, v, p = (tensor[sample].to(wide) for tensor in (gradient, query, key, value, saved))
        gradients[2][sample] = torch.matmul(p.transpose(1, 2), g)
        slope = aten._softmax_backward_data.default(torch.matmul(g, v.transpose(1, 2)), p, -1, wide)
        del g, v, p
        gradients[0][sample] = torch.matmul(slope, k) * factor
        gradients[1][sample] = torch.matmul(slope.transpose(1, 2), q) * factor
        del slope
    return gradients[0], gradients[1], gradients[2]
