"""Attention by other kernels than the one that PyTorch chose, and backward passes that run the forward pass again."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.alternatives.exactness import equal_on_cpu, on_cpu, reordered
from remat_explorer.capture.alternatives.kernels import attention as kernels
from remat_explorer.capture.alternatives.site import Site, picked, picks
from remat_explorer.capture.captured_program import CapturedImplementation, step

aten = torch.ops.aten
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
    """A call of attention, forward or backward, whatever the kernel.

    Attributes:
        kind: of its kernel, as `kernels.attention_by` has it.
        query, key, value: what the forward pass reads.
        setting: mask, whether it is causal, and scale.
    """

    kind: str
    query: Node
    key: Node
    value: Node
    setting: tuple[Any, ...]


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
            step(site.call, kernels.attention_by, *arguments),
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
        steps = (step(site.call, kernels.attention_gradient_by, *given), *picks(site))
        room = _room(site, call, kind)
        yield CapturedImplementation("algorithms", f"by {_title(kind)}", site.call, steps, tolerance, workspace=room)
        way = f"by {_title(kind)}, recomputed"
        yield _recomputed(site, call, kind, "algorithms", way, tolerance, again=(earlier,))


def _recomputed(
    site: Site, attention: Attention, kind: str, of: str, name: str, tolerance: float, again: tuple[Node, ...] = ()
) -> CapturedImplementation:
    given = kind, site.args[0], attention.query, attention.key, attention.value, *attention.setting, _strides(site)
    steps = (step(site.call, kernels.attention_gradient_recomputed, *given), *picks(site))
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
                fake = kernels.attention_by(kind, *given)[1]
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
