"""What a call in place has written keeps its strides, where the functional call of a trace gives others.

A kernel computes whole vectors and single entries in two ways, whose last digits differ, and draws random numbers in
the order of memory. Both follow from strides, and so do sums. A tensor that is written to in place keeps its strides,
which may have gaps, as a gate of a recurrent cell that is a part of each row; what a functional graph has in its place
is a new tensor without gaps.

`LayoutRecorder` notes such calls in a trace; `keep_written_layouts` gives them the numbers of plain PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.capture.propagation import fake_mode, run_node

aten = torch.ops.aten
_VECTORS = 128  # bytes; a loop takes two vectors at a time, of 64 bytes at most
_UNDIVIDED = 32768  # entries, the grain of PyTorch's loops


def _layout_matters(gate: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether a sigmoid in ``strides`` has other numbers than one without gaps.

    It has not where each row is made of whole vectors, and the tensor is too small to be divided among threads.
    """
    whole = gate.shape[-1] * gate.element_size() % _VECTORS == 0 and gate.numel() <= _UNDIVIDED
    return not (whole and strides[-1] == 1)


def sigmoid_in_layout(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The sigmoid of ``x``, contiguous, with the numbers of one that is computed in ``strides``."""
    out = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    return aten.sigmoid.out(x, out=out).contiguous()


def sigmoid_in_layout_(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The same, written over ``x``."""
    out = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    return x.copy_(aten.sigmoid.out(x, out=out))


def written_in_layout(
    kernel: Callable[..., Any],
    strides: Sequence[int],
    result: Sequence[int],
    x: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """What ``kernel`` writes over a copy of ``x`` in ``strides``, in the strides ``result``."""
    out = torch.empty_strided(x.shape, tuple(strides), dtype=x.dtype, device=x.device).copy_(x)
    kernel(out, *args, **kwargs)
    made = torch.empty_strided(x.shape, tuple(result), dtype=x.dtype, device=x.device)
    return made.copy_(out)


_LAYOUT = "remat_explorer.layout"  # key of a node's meta: the call in place, and the strides of what it writes to
_ROUNDED_ONCE = "abs add div mul neg sigmoid_backward sign sqrt sub tanh_backward"
_CHOSEN = (
    "clamp clamp_max clamp_min hardtanh hardtanh_backward masked_fill maximum minimum relu threshold "
    "threshold_backward where"
)
_COMPARED = "bitwise_and bitwise_not bitwise_or eq ge gt isinf isnan le logical_and logical_not logical_or lt ne"
_MOVED = "_to_copy cat clone copy fill ones_like stack zeros_like"
_EXACT = frozenset(" ".join((_ROUNDED_ONCE, _CHOSEN, _COMPARED, _MOVED)).split())  # the same entries in every layout


class LayoutRecorder(TorchDispatchMode):
    """While entered, notes at each node of a trace that stands for a call in place which strides its tensor has."""

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tracing = get_proxy_mode() if isinstance(func, OpOverload) and _writes_to_first(func) else None
        if tracing is None or not args:
            return func(*args, **(kwargs or {}))
        nodes = tracing.tracer.graph.nodes
        last = next(iter(reversed(nodes)), None)
        result = func(*args, **(kwargs or {}))
        for node in reversed(nodes):
            if node is last:
                break
            if _stands_for(node, func) and _is_laid_out_otherwise(node.meta.get("val"), args[0]):
                node.meta[_LAYOUT] = func, args[0].stride()
                break
        return result


@cache
def _writes_to_first(func: OpOverload) -> bool:
    """Whether the first argument is written to."""
    first = next(iter(func._schema.arguments), None)
    return first is not None and first.alias_info is not None and first.alias_info.is_write


def _stands_for(node: Node, func: OpOverload) -> bool:
    if node.target is operator.getitem and node.args[1] == 0:  # of a call that writes to another argument, too
        node = node.args[0]  # type: ignore[assignment]
    packet = getattr(node.target, "overloadpacket", None)
    name = func.overloadpacket.__name__.removesuffix("_")
    return packet is not None and packet.__name__ in (name, f"{name}_functional")


def _is_laid_out_otherwise(made: Any, written: Any) -> bool:
    if not isinstance(made, torch.Tensor) or made.shape != written.shape or not made.numel():
        return False
    sides = zip(made.shape, made.stride(), written.stride(), strict=True)
    return any(size != 1 and mine != wanted for size, mine, wanted in sides)


def keep_written_layouts(module: GraphModule) -> None:
    """Let calls whose numbers follow from strides have those of plain PyTorch.

    What only has gaps stays without them in memory, and gets them for the calls that read it.
    """
    noted = [node for node in module.graph.nodes if _LAYOUT in node.meta]
    if not noted:
        return
    stale: set[Node] = set()
    for node in noted:
        kernel, strides = node.meta[_LAYOUT]
        if node.target is aten.sigmoid.default and _differs_in_gaps_alone(node):
            if _layout_matters(node.meta["val"], strides):
                node.target, node.args = sigmoid_in_layout, (node.args[0], list(strides))
        elif isinstance(node.target, OpOverload) and not _is_exact(node):
            node.args = (kernel, list(strides), list(node.meta["val"].stride()), *node.args)
            node.target = written_in_layout
    for node in noted:
        strides, gaps_alone = node.meta[_LAYOUT][1], _differs_in_gaps_alone(node)
        for user in list(node.users):
            if user.op == "output" or (gaps_alone and (user.target is sigmoid_in_layout or _is_exact(user))):
                continue
            with module.graph.inserting_before(user):
                made = module.graph.call_function(laid_out, (node, list(strides)))
            made.meta = {key: entry for key, entry in user.meta.items() if key not in ("desc", _LAYOUT)}
            user.replace_input_with(node, made)
            stale.add(made)
    _see_new_strides(module, stale)


def laid_out(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy of ``x`` in ``strides``."""
    return torch.empty_strided(x.shape, tuple(strides), dtype=x.dtype, device=x.device).copy_(x)


def _is_exact(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    scaled = node.kwargs.get("alpha", 1) != 1 or (len(node.args) > 2 and packet in (aten.add, aten.sub))
    return packet is not None and packet.__name__ in _EXACT and not scaled


def _differs_in_gaps_alone(node: Node) -> bool:
    """Whether dimensions of more than one entry follow each other, from slow to fast, as in what is written to."""
    made = node.meta["val"]
    long = [d for d in range(made.dim()) if made.shape[d] != 1]
    return sorted(long, key=lambda d: -made.stride()[d]) == sorted(long, key=lambda d: -node.meta[_LAYOUT][1][d])


def _see_new_strides(module: GraphModule, stale: set[Node]) -> None:
    """Give what follows from copies the strides that it has now."""
    with torch.no_grad(), fake_mode(module):
        known = {node: node.meta.get("val") for node in module.graph.nodes if node.op != "output"}
        for node in module.graph.nodes:
            if node.op != "call_function" or not (node in stale or stale & set(node.all_input_nodes)):
                continue
            before, after = known[node], run_node(node, known)
            if node in stale or _strides(before) != _strides(after):
                stale.add(node)
                node.meta["val"] = known[node] = after


def _strides(value: Any) -> list[tuple[int, ...]]:
    parts = value if isinstance(value, list | tuple) else [value]
    return [part.stride() for part in parts if isinstance(part, torch.Tensor)]
